"""The native executor in this process: its threads, the help that it asks for, what is left of it."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from luthier.emulator import layout
from luthier.emulator.binding.program import DecodedCode
from luthier.emulator.inspection.bench import assemble
from luthier.emulator.running.execution import ExecutionOutcome, execute
from luthier.emulator.running.executor import Executor, StructureBlock
from luthier.emulator.running.memory import AllocationTable
from luthier.emulator.running.plan import code_plan
from luthier.isa import Isa

GROUPS = 64
ONE = dict.fromkeys(("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z"), 1)


class Program:
    """Work-groups of one wave that start with nothing."""

    def __init__(self, source: str) -> None:
        isa = Isa.of("gfx942")
        self.code = DecodedCode(isa, [(0, assemble(isa, source))])
        self.plan = code_plan(self.code, 0, 0x3F0, isa.target.target)
        self.images = np.zeros(64, np.uint8)
        self.images[:8] = 0xFF
        self.dispatch = {**ONE, "grid_x": GROUPS, "images": self.images.ctypes.data, "image_size": 64}

    def run(self, executor: Executor, **more: int) -> ExecutionOutcome:
        dispatch = self.dispatch | more
        return execute(executor, AllocationTable(), self.code, self.plan, dispatch, "program", step_limit=1 << 20)


def threads() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("cooperative", [0, 1])
def test_every_work_group_runs_once_and_is_counted(count: int, cooperative: int) -> None:
    loop = "again:\ns_sub_u32 s0, s0, 1\ns_cmp_lg_u32 s0, 0\ns_cbranch_scc1 again\n"
    program = Program(f"s_mov_b32 s0, 9\n{loop}s_endpgm")
    executor = Executor(count)
    for _ in range(3):  # counts begin at 0 each time
        outcome = program.run(executor, cooperative=cooperative)
        assert outcome.fault is None
        assert outcome.counts[:5].tolist() == [GROUPS, *[9 * GROUPS] * 3, GROUPS]
        assert outcome.lanes[:5].tolist() == [64 * n for n in outcome.counts[:5].tolist()]


def test_threads_are_kept_from_launch_to_launch_and_end_with_their_executor() -> None:
    program = Program("s_endpgm")
    gc.collect()  # executors of earlier tests end now, not while threads are counted
    gc.freeze()  # the other objects take seconds to scan
    before = threads()
    executor = Executor(4)
    assert threads() == before
    program.run(executor)
    kept = threads()
    assert before < kept <= before + 4
    for _ in range(20):
        program.run(executor)
    assert threads() == kept
    del executor
    gc.collect()
    assert threads() == before
    gc.unfreeze()


def test_what_help_raises_is_raised_and_the_executor_goes_on() -> None:
    """No code is bound when the threads start, so that all threads request it at the same time."""
    program = Program("s_mov_b32 s0, 1\ns_endpgm")
    executor = Executor(4)
    counts = np.zeros((2, program.code.count + 1), np.uint64)
    table, _ = AllocationTable().table()
    planned = StructureBlock(layout.PLAN, program.plan)
    dispatch = {**program.dispatch, "plan": planned.address, "stepped": 0, "quantum": 1, "step_limit": 1 << 20}
    dispatch |= {"ranges": table.ctypes.data, "range_count": len(table)}
    dispatch |= {"counts": counts[0].ctypes.data, "lanes": counts[1].ctypes.data}

    def broken(reason: int, context: int, group: int, key: int, record: int) -> bool:
        assert (reason, key, record) == (layout.UNBOUND, program.plan["key"], 0)
        raise ValueError("no help")

    for _ in range(3):
        with pytest.raises(ValueError, match="no help"):
            executor.run([dispatch], broken)
    assert not counts.any()
    program.code.ensure(program.plan["key"], 0)
    executor.run([dispatch], broken)
    assert counts[0, :2].tolist() == [GROUPS, GROUPS]


def test_executors_work_at_the_same_time() -> None:
    program = Program("s_mov_b32 s0, 9\ns_endpgm")
    results: list[int] = []

    def run() -> None:
        executor = Executor(2)
        results.extend(int(program.run(executor).counts[0]) for _ in range(50))

    runners = [threading.Thread(target=run) for _ in range(4)]
    for runner in runners:
        runner.start()
    for runner in runners:
        runner.join()
    assert results == [GROUPS] * 200


def test_a_child_process_starts_its_own_threads() -> None:
    program, executor = Program("s_mov_b32 s0, 9\ns_endpgm"), Executor(2)
    program.run(executor)
    child = os.fork()
    if child == 0:
        good = program.run(executor).counts[:2].tolist() == [GROUPS, GROUPS]
        del executor
        os._exit(0 if good else 1)
    limit = time.monotonic() + 30
    while (ended := os.waitpid(child, os.WNOHANG))[0] == 0 and time.monotonic() < limit:
        time.sleep(0.01)
    if ended[0] == 0:
        os.kill(child, 9)
        os.waitpid(child, 0)
    assert ended == (child, 0)
    assert program.run(executor).counts[0] == GROUPS


_ABANDONED = """
import sys, threading, time
import numpy as np
import luthier
device = luthier.open_device("emu:gfx942", threads=2)
device.step_limit = 1 << 40
kernel = device.load(sys.argv[1]).kernel("endless_jumps")
threading.Thread(target=lambda: kernel.launch(np.zeros(4, np.int32), grid=4), daemon=True).start()
time.sleep(1)
print("ends", flush=True)
"""


def test_a_process_ends_while_a_daemon_thread_launches(build_kernels: Callable[[str, str], Path]) -> None:
    command = [sys.executable, "-c", _ABANDONED, str(build_kernels("bad", "gfx942"))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "ends\n"), done.stderr
