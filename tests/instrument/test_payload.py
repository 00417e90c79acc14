"""Hooks to templates: what comes out, and what is refused."""

from __future__ import annotations

import random

import pytest
from luthier.errors import DecodeError, HookError, ToolError
from luthier.mc import Isa, OperandKind
from luthier.patch.binding import Binding, Live, RegisterBudget, bind, is_valid
from luthier.patch.emission import emit
from luthier.payload import ConstantArgument, RegisterArgument, Template
from luthier.payload.cache import template_for
from luthier.payload.template import mask_of
from luthier.targets import TargetId

TARGETS = ["gfx90a", "gfx942", "gfx1100"]

SOURCE = """
__device__ uint64_t device_counter = 7;
__managed__ uint32_t managed_counter = 0;

LUTHIER_HOOK_ANNOTATE add(bool big) { luthier::sAtomicAdd<uint64_t>(&device_counter, big ? 1000 : 1); }

LUTHIER_HOOK_ANNOTATE lanes(uint32_t value, uint64_t address) {
  if (value > 5) atomicAdd(&managed_counter, value);
  if (address & 1) atomicAdd(reinterpret_cast<unsigned long long *>(&device_counter), address);
}

LUTHIER_HOOK_ANNOTATE registers() {
  luthier::writeReg<uint32_t>(luthier::VGPR4, luthier::readReg<uint32_t>(luthier::VGPR5) * 3);
}

LUTHIER_HOOK_ANNOTATE unknown_register(int which) { managed_counter = luthier::readReg<uint32_t>(which); }

LUTHIER_HOOK_ANNOTATE thread() { managed_counter = threadIdx.x; }
LUTHIER_HOOK_ANNOTATE block() { managed_counter = blockIdx.x; }
LUTHIER_HOOK_ANNOTATE size() { managed_counter = blockDim.x; }

LUTHIER_HOOK_ANNOTATE two_ways(uint32_t x) {
  if (x == 3) return;
  luthier::writeReg<uint32_t>(luthier::VGPR4, x);
}

LUTHIER_HOOK_ANNOTATE shared(uint32_t x) {
  __shared__ uint32_t cell;
  cell = x;
  __syncthreads();
  managed_counter = cell;
}

LUTHIER_HOOK_ANNOTATE needs_stack(int index) {
  volatile int array[64];
  array[index] = 1;
  managed_counter = array[index / 2];
}
"""


@pytest.fixture(scope="module")
def module(make_module):
    return make_module(SOURCE)


def template(module, hook: str, *arguments, target: str = "gfx90a") -> Template:
    parsed = TargetId.parse(target)
    return template_for(module.hook(hook), tuple(arguments), parsed, parsed.target.default_wave_size)


def texts_of(template: Template, target: str) -> list[str]:
    return Isa.of(target).texts(template.code)


@pytest.mark.parametrize("target", TARGETS)
def test_a_constant_argument_is_compiled_in(module, target: str) -> None:
    big = "\n".join(texts_of(template(module, "add", ConstantArgument("true"), target=target), target))
    small = "\n".join(texts_of(template(module, "add", ConstantArgument("false"), target=target), target))
    assert "0x3e8" in big
    assert "0x3e8" not in small
    assert "global_atomic_add" in big


@pytest.mark.parametrize("target", TARGETS)
def test_a_template_has_inputs_where_registers_are_read(module, target: str) -> None:
    made = template(module, "lanes", RegisterArgument(False), RegisterArgument(True), target=target)
    assert [(i.source.uniform, i.source.argument, i.source.unit) for i in made.inputs] == [
        (False, 0, 0),
        (True, 1, 0),
        (True, 1, 1),
    ]
    assert not made.runs_without_lanes
    assert {fixup.symbol for fixup in made.fixups} == {"managed_counter", "device_counter"}
    assert not any("s_setpc" in text for text in texts_of(made, target))


def test_register_intrinsics_become_inputs_and_outputs(module) -> None:
    made = template(module, "registers")
    assert [taken.source.unit for taken in made.inputs] == [256 + 5]  # nothing is done with v4's old value
    assert [output.destination for output in made.outputs] == [256 + 4]


def test_a_wave_level_atomic_runs_with_no_lane_active(module) -> None:
    made = template(module, "add", ConstantArgument("true"))
    assert made.runs_without_lanes
    assert made.writes_inactive_lanes


def test_templates_are_made_once(module) -> None:
    assert template(module, "registers") is template(module, "registers")


@pytest.mark.parametrize(
    ("hook", "arguments", "message"),
    [
        ("unknown_register", (RegisterArgument(True),), "compile-time constant"),
        ("needs_stack", (RegisterArgument(True),), "private memory"),
        ("add", (), "takes 1 arguments, 0 given"),
        ("thread", (), "reads v31, which nothing has set"),
        ("block", (), "which nothing has set"),
        ("size", (), "which nothing has set"),
        ("shared", (RegisterArgument(False),), "uses LDS"),
    ],
)
def test_what_a_payload_cannot_do_is_refused(module, hook: str, arguments, message: str) -> None:
    with pytest.raises(HookError, match=message):
        template(module, hook, *arguments)


def test_an_unknown_hook_names_the_known_ones(module) -> None:
    with pytest.raises(HookError, match=r"no hook 'absent'; it has .*registers"):
        module.hook("absent")
    with pytest.raises(AttributeError):
        _ = module.absent


def test_a_target_the_tool_was_not_built_for(module) -> None:
    with pytest.raises(ToolError, match="not built for this target, only for gfx90a"):
        template(module, "registers", target="gfx1030")


def random_live(random_: random.Random) -> int:
    return mask_of(
        [unit for unit in range(102) if random_.random() < 0.6]
        + [unit for unit in range(256, 300) if random_.random() < 0.6]
        + [unit for unit in (106, 107, 128, 124) if random_.random() < 0.5]
    )


def check_binding(made: Template, binding: Binding, live: int, sources: tuple[int, ...]) -> None:
    units = dict(binding.units)
    saved = dict(binding.saved)
    for group in made.groups:
        places = [units[unit] for unit in range(group.first, group.first + group.count)]
        assert places == list(range(places[0], places[0] + group.count))
        assert places[0] % group.alignment == group.first % group.alignment
        for unit, place in zip(range(group.first, group.first + group.count), places, strict=True):
            if (live >> place & 1 and place not in binding.parked) or place in sources:
                assert unit not in made.written
    temporaries = [units[unit] for unit in units if unit in made.written] + list(saved.values())
    assert not mask_of(temporaries) & live & ~mask_of(binding.parked)
    assert len(set(saved.values())) == len(saved)
    for fixed in made.clobbers:
        if live >> fixed & 1:
            assert fixed in saved


@pytest.mark.parametrize("target", TARGETS)
def test_bindings_never_touch_live_registers_and_keep_tuples(module, target: str) -> None:
    isa = Isa.of(target)
    made = template(module, "lanes", RegisterArgument(False), RegisterArgument(True), target=target)
    budget = RegisterBudget(102, 48, 102, 96)
    seed = random.Random(1)
    found = 0
    for _ in range(200):
        live = random_live(seed)
        sources = (256 + seed.randrange(40), *(lambda s: (s, s + 1))(2 * seed.randrange(40)))
        binding = bind(made, sources, Live(live, live), budget, isa.wave_size)
        if binding is None:
            continue
        found += 1
        check_binding(made, binding, live, sources)
        payload = emit(isa, made, binding)
        decoded = isa.decode(payload.code)
        assert (decoded.opcode >= 0).all()
        # The assembler enforces alignment, and on GFX11 the register banks of paired instructions.
        source = "\n".join(text for text in isa.texts(decoded) if "s_cbranch" not in text and "lit(" not in text)
        try:
            isa.assemble(source)
        except DecodeError as problem:
            raise AssertionError(f"{problem}\n{source}") from problem
    assert found > 150


def test_a_binding_is_none_when_registers_run_out(module) -> None:
    made = template(module, "lanes", RegisterArgument(False), RegisterArgument(True))
    full = mask_of(range(768))
    assert bind(made, (256, 0, 1), Live(full, full), RegisterBudget(102, 256, 102, 256), 64) is None


def test_operands_outside_groups_are_untouched(module) -> None:
    """Renaming changes registers only: kinds and immediates stay."""
    made = template(module, "lanes", RegisterArgument(False), RegisterArgument(True))
    isa = Isa.of("gfx90a")
    binding = bind(made, (300, 90, 91), Live(0, 0), RegisterBudget(102, 64, 102, 64), 64)
    assert binding is not None
    decoded = isa.decode(emit(isa, made, binding).code)
    original = [text.split()[0] for text in isa.texts(made.code)]
    renamed = [text.split()[0] for text in isa.texts(decoded)]
    position = 0
    for mnemonic in renamed:  # copies and saves are added, nothing is lost or reordered
        if position < len(original) and mnemonic == original[position]:
            position += 1
    assert position == len(original)
    assert OperandKind.REGISTER in made.code.operand_kind


@pytest.mark.parametrize("target", TARGETS)
def test_live_sgprs_are_parked_in_lanes_when_none_is_free(module, target: str) -> None:
    isa = Isa.of(target)
    made = template(module, "add", ConstantArgument("true"), target=target)
    live = Live(mask_of([*range(106), 128]), mask_of([*range(106), 128, *range(256, 266)]))
    budget = RegisterBudget(102, 16, 102, 16)
    binding = bind(made, (), live, budget, isa.wave_size)
    assert binding is not None
    assert binding.parking is not None
    assert binding.parking >= 266
    assert not binding.lost & live.all_lanes
    assert is_valid(binding, made, (), live, isa.wave_size)
    everywhere = Live(live.active, live.all_lanes | mask_of(range(256, 512)))
    assert not is_valid(binding, made, (), everywhere, isa.wave_size)
    assert bind(made, (), everywhere, budget, isa.wave_size) is None
    text = isa.texts(isa.decode(emit(isa, made, binding).code))
    writes = [line.split(", ") for line in text if line.startswith("v_writelane")]
    reads = [line.split(", ") for line in text if line.startswith("v_readlane")]
    assert len(writes) == len(reads) == len(binding.parked) > 0
    assert [(w[1], w[2]) for w in writes] == [(r[0].split()[1], r[2]) for r in reads]


def test_a_hook_of_the_other_wave_size_is_refused(module) -> None:
    with pytest.raises(HookError, match="built for wave32, the kernel runs as wave64"):
        template_for(module.registers, (), TargetId.parse("gfx1100"), 64)


def test_an_early_return_keeps_the_register_as_it_was(module) -> None:
    made = template(module, "two_ways", RegisterArgument(False))
    assert len(made.outputs) == 1
    assert {taken.source.unit for taken in made.inputs} >= {256 + 4}
