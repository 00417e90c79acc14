"""Tools that listen to calls of the HSA and HIP APIs."""

from __future__ import annotations

import re
import subprocess
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from luthier import InstrumentationTask, Tool
from luthier.run import events
from luthier.run.program import TOOL_LIBRARY, library_folder
from luthier.support.table import Table
from luthier.tool.observation import ApiEvent, Launch, Run

from .conftest import PROGRAMS, RunUnderTools
from .test_programs import SAYS, in_order

Build = Callable[[str], Path]
UnderTools = Callable[..., RunUnderTools]
FIRST = (
    *("hipMalloc", "hipFree", "hipSetDevice", "hipStreamCreate", "hipDeviceSynchronize", "hipGetDeviceProperties"),
    *("hipDriverGetVersion", "hipLaunchKernel"),
)


def listener(base: type[Tool] = Tool, **members: Any) -> Tool:
    """A tool that keeps its events and reports them."""

    class Listener(base):  # type: ignore[misc,valid-type]
        """Keeps events."""

        name = "listener"

        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            self.events: list[tuple[str, Any]] = []

        def instrument(self, task: InstrumentationTask) -> None:
            """With the base's hooks, if there is one."""
            if base is not Tool:
                super().instrument(task)

        def at_hsa_event(self, event: ApiEvent) -> None:
            """Keep it."""
            self.events.append(("hsa", event))

        def at_hip_event(self, event: ApiEvent) -> None:
            """Keep it."""
            self.events.append(("hip", event))

        def report(self, run: Run) -> Iterable[Table]:
            """Return the events."""
            return [Table("", ("what", "event"), [(what, repr(event)) for what, event in self.events])]

    for name, value in members.items():
        setattr(Listener, name, value)
    return Listener()


def log(ran: RunUnderTools) -> list[tuple[str, Any]]:
    """Return the listener's events."""
    (tables,) = (entry["tables"] for entry in ran.summary["tools"] if entry["tool"] == "listener")
    return [(what, eval(event)) for what, event in tables[0]["rows"]]


def calls(ran: RunUnderTools, api: str, name: str, *, is_exit: bool = True) -> list[ApiEvent]:
    """Ends or begins of the calls of a function."""
    return [event for what, event in log(ran) if what == api and event.name == name and event.is_exit == is_exit]


def check_nesting(all_events: Sequence[tuple[str, Any]]) -> None:
    """On each thread calls begin and end like brackets, and time does not run back."""
    open_calls: dict[tuple[int, int], list[ApiEvent]] = defaultdict(list)
    last: dict[tuple[int, int], int] = {}
    for _, event in all_events:
        where = event.pid, event.thread
        assert last.get(where, 0) <= event.time
        last[where] = event.time
        if not event.is_exit:
            assert event.result is None
            assert not event.outputs
            open_calls[where].append(event)
            continue
        begun = open_calls[where].pop()
        assert (begun.name, begun.call, begun.arguments) == (event.name, event.call, event.arguments)
    assert not any(calls for (pid, thread), calls in open_calls.items() if pid == thread)  # others may be cut off


def test_calls_and_what_they_are_given(build_program: Build, under_tools: UnderTools) -> None:
    ran = under_tools("emu:gfx90a", [listener()], build_program("calls"))
    assert (ran.code, ran.out, ran.summary["faults"]) == (0, "calls\n", [])
    check_nesting(log(ran))
    (refused,) = calls(ran, "hip", "hipSetDevice")
    assert (refused.arguments, refused.result, refused.outputs) == ({"deviceId": 99}, 101, {})
    assert [event.result for event in calls(ran, "hip", "hipGetLastError")][:1] == [None]
    allocated = calls(ran, "hip", "hipMalloc")
    assert [event.arguments["size"] for event in allocated] == [256] * 3
    assert len({event.thread for event in allocated}) == 3
    copied = {event.arguments["dst"] for event in calls(ran, "hip", "hipMemcpy")}
    assert {event.outputs["ptr"] for event in allocated} <= copied
    launched = calls(ran, "hip", "hipLaunchKernel", is_exit=False)
    assert len(launched) == 60
    assert all(event.arguments["numBlocks.x"] == 1 for event in launched)
    assert all(event.arguments["dimBlocks.x"] == 64 for event in launched)
    queues = calls(ran, "hsa", "hsa_queue_create")
    assert queues
    assert all(event.result == 0 and event.outputs["queue"] > 0 for event in queues)
    signals = calls(ran, "hsa", "hsa_signal_create")
    waited = calls(ran, "hsa", "hsa_signal_wait_scacquire") + calls(ran, "hsa", "hsa_signal_load_relaxed")
    assert {event.arguments["signal"] for event in waited} <= {event.outputs["signal"] for event in signals}
    assert {event.result for event in waited} <= {-1, 0, 1}


@pytest.mark.rows(1)
@pytest.mark.parametrize("name", ["streams", "exchange", "processes", "graph", "compiled_late", "host_memory", "print"])
def test_programs_are_right_where_everything_is_told(build_program: Build, under_tools: UnderTools, name: str) -> None:
    ran = under_tools("emu:gfx90a", [listener()], build_program(name))
    assert (ran.code, in_order(name, ran.out), ran.summary["faults"]) == (0, SAYS[name], [])
    check_nesting(log(ran))


@pytest.mark.rows(1)
@pytest.mark.parametrize("first", FIRST)
def test_whichever_call_is_the_first(build_program: Build, under_tools: UnderTools, first: str) -> None:
    """HIP ends the process where a call ends that was never begun."""
    ran = under_tools("emu:gfx90a", [listener(at_hsa_event=Tool.at_hsa_event)], build_program("calls"), first)
    assert (ran.code, ran.out, ran.summary["faults"]) == (0, "calls\n", []), ran.err
    check_nesting(log(ran))


def test_only_what_is_wanted(build_program: Build, under_tools: UnderTools) -> None:
    wanted = {"hip_events": ("hipMem*", "hipFree"), "hsa_events": ["hsa_queue_create"]}
    ran = under_tools("emu:gfx90a", [listener(**wanted)], build_program("calls"))
    assert {event.name for _, event in log(ran)} == {"hipMemcpy", "hipFree", "hsa_queue_create"}
    only_hsa = under_tools("emu:gfx90a", [listener(at_hip_event=Tool.at_hip_event)], build_program("calls"))
    assert {what for what, _ in log(only_hsa)} == {"hsa"}


def test_memory(build_program: Build, under_tools: UnderTools) -> None:
    """HIP calls of the program are reported to the byte and in order, and only to tools that request them."""

    def keep(self: Any, event: ApiEvent) -> None:
        self.events.append(("memory", event))

    quiet = {"at_hsa_event": Tool.at_hsa_event, "at_hip_event": Tool.at_hip_event}
    ran = under_tools(
        "emu:gfx90a", [listener(**quiet, at_memory_event=keep)], build_program("planted"), "host", "freed"
    )
    assert (ran.code, ran.out, ran.summary["faults"]) == (0, "done\n", [])
    made = [event.arguments for _, event in log(ran) if event.name == "allocated"]
    host = [one for one in made if one["size"] == 4000]
    assert len(host) == 3
    assert all(one["reserved"] == 8192 - 4096 * (one["size"] + 256 <= 4096) for one in made if one["size"])
    freed = [event.arguments["address"] for _, event in log(ran) if event.name == "freed"]
    assert freed[0] == host[1]["address"]
    assert all(what == "memory" and not event.is_exit for what, event in log(ran))
    wanted = listener(**quiet, at_memory_event=keep, memory_events=("freed",))
    ran = under_tools("emu:gfx90a", [wanted], build_program("planted"), "device", "twice")
    assert {event.name for _, event in log(ran)} == {"freed"}
    assert not listener().at_memory_event(None)  # type: ignore[arg-type]


def test_tools_that_want_nothing() -> None:
    assert events.patterns([Tool()], "hip") == events.patterns([Tool()], "hsa") == []
    both = [listener(hip_events=("a", "b")), listener(hip_events=("b", "c*"))]
    assert events.patterns(both, "hip") == ["a", "b", "c*"]


@pytest.mark.thorough
def test_more_than_there_is_room_for(build_program: Build, under_tools: UnderTools) -> None:
    """11,100 launches give 66,600 events, and none is lost."""
    ran = under_tools("emu:gfx90a", [listener(at_hsa_event=Tool.at_hsa_event)], build_program("many"))
    assert (ran.code, ran.out, ran.summary["faults"]) == (0, SAYS["many"], [])
    count = Counter((event.name, event.is_exit) for _, event in log(ran))
    assert count["hipLaunchKernel", False] == count["hipLaunchKernel", True] == 11100
    assert sum(count.values()) > 4 * events.RECORDS
    check_nesting(log(ran))


def test_a_forked_process(build_program: Build, under_tools: UnderTools) -> None:
    ran = under_tools("emu:gfx90a", [listener()], build_program("calls"), "fork")
    assert (ran.code, ran.summary["faults"]) == (0, [])
    by_process = Counter(event.pid for event in calls(ran, "hip", "hipLaunchKernel"))
    assert sorted(by_process.values()) == [60, 60]
    check_nesting(log(ran))


def test_a_process_that_is_killed_in_a_call(build_program: Build, under_tools: UnderTools) -> None:
    """Events until then are reported."""
    ran = under_tools("emu:gfx90a", [listener()], build_program("calls"), "die")
    assert ran.code == -9
    assert len(calls(ran, "hip", "hipLaunchKernel")) == 61
    assert len(calls(ran, "hip", "hipDeviceSynchronize", is_exit=False)) == 1
    assert not calls(ran, "hip", "hipDeviceSynchronize")


def test_a_tool_that_raises(build_program: Build, under_tools: UnderTools, vectors: type[Tool]) -> None:
    def fails(*_: Any) -> None:
        raise KeyError("of the tool")

    ran = under_tools("emu:gfx90a", [listener(at_hip_event=fails), vectors()], build_program("calls"))
    assert (ran.code, ran.out) == (0, "calls\n")
    (fault,) = ran.summary["faults"]
    assert "tool listener failed in fails" in fault
    assert calls(ran, "hsa", "hsa_queue_create")
    assert ran.variables["vectors"][0][2] > 1000


def test_calls_are_told_before_the_launches_they_make(
    build_program: Build, under_tools: UnderTools, counter: type[Tool]
) -> None:
    def launches(self: Any, launch: Launch) -> None:
        self.events.append(("launch", launch.number))

    tool = listener(counter, at_kernel_launch=launches, hip_events=("hipLaunchKernel",), hsa_events=())
    ran = under_tools("emu:gfx90a", [tool], build_program("calls"))
    assert (ran.code, ran.summary["faults"]) == (0, [])
    count = {"hip": 0, "launch": 0}
    for what, event in log(ran):
        count[what] += what == "launch" or not event.is_exit
        assert count["launch"] <= count["hip"]
    assert count["launch"] == 60
    assert ran.kernels()["_Z3addPii"]["instrumented"] == 60


# Other tools --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def other_tool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tools library in C, which is not Luthier's."""
    library = tmp_path_factory.mktemp("other") / "libother.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", str(PROGRAMS / "other_tool.c"), "-o", str(library)], check=True)
    return library


def under_other(library: Path, program: Path, **variables: str | Path) -> list[str]:
    """A command that has ROCr load another tools library alone."""
    given = {"HSA_TOOLS_LIB": library, **variables}
    return ["env", *(f"{name}={value}" for name, value in given.items()), str(program)]


@pytest.mark.thorough
def test_another_tools_library(
    build_program: Build,
    under_tools: UnderTools,
    counter: type[Tool],
    other_tool: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    alone = under_tools("emu:gfx90a", [counter()], build_program("saxpy"))
    monkeypatch.setenv("HSA_TOOLS_LIB", str(other_tool))
    ran = under_tools("emu:gfx90a", [listener(counter)], build_program("saxpy"))
    assert (ran.code, ran.summary["faults"]) == (0, [])
    questions = re.search(r"other tool: (\d+) questions", ran.err)
    assert questions
    assert int(questions[1]) >= len(calls(ran, "hsa", "hsa_agent_get_info")) > 0
    assert [value for *_, value in ran.variables["listener"]] == [value for *_, value in alone.variables[""]]


def facts(ran: RunUnderTools) -> Mapping[str, Any]:
    """Return the facts that do not depend on addresses and time."""
    return {
        "calls": Counter((what, event.name, event.is_exit) for what, event in log(ran) if "signal" not in event.name),
        "variables": [value for *_, value in ran.variables["listener"]],
        "allocated": [event.arguments["size"] for event in calls(ran, "hsa", "hsa_amd_memory_pool_allocate")],
    }


def test_the_table_of_newer_rocm(
    build_program: Build, under_tools: UnderTools, counter: type[Tool], other_tool: Path
) -> None:
    """Functions of AMD's extensions lie elsewhere in it."""
    program = build_program("saxpy")
    usual = under_tools("emu:gfx90a", [listener(counter)], program)
    command = under_other(other_tool, program, TEST_LUTHIER_TOOLS=library_folder() / TOOL_LIBRARY)
    newer = under_tools("emu:gfx90a", [listener(counter)], *command)
    assert (newer.code, newer.summary["faults"]) == (0, []), newer.err
    assert facts(newer) == facts(usual)
    assert facts(newer)["allocated"]


def test_a_table_of_unknown_order(
    build_program: Build, under_tools: UnderTools, counter: type[Tool], other_tool: Path
) -> None:
    library = library_folder() / TOOL_LIBRARY
    command = under_other(other_tool, build_program("saxpy"), TEST_LUTHIER_TOOLS=library, TEST_UNKNOWN="1")
    ran = under_tools("emu:gfx90a", [listener(counter)], *command)
    assert ran.code == 0
    assert "nothing is instrumented: the order of the table of this ROCr is unknown" in ran.err
    assert not ran.kernels()
