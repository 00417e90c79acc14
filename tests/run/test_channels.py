"""Channels of tools in unmodified programs: every record arrives once, also if listeners wait, raise or are killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from commands import PATIENCE
from luthier import InstrumentationTask, Tool, ToolModule
from luthier.run import parse_devices, results, run_program
from luthier.run.folder import RunFolder
from luthier.run.instrumentation import Instrumentation
from luthier.run.record import Recorder
from luthier.run.selection import Selection
from luthier.tool import ToolGroup
from luthier.tool.observation import Launch, LiveChannel, Run
from numpy.typing import NDArray

from .conftest import TARGETS, apart

Build = Callable[[str], Path]

SOURCE = """
#include <luthier/channel.h>
struct Store { uint64_t key; uint32_t lane, check; };
LUTHIER_RECORD(Store, key, lane, check)
__device__ luthier::channel<Store> stores{CAPACITY, luthier::when_full::MODE};
__device__ luthier::channel<uint16_t> waves;
__device__ uint64_t passed = 0;

/// `stored` is item * 3 + round.
LUTHIER_HOOK_ANNOTATE push(uint32_t stored) {
  const uint32_t item = blockIdx.x * 256 + threadIdx.x;
  const uint64_t key = (uint64_t)item << 32 | (stored - item * 3);
  stores.push({key, __lane_id(), (uint32_t)(key * 0x9E3779B97F4A7C15ull >> 32)});
  waves.pushWave(__builtin_popcountll(__builtin_amdgcn_read_exec()));
  luthier::sAtomicAdd<uint64_t>(&passed, 1);
}

LUTHIER_HOOK_ANNOTATE say(uint32_t stored) {
  luthier::printf("%s %u%%%4d\\n", "item", blockIdx.x * 256 + threadIdx.x, (int)stored);
}
"""
FACTOR = np.uint64(0x9E3779B97F4A7C15)


def source(capacity: int = 0, mode: str = "wait") -> str:
    """The tool's device code."""
    return SOURCE.replace("CAPACITY", str(capacity)).replace("MODE", mode)


def expected(items: int, rounds: int) -> NDArray[np.uint64]:
    """The keys of one launch, sorted."""
    item, turn = np.meshgrid(np.arange(items, dtype=np.uint64), np.arange(rounds, dtype=np.uint64), indexing="ij")
    keys = item << np.uint64(32) | turn
    return np.sort(keys[(item + turn) % 3 != 0])


class Tracer(Tool):
    """Pushes a record for each store, and leaves them to the run directory."""

    hook = "push"
    modules: ToolModule

    def instrument(self, task: InstrumentationTask) -> None:
        for instruction in task.instructions:
            if instruction.mnemonic.startswith("global_store"):
                task.insert_hook_before(instruction, self.modules.hook(self.hook), task.operand(instruction, "vdata"))


class Collector(Tracer):
    """Takes the records itself."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[tuple[str, int, int, NDArray[Any]]] = []
        self.at_end: list[int] = []

    def at_records(self, channel: LiveChannel, batch: NDArray[Any]) -> None:
        self.batches.append((channel.name, channel.pid, channel.gpu, batch))

    def keys(self, gpu: int | None = None) -> NDArray[np.uint64]:
        """Return the sorted keys of all records; check that each record is complete."""
        batches = [batch for name, _, at, batch in self.batches if name == "stores" and gpu in (None, at)]
        records = np.concatenate(batches)
        assert np.array_equal(records["check"], (records["key"] * FACTOR >> np.uint64(32)).astype(np.uint32))
        return np.sort(records["key"])


@dataclass
class Traced:
    """A run under tools."""

    code: int
    tools: Sequence[Any]
    channels: Sequence[tuple[str, int, int, int, int, int]]
    """Name, process, device, taken, dropped, lost; of the first tool."""
    passed: int
    faults: Sequence[str]


def traced(
    devices: str,
    tools: Sequence[Tool],
    command: Sequence[str | Path],
    folder: Path | None = None,
    spoil: Callable[[Path], object] | None = None,
) -> Traced:
    """Run a program in a separate process.

    Args:
        folder: the run directory.
        spoil: does something to it before the run begins.
    """
    argv = [str(part) for part in command]
    modules = [tool.modules for tool in tools if isinstance(tool, Tracer)]

    def work() -> Traced:
        recorder = None if folder is None else Recorder(folder)
        instrumentation = Instrumentation(ToolGroup(tools), Selection(), recorder)
        if folder is not None and spoil is not None:
            spoil(folder)
        instrumentation.begin()
        code = run_program(argv, parse_devices(devices), instrumentation)
        instrumentation.end()
        if recorder is not None:
            reported = list(results.tables(instrumentation))
            recorder.finish(instrumentation, results.summary(instrumentation, argv, code, reported))
        view = instrumentation.view(tools[0])
        views = [*view.channels("stores"), *view.channels("waves")]
        channels = [(c.name, c.pid, c.gpu, c.taken, c.dropped, c.lost) for c in views]
        for tool in tools:
            vars(tool).pop("modules", None)
        return Traced(code, [vars(tool) for tool in tools], channels, view.total("passed"), instrumentation.faults)

    result: Traced = apart(work)
    for tool, state in zip(tools, result.tools, strict=True):
        vars(tool).update(state)
    for tool, module in zip((tool for tool in tools if isinstance(tool, Tracer)), modules, strict=True):
        tool.modules = module
    result.tools = tools
    return result


@pytest.fixture
def collector(make_module: Callable[..., ToolModule]) -> Callable[..., Collector]:
    """``collector(cls, …)``: a tool whose channel is as `source` says."""

    def make(cls: type[Any] = Collector, capacity: int = 0, mode: str = "wait") -> Any:
        tool = cls()
        tool.modules = make_module(source(capacity, mode), *TARGETS)
        return tool

    return make


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("capacity", [1, 0])
def test_every_record_once(build_program: Build, collector: Any, target: str, capacity: int) -> None:
    tool = collector(capacity=capacity)
    ran = traced(f"emu:{target}", [tool], [build_program("trace"), "3000", "20", "3"])
    assert (ran.code, ran.faults) == (0, [])
    keys = expected(3000, 20)
    assert np.array_equal(tool.keys(), np.sort(np.tile(keys, 3)))
    assert [(name, taken, dropped, lost) for name, _, _, taken, dropped, lost in ran.channels] == [
        ("stores", 3 * len(keys), 0, 0),
        ("waves", ran.passed, 0, 0),
    ]
    lanes = np.concatenate([batch["value"] for name, *_, batch in tool.batches if name == "waves"])
    assert lanes.sum() == 3 * len(keys)


def test_tools_devices_and_processes(build_program: Build, collector: Any) -> None:
    """Two tools with channels of the same names, two devices, three processes in parallel."""
    tools = [collector(capacity=1), collector(capacity=3000)]
    program = build_program("trace")
    script = f"{program} 600 9 2 & {program} 600 9 2 & {program} 600 9 2; a=$?; wait; exit $a"
    ran = traced("emu:gfx90a,emu:gfx1030", tools, ["sh", "-c", script])
    assert (ran.code, ran.faults) == (0, [])
    keys = np.sort(np.tile(expected(600, 9), 2))
    for tool in tools:
        pids = {pid for _, pid, _, _ in tool.batches}
        assert len(pids) == 3
        for pid in pids:
            for gpu in (0, 1):
                batches = [batch for name, *at, batch in tool.batches if (name, at) == ("stores", [pid, gpu])]
                assert np.array_equal(np.sort(np.concatenate(batches)["key"]), keys)


def test_tables_in_the_run_directory(build_program: Build, collector: Any, tmp_path: Path) -> None:
    """Without `at_records`; two tools whose channels have one name get a table each."""
    tools = [collector(Tracer, 1), collector(Tracer, 200)]
    tools[1].name = "other"
    folder = tmp_path / "run"
    ran = traced("emu:gfx1030,emu:gfx906", tools, [build_program("trace"), "700", "9", "2"], folder)
    assert (ran.code, ran.faults) == (0, [])
    names = {"trace-stores", "trace-waves", "trace-stores-other", "trace-waves-other"}
    run = RunFolder(folder)
    assert {name for name in run.names if name.startswith("trace")} == names
    rows = 2 * 2 * len(expected(700, 9))
    assert [run.summary.tables[name] for name in ("trace-stores", "trace-stores-other")] == [rows, rows]
    for name in ("trace-stores", "trace-stores-other"):
        table = pq.read_table(folder / f"{name}.parquet")
        assert table.column_names == ["process", "device", "key", "lane", "check"]
        device, key = table["device"].to_numpy(), table["key"].to_numpy()
        for gpu in (0, 1):
            assert np.array_equal(np.sort(key[device == gpu]), np.sort(np.tile(expected(700, 9), 2)))


class Unpacks(Tracer):
    """Makes two records of each."""

    def unpacked(self, channel: LiveChannel, batch: NDArray[Any]) -> NDArray[Any]:
        assert len(batch) <= 4096
        made = np.zeros(2 * len(batch), [("number", "<u8"), ("process", "u1")])
        if channel.name == "stores":
            made["number"] = np.repeat(batch["key"], 2)
            made["process"][1::2] = 1
        return made


def test_records_that_stand_for_others(build_program: Build, collector: Any, tmp_path: Path) -> None:
    """Tables have what the tool makes of them."""
    folder = tmp_path / "run"
    ran = traced("emu:gfx90a", [collector(Unpacks)], [build_program("trace"), "700", "9", "1"], folder)
    assert (ran.code, ran.faults) == (0, [])
    table = pq.read_table(folder / "trace-stores.parquet")
    assert table.column_names == ["run_process", "device", "number", "process"]
    number, half = table["number"].to_numpy(), table["process"].to_numpy()
    for which in (0, 1):
        assert np.array_equal(np.sort(number[half == which]), np.sort(expected(700, 9)))


def test_tables_that_cannot_be_written(build_program: Build, collector: Any, tmp_path: Path) -> None:
    """Each failure is reported once; the program's results are correct, and nothing waits."""

    def spoil(folder: Path) -> None:
        for name in ("stores", "waves"):
            (folder / f"trace-{name}.parquet.partial").mkdir()

    command = [build_program("trace"), "700", "9", "2"]
    ran = traced("emu:gfx90a", [collector(Tracer, 1)], command, tmp_path / "run", spoil)
    assert ran.code == 0
    assert len(ran.faults) == 2
    assert all("are lost: cannot write" in fault for fault in ran.faults)
    assert ran.channels[0][3] == 2 * len(expected(700, 9))


class Slow(Collector):
    """Takes its time."""

    def at_records(self, channel: LiveChannel, batch: NDArray[Any]) -> None:
        super().at_records(channel, batch)
        time.sleep(0.02)


def test_dropped_records_are_counted(build_program: Build, collector: Any) -> None:
    tool = collector(Slow, 1, "drop")
    ran = traced("emu:gfx90a", [tool], [build_program("trace"), "3000", "20", "1"])
    assert (ran.code, ran.faults) == (0, [])
    keys = expected(3000, 20)
    (_, _, _, taken, dropped, lost), _ = ran.channels
    assert dropped > 0
    assert (taken + dropped, lost) == (len(keys), 0)
    assert np.isin(tool.keys(), keys).all()
    assert len(np.unique(tool.keys())) == taken


class AtEnd(Collector):
    """Records how many records had arrived when each launch ended."""

    def at_kernel_end(self, launch: Launch) -> None:
        self.at_end.append(sum(len(batch) for name, *_, batch in self.batches if name == "stores"))

    reset_each_launch = True


def test_records_come_before_the_end_of_their_launch(build_program: Build, collector: Any) -> None:
    """And variables that are reset leave channels alone."""
    tool = collector(AtEnd, 200)
    ran = traced("emu:gfx90a", [tool], [build_program("trace"), "600", "9", "3"])
    assert (ran.code, ran.faults) == (0, [])
    assert tool.at_end == [len(expected(600, 9)) * number for number in (1, 2, 3)]


class Raises(Tracer):
    """Has a bug."""

    def at_records(self, channel: LiveChannel, batch: NDArray[Any]) -> None:
        raise RuntimeError(f"a bug with {channel.name}")

    def at_exit(self, run: Run) -> None:
        raise RuntimeError(f"{len(run.channels('stores'))} channel")


def test_a_tool_that_raises(build_program: Build, collector: Any) -> None:
    other = collector()
    ran = traced("emu:gfx90a", [collector(Raises, 1), other], [build_program("trace"), "600", "9", "2"])
    assert ran.code == 0
    assert len(ran.faults) == 3
    assert any("failed in at_records" in fault and "a bug with waves" in fault for fault in ran.faults)
    assert any("failed in at_exit" in fault and "1 channel" in fault for fault in ran.faults)
    assert np.array_equal(other.keys(), np.sort(np.tile(expected(600, 9), 2)))


@pytest.mark.thorough
@pytest.mark.rows
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_program_that_is_killed(build_program: Build, collector: Any, number: int) -> None:
    """Whatever was whole is there, and what was not is counted."""
    script = f"""
import subprocess, sys, time
program = subprocess.Popen([*sys.argv[1:], "3000", "9", "1", "forever"], stdout=subprocess.PIPE)
program.stdout.readline()
time.sleep(4)
program.send_signal({int(number)})
sys.exit(-program.wait(60))
"""
    tool = collector(capacity=500)
    ran = traced("emu:gfx90a", [tool], [sys.executable, "-c", script, build_program("trace")])
    assert (ran.code, ran.faults) == (number, [])
    (_, _, _, taken, dropped, lost), _ = ran.channels
    assert len(tool.keys()) == taken > 1000
    assert dropped == 0
    assert lost < 3000  # at most what each work-item was about to push
    assert np.isin(tool.keys(), expected(3000, 9)).all()


def test_lines(build_program: Build, collector: Any, capfd: pytest.CaptureFixture[str]) -> None:
    """`luthier::printf`: a line for each lane, in C's format, on standard error."""
    tool = collector(Tracer)
    tool.hook = "say"
    ran = traced("emu:gfx1030", [tool], [build_program("trace"), "300", "2", "1"])
    assert (ran.code, ran.faults) == (0, [])
    out, err = capfd.readouterr()
    assert out == "traced\n"
    lines = [f"item {item}%{item * 3 + turn:4d}" for item in range(300) for turn in range(2) if (item + turn) % 3]
    assert sorted(err.splitlines()) == sorted(lines)


def test_the_service_is_killed(build_program: Build, make_module: Callable[..., ToolModule], tmp_path: Path) -> None:
    """While waves wait for room: they give up, and the program ends as without tools."""
    module = make_module(source(1), *TARGETS, in_file=True)
    script = tmp_path / "service.py"
    script.write_text(
        textwrap.dedent(
            f"""
            import sys, time
            from pathlib import Path
            from luthier import Tool, ToolModule
            from luthier.run import parse_devices, results, run_program
            from luthier.run.instrumentation import Instrumentation
            from luthier.run.selection import Selection
            from luthier.tool import ToolGroup

            class Stuck(Tool):
                def instrument(self, task):
                    module = MODULE
                    for one in task.instructions:
                        if one.mnemonic.startswith("global_store"):
                            task.insert_hook_before(one, module.push, task.operand(one, "vdata"))

                def at_records(self, channel, batch):
                    Path({str(tmp_path / "begun")!r}).touch()
                    time.sleep(1000)

            MODULE = ToolModule.load({module.name!r})
            instrumentation = Instrumentation(ToolGroup([Stuck()]), Selection())
            run_program(sys.argv[1:], parse_devices("emu:gfx90a"), instrumentation)
            """
        )
    )
    done = tmp_path / "done"
    command = f"{build_program('trace')} 3000 9 2 > {tmp_path / 'out'}; echo $? > {done}.new; mv {done}.new {done}"
    service = subprocess.Popen([sys.executable, str(script), "sh", "-c", command], env={**os.environ})
    try:
        wait_for(tmp_path / "begun")
        time.sleep(1)
        assert not done.exists()
    finally:
        service.kill()
        service.wait()
    wait_for(done)
    assert done.read_text() == "0\n"
    assert (tmp_path / "out").read_text() == "traced\n"


def wait_for(path: Path) -> None:
    """Until there is something."""
    end = time.monotonic() + PATIENCE
    while not path.exists():
        assert time.monotonic() < end, f"{path} does not come"
        time.sleep(0.05)
