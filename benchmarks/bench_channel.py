"""Trace channels under `luthier run`: ten million records without loss, and plain stores to a large buffer."""

from __future__ import annotations

import multiprocessing
import os
import resource
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from luthier import InstrumentationTask, Tool, ToolModule
from luthier.run import parse_devices, run_program
from luthier.run.instrumentation import Instrumentation
from luthier.run.record import Recorder
from luthier.run.selection import Selection
from luthier.tool import ToolGroup
from luthier.tool.observation import LiveChannel
from run import Row

from luthier_build.compile import compile_device
from luthier_build.workspace import build_folder

RECORDS = 10_000_000
ITEMS, ROUNDS = 50_000, RECORDS // 50_000
TARGET = "gfx90a"

PROGRAM = """
#include <hip/hip_runtime.h>
#include <cstdint>
__global__ void stores(uint32_t *out, uint32_t n, uint32_t rounds) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n)
    return;
#pragma unroll 1
  for (uint32_t round = 0; round < rounds; ++round)
    out[uint64_t(round) * n + i] = i * 3 + round;
}
int main() {
  uint32_t *out;
  if (hipMalloc(&out, sizeof *out * ITEMS * ROUNDS) != hipSuccess)
    return 1;
  stores<<<(ITEMS + 255) / 256, 256>>>(out, ITEMS, ROUNDS);
  return hipDeviceSynchronize() != hipSuccess;
}
"""

DEVICE = """
#include <hip/hip_runtime.h>
#include <luthier/channel.h>
MARK_LUTHIER_DEVICE_MODULE
struct Store { uint64_t key; uint32_t lane, group; };
LUTHIER_RECORD(Store, key, lane, group)
__device__ luthier::channel<Store> stores;
__device__ Store buffer[RECORDS];

LUTHIER_HOOK_ANNOTATE push(uint32_t stored) {
  const uint32_t item = blockIdx.x * 256 + threadIdx.x;
  stores.push({(uint64_t)item << 32 | (stored - item * 3), __lane_id(), blockIdx.x});
}

/// Every work-item has places of its own: no counter, and nothing that must be waited for.
LUTHIER_HOOK_ANNOTATE store(uint32_t stored) {
  const uint32_t item = blockIdx.x * 256 + threadIdx.x, round = stored - item * 3;
  buffer[(uint64_t)round * ITEMS + item] = {(uint64_t)item << 32 | round, __lane_id(), blockIdx.x};
}
"""
DTYPE = np.dtype([("key", "<u8"), ("lane", "<u4"), ("group", "<u4")])


class _Traced(Tool):
    """Puts one hook before each store."""

    def __init__(self, module: ToolModule, hook: str) -> None:
        super().__init__()
        self.module, self.hook = module, hook

    def instrument(self, task: InstrumentationTask) -> None:
        for instruction in task.instructions:
            if instruction.mnemonic.startswith("global_store"):
                task.insert_hook_before(instruction, self.module.hook(self.hook), task.operand(instruction, "vdata"))


class _Taken(_Traced):
    """Takes the records, and checks that each key comes once."""

    def __init__(self, module: ToolModule, hook: str) -> None:
        super().__init__(module, hook)
        self.seen = np.zeros((ROUNDS, ITEMS), bool)
        self.count = 0

    def at_records(self, channel: LiveChannel, batch: Any) -> None:
        self.count += len(batch)
        key = batch["key"]
        self.seen[(key & np.uint64(0xFFFFFFFF)).astype(np.intp), (key >> np.uint64(32)).astype(np.intp)] = True


@dataclass(frozen=True)
class _Cost:
    wall: float
    cpu: float
    """Seconds; CPU time of the program and of the service."""


def _run(tool: _Traced | None, program: Path, folder: Path | None) -> _Cost:
    """Run the program in a forked process, because a process can reserve memory for a run only once."""

    def work() -> _Cost:
        def used() -> float:
            return sum(
                usage.ru_utime + usage.ru_stime
                for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
            )

        instrumentation = None
        if tool is not None:
            recorder = None if folder is None else Recorder(folder)
            instrumentation = Instrumentation(ToolGroup([tool]), Selection(), recorder)
            instrumentation.begin()
        before, began = used(), time.perf_counter()
        code = run_program([str(program)], parse_devices(f"emu:{TARGET}"), instrumentation)
        if instrumentation is not None:
            instrumentation.end()
            _check(tool, instrumentation)
        cost = _Cost(time.perf_counter() - began, used() - before)
        if code or (instrumentation is not None and instrumentation.faults):
            raise RuntimeError(f"the program failed: {code}, {instrumentation and instrumentation.faults}")
        return cost

    return _apart(work)


def _check(tool: _Traced | None, instrumentation: Instrumentation) -> None:
    """Check that nothing was lost.

    Raises:
        RuntimeError: something was.
    """
    assert tool is not None
    view = instrumentation.view(tool)
    if tool.hook == "store":
        (variable,) = view.variables("buffer")
        keys = np.frombuffer(variable.read(), DTYPE)["key"].reshape(ROUNDS, ITEMS)
        good = bool((keys[1:, 1:] != 0).all())
    else:
        (channel,) = view.channels("stores")
        good = channel.taken == RECORDS and channel.dropped == channel.lost == 0
        good = good and (not isinstance(tool, _Taken) or (tool.count == RECORDS and bool(tool.seen.all())))
    if not good:
        raise RuntimeError("records were lost")


def _apart(work: Callable[[], _Cost]) -> _Cost:
    context = multiprocessing.get_context("fork")
    reading, writing = context.Pipe(duplex=False)
    process = context.Process(target=lambda: writing.send(work()))
    process.start()
    writing.close()
    try:
        cost: _Cost = reading.recv()
    finally:
        process.join()
    return cost


def measure() -> Iterable[Row]:
    """Yield the rows."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        defines = [f"-DITEMS={ITEMS}", f"-DROUNDS={ROUNDS}", f"-DRECORDS={RECORDS}"]
        (folder / "program.hip").write_text(PROGRAM)
        (folder / "device.hip").write_text(
            "".join(f"#define {one[2:].replace('=', ' ')}\n" for one in defines) + DEVICE
        )
        program = folder / "program"
        command = ["hipcc", f"--offload-arch={TARGET}", "-O1", "-w", *defines, str(folder / "program.hip")]
        subprocess.run([*command, "-o", str(program)], check=True, env={**os.environ, "HIP_PLATFORM": "amd"})
        with build_folder(folder / "build") as held:
            built = compile_device([folder / "device.hip"], [TARGET], folder=held, report=lambda line: None)
        module = ToolModule.load(built.bundle)

        # Each is run once before: operations are compiled once for a machine, kernels patched once.
        runs: dict[str, Callable[[int], _Cost]] = {
            "none": lambda _: _run(None, program, None),
            "plain": lambda _: _run(_Traced(module, "store"), program, None),
            "taken": lambda _: _run(_Taken(module, "push"), program, None),
            "kept": lambda number: _run(_Traced(module, "push"), program, folder / f"run{number}"),
        }
        times = {name: [run(number) for number in range(3)][1:] for name, run in runs.items()}
        wall = {name: min(cost.wall for cost in costs) for name, costs in times.items()}
        cpu = {name: min(cost.cpu for cost in costs) for name, costs in times.items()}
        megabytes = RECORDS * DTYPE.itemsize / 1e6
        peer = "plain stores to a buffer"
        for name, what in (("taken", "to at_records"), ("kept", "to a Parquet table")):
            seconds = wall[name] - wall["none"]
            plain = wall["plain"] - wall["none"]
            yield Row(
                f"10 million records of 16 bytes {what}",
                RECORDS / seconds / 1e6,
                "million a second",
                peer,
                RECORDS / plain / 1e6,
            )
            yield Row("the same", megabytes / seconds, "MB/s", peer, megabytes / plain)
            yield Row("the same: CPU time, program and service", cpu[name], "s", peer, cpu["plain"])
        yield Row("the program without tools: CPU time", cpu["none"], "s")
