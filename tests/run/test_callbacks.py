"""Tools that listen to a program's events, and tools that fail."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from luthier import InstrumentationTask, Tool
from luthier.support.table import Table
from luthier.tool.observation import Launch, LoadedObject, Run

from .conftest import RunUnderTools
from .test_programs import SAYS

Build = Callable[[str], Path]
UnderTools = Callable[..., RunUnderTools]


def watcher(base: type[Tool], **methods: Any) -> type[Tool]:
    """A tool that records its events and reports them."""

    class Watcher(base):  # type: ignore[misc,valid-type]
        """Notes what happens."""

        name = "watcher"

        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            self.notes: list[tuple[Any, ...]] = []

        def at_init(self, run: Run) -> None:
            """Nothing may have run yet."""
            self.notes.append(("init", len(run.kernels)))

        def at_code_object(self, loaded: LoadedObject) -> None:
            """Names of kernels."""
            self.notes.append(("object", " ".join(loaded.object.kernels)))

        def at_kernel_launch(self, launch: Launch) -> None:
            """The counter as the kernel finds it."""
            self.notes.append(("launch", launch.kernel.name, launch.number, *self.values(launch), *launch.block[:1]))

        def at_kernel_end(self, launch: Launch) -> None:
            """The counter as the kernel leaves it."""
            self.notes.append(("end", launch.kernel.name, launch.number, *self.values(launch)))

        def at_exit(self, run: Run) -> None:
            """All has ended."""
            self.notes.append(("exit", run.total("counter")))

        def report(self, run: Run) -> Iterable[Table]:
            """The notes."""
            return [Table("", ("note",), [(repr(note),) for note in self.notes])]

        def values(self, launch: Launch) -> list[int]:
            """The counter on the launch's device."""
            return [variable.value for variable in launch.variables("counter")]

    for name, value in methods.items():
        setattr(Watcher, name, value)
    return Watcher


def notes(ran: RunUnderTools) -> list[tuple[Any, ...]]:
    """Return the tool's notes."""
    (table,) = (entry["tables"] for entry in ran.summary["tools"] if entry["tool"] == "watcher")
    return [eval(row[0]) for row in table[0]["rows"]]


def test_everything_is_told_in_order(build_program: Build, under_tools: UnderTools, counter: type[Tool]) -> None:
    """The program launches scale and shift in turns, five times each."""
    ran = under_tools("emu:gfx90a", [watcher(counter)()], build_program("graph"))
    assert (ran.code, ran.out, ran.summary["faults"]) == (0, SAYS["graph"], [])
    events = notes(ran)
    assert events[0] == ("init", 0)
    assert events[-1][0] == "exit"
    assert any(note[0] == "object" and "_Z5scalePii" in note[1] for note in events)
    launches = [note for note in events if note[0] in ("launch", "end")]
    assert [note[0] for note in launches] == ["launch", "end"] * 10
    before = 0
    for begin, end in zip(launches[::2], launches[1::2], strict=True):
        assert begin[1:3] == end[1:3]
        assert begin[3] == before < end[3]
        before = end[3]
    assert before == events[-1][1] == sum(value for _, _, value in ran.variables["watcher"])
    assert {note[1:3] for note in launches} == {(f"_Z5{name}Pii", i) for name in ("scale", "shift") for i in range(5)}


def test_reset_for_each_launch(build_program: Build, under_tools: UnderTools, counter: type[Tool]) -> None:
    ran = under_tools("emu:gfx90a", [watcher(counter, reset_each_launch=True)()], build_program("graph"))
    assert (ran.code, ran.out) == (0, SAYS["graph"])
    events = notes(ran)
    assert {note[3] for note in events if note[0] == "launch"} == {0}
    ends = [note for note in events if note[0] == "end"]
    assert len(ends) == 10
    assert len({(note[1], note[3]) for note in ends}) == 2  # each kernel counts the same every time
    plain = under_tools("emu:gfx90a", [counter()], build_program("graph"))
    ((_, _, total),) = plain.variables[""]
    assert sum(note[3] for note in ends) == total


def test_a_tool_chooses_launches_and_writes_variables(
    build_program: Build, under_tools: UnderTools, counter: type[Tool]
) -> None:
    def choose(self: Any, launch: Launch) -> None:
        launch.instrumented = launch.number == 3
        for variable in launch.variables("counter"):
            variable.write((variable.value + (1 << 40)).to_bytes(8, "little"))

    ran = under_tools("emu:gfx90a", [watcher(counter, at_kernel_launch=choose)()], build_program("graph"))
    assert (ran.code, ran.out) == (0, SAYS["graph"])
    assert all((kernel["launches"], kernel["instrumented"]) == (5, 1) for kernel in ran.kernels().values())
    ((_, _, value),) = ran.variables["watcher"]
    assert value >> 40 == 10
    assert value & (1 << 40) - 1 > 0


@pytest.mark.rows(1)
@pytest.mark.parametrize(
    ("name", "value", "fault"),
    [
        ("counter", 1 << 40, ""),
        ("counter", -1, "cannot hold -1"),
        ("counters", 7, "initialises 'counters'; its hooks use counter; did you mean 'counter'?"),
    ],
)
def test_a_tool_initialises_variables_before_the_run(
    build_program: Build, under_tools: UnderTools, counter: type[Tool], name: str, value: int, fault: str
) -> None:
    """The value is there at the first launch, and what `reset` writes; one that cannot be is an error."""

    def set_up(self: Any, run: Run) -> None:
        run.initialise(name, value)

    made = watcher(counter, at_init=set_up, reset_each_launch=True)()
    ran = under_tools("emu:gfx90a", [made], build_program("graph"))
    assert ran.out == SAYS["graph"]
    assert fault in "".join(ran.summary["faults"]) if fault else not ran.summary["faults"]
    begun = {note[3] for note in notes(ran) if note[0] == "launch"}
    assert begun == {0 if fault else value}


@pytest.mark.rows(1)
@pytest.mark.parametrize(
    "name", ["streams", "exchange", "devices", "processes", "stack", pytest.param("many", marks=pytest.mark.thorough)]
)
def test_launches_that_wait_for_each_other_are_right(
    build_program: Build, under_tools: UnderTools, counter: type[Tool], name: str
) -> None:
    """Also where a kernel waits for the host, and where many threads launch."""
    devices = "emu:gfx90a,emu:gfx1030" if name == "devices" else "emu:gfx90a"
    ran = under_tools(devices, [watcher(counter, at_kernel_end=Tool.at_kernel_end)()], build_program(name))
    assert (ran.code, ran.summary["faults"]) == (0, []), ran.err
    assert name == "devices" or ran.out == SAYS[name]


def fails(*_: Any) -> None:
    raise KeyError("of the tool")


@pytest.mark.rows(1)
@pytest.mark.parametrize("where", ["at_code_object", "at_kernel_launch", "at_kernel_end", "at_exit", "report"])
def test_a_callback_that_raises(
    build_program: Build, under_tools: UnderTools, counter: type[Tool], vectors: type[Tool], where: str
) -> None:
    """The program and the other tool go on, and the end says so."""
    ran = under_tools("emu:gfx90a", [watcher(counter, **{where: fails})(), vectors()], build_program("graph"))
    assert (ran.code, ran.out) == (0, SAYS["graph"])
    (fault,) = ran.summary["faults"]
    assert "tool watcher failed" in fault
    assert "of the tool" in fault
    assert all(kernel["instrumented"] == 5 for kernel in ran.kernels().values())
    assert ran.variables["vectors"][0][2] > 1000


def test_a_tool_that_cannot_instrument(build_program: Build, under_tools: UnderTools, counter: type[Tool]) -> None:
    def instrument(self: Any, task: InstrumentationTask) -> None:
        if "scale" in task.lifted.kernel.name:
            fails()
        counter.instrument(self, task)

    ran = under_tools("emu:gfx90a", [watcher(counter, instrument=instrument)()], build_program("graph"))
    assert (ran.code, ran.out) == (0, SAYS["graph"])
    kernels = ran.kernels()
    assert (kernels["_Z5scalePii"]["instrumented"], kernels["_Z5shiftPii"]["instrumented"]) == (0, 5)
    assert "of the tool" in kernels["_Z5scalePii"]["reason"]
