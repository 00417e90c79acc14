"""Hooks at blocks, edges, loops, functions, and at the kernel's entry and exits: each runs as often as control passes,
in any kernel, and changes only what it should."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from assembled_cases import assemble
from effort import EVERYTHING, sample
from luthier import ToolModule, immediate, open_device, patch_object
from luthier.emulator.inspection.debug import WaveStep
from luthier.errors import HookError
from luthier.isa import Isa
from luthier.lifting import ControlEdge, lift
from luthier.objects import CodeObject, load_object
from luthier.tool.points import function_entry
from luthier.tool.task import InstrumentationTask
from luthier.verify.launch_plan import read_plans
from random_kernels import WAVES, random_kernel
from walks import Walk, edge_of, insert_everywhere

pytestmark = pytest.mark.rows()

ROOT = Path(__file__).parents[2]
TARGETS = ["gfx906", "gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1201"]
APPS = ["reduction", "divergent_loop", "function_call"]
PLANS = read_plans(ROOT / "examples" / "apps" / "launch.toml")
ROWS = 2048

HOOKS = f"""
__device__ uint64_t waves[{ROWS}];
__device__ uint64_t lanes[{ROWS}];
__device__ uint64_t turns[{ROWS}];
LUTHIER_HOOK_ANNOTATE wave(uint32_t row) {{ luthier::sAtomicAdd<uint64_t>(&waves[row], 1); }}
LUTHIER_HOOK_ANNOTATE lane(uint32_t row) {{ atomicAdd((unsigned long long *)&lanes[row], 1ull); }}
LUTHIER_HOOK_ANNOTATE turn(uint32_t row, uint32_t digit) {{ turns[row] = turns[row] * 3 + digit; }}
LUTHIER_HOOK_ANNOTATE mix(uint32_t value) {{
  luthier::writeReg<uint32_t>(luthier::VGPR3, luthier::readReg<uint32_t>(luthier::VGPR3) * 5 + value);
}}
"""


Launch = Callable[..., tuple[list[np.ndarray], object]]


def check(object: CodeObject, kernel: str, launch: Launch, module: ToolModule) -> int:
    """All points at once, by wave and by lane, against the original's own way; the number of points."""
    walk = Walk(lift(object, kernel))
    before, _ = launch(object.data, walk)
    steps = Counter((was, index) for was, index, _ in walk.steps)
    active: Counter[tuple[int | None, int]] = Counter()
    for was, index, lanes in walk.steps:
        active[was, index] += lanes
    points = 0
    for hook, truth in (("wave", steps), ("lane", active)):
        wanted: list = []

        def everywhere(task: InstrumentationTask, hook: str = hook, wanted: list = wanted) -> None:
            wanted += insert_everywhere(task, module.hook(hook))

        patched = patch_object(object, everywhere, [kernel], strict=True)
        after, loaded = launch(patched.data, None)
        for old, new in zip(before, after, strict=True):
            np.testing.assert_array_equal(old, new)
        counts_of_points = np.frombuffer(loaded.variable(f"{hook}s").read(), np.uint64)  # type: ignore[attr-defined]
        expected = [sum(count for step, count in truth.items() if counts(*step)) for counts in wanted]
        assert counts_of_points[: len(expected)].tolist() == expected
        points = len(expected)
    return points


def random_launch(target: str) -> Launch:
    def launch(data: bytes, trace):
        loaded = open_device(f"emu:{target}", threads=1).load(data)
        lanes = Isa.of(target).wave_size
        out = np.zeros(WAVES * lanes, np.uint32)
        loaded.kernel("k").launch(out, grid=WAVES, block=lanes, trace=trace)
        return [out], loaded

    return launch


@pytest.mark.rows(1)
@pytest.mark.parametrize("calls", [False, True])
@pytest.mark.parametrize("target", TARGETS)
def test_random_kernels(target: str, calls: bool, module: ToolModule) -> None:
    seeds = range(300) if EVERYTHING else sample(range(40), 10, turn=calls)
    points = sum(check(random_kernel(seed, target, calls=calls), "k", random_launch(target), module) for seed in seeds)
    assert points > 20 * len(seeds)


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", APPS)
def test_compiled_kernels(app, name: str, target: str, module: ToolModule) -> None:
    plan = PLANS[name]

    def launch(data: bytes, trace):
        loaded = open_device(f"emu:{target}", threads=1).load(data)
        arguments = plan.materialise()
        handle = loaded.kernel(plan.kernel)
        handle.launch(*arguments, grid=plan.grid, block=plan.block, dynamic_lds=plan.dynamic_lds, trace=trace)
        return [argument for argument in arguments if isinstance(argument, np.ndarray)], loaded

    check(load_object(app(name, target)), plan.kernel, launch, module)


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", TARGETS)
def test_edges_with_hooks_that_write(target: str, module: ToolModule) -> None:
    """What is written on an edge is written when control goes by it, and only then."""
    for seed in sample(range(60), 10):
        object = random_kernel(seed, target)
        lifted = lift(object, "k")
        edges = [edge for edge in lifted.edges if edge.kind != "indirect"]
        chosen = {edge: 7 + number for number, edge in enumerate(edges)}

        def at(before: int | None, index: int, step: WaveStep, lifted=lifted, chosen=chosen) -> None:
            taken = [edge for edge in edge_of(lifted, before, index) if edge in chosen]
            if len(taken) > 1:  # a branch to the next instruction: its registers say which
                return
            lanes = step.registers.vgpr(3).copy()
            bits = step.registers.exec
            active = np.array([bits >> lane & 1 for lane in range(len(lanes))], bool)
            for edge in taken:
                lanes = np.where(active, lanes * np.uint32(5) + np.uint32(chosen[edge]), lanes)
            if taken:
                step.registers.set_vgpr(3, lanes)

        twice = Counter((edge.source, edge.to) for edge in edges)
        for edge in edges:
            if twice[edge.source, edge.to] > 1:
                del chosen[edge]

        def everywhere(task: InstrumentationTask, chosen=chosen) -> None:
            for edge, value in chosen.items():
                task.insert_hook_on_edge(edge, module.mix, immediate(value))

        patched = patch_object(object, everywhere, strict=True)
        launch = random_launch(target)
        wanted, _ = launch(object.data, Walk(lifted, at))
        actual, _ = launch(patched.data, None)
        np.testing.assert_array_equal(actual[0], wanted[0])


def build(target: str, body: str) -> CodeObject:
    return assemble(target, body, sgprs=60)


LOOP_AT_ENTRY = """
func k
  s_add_u32 s20, s20, 1
  s_cmp_lt_u32 s20, 5
  s_cbranch_scc1 k
  begin
  v_mov_b32_e32 v2, s20
  put v2, 0
  s_endpgm
endfunc k
"""


@pytest.mark.parametrize("target", TARGETS)
def test_kernels_that_come_back_to_their_entry(target: str, module: ToolModule) -> None:
    """A hook at the kernel's entry runs once a wave; one at its first block each time."""
    object = build(target, LOOP_AT_ENTRY)

    def instrument(task: InstrumentationTask) -> None:
        task.insert_hook_at_kernel_entry(module.wave, immediate(0))
        task.insert_hook_at_kernel_entry(module.lane, immediate(0))
        task.insert_hook_at_block(task.lifted.blocks[0], module.wave, immediate(1))
        (loop,) = task.lifted.loops
        task.insert_hook_on_back_edges(loop, module.wave, immediate(2))

    patched = patch_object(object, instrument, strict=True)
    loaded = open_device(f"emu:{target}", threads=1).load(patched.data)
    loaded.kernel("k").launch(np.zeros(512, np.uint32), grid=3, block=Isa.of(target).wave_size)
    waves = np.frombuffer(loaded.variable("waves").read(), np.uint64)[:3].tolist()
    assert waves[0] == 3
    assert waves[1] - waves[2] == 3
    assert waves[2] > 3
    assert int.from_bytes(loaded.variable("lanes").read()[:8], "little") == 3 * Isa.of(target).wave_size


@pytest.mark.parametrize("target", ["gfx90a", "gfx1201"])
def test_hooks_at_one_point_run_in_order(target: str, module: ToolModule) -> None:
    body = """
func k
  begin
  s_mov_b32 s20, 0
again:
  s_add_u32 s20, s20, 1
  s_cmp_lt_u32 s20, 4
  s_cbranch_scc1 again
  s_endpgm
endfunc k
"""
    rows: list[tuple[int, int]] = []

    def instrument(task: InstrumentationTask) -> None:
        (loop,) = task.lifted.loops
        branch = next(one for one in task.instructions if one.is_conditional)
        for insert, where, times in (
            (task.insert_hook_on_back_edges, [loop], 3),
            (task.insert_hook_at_loop_header, [loop], 4),
            (task.insert_hook_at_kernel_entry, [], 1),
            (task.insert_hook_at_kernel_exit, [], 1),
            (task.insert_hook_after, [branch], 4),
        ):
            for digit in (1, 2, 1):
                insert(*where, module.turn, immediate(len(rows)), immediate(digit))
            rows.append((len(rows), times))

    loaded = open_device(f"emu:{target}", threads=1).load(
        patch_object(build(target, body), instrument, strict=True).data
    )
    loaded.kernel("k").launch(np.zeros(512, np.uint32), grid=1, block=Isa.of(target).wave_size)
    turns = np.frombuffer(loaded.variable("turns").read(), np.uint64)
    for row, times in rows:
        wanted = 0
        for digit in (1, 2, 1) * times:
            wanted = wanted * 3 + digit
        assert turns[row] == wanted, row


def test_what_has_no_place(module: ToolModule) -> None:
    """Jumps by register, edges that do not exist, returns of kernels: errors with the place."""
    body = """
func k
  begin
  address 8, 9, there
  s_cmp_eq_u32 s20, 0
  s_cbranch_scc0 far
  address 8, 9, other
far:
  s_setpc_b64 s[8:9]
there:
  s_nop 1
  s_endpgm
other:
  s_nop 2
  s_endpgm
endfunc k
"""
    task = InstrumentationTask(lift(build("gfx90a", body), "k"))
    indirect = [edge for edge in task.lifted.edges if edge.kind == "indirect"]
    assert len(indirect) == 2
    jump = next(one for one in task.instructions if one.mnemonic == "s_setpc_b64")
    with pytest.raises(HookError, match="no hook can run on the edge of an indirect jump") as caught:
        task.insert_hook_on_edge(indirect[0], module.wave, 0)
    assert caught.value.offset == jump.address
    with pytest.raises(HookError, match="indirect jump"):
        task.insert_hook_after(jump, module.wave, 0)
    for edge in (ControlEdge(0, 0, "taken"), ControlEdge(99, 0, "taken"), ControlEdge(0, -1, "taken")):
        with pytest.raises(HookError, match="there is no edge"):
            task.insert_hook_on_edge(edge, module.wave, 0)
    with pytest.raises(HookError, match="a kernel does not return"):
        task.insert_hook_at_function_return(task.lifted.functions[0], module.wave, 0)
    end = list(task.instructions)[-1]
    with pytest.raises(HookError, match="no known successor"):
        task.insert_hook_after(end, module.wave, 0)
    assert not task.insertions
    assert function_entry(task.lifted, task.lifted.functions[0]).place == "before"
