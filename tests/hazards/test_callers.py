"""Functions with several callers: one caller's instructions make no hazard for another (`called_programs`)."""

from __future__ import annotations

import random

import pytest
from called_programs import Draw, Program, is_a_way
from luthier.hazards.wait_states import check_hazards

WAITS = ("s_wait_alu depctr_sa_sdst(0)", "s_wait_alu depctr_va_sdst(0)", "s_wait_alu depctr_va_vcc(0)")


def scalars() -> Draw:
    """Instructions that read SGPRs, overwrite, read again, and sometimes wait."""
    some = [f"s{number}" for number in range(2, 10)] + ["vcc_lo", "vcc_hi"]

    def draw(chosen: random.Random) -> list[str]:
        a, b, c = chosen.choices(some, k=3)
        plain = [
            f"v_mov_b32 v3, {a}",
            f"v_mov_b32 v4, {b}",
            f"s_mov_b32 {a}, {b}",
            f"s_mov_b32 {c}, 1",
            f"v_readfirstlane_b32 {a}, v1",
            f"s_cmp_eq_u32 {b}, 0",
        ]
        if chosen.random() > 0.12:
            return [chosen.choice(plain)]
        return chosen.choice([[chosen.choice(WAITS)], ["ds_nop"] * 4, ["s_load_b32 s12, s[0:1], 0x0"]])

    return draw


def near(*lines: str) -> Draw:
    """Instructions that must be so far apart, and wait states; ``{a}`` and ``{b}`` are numbers of registers."""

    def draw(chosen: random.Random) -> list[str]:
        if chosen.random() < 0.1:
            return [f"s_nop {chosen.randrange(3)}"]
        a, b = (2 * chosen.randrange(4, 6) for _ in range(2))
        return [chosen.choice(lines).format(a=a, b=b)]

    return draw


SCALAR_LANES = (
    "v_readfirstlane_b32 s{a}, v1",
    "v_readlane_b32 s{a}, v2, s{b}",
    "v_cmp_eq_u32_e64 s[{a}:{a}+1], v1, v2",
    "global_load_dword v3, v4, s[{a}:{a}+1]",
)
MATRIX = (
    "v_mfma_f32_4x4x4f16 v[{a}:{a}+3], v[2:3], v[4:5], v[{a}:{a}+3]",
    "v_mfma_f32_16x16x16f16 v[{a}:{a}+3], v[2:3], v[4:5], v[{a}:{a}+3]",
    "v_mov_b32 v{b}, v1",
    "v_add_u32 v5, v{a}, v{b}",
)
CASES = {
    "SGPRs for good": ("gfx1201", scalars(), (7, 6)),
    "SGPRs of gfx90a": ("gfx90a", near(*SCALAR_LANES), (1, 2)),
    "matrices of gfx90a": ("gfx90a", near(*MATRIX), (1, 2)),
    "matrices of gfx942": ("gfx942", near(*MATRIX[:1], *MATRIX[2:], *SCALAR_LANES), (1, 2)),
    "transcendental": (
        "gfx1100",
        near("v_exp_f32 v{a}, v1", "v_add_f32 v5, v{a}, v{b}", "v_mov_b32 v6, v7", "v_cmpx_eq_u32 v1, v2"),
        (1, 2),
    ),
}


@pytest.mark.rows(1)
@pytest.mark.parametrize("case", CASES)
def test_calls_are_as_if_inlined(case: str) -> None:
    target, draw, (body, between) = CASES[case]
    hazards, in_callers, in_functions = 0, 0, 0
    for seed in range(8):
        program = Program(seed, draw, body, between)
        pairs_of_both = []
        for inline in (True, False):
            lifted, known = program.lifted(target, inline=inline)
            report = check_hazards(lifted, unneeded=False, searches=1 << 20)
            assert not report.more
            assert all(is_a_way(lifted, finding.path) for finding in report.findings)
            rows = {(known[place.address], hazard) for place, hazard in report.consumers}
            pairs = {
                (known[one.consumer.address], one.producer and known[one.producer.address], one.hazard)
                for one in report.findings
            }
            assert rows == {(consumer, hazard) for consumer, _, hazard in pairs}
            # Calls, and what stands for them, are different instructions.
            pairs_of_both.append(
                {pair for pair in pairs if pair[0][:2] != "ca" and not pair[0].endswith(("call", "return"))}
            )
        assert pairs_of_both[0] == pairs_of_both[1], seed
        hazards += len(pairs_of_both[0])
        in_callers += sum(name.startswith("k") for name, *_ in pairs_of_both[0])
        in_functions += sum(name.startswith(("f", "g")) for name, *_ in pairs_of_both[0])
    assert hazards > 40
    assert in_callers > 10
    assert in_functions > 10
