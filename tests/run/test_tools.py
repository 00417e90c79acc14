"""Unmodified programs under tools: right as without, and counts equal to what the virtual device counts itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from luthier import Cell, CodeObject, ExecutionCounts, InstrumentationTask, Tool, ToolModule, lift
from luthier.errors import LuthierError
from luthier.run import instrumentation, sessions
from luthier.run.folder import RunFolder
from luthier.run.selection import Selection, parse_launches

from .conftest import TARGETS, RunUnderTools
from .test_programs import SAYS, in_order

ROOT = Path(__file__).parents[2]
Build = Callable[[str], Path]
UnderTools = Callable[..., RunUnderTools]
Counts = list[tuple[bytes, dict[int, tuple[int, int]]]]

UNSTEADY = {
    "exchange": "waits for the host",
    "grid_barrier": "waits for other work-groups",
    "persistent": "waits for other work-groups",
    "histogram": "tries again until an atomic operation succeeds",
    "modules": "the device does not know code objects that the program has freed",
    "print": "waits for the host",
    "processes": "one of them ends by _exit, and the device tells nothing of it",
    "sparse": "how far its search gets in a launch depends on the order of waves",
}
"""Programs that do not always execute, or are not known to execute, the same number of instructions."""


def expected(counted: Counts, launched: Sequence[str], tools: Sequence[Tool]) -> list[int]:
    """Return each tool's expected `counter`, starting at 0, from the device's counts of a run without tools."""
    totals = [0] * len(tools)
    for data, counts in counted:
        object, left = CodeObject(data), dict(counts)
        for name in object.kernels:
            if name not in launched:
                continue
            lifted = lift(object, name)
            executions = np.zeros((2, len(lifted.code)), np.int64)
            for index, address in enumerate(lifted.code.addresses.tolist()):
                if lifted.block_of[index] >= 0:  # each instruction once, also of functions that several kernels call
                    executions[:, index] = left.pop(address, (0, 0))
            for number, tool in enumerate(tools):
                task = InstrumentationTask(lifted)
                totals[number] += tool.expected(task, ExecutionCounts(*executions))["counter"]
    return totals


def counters(ran: RunUnderTools) -> list[int]:
    """Return each tool's `counter` over all devices and processes, minus its initial value."""
    initial = {"vectors": 1000}
    return [sum(value - initial.get(tool, 0) for _, _, value in found) for tool, found in ran.variables.items()]


@pytest.mark.thorough
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", [*SAYS, "saxpy"])
def test_counts_are_the_devices_own(
    build_program: Build,
    under_tools: UnderTools,
    executed: Callable[..., Counts],
    counter: type[Tool],
    vectors: type[Tool],
    name: str,
    target: str,
) -> None:
    """Every program under two tools together."""
    program = build_program(name)
    tools = [counter(), vectors()]
    ran = under_tools(f"emu:{target}", tools, program)
    assert ran.code == 0, ran.err
    assert name == "saxpy" or in_order(name, ran.out) == SAYS[name]
    assert ran.summary["faults"] == []
    own = {name: kernel for name, kernel in ran.kernels().items() if not kernel["skipped"]}
    assert own
    assert all(kernel["covered"] for kernel in own.values()), own
    counted = counters(ran)
    if name in UNSTEADY:
        assert all(counted)
        return
    assert counted == expected(executed(f"emu:{target}", program), list(own), tools)


def test_kernels_whose_waves_nobody_could_know_run_as_they_are(
    build_program: Build, under_tools: UnderTools, vectors: type[Tool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Launches beyond the rows for counting are listed; the others are counted correctly."""
    whole = under_tools("emu:gfx90a", [vectors()], build_program("graph"))
    for module in (instrumentation, sessions):
        monkeypatch.setattr(module, "ROWS", 2)
    ran = under_tools("emu:gfx90a", [vectors()], build_program("graph"))
    assert (ran.code, ran.out, ran.summary["faults"]) == (0, SAYS["graph"], [])
    first, second = ran.kernels().values()
    assert (first["instrumented"], first["covered"], first["reason"]) == (5, True, None)
    assert (second["instrumented"], second["covered"]) == (0, False)
    assert "too many kernels to count their waves" in second["reason"]
    assert 0 < counters(ran)[0] < counters(whole)[0]
    assert [one["variable"] for one in ran.summary["variables"]] == ["counter"]  # and no cells


@pytest.mark.rows(1)
@pytest.mark.parametrize("left", ["told", "applied", "made"])
def test_pointers_are_the_originals(
    build_program: Build, under_tools: UnderTools, counter: type[Tool], left: str
) -> None:
    """Kernels that make or call pointers may be patched or not."""
    selection = Selection([name for name in ("told", "applied", "made", "from_table", "areas") if name != left])
    ran = under_tools("emu:gfx90a", [counter()], build_program("pointers"), selection=selection)
    assert (ran.code, ran.out) == (0, SAYS["pointers"]), ran.err
    assert [kernel["skipped"] for name, kernel in ran.kernels().items() if left in name] == [True]
    assert all(
        kernel["instrumented"] for name, kernel in ran.kernels().items() if left not in name and "rocclr" not in name
    )


@pytest.mark.rows(1)
@pytest.mark.parametrize("deferred", ["0", "1"])
def test_managed_variables_of_tools_are_there_when_code_is_loaded_early_or_late(
    build_program: Build,
    under_tools: UnderTools,
    counter: type[Tool],
    vectors: type[Tool],
    monkeypatch: pytest.MonkeyPatch,
    deferred: str,
) -> None:
    """Variables start with their initial values, whether HIP loads code at the program's start or at the first use."""
    monkeypatch.setenv("HIP_ENABLE_DEFERRED_LOADING", deferred)
    ran = under_tools("emu:gfx90a", [counter(), vectors()], build_program("variables"))
    assert (ran.code, ran.out, ran.summary["faults"]) == (0, SAYS["variables"], [])
    instructions, vector = counters(ran)
    assert 0 < vector < instructions


@pytest.mark.rows(1)
@pytest.mark.parametrize("targets", [("gfx906", "gfx1030"), ("gfx90a", "gfx90a", "gfx1030")])
def test_every_device_has_its_own_variables(
    build_program: Build, under_tools: UnderTools, counter: type[Tool], targets: tuple[str, ...]
) -> None:
    ran = under_tools(",".join(f"emu:{target}" for target in targets), [counter()], build_program("devices"))
    assert ran.code == 0, ran.err
    (variables,) = ran.variables.values()
    assert sorted(gpu for gpu, _, _ in variables) == list(range(len(targets)))
    values = [value for _, _, value in sorted(variables)]
    assert all(values)
    if targets[0] == targets[1]:
        assert values[0] == values[1]


SELECTIONS = {
    "all": Selection(),
    "first": Selection(end=1),
    "range": Selection(first=1, end=3),
    "every other": Selection(step=2),
    "grids": Selection(unique_grid=True),
    "name": Selection(kernels=("*scale*",)),
    "not that name": Selection(kernels=("!*scale*",)),
    "no device": Selection(devices=frozenset([1])),
}


@pytest.mark.rows(1)
@pytest.mark.parametrize("how", SELECTIONS)
def test_selection(
    build_program: Build, under_tools: UnderTools, counter: type[Tool], how: str, tmp_path: Path
) -> None:
    """The program launches scale and shift five times each."""
    selection = SELECTIONS[how]
    ran = under_tools("emu:gfx90a", [counter()], build_program("graph"), selection=selection, folder=tmp_path / "run")
    assert (ran.code, ran.out) == (0, SAYS["graph"])
    counts = {name: (kernel["launches"], kernel["instrumented"]) for name, kernel in ran.kernels().items()}
    launches = {"_Z5scalePii": 5, "_Z5shiftPii": 5}
    many = {"all": 5, "first": 1, "range": 2, "every other": 3, "grids": 1, "no device": 0}
    wanted = {name: (count, many.get(how, 5)) for name, count in launches.items()}
    if how == "name":
        wanted["_Z5shiftPii"] = (5, 0)
    if how == "not that name":
        wanted["_Z5scalePii"] = (5, 0)
    assert counts == wanted
    launches = [row["instrumented"] for row in RunFolder(tmp_path / "run").rows("launches")]
    assert len(launches) == 10
    assert sum(launches) == sum(count for _, count in wanted.values())


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("10", (0, 10, 1)),
        ("5:8", (5, 8, 1)),
        ("::100", (0, 1 << 63, 100)),
        ("3:", (3, 1 << 63, 1)),
        (":4:2", (0, 4, 2)),
    ],
)
def test_launches_as_text(text: str, wanted: tuple[int, int, int]) -> None:
    assert parse_launches(text) == wanted


@pytest.mark.parametrize("text", ["", "x", "-1", "1:2:3:4", "::0", "3:3", "5:2", "0", "1.5"])
def test_launches_that_are_none(text: str) -> None:
    with pytest.raises(LuthierError):
        parse_launches(text)


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", ["saxpy", "graph", "reduction", "scan", "sort"])
def test_counts_without_hooks_are_the_devices_own(
    build_program: Build,
    under_tools: UnderTools,
    executed: Callable[..., Counts],
    make_module: Callable[..., ToolModule],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    target: str,
) -> None:
    """A histogram from separate counters, together with a sum in a tool's variable."""
    monkeypatch.syspath_prepend(str(ROOT / "examples" / "tools" / "opcode_histogram"))
    from luthier_opcode_histogram import OpcodeHistogram

    module = make_module("__device__ uint64_t counter = 0;", *TARGETS)

    class Sum(Tool):
        """Counts everything."""

        name = "sum"

        def instrument(self, task: InstrumentationTask) -> None:
            task.count(task.instructions, into=Cell(module, "counter"))

    OpcodeHistogram.name = "histogram"
    program = build_program(name)
    ran = under_tools(f"emu:{target}", [OpcodeHistogram(top=0), Sum()], program)
    assert ran.code == 0, ran.err
    assert ran.summary["faults"] == []
    (histogram,) = (tool["tables"] for tool in ran.summary["tools"] if tool["tool"] == "histogram")
    counted: Counter[str] = Counter()
    for table in histogram:
        counted.update({opcode: count for opcode, count, _ in table["rows"] if opcode != "all"})
    wanted: Counter[str] = Counter()
    for data, counts in executed(f"emu:{target}", program):
        object = CodeObject(data)
        for kernel in object.kernels:
            lifted = lift(object, kernel)
            for index, address in enumerate(lifted.code.addresses.tolist()):
                if kernel in ran.kernels() and lifted.block_of[index] >= 0:
                    wanted[lifted.instructions[index].mnemonic] += counts.pop(address, (0, 0))[0]
    assert counted == +wanted
    assert sum(counted.values()) > 50
    assert [value for _, _, value in ran.variables["sum"]] == [sum(counted.values())]


@pytest.mark.rows(1)
@pytest.mark.parametrize("devices", ["emu:gfx90a", "emu:gfx1030"])
@pytest.mark.parametrize("name", ["reduction", "scan"])
def test_rows_of_waves_add_up_to_the_devices_own_counts(
    build_program: Build,
    under_tools: UnderTools,
    executed: Callable[..., Counts],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    devices: str,
) -> None:
    """For newly patched and kept kernels; if the buffer is too small, the number of missing waves is reported."""
    monkeypatch.syspath_prepend(str(ROOT / "examples" / "tools" / "block_profile"))
    from luthier_block_profile import BlockProfile

    program = build_program(name)
    counted = executed(devices, program)
    for rows in (3000, 3000, 2):
        ran = under_tools(devices, [BlockProfile(per="wave", rows=rows)], program)
        assert ran.code == 0, ran.err
        assert ran.summary["faults"] == []
        (tool,) = ran.summary["tools"]
        tables = {table["title"]: table["rows"] for table in tool["tables"]}
        for data, counts in counted:
            object = CodeObject(data)
            for kernel in object.kernels:
                if kernel not in ran.kernels():
                    continue
                lifted = lift(object, kernel)
                ours = [at for at, block in enumerate(lifted.block_of) if block >= 0]
                times = [counts.get(int(lifted.code.addresses[at]), (0, 0))[0] for at in ours]
                waves = counts[int(lifted.code.addresses[lifted.index_at(lifted.kernel.entry)])][0]
                missing = f", {waves - rows} more waves have no row" if waves > rows else ""
                (title,) = (title for title in tables if title.startswith(f"{kernel}: each wave"))
                assert title.startswith(f"{kernel}: each wave{missing}")
                assert len(tables[title]) == min(waves, rows)
                if not missing:
                    assert sum(row[4] for row in tables[title]) == sum(times)
