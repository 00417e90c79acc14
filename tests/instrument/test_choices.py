"""Registers for hooks of one kind at many points: valid at each, and as cheap as each point allows."""

from __future__ import annotations

import random

import pytest
from live_points import points_of
from luthier.isa.registers import AGPRS, M0, SCC, SGPRS, UNIT_LIMIT, VCC, VGPRS, mask_of
from luthier.isa.targets import TargetId
from luthier.lifting import Live
from luthier.patch.registers.allocation import bind
from luthier.patch.registers.binding import SPILLING, Binding, RegisterBudget, Slice
from luthier.patch.registers.choices import Choices, least_vectors
from luthier.payload import Argument, ConstantArgument, RegisterArgument, Template
from luthier.payload.cache import template_for

SOURCE = """
__device__ uint64_t total;
__managed__ uint32_t value;
LUTHIER_HOOK_ANNOTATE adds(bool big) { luthier::sAtomicAdd<uint64_t>(&total, big ? 1000 : 1); }
LUTHIER_HOOK_ANNOTATE lanes(uint32_t x, uint64_t y) { if (x > 5) atomicAdd(&value, x + (uint32_t)y); }
LUTHIER_HOOK_ANNOTATE changes() {
  luthier::writeReg<uint32_t>(luthier::VGPR4, luthier::readReg<uint32_t>(luthier::VGPR5) * 3);
}
extern "C" __device__ uint32_t write_lane(uint32_t, uint32_t, uint32_t) __asm("llvm.amdgcn.writelane.i32");
LUTHIER_HOOK_ANNOTATE other_lane(uint32_t x) { value = write_lane(7, x & 1, x); }
LUTHIER_HOOK_ANNOTATE product(uint64_t x, uint64_t y) { total = x * y / (x - y) + 1; }
"""
TARGETS = ["gfx90a", "gfx1030", "gfx1100", "gfx1201"]
HOOKS: dict[str, tuple[Argument, ...]] = {
    "adds": (ConstantArgument("true"),),
    "lanes": (RegisterArgument(uniform=False), RegisterArgument(uniform=True)),
    "changes": (),
    "other_lane": (RegisterArgument(uniform=False),),
    "product": (RegisterArgument(uniform=True), RegisterArgument(uniform=False)),
}
MOST_SGPRS, MOST_VGPRS = 40, 24
"""Registers of the kernels here: few, so that points often lack some."""


@pytest.fixture(scope="module")
def module(make_module):
    return make_module(SOURCE, *TARGETS)


def some_lives(count: int, rng: random.Random) -> list[Live]:
    """Random ones, many of them much alike, as neighbouring points are."""
    scalars = [*range(MOST_SGPRS), *VCC, M0, SCC]
    vectors = list(VGPRS[:MOST_VGPRS])
    lives: list[Live] = []
    while len(lives) < count:
        share = rng.choice((0.2, 0.6, 0.9, 1.0))
        scalar = mask_of(unit for unit in scalars if rng.random() < rng.choice((share, 0.5)))
        active = mask_of(unit for unit in vectors if rng.random() < share)
        inactive = mask_of(unit for unit in vectors if rng.random() < share / 3)
        for _ in range(rng.randrange(1, 5)):
            scalar ^= 1 << rng.choice(scalars)
            active ^= 1 << rng.choice(vectors)
            lives.append(Live(scalar | active, scalar | inactive))
    return lives[:count]


def fits(binding: Binding, template: Template, sources: tuple[int, ...], live: Live, wave_size: int) -> bool:
    """Return whether a payload with this binding keeps what is live and restores what it should, unit by unit."""
    lanes = live.all_bits if template.writes_inactive_lanes else live.active_bits
    kept = set(binding.fixed)
    back = {*binding.spilled_sgprs, *binding.spilled, *binding.spilled_whole}
    for unit in (unit for unit in range(UNIT_LIMIT) if binding.temporaries >> unit & 1):
        if lanes >> unit & 1 and unit not in back:
            return False
    if binding.lane_vgpr is not None and binding.lane_vgpr not in back and live.all_bits >> binding.lane_vgpr & 1:
        return False
    for units in ((SCC,), VCC, (M0,)) if wave_size == 64 else ((SCC,), VCC[:1], VCC[1:], (M0,)):
        lost = any(template.clobber_mask >> unit & 1 for unit in units)
        wanted = any(lanes >> unit & 1 and not template.destinations >> unit & 1 for unit in units)
        given = any(unit in sources for unit in units)
        if (units[0] in kept) != ((lost and wanted) or (given and (lost or units == (SCC,)))):
            return False
    return not (
        (live.active_bits >> SCC & 1 and (binding.spilled_whole or binding.agpr_slots) and binding.kept_scc is None)
        or (live.all_bits >> M0 & 1 and binding.lds is not None and binding.kept_m0 is None)
    )


@pytest.mark.rows(2)
@pytest.mark.parametrize("stretch", [60, 4096])
@pytest.mark.parametrize("called", [False, True])
@pytest.mark.parametrize("place", ["nowhere", "AGPRs", "LDS", "memory"])
@pytest.mark.parametrize("hook", HOOKS)
@pytest.mark.parametrize("target", TARGETS)
def test_each_point_gets_what_fits_and_is_as_cheap_as_can_be(
    module, monkeypatch: pytest.MonkeyPatch, target, hook, place, called, stretch
) -> None:
    """In one stretch of points, and in several, where bindings of earlier ones are tried again."""
    monkeypatch.setattr("luthier.patch.registers.choices._STRETCH", stretch)
    parsed = TargetId.parse(target)
    wave_size = parsed.target.default_wave_size
    template = template_for(module.hook(hook), HOOKS[hook], parsed, wave_size)
    if called and not template.hands_in:
        pytest.skip("it is never called")
    rng = random.Random(f"{target} {hook} {place} {called}")
    budget = RegisterBudget(
        MOST_SGPRS,
        MOST_VGPRS,
        MOST_SGPRS,
        MOST_VGPRS + 2,
        spill=place == "memory",
        agpr_slots=mask_of(AGPRS[:6]) if place == "AGPRs" else 0,
        lds=Slice(SGPRS[7], 256, 5) if place == "LDS" else None,
    )
    units = {True: iter(SGPRS[8:]), False: iter(VGPRS[3:])}
    sources = tuple(next(units[one.unit in SGPRS]) for one in template.inputs)
    lives = some_lives(180, rng)
    choices = Choices(template, () if called else sources, budget, wave_size, called=called)
    chosen = choices.choose(points_of(lives))
    assert len(chosen) == len(lives)
    assert len(set(chosen)) > 3 or hook == "changes"  # which needs next to nothing; else nothing was tried
    for number, live in zip(chosen, lives, strict=True):
        alone = bind(template, () if called else sources, live, budget, wave_size, called=called)
        assert (number < 0) == (alone is None)
        if alone is None:
            continue
        binding = choices.made[number]
        assert fits(binding, template, () if called else sources, live, wave_size)
        assert (binding.cost == 0) == (alone.cost == 0)
        assert (binding.cost < SPILLING) == (alone.cost < SPILLING)
    assert len(choices.made) < 0.9 * len(lives)
    dead = points_of(lives).dead_among(budget.vectors, in_all_lanes=False)
    for many, number in zip(dead.tolist(), chosen, strict=True):
        assert budget.spills or number < 0 or many >= least_vectors(template)
    strict = Choices(template, sources, budget, wave_size, all_or_none=True)
    alone = [bind(template, sources, live, budget, wave_size) for live in lives]
    assert (-1 in strict.choose(points_of(lives))) == (None in alone)
