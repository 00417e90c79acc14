"""Runs of instructions that one function executes do what the instructions do one by one."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import luthier
import numpy as np
import pytest
from effort import EMULATED, EVERYTHING
from llvmlite import ir
from luthier.emulator import layout
from luthier.emulator.binding.bind import Binder
from luthier.emulator.binding.plans import operation_name
from luthier.emulator.binding.program import DecodedCode
from luthier.emulator.inspection.bench import DEFAULT_MODE, Bench, WaveState, assemble
from luthier.emulator.inspection.coverage import coverage, samples
from luthier.emulator.ir.declare import DeclaredOperation, Unsupported
from luthier.emulator.ir.variant import FloatMode, FusedKey, OperandAccess, Variant
from luthier.emulator.ir.wave import WaveBuilder
from luthier.emulator.native import emit, fused
from luthier.emulator.native.fused import step_of
from luthier.emulator.native.processor import Processor
from luthier.emulator.operations import operations_of
from luthier.emulator.running import hot
from luthier.isa import Isa

sys.path.insert(0, str(Path(__file__).parent / "conformance"))
from isa_trials import PLANS, build, seed_of

TARGETS = (*EMULATED, "gfx1250")
ISAS: list[tuple[str, int | None]] = [*((target, None) for target in TARGETS), ("gfx1100", 64), ("gfx1201", 64)]
AT_ONCE = 60
"""Instructions of a program."""
MODES = (DEFAULT_MODE, 0x300, 0x3F5)
"""Denormals kept; flushed; rounding up."""


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """All code is hot when it has been executed once, and a single instruction is a run."""
    monkeypatch.setattr(hot, "HOT", 1)
    monkeypatch.setattr(hot, "LEAST", 1)


def straight_code(isa: Isa, random: np.random.Generator) -> list[bytes]:
    """Instructions that touch registers alone, one of each opcode, with operands chosen at random."""
    covered = coverage(str(isa.target))
    names = {name for table in (covered.exact, covered.bounded) for group in table.values() for name in group}
    made = [
        build(isa, number, PLANS[seed_of(number) % len(PLANS)], random)
        for number in samples(isa)
        if (opcode := isa.opcode(number)).name in names and opcode.mnemonic.startswith(("v_", "s_"))
    ]
    codes = [one.code for one in made if one is not None]
    code = DecodedCode(isa, [(0, b"".join(codes))])
    key = layout.mode_key(DEFAULT_MODE)
    code.ensure(key, *range(len(codes)))
    found_there = [code.instructions(key, range(number, number + 1)) for number in range(len(codes))]
    straight = [
        one
        for one, there in zip(codes, found_there, strict=True)
        if there and step_of(there[0].variant, there[0].slots) is not None
    ]
    random.shuffle(straight)
    return straight


def state_of(wave: WaveState) -> bytes:
    """Its registers."""
    registers = wave.memory[: layout.SCALARS].copy(), wave.memory[layout.WAVE["scc"] : layout.WAVE["scc"] + 4]
    vectors = wave.memory[layout.VECTORS : layout.sink_row(wave.wave_size)]
    return b"".join(part.tobytes() for part in (*registers, vectors))


@pytest.mark.rows(1)
@pytest.mark.parametrize(("target", "lanes"), ISAS)
def test_instructions_of_a_run(target: str, lanes: int | None) -> None:
    isa = Isa.of(target, lanes)
    random = np.random.default_rng(seed_of(target, lanes))
    codes = straight_code(isa, random)
    assert len(codes) > 300
    compare(isa, codes if EVERYTHING else codes[:AT_ONCE], random)


@pytest.mark.parametrize("target", ["gfx90a", "gfx950", "gfx1030", "gfx1100", "gfx1201", "gfx1250"])
def test_what_differs_between_targets(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind an instruction that means the same everywhere, code is still made for what an operation is for."""
    isa, binder = Isa.of(target), Binder(Isa.of(target))
    slots = tuple(layout.VECTORS + 32 * isa.wave_size * number for number in range(layout.RECORD_SLOTS))
    table = operations_of(isa.target.target.emulated_major)
    differing = {name for name, operation in table.items() if operation.generations or operation.processors}
    variants = {}
    for number, (code, index) in samples(isa).items():
        name = operation_name(isa.opcode(number))
        if name not in variants and (name in differing or name.startswith("v_dual_m")):
            with suppress(Unsupported):
                variants[name] = binder.bind(code, index, 0, FloatMode()).variant
    move = Variant("v_mov_b32", isa.wave_size, 9, (OperandAccess("v"),), (OperandAccess("v"),))
    seen = set()

    def look(
        was: Callable[..., Any], w: WaveBuilder, operation: DeclaredOperation, variant: Variant, *more: Any
    ) -> Any:
        assert (w.major, w.processor) == (variant.major, variant.processor)
        seen.add(variant.operation)
        return was(w, operation, variant, *more)

    for part in ("_lane", "_packed", "_scalar"):
        monkeypatch.setattr(emit, part, partial(look, getattr(emit, part)))
    for variant in variants.values():
        if step_of(variant, slots) is not None:
            fused.emit_run(ir.Module(), FusedKey((move, variant, move), (slots,) * 3))
    assert seen & differing


SAME_ALONE = {
    "gfx942": "v_cvt_f32_fp8 v4, v0\nv_cvt_pk_fp8_f32 v5, v1, v1",
    "gfx1100": "v_max_f32 v4, v2, v3\nv_dual_mov_b32 v5, v1 :: v_dual_max_f32 v8, v2, v3",
    "gfx1201": "v_cvt_f32_fp8_e64 v4, v0 byte_sel:1\nv_max_num_f32 v5, v2, v3",
}


@pytest.mark.parametrize("target", SAME_ALONE)
def test_fp8_and_nan_behind_a_move(target: str) -> None:
    isa = Isa.of(target)
    before = np.zeros((16, isa.wave_size), np.uint32)
    before[:4] = np.array([0x40302010, 0x447A0000, 0x7FC11111, 0x7FC22222], np.uint32)[:, None]
    bench = Bench(isa, assemble(isa, f"v_mov_b32 v9, v1\n{SAME_ALONE[target]}\ns_endpgm\n"))
    state = np.zeros(128, np.uint32), before, (1 << isa.wave_size) - 1
    alone = bench.run(*state)
    compile_all(bench.code, alone)
    assert runs_of(bench.code) == 1
    together = bench.run(*state)
    assert state_of(together) == state_of(alone), differing(bench, alone, together)
    if target == "gfx1100":  # of two NaN the first, in either half of a dual operation
        assert {int(alone.vgpr(4)[0]), int(alone.vgpr(8)[0])} == {0x7FC11111}


def test_narrow_registers(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a host whose vector registers have half the size."""
    monkeypatch.setattr(fused, "processor", lambda: Processor("x86-64-v3"))
    isa, random = Isa.of("gfx942"), np.random.default_rng(8)
    compare(isa, straight_code(isa, random)[:AT_ONCE], random)


def compare(isa: Isa, codes: list[bytes], random: np.random.Generator) -> None:
    """Run instructions one by one and together, with all lanes, with some, with none."""
    whole = (1 << isa.wave_size) - 1
    for number, start in enumerate(range(0, len(codes), AT_ONCE)):
        bench = Bench(isa, b"".join(codes[start : start + AT_ONCE]) + assemble(isa, "s_endpgm\n"))
        before = []
        for exec in (whole, int(random.integers(0, 1 << 63)) & whole, 0):
            vectors = random.integers(0, 1 << 32, (256, isa.wave_size), np.uint32)
            vectors[::3] = random.normal(0, 4, (86, isa.wave_size)).astype(np.float32).view(np.uint32)
            before.append((random.integers(0, 1 << 32, 128, np.uint32), vectors, exec))
        mode = MODES[number % len(MODES)]
        alone = [bench.run(*one, mode=mode, scc=1) for one in before]
        compile_all(bench.code, alone[0])
        (table,) = bench.code.tables_with_runs().values()
        together = sum(table.run_lengths.values())
        assert together >= len(codes[start : start + AT_ONCE]) - 2  # the result of some depends on MODE
        for state, was in zip(before, alone, strict=True):
            fused_ = bench.run(*state, mode=mode, scc=1)
            assert fused_.counts.tolist() == was.counts.tolist()
            same = state_of(fused_) == state_of(was)
            assert same, differing(bench, was, fused_)


def compile_all(code: DecodedCode, executed: WaveState) -> None:
    for stretch in code.straight(executed.counts > 0):
        hot.compile_runs(code, stretch)


def differing(bench: Bench, state: WaveState, other: WaveState) -> str:
    rows = [row for row in range(256) if (state.vgpr(row) != other.vgpr(row)).any()]
    scalars = np.flatnonzero(state.memory[:512].view(np.uint32) != other.memory[:512].view(np.uint32)).tolist()
    texts = "\n".join(bench.code.text(record) for record in range(bench.code.count))
    return f"v{rows} s{scalars}\n{texts}"


LOOP = """
#include <hip/hip_runtime.h>
extern "C" __global__ void loop(unsigned *out, unsigned rounds) {
  unsigned x = blockIdx.x * blockDim.x + threadIdx.x, y = x;
  float f = x;
  for (unsigned i = 0; i < rounds; ++i) {
    x = x * 1664525u + 1013904223u ^ y >> 3;
    y = (y << 5 | y >> 27) + x;
    f = f * 0.99f + (float)(x & 15);
    if (y & 1)
      x ^= y + i;
  }
  out[blockIdx.x * blockDim.x + threadIdx.x] = x + y + (unsigned)f;
}
"""


def launches(
    compile_object: Callable[..., Path], target: str, rounds: list[int], **how: int
) -> list[tuple[np.ndarray, luthier.LaunchStats]]:
    """Return results and counts of equal launches with a number of rounds."""
    kernel = luthier.open_device(f"emu:{target}", **how).load(compile_object(LOOP, target)).kernel("loop")
    done = []
    for count in rounds:
        out = np.zeros(1024, np.uint32)
        done.append((out, kernel.launch(out, count, grid=16, block=64)))
        hot.compiler().wait()
    return done


def runs_of(device_code: DecodedCode) -> int:
    return sum(len(table.run_lengths) for table in device_code.tables_with_runs().values())


@pytest.mark.rows(2)
@pytest.mark.parametrize("target", ["gfx90a", "gfx1030", "gfx1201"])
def test_launches_while_code_becomes_hot(compile_object: Callable[..., Path], target: str) -> None:
    """Results and counts are the same before, after, and for a launch during which functions are compiled."""
    (first, before), (second, after), (third, again) = launches(compile_object, target, [200, 200, 200])
    assert first.tolist() == second.tolist() == third.tolist()
    for column in ("addresses", "executions", "active_lanes"):
        counts = [getattr(stats.by_address, column).tolist() for stats in (before, after, again)]
        assert counts[0] == counts[1] == counts[2]


def test_a_launch_that_is_under_way(compile_object: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []
    take = hot.compile_runs

    def compile_runs(code: DecodedCode, stretch: range) -> None:
        take(code, stretch)
        taken.append(runs_of(code))

    monkeypatch.setattr(hot, "compile_runs", compile_runs)
    stepped = luthier.open_device("emu:gfx90a").load(compile_object(LOOP, "gfx90a")).kernel("loop")
    stepped.launch(np.zeros(1024, np.uint32), 3, grid=16, block=64, trace=lambda step: True)
    del stepped  # its plan is discarded when other launches look for hot code
    gc.collect()
    device = luthier.open_device("emu:gfx90a", threads=2)
    kernel = device.load(compile_object(LOOP, "gfx90a")).kernel("loop")
    out, rounds = np.zeros(1024, np.uint32), 500_000
    stats = kernel.launch(out, rounds, grid=16, block=64)
    assert stats.seconds > 0.2  # several looks
    assert taken[0] > 0  # before it ended: a launch that ends adds what it has executed once more
    monkeypatch.setattr(hot, "HOT", 1 << 60)
    other = luthier.open_device("emu:gfx90a").load(compile_object(LOOP, "gfx90a")).kernel("loop")
    expected = np.zeros(1024, np.uint32)
    alone = other.launch(expected, rounds, grid=16, block=64)
    assert out.tolist() == expected.tolist()
    assert stats.by_address.executions.tolist() == alone.by_address.executions.tolist()
    assert stats.by_address.active_lanes.tolist() == alone.by_address.active_lanes.tolist()


GUARDED = """
import ctypes, mmap, sys
import luthier, numpy as np
from luthier.emulator.binding.bind import Binder
from luthier.emulator.binding.plans import operation_name
from luthier.emulator.binding.program import DecodedCode
from luthier.emulator.operations import operations_of
from luthier.emulator.running import hot

def zeros(count, dtype):
    size = count * np.dtype(dtype).itemsize
    room = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
    memory = mmap.mmap(-1, room + mmap.PAGESIZE)
    end = ctypes.addressof(ctypes.c_char.from_buffer(memory)) + room
    assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(end), mmap.PAGESIZE, 0) == 0
    return np.frombuffer(memory, dtype, count, room - size)

DecodedCode.__init__.__defaults__ = (zeros,)
hot.HOT = hot.LEAST = 1
out = np.zeros(1024, np.uint32)
kernel = luthier.open_device("emu:gfx90a").load(sys.argv[1]).kernel("loop")
print(kernel.launch(out, 600_000, grid=16, block=64).seconds > 0.2)  # several looks
"""
"""A launch under way, with nothing behind the end of what native code reads."""


def test_who_looks_at_a_launch_reads_nothing_beyond(compile_object: Callable[..., Path]) -> None:
    command = [sys.executable, "-c", GUARDED, str(compile_object(LOOP, "gfx90a"))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr


def test_what_is_rewritten_is_executed_as_it_is_now(monkeypatch: pytest.MonkeyPatch) -> None:
    isa = Isa.of("gfx90a")
    add, sub = (assemble(isa, f"v_{name}_u32_e32 v1, v2, v3\n") for name in ("add", "sub"))
    bench = Bench(isa, add * 4 + assemble(isa, "s_endpgm\n"))
    vectors = np.arange(4 * 64, dtype=np.uint32).reshape(4, 64)
    state = np.zeros(128, np.uint32), vectors, (1 << 64) - 1
    before = bench.run(*state)
    compile_all(bench.code, before)
    assert runs_of(bench.code) == 1
    assert bench.run(*state).vgpr(1).tolist() == before.vgpr(1).tolist()
    hot.compiler().wait()
    (key,) = bench.code.tables_with_runs()
    was = bench.code.instructions(key, range(4))
    bench.code.rewrite(bench.code.address_of(3), sub)
    assert runs_of(bench.code) == 0
    bench.code.run_at(key, range(4), 1, was)  # made of what was there before
    assert runs_of(bench.code) == 0
    assert bench.run(*state).vgpr(1).tolist() == (vectors[2] - vectors[3]).tolist()


def test_what_goes_wrong_is_said_and_changes_nothing(
    compile_object: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def compile_runs(code: DecodedCode, stretch: range) -> None:
        raise ValueError("no room")

    monkeypatch.setattr(hot, "compile_runs", compile_runs)
    with pytest.warns(RuntimeWarning, match="cannot compile functions for hot code: ValueError.*no room"):
        (first, _), (second, _) = launches(compile_object, "gfx90a", [100, 100])
    assert first.tolist() == second.tolist()


def test_nothing_is_compiled_when_the_process_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = []
    monkeypatch.setattr(hot, "compile_runs", lambda code, stretch: compiled.append(stretch))
    isa = Isa.of("gfx90a")
    code = DecodedCode(isa, [(0, assemble(isa, "s_nop 0\ns_endpgm\n"))])
    compiler = hot.Compiler()
    compiler.put(code, [range(1)])
    compiler.wait()
    assert compiled == [range(1)]
    compiler.end()
    compiler.put(code, [range(1, 2)])
    compiler.wait()
    assert compiled == [range(1)]


ENDING = """
import sys, threading, time
import numpy as np
from luthier.emulator.inspection.bench import Bench, assemble
from luthier.emulator.native import machine
from luthier.emulator.running import hot
from luthier.isa import Isa

isa = Isa.of("gfx90a")
moves = "".join(f"v_add_u32_e32 v{to}, v{to + 1}, v{to + 1}\\n" for to in range(4))
bench = Bench(isa, assemble(isa, f"{moves}s_endpgm\\n"))
bench.run(np.zeros(128, np.uint32), np.zeros((5, 64), np.uint32), 1)
begun, add = threading.Event(), machine.MachineCode.addresses

def slow(*arguments, **options):
    begun.set()
    time.sleep(0.2)
    return add(*arguments, **options)

before = machine.machine_code().compiled
machine.MachineCode.addresses = slow
hot.compiler().put(bench.code, [range(4)])
begun.wait()
if sys.argv[1] == "wait":
    hot.compiler().wait()
    print(machine.machine_code().compiled - before)
"""
"""A process that ends while it compiles, or prints how many functions it had to compile."""


def test_a_process_ends_while_it_compiles(tmp_path: Path) -> None:
    """In silence, and the function is there for the next process."""
    environment = {**os.environ, "LUTHIER_CACHE_DIR": str(tmp_path)}
    outputs = []
    for action in ("end", "wait"):
        command = [sys.executable, "-W", "error", "-c", ENDING, action]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
        outputs.append((done.returncode, done.stdout, done.stderr))
    assert outputs == [(0, "", ""), (0, "0\n", "")]


def test_what_the_end_of_a_process_prevents_is_not_said(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, is_ending = threading.Event(), threading.Event()

    def compile_runs(code: DecodedCode, stretch: range) -> None:
        begun.set()
        is_ending.wait(60)
        raise RuntimeError("cannot start new threads after interpreter shutdown")

    monkeypatch.setattr(hot, "compile_runs", compile_runs)
    isa = Isa.of("gfx90a")
    compiler = hot.Compiler()
    code = DecodedCode(isa, [(0, assemble(isa, "s_nop 0\ns_endpgm\n"))])
    compiler.put(code, [range(1)])
    assert begun.wait(60)
    monkeypatch.setattr(compiler, "wait", is_ending.set)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        compiler.end()
        hot.Compiler.wait(compiler)
    assert not caught


FORKED = """
import os, signal, sys, threading, time
import numpy as np
from luthier.emulator.inspection.bench import Bench, assemble, run_assembly
from luthier.emulator.native.machine import MachineCode
from luthier.emulator.running import hot
from luthier.isa import Isa

hot.LEAST = 1
isa = Isa.of("gfx90a")
bench = Bench(isa, assemble(isa, "v_mov_b32 v0, v1\\ns_endpgm\\n"))
bench.run(np.zeros(128, np.uint32), np.zeros((2, 64), np.uint32), 1)
begun, load = threading.Event(), MachineCode._load

def slow(code, names):
    if threading.current_thread() is not threading.main_thread():
        begun.set()
        time.sleep(0.1)
    load(code, names)

MachineCode._load = slow
hot.compiler().put(bench.code, [range(1)])
begun.wait()
child = os.fork()
if not child:
    signal.alarm(20)
    run_assembly("gfx90a", "v_mov_b32 v0, v2")
    sys.exit(0)
print(os.waitpid(child, 0)[1])
"""
"""A process that forks while it compiles."""


def test_a_forked_process_goes_on() -> None:
    done = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr


CALLS = """
#include <hip/hip_runtime.h>
typedef unsigned (*F)(unsigned);
extern "C" __device__ __noinline__ unsigned step(unsigned x) { return (x ^ 0x12345678u) * 3u + 1013904223u; }
extern "C" __device__ __noinline__ unsigned other(unsigned x) { return x + 1; }
__device__ F table[2] = {step, other};
extern "C" __global__ void calls(unsigned *out, unsigned *done, unsigned which, unsigned rounds) {
  F f = table[which];
  unsigned x = threadIdx.x;
  unsigned turn = blockIdx.x == 0;
  __hip_atomic_fetch_add(done + turn, 1u, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_AGENT);
  while (!__hip_atomic_load(done + !turn, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_AGENT))
    __builtin_amdgcn_s_sleep(1);
  if (turn) {
    for (unsigned i = 0; i < rounds; ++i)
      x = f(x);
    __hip_atomic_store(done + 2, 1u, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_AGENT);
  } else {
    while (!__hip_atomic_load(done + 2, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_AGENT))
      __builtin_amdgcn_s_sleep(1);
    out[threadIdx.x] = f(x);
  }
}
"""
"""Two work-groups at once: one calls a function by its address very often, the other then once."""


def test_who_comes_to_hot_code_later_has_its_literals(
    compile_object: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hot, "HOT", 1 << 16)
    given = np.arange(64, dtype=np.uint32)
    expected = (given ^ np.uint32(0x12345678)) * np.uint32(3) + np.uint32(1013904223)
    for _ in range(2):  # the second one finds the functions made
        device = luthier.open_device("emu:gfx90a", threads=2)
        kernel = device.load(compile_object(CALLS, "gfx90a")).kernel("calls")
        out, done = np.zeros(64, np.uint32), np.zeros(3, np.uint32)
        kernel.launch(out, done, 0, 400_000, grid=2, block=64)
        assert out.tolist() == expected.tolist()


def test_stretches() -> None:
    """Stretches start where control may enter and end where it may leave."""
    isa = Isa.of("gfx90a")
    move = "v_mov_b32 v0, v1\n"
    code = DecodedCode(isa, [(0, assemble(isa, f"{move}again:\n{move}{move}s_cbranch_scc1 again\n{move}s_endpgm\n"))])
    every = np.ones(code.count, np.bool_)
    assert code.straight(every) == [range(1), range(1, 3), range(4, 5)]
    every[1] = False
    assert code.straight(every) == [range(1), range(2, 3), range(4, 5)]


def test_checks_look_at_each_instruction(compile_object: Callable[..., Path]) -> None:
    """Also at those of runs that were made before."""
    launches(compile_object, "gfx90a", [100])
    checked = luthier.open_device("emu:gfx90a", check=["waits", "hazards"])
    kernel = checked.load(compile_object(LOOP, "gfx90a")).kernel("loop")
    out = [np.zeros(1024, np.uint32) for _ in range(2)]
    counts = []
    for buffer in out:
        counts.append(kernel.launch(buffer, 100, grid=16, block=64).by_address.executions.tolist())
        hot.compiler().wait()
    assert out[0].tolist() == out[1].tolist()
    assert counts[0] == counts[1]
    assert checked.findings == ()
