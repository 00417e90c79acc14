"""Templates made of hooks, and hooks that are refused."""

from __future__ import annotations

import os
import random
import re
import signal
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import llvmlite.binding as llvm
import pytest
from live_points import points_of
from luthier.errors import DecodeError, HookError, ToolError
from luthier.isa import InstructionArray, Isa, OperandKind
from luthier.isa.registers import UNIT_LIMIT, mask_of
from luthier.isa.targets import TargetId
from luthier.lifting import Live
from luthier.module import ToolModule
from luthier.patch.payloads.emission import emit
from luthier.patch.registers.allocation import bind
from luthier.patch.registers.binding import Binding, RegisterBudget
from luthier.patch.registers.choices import Fit
from luthier.payload import ConstantArgument, RegisterArgument, Template, generate
from luthier.payload.cache import template_for
from luthier.payload.isolation import in_child

TARGETS = ["gfx90a", "gfx942", "gfx1100"]
EVERY_GENERATION = ["gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1201"]

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
LUTHIER_HOOK_ANNOTATE block() { managed_counter = blockIdx.y; }
LUTHIER_HOOK_ANNOTATE size() { managed_counter = blockDim.x; }
LUTHIER_HOOK_ANNOTATE grid() { managed_counter = gridDim.z; }
LUTHIER_HOOK_ANNOTATE kernel_arguments() { device_counter = (uint64_t)__builtin_amdgcn_kernarg_segment_ptr(); }
LUTHIER_HOOK_ANNOTATE packet() { device_counter = (uint64_t)__builtin_amdgcn_dispatch_ptr(); }
LUTHIER_HOOK_ANNOTATE queue() { device_counter = (uint64_t)__builtin_amdgcn_queue_ptr(); }
extern "C" __device__ uint64_t dispatch_id_() __asm("llvm.amdgcn.dispatch.id");
LUTHIER_HOOK_ANNOTATE dispatch_id() { device_counter = dispatch_id_(); }
LUTHIER_HOOK_ANNOTATE prints(uint32_t x) { printf("%u", x); }
LUTHIER_HOOK_ANNOTATE allocates(uint32_t x) { device_counter = (uint64_t)malloc(x); }
LUTHIER_HOOK_ANNOTATE unused_launch_state(uint32_t x) {
  if (threadIdx.x < blockDim.x && __builtin_amdgcn_kernarg_segment_ptr()) x = x * 0;
  managed_counter = x * 0;
}

LUTHIER_HOOK_ANNOTATE traps(uint32_t x) { if (x == 3) __builtin_trap(); }
LUTHIER_HOOK_ANNOTATE aborts(uint32_t x) { if (x == 3) abort(); }
LUTHIER_HOOK_ANNOTATE barrier(uint32_t x) { __syncthreads(); managed_counter = x; }
LUTHIER_HOOK_ANNOTATE ends(uint32_t x) { if (x == 3) __builtin_amdgcn_endpgm(); managed_counter = x; }
LUTHIER_HOOK_ANNOTATE caller(uint32_t x) { device_counter = (uint64_t)__builtin_return_address(0); }
__device__ uint32_t tree(uint32_t n) { return n < 2 ? 1 : n * tree(n - 1) + tree(n - 2); }
LUTHIER_HOOK_ANNOTATE recursive(uint32_t x) { managed_counter = tree(x); }
__device__ uint32_t asked(uint32_t n) { return n < 2 ? threadIdx.x : n * asked(n - 1) + asked(n - 2); }
LUTHIER_HOOK_ANNOTATE asks_deep_inside(uint32_t x) { managed_counter = asked(x); }
__device__ uint32_t reads(uint32_t n) {
  return n < 2 ? luthier::readReg<uint32_t>(luthier::VGPR0) : n * reads(n - 1) + reads(n - 2);
}
LUTHIER_HOOK_ANNOTATE reads_deep_inside(uint32_t x) { managed_counter = reads(x); }
LUTHIER_HOOK_ANNOTATE through_pointer(void (*function)(uint32_t)) { function(3); }
LUTHIER_HOOK_ANNOTATE sized_when_run(uint32_t x) {
  auto *array = static_cast<volatile uint32_t *>(__builtin_alloca(x));
  array[x / 8] = 1;
  managed_counter = array[x / 4];
}

LUTHIER_HOOK_ANNOTATE five(uint32_t x) { managed_counter = x * 5 + __lane_id(); }
LUTHIER_HOOK_ANNOTATE hash(uint32_t x) {
  uint32_t h = 1;
  for (uint32_t i = 0; i < x; ++i) h = (h ^ i) * 16777619u;
  managed_counter = h;
}
LUTHIER_HOOK_ANNOTATE product(uint64_t x, uint64_t y) { device_counter = x * y + 1; }
__device__ uint32_t ring[4096], head;
LUTHIER_HOOK_ANNOTATE push(uint32_t a) { uint32_t i = atomicAdd(&head, 1); ring[i & 4095] = a; }
LUTHIER_HOOK_ANNOTATE sine(float x) { device_counter = __float_as_uint(sinf(x)); }
LUTHIER_HOOK_ANNOTATE halves(uint32_t x) {
  typedef _Float16 Pair __attribute__((ext_vector_type(2)));
  Pair pair = __builtin_bit_cast(Pair, x);
  if (pair.y > pair.x) pair.y = pair.x * pair.y + static_cast<_Float16>(3);
  managed_counter = __builtin_bit_cast(uint32_t, pair);
}
LUTHIER_HOOK_ANNOTATE bytes(uint64_t at) {
  device_counter = *reinterpret_cast<uint8_t *>(at) + *reinterpret_cast<uint16_t *>(at + 2);
}
LUTHIER_HOOK_ANNOTATE shorts(uint32_t x, uint32_t y) {
  uint16_t a = x, b = y;
  reinterpret_cast<uint16_t *>(&device_counter)[1] = a * b + (a > b ? a : b);
}
extern "C" __device__ uint32_t write_lane(uint32_t, uint32_t, uint32_t) __asm("llvm.amdgcn.writelane.i32");
LUTHIER_HOOK_ANNOTATE other_lane(uint32_t x) { managed_counter = write_lane(7, x & 1, x); }

LUTHIER_HOOK_ANNOTATE two_ways(uint32_t x) {
  if (x == 3) return;
  luthier::writeReg<uint32_t>(luthier::VGPR4, x);
}

LUTHIER_HOOK_ANNOTATE needs_stack(int index) {
  volatile int array[64];
  array[index] = 1;
  managed_counter = array[index / 2];
}
"""


@pytest.fixture(scope="module")
def module(make_module):
    return make_module(SOURCE, *EVERY_GENERATION)


def template(module, hook: str, *arguments, target: str = "gfx90a") -> Template:
    parsed = TargetId.parse(target)
    return template_for(module.hook(hook), tuple(arguments), parsed, parsed.target.default_wave_size)


def texts_of(template: Template, target: str) -> list[str]:
    return Isa.of(target).texts(template.code)


@pytest.mark.rows(1)
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
    assert {fixup.symbol.partition("@")[0] for fixup in made.fixups} == {"managed_counter", "device_counter"}
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


@pytest.mark.rows(7)
@pytest.mark.parametrize(
    ("hook", "arguments", "message"),
    [
        ("unknown_register", (RegisterArgument(True),), "compile-time constant"),
        ("add", (), "takes 1 arguments, not 0"),
        ("prints", (RegisterArgument(False),), "sends a message.*printf"),
        ("allocates", (RegisterArgument(False),), "sends a message.*malloc"),
        ("traps", (RegisterArgument(False),), r"stops the program \(a trap"),
        ("aborts", (RegisterArgument(False),), r"stops the program \(a trap, abort"),
        ("barrier", (RegisterArgument(False),), "waits at a barrier"),
        ("ends", (RegisterArgument(False),), "ends the wave"),
        ("caller", (RegisterArgument(False),), "reads its return address"),
        ("asks_deep_inside", (RegisterArgument(False),), "uses threadIdx.x in _Z5askedj, which cannot be inlined"),
        (
            "reads_deep_inside",
            (RegisterArgument(False),),
            "uses luthier::readReg in _Z5readsj, which cannot be inlined",
        ),
        ("through_pointer", (RegisterArgument(False),), "calls a function through a pointer with unknown targets"),
        ("sized_when_run", (RegisterArgument(False),), "needs private memory"),
    ],
)
@pytest.mark.parametrize("target", EVERY_GENERATION)
def test_what_a_payload_cannot_do_is_refused(module, hook: str, arguments, message: str, target: str) -> None:
    with pytest.raises(HookError, match=message) as refused:
        template(module, hook, *arguments, target=target)
    if hook != "add":
        assert re.match(rf"\S*device\.hip:\d+: hook {hook} |.*compile-time", str(refused.value))


@pytest.mark.parametrize("target", EVERY_GENERATION)
def test_what_needs_a_stack_says_how_much(module, target: str) -> None:
    assert template(module, "registers", target=target).stack is None
    array = template(module, "needs_stack", RegisterArgument(True), target=target).stack
    tree = template(module, "recursive", RegisterArgument(False), target=target)
    assert array is not None
    assert tree.stack is not None
    assert 256 <= array.size < 300
    assert tree.stack.size > 16384
    assert tree.functions


@pytest.mark.parametrize("target", EVERY_GENERATION)
def test_launch_state_that_optimization_removes_is_no_launch_state(module, target: str) -> None:
    made = template(module, "unused_launch_state", RegisterArgument(False), target=target)
    assert not any(taken.source.state for taken in made.inputs)


@pytest.mark.rows(22)
@pytest.mark.parametrize("target", EVERY_GENERATION)
@pytest.mark.parametrize(
    ("hook", "states"),
    [
        ("thread", {"workitem_id", "workitem_id_x"}),
        ("block", {"workgroup_id_y"}),
        ("size", {"dispatch_ptr", "workgroup_id_x"}),
        ("grid", {"dispatch_ptr"}),
        ("kernel_arguments", {"kernarg_segment_ptr"}),
        ("packet", {"dispatch_ptr"}),
        ("queue", {"queue_ptr"}),
        ("dispatch_id", {"dispatch_id"}),
    ],
)
def test_launch_state_comes_in_by_name(module, hook: str, states: set[str], target: str) -> None:
    made = template(module, hook, target=target)
    named = {taken.source.state for taken in made.inputs}
    assert named <= states
    assert len(named) == (1 if hook == "thread" else len(states))


NOT_ON_GFX11 = """
target triple = "amdgcn-amd-amdhsa"
declare i64 @llvm.amdgcn.s.memrealtime()
define void @clock(ptr %to) {
  %now = call i64 @llvm.amdgcn.s.memrealtime()
  store i64 %now, ptr %to
  ret void
}
"""


@pytest.mark.parametrize("target", ["gfx1100", "gfx1201"])
def test_what_llvm_cannot_select_is_an_error_and_not_the_end(target: str) -> None:
    bitcode = llvm.parse_assembly(NOT_ON_GFX11).as_bitcode()
    arguments = [RegisterArgument(False)]
    with pytest.raises(HookError, match=r"hook clock: LLVM cannot compile it: Cannot select: .*memrealtime"):
        generate(bitcode, "clock", arguments, TargetId.parse(target), 32)
    assert "s_memrealtime" in generate(bitcode, "clock", arguments, TargetId.parse("gfx942"), 64).text


def test_a_crash_in_the_child_is_an_error() -> None:
    with pytest.raises(HookError, match=r"hook x: LLVM cannot compile it: it crashed \(SIGSEGV\)"):
        in_child(lambda: os.kill(os.getpid(), signal.SIGSEGV), "hook x")
    with pytest.raises(HookError, match="it ended with exit code 3"):
        in_child(lambda: os._exit(3), "hook x")
    with pytest.raises(HookError, match="ZeroDivisionError"):
        in_child(lambda: 1 // 0, "hook x")
    with pytest.raises(HookError, match="the message"):
        in_child(lambda: _raise(HookError("the message")), "hook x")
    assert in_child(lambda: b"x" * 1_000_000, "hook x") == b"x" * 1_000_000


def _raise(problem: Exception) -> None:
    raise problem


def test_templates_are_made_in_several_threads_at_once(module) -> None:
    def make(target: str) -> int:
        return len(template(module, "hash", RegisterArgument(True), target=target).code)

    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(make, EVERY_GENERATION * 4))
    assert together == [make(target) for target in EVERY_GENERATION] * 4


@pytest.mark.rows(16)
@pytest.mark.parametrize("target", EVERY_GENERATION)
@pytest.mark.parametrize("hook", ["five", "hash", "product", "push", "sine", "halves", "bytes", "shorts"])
def test_undefined_registers_and_halves_are_bound_anywhere(module, hook: str, target: str) -> None:
    """What a hook reads without setting (an undefined half of a multiplication) is no launch state; 16-bit halves keep
    their half wherever the register goes, and stay within reach of short encodings."""
    isa = Isa.of(target)
    count = len(module.hook(hook).parameters)
    made = template(module, hook, *[RegisterArgument(False)] * count, target=target)
    for lowest in (256, 256 + 60, 256 + 100, 256 + 126, 256 + 200):
        live = mask_of(range(256, lowest))
        start = max(256, lowest - len(made.inputs) + 2)
        sources = tuple(range(start, start + len(made.inputs)))
        binding = bind(made, sources, Live(live, live), RegisterBudget(102, 256, 102, 256), isa.wave_size)
        short = any(group.below <= 256 + 128 for group in made.groups)
        if short and lowest > 256 + 120:
            assert binding is None
            continue
        assert binding is not None
        check_binding(made, binding, live, sources)
        decoded = isa.decode(emit(isa, made, binding).code)
        assert (decoded.opcode >= 0).all()
        assert high_halves(isa, decoded) == high_halves(isa, made.code)
    if hook == "halves" and target == "gfx1100":
        assert high_halves(isa, made.code)


def high_halves(isa: Isa, code: InstructionArray) -> list[int]:
    """How many high halves each instruction names, of those that do. (A low half may be printed as its register.)"""
    return [count for text in isa.texts(code) if (count := len(re.findall(r"v\d+\.h", text)))]


def test_a_written_lane_may_be_an_inactive_one(module) -> None:
    assert template(module, "other_lane", RegisterArgument(True)).writes_inactive_lanes
    assert not template(module, "five", RegisterArgument(True)).writes_inactive_lanes


def test_an_unknown_hook_names_the_known_ones(module) -> None:
    with pytest.raises(HookError, match=r"no hook 'absent'; it has .*registers"):
        module.hook("absent")
    with pytest.raises(AttributeError):
        _ = module.absent


def test_a_target_the_tool_was_not_built_for(module) -> None:
    with pytest.raises(ToolError, match="not built for this target, only for gfx90a"):
        template(module, "registers", target="gfx906")


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
            if (live >> place & 1 and place not in binding.spilled_sgprs) or place in sources:
                assert unit not in made.written
    temporaries = [units[unit] for unit in units if unit in made.written] + list(saved.values())
    assert not mask_of(temporaries) & live & ~mask_of(binding.spilled_sgprs)
    assert len(set(saved.values())) == len(saved)
    for fixed in made.clobbers:
        if live >> fixed & 1:
            assert fixed in saved


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", TARGETS)
def test_bindings_never_touch_live_registers_and_keep_tuples(module, target: str) -> None:
    isa = Isa.of(target)
    made = template(module, "lanes", RegisterArgument(False), RegisterArgument(True), target=target)
    budget = RegisterBudget(102, 48, 102, 96)
    seed = random.Random(1)
    bound = 0
    for _ in range(200):
        live = random_live(seed)
        sources = (256 + seed.randrange(40), *(lambda s: (s, s + 1))(2 * seed.randrange(40)))
        binding = bind(made, sources, Live(live, live), budget, isa.wave_size)
        if binding is None:
            continue
        bound += 1
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
    assert bound > 150


def test_a_binding_is_none_when_registers_run_out(module) -> None:
    made = template(module, "lanes", RegisterArgument(False), RegisterArgument(True))
    full = mask_of(range(UNIT_LIMIT))
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
def test_live_sgprs_are_spilled_to_lanes_when_none_is_free(module, target: str) -> None:
    isa = Isa.of(target)
    made = template(module, "add", ConstantArgument("true"), target=target)
    live = Live(mask_of([*range(106), 128]), mask_of([*range(106), 128, *range(256, 266)]))
    budget = RegisterBudget(102, 16, 102, 16)
    binding = bind(made, (), live, budget, isa.wave_size)
    assert binding is not None
    assert binding.lane_vgpr is not None
    assert binding.lane_vgpr >= 266
    assert not binding.lost & live.all_lanes
    everywhere = Live(live.active, live.all_lanes | mask_of(range(256, 512)))
    fit = Fit.of(binding, made, (), isa.wave_size)
    assert fit.at(points_of([live, everywhere])).tolist() == [True, False]
    assert bind(made, (), everywhere, budget, isa.wave_size) is None
    text = isa.texts(isa.decode(emit(isa, made, binding).code))
    writes = [line.split(", ") for line in text if line.startswith("v_writelane")]
    reads = [line.split(", ") for line in text if line.startswith("v_readlane")]
    assert len(writes) == len(reads) == len(binding.spilled_sgprs) > 0
    assert [(w[1], w[2]) for w in writes] == [(r[0].split()[1], r[2]) for r in reads]


def test_a_hook_of_the_other_wave_size_is_refused(make_module) -> None:
    module = make_module("LUTHIER_HOOK_ANNOTATE nothing() {}\n", both_wave_sizes=True)
    assert template_for(module.nothing, (), TargetId.parse("gfx1100"), 64)
    (contents,) = (one for one in module._contents if str(one.target) == "gfx1100")
    alone = ToolModule([replace(contents, other=None)], "alone")
    with pytest.raises(HookError, match="built for wave32 only, but the kernel runs as wave64"):
        template_for(alone.nothing, (), TargetId.parse("gfx1100"), 64)


def test_an_early_return_keeps_the_register_as_it_was(module) -> None:
    made = template(module, "two_ways", RegisterArgument(False))
    assert len(made.outputs) == 1
    assert {taken.source.unit for taken in made.inputs} >= {256 + 4}
