"""`luthier debug`: variables against what the program computes, stops both ways, a Debug Adapter client."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import math
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest
from commands import MAIN, PATIENCE, run_luthier
from luthier.capture import read_capture
from luthier.capture.place import AddressTaken
from luthier.capture.replay import PreparedLaunch
from luthier.cli.debug import _debug_here
from luthier.cli.main import main
from luthier.debug import Debugger
from luthier.debug.adapter import Adapter
from luthier.debug.expressions import ExpressionState, ParsedExpression
from luthier.debug.protocol import ProtocolChannel
from luthier.emulator.inspection.debug import observer_of
from luthier.errors import DeviceError, LuthierError
from luthier.objects import load_object

from .conftest import ONE_A_FAMILY, PROGRAMS, TARGETS

if TYPE_CHECKING:
    from .dap_editor import Editor

pytestmark = pytest.mark.rows()
SOURCE = PROGRAMS / "debugged.hip"
LEVELS = ("-O0", "-O2")
LANES = np.arange(64)


def line_of(mark: str) -> int:
    """Return the line of the program that has a comment."""
    return next(number for number, line in enumerate(SOURCE.read_text().splitlines(), 1) if f"// {mark}" in line)


@pytest.fixture(scope="session")
def captured(build_program: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """``captured(target, *flags)``: the launch of the program that is debugged."""

    @functools.cache
    def capture(target: str, *flags: str) -> Path:
        folder = tmp_path_factory.mktemp("captured")
        program = build_program("debugged", "-g", *flags)
        done = run_luthier("capture", "--device", f"emu:{target}", "-o", folder, "--", program)
        assert done.returncode == 0, done.stderr
        (capture,) = folder.glob("*.lcap")
        return capture

    return capture


@contextlib.contextmanager
def room() -> Iterator[None]:
    """Skip the test if this process uses addresses of the program's memory."""
    try:
        yield
    except AddressTaken as taken:
        pytest.skip(str(taken))


def opened(path: Path) -> Debugger:
    """Return a debugger of a capture, if this process has room for its memory."""
    with room():
        return Debugger(read_capture(path))


@pytest.fixture(params=[(target, level) for target in TARGETS for level in LEVELS], ids="-".join)
def debugger(request: pytest.FixtureRequest, captured: Callable[..., Path]) -> Iterator[Debugger]:
    with opened(captured(*request.param)) as opened_debugger:
        yield opened_debugger


def variable(debugger: Debugger, name: str) -> Any:
    """Return a variable of the stopped wave by lane."""
    variable = debugger.view().variable(name)
    assert variable is not None, name
    return variable


def group_of(debugger: Debugger) -> tuple[int, Any]:
    """Return the work-group that is stopped, and the indices of the wave's work-items in the launch."""
    view = debugger.view()
    size = view.registers.wave_size
    return view.workgroup, view.workgroup * 64 + view.wave * size + np.arange(size)


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", ONE_A_FAMILY)
def test_variables_are_what_the_program_computes(captured: Callable[..., Path], target: str) -> None:
    with opened(captured(target, "-O0")) as debugger:
        loop = debugger.break_at(f"debugged.hip:{line_of('in the loop')}")
        seen = set()
        while (stop := debugger.resume()).why == "breakpoint":
            group, index = group_of(debugger)
            step = int(variable(debugger, "step")[0])
            seen.add((group, step))
            assert np.array_equal(variable(debugger, "index"), index)
            assert np.array_equal(variable(debugger, "total"), 2 * index * step + (0, 0, 1)[step])
            assert set(variable(debugger, "n")) == {128}
        assert (stop.why, loop.hits) == ("end", len(seen) * (1 if debugger.launch.kernel.wave_size == 64 else 2))
        assert seen == {(group, step) for group in range(2) for step in range(3)}
        debugger.goto(0)
        debugger.delete(loop.number)
        debugger.break_at("triple")
        debugger.break_at(f"debugged.hip:{line_of('in triple')}")
        debugger.resume()
        debugger.resume()
        assert np.array_equal(variable(debugger, "value"), 6 * group_of(debugger)[1] + 3)
        debugger.finish()
        assert np.array_equal(variable(debugger, "total"), 6 * group_of(debugger)[1] + 3)
        assert set(variable(debugger, "wide") - variable(debugger, "total")) == {1 << 40}
        assert np.array_equal(variable(debugger, "tile")[0], 6 * LANES + 3)


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", ONE_A_FAMILY)
def test_variables_of_optimised_code(captured: Callable[..., Path], target: str) -> None:
    """Values that are shown are correct; others are shown as not available."""
    with opened(captured(target, "-O2")) as debugger:
        seen: dict[str, int] = {}
        while debugger.where is not None:
            view, (group, index) = debugger.view(), group_of(debugger)
            active = [bool(view.registers.exec >> lane & 1) for lane in range(view.registers.wave_size)]
            mirrored = 64 * group + 63 - index % 64
            right = {"index": index, "other": 6 * mirrored + 3, "n": 128, "wide": (1 << 40) + 6 * index + 3}
            own = {one.name for one in view.variables(0)}  # a header's function that is inlined has an `n`, too
            for name in own & set(right):
                expected = right[name]
                try:
                    variable = view.variable(name)
                except LuthierError:
                    continue
                if variable is not None:
                    assert np.all((variable == expected)[active]), (name, hex(view.pc))
                    seen[name] = seen.get(name, 0) + 1
            debugger.step_instruction()
        assert {"index", "other"} & set(seen), seen


@pytest.mark.rows(1)
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("target", ONE_A_FAMILY)
def test_positions(captured: Callable[..., Path], target: str, level: str) -> None:
    """Every position is the same state on each way that leads there."""
    trace = executed(captured(target, level))
    state: dict[int, bytes] = {}
    third, half, last = len(trace) // 3, len(trace) // 2, len(trace) - 1
    with opened(captured(target, level)) as debugger:
        for position in (0, 1, third, last, half, 7, last, third, 7, 1, half, 0):
            debugger.goto(position)
            view = debugger.view()
            assert (view.workgroup, view.wave, view.pc) == trace[position]
            now = repr((view.registers.dump(vgprs=16), view.registers.exec, view.registers.scc)).encode()
            assert state.setdefault(position, now) == now
        debugger.goto(20)
        before = debugger.view().registers.dump(vgprs=8)
        debugger.step_instruction()
        back = debugger.reverse_instruction()
        assert (back.position, debugger.view().registers.dump(vgprs=8)) == (20, before)
        end = debugger.resume()
        assert (end.why, end.position) == ("end", len(trace))
        with pytest.raises(DeviceError, match="ended"):
            debugger.resume()
        assert debugger.reverse_instruction().position == last
        assert debugger.view().text.startswith("s_endpgm")
        assert debugger.goto(len(trace)).why == "end"
        with pytest.raises(DeviceError, match="ends after"):
            debugger.goto(len(trace) + 1)


def executed(path: Path) -> list[tuple[int, int, int]]:
    """Return work-group, wave and address of every instruction of a capture's launch, as an observer sees them."""
    steps: list[tuple[int, int, int]] = []
    capture = read_capture(path)
    launch = PreparedLaunch(capture, capture.manifest.target)
    look = observer_of(launch.code, lambda step: steps.append((step.workgroup, step.wave, step.address)), None)
    with room(), launch.memory():
        launch.execute(1, look)
    return steps


@pytest.mark.rows(1)
def test_steps_by_line(debugger: Debugger) -> None:
    """Over, into, out of calls, and all of it backwards."""
    in_loop = f"debugged.hip:{line_of('in the loop')}"
    debugger.break_at("triple", temporary=True)
    debugger.step_instruction()
    debugger.reverse_instruction()  # which passes nothing that is temporary
    stop = debugger.resume()
    assert stop.why == "breakpoint"
    assert not debugger.breakpoints
    position = debugger.position
    inside = debugger.view().frames
    assert inside[-1].name == "triple"
    debugger.finish()
    outside = debugger.view()
    assert outside.frames[-1].name == "sums"
    after = debugger.position
    debugger.reverse_line(over=False)
    assert position <= debugger.position < after
    debugger.goto(0)
    lines = []
    while debugger.where is not None and debugger.view().workgroup == 0 and debugger.view().wave == 0:
        lines.append(debugger.view().frames[0].line)
        assert debugger.view().frames[-1].name == "sums", "next goes into no call"
        debugger.step_line(over=True)
    assert line_of("fills the tile") in lines or line_of("the result") in lines, lines
    debugger.goto(0)
    debugger.break_at(in_loop)
    first = debugger.resume().position
    second = debugger.resume().position
    assert first < second
    assert debugger.reverse_resume().position == first
    assert debugger.reverse_resume().why == "entry"


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", ONE_A_FAMILY)
def test_watchpoints_are_the_stores_of_the_trace(captured: Callable[..., Path], target: str) -> None:
    """A watchpoint on an element of the result stops behind the one instruction that writes it."""
    with opened(captured(target, "-O2")) as debugger:
        manifest = debugger.launch.capture.manifest
        out = int.from_bytes(bytes.fromhex(manifest.arguments[1].value), "little")
        watched = {lane: debugger.watch_memory(out + 4 * lane, 4) for lane in (0, 63, 100)}
        stops = []
        while (stop := debugger.resume()).why == "watchpoint":
            stops.append(stop)
        assert stop.why == "end"
        hit = {number: stop for stop in stops for number in stop.numbers}
        assert set(hit) == {one.number for one in watched.values()}
        for lane, watchpoint in watched.items():
            total, mirrored = 6 * lane + 3, lane // 64 * 64 + 63 - lane % 64
            value = (3 * total + 1 + 6 * mirrored + 3 + 1).to_bytes(4, "little")
            change = watchpoint.change
            debugger.goto(hit[watchpoint.number].position)
            assert debugger.read(out + 4 * lane, 4) == value
            assert f"became {value.hex(' ')} by " in change
            assert "store" in change
            assert f"debugged.hip:{line_of('the result')}" in change
            debugger.goto(hit[watchpoint.number].position - 1)
            assert "store" in debugger.view().text
            assert debugger.read(out + 4 * lane, 4) == bytes(4)


def test_conditions(captured: Callable[..., Path]) -> None:
    with opened(captured("gfx90a", "-O0")) as debugger:
        debugger.break_at(f"debugged.hip:{line_of('in the loop')}", "step == 2 and any(total > 127 * 4)")
        stop = debugger.resume()
        assert (stop.why, debugger.view().workgroup, variable(debugger, "step")[0]) == ("breakpoint", 1, 2)
        view = debugger.view()
        for text, expected in (
            ("total[3]", 2 * 67 * 2 + 1),
            ("lane[7] + workgroup", 8),
            ("max(index) - min(index)", 63),
            ("exec == 0xffffffffffffffff", True),
            ("f32(0x3f800000) + 1", 2.0),
            ("-i32(4294967295)", 1),
            ("not scc or scc", True),
            ("1 < index[4] < 100", True),
            ("pc == pc & ~0", True),
        ):
            assert ParsedExpression(text).value(view) == expected, text
        for text in (
            "__import__('os')",
            "open",
            "v0.tofile",
            "(lambda: 1)()",
            "[1]",
            "v9999",
            "sum(v0, v1)",
            "1 +",
            "'a' * 9",
        ):
            with pytest.raises(LuthierError):
                ParsedExpression(text).value(view)
        stop = debugger.resume()
        assert stop.why == "end"
        debugger.goto(0)
        debugger.break_at(f"debugged.hip:{line_of('in the loop')}", "stepp == 2")
        stop = debugger.resume()
        assert (stop.why, "there is no variable or register 'stepp'" in stop.text) == ("breakpoint", True)


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("debugged.hip:9999", "no code comes from this line"),
        ("other.hip:1", "no code comes from file"),
        *(
            (f"*{address:#x}", "no instruction begins")
            for address in (3, 1 << 63, 0x9999 << 48, (1 << 64) - 4, 1 << 80)
        ),
        ("*-4", "no instruction begins"),
        ("*here", "is not an address"),
        ("nowhere", "there is no function"),
    ],
)
def test_places_without_code(captured: Callable[..., Path], place: str, message: str) -> None:
    with opened(captured("gfx90a", "-O0")) as debugger, pytest.raises(LuthierError, match=message):
        debugger.break_at(place)


def test_a_capture_without_debug_information(
    build_program: Callable[..., Path], tmp_path: Path, temporary: Path
) -> None:
    made = run_luthier("capture", "--device", "emu:gfx90a", "-o", temporary / "kept", "--", build_program("debugged"))
    assert made.returncode == 0, made.stderr
    commands = "break sums\nbreak debugged.hip:3\nnext\nlocals\nprint v0\nlist\ncontinue\ncontinue\n"
    done = run_luthier("debug", temporary / "kept", input=commands)
    assert done.returncode == 0, done.stderr
    for text in ("breakpoint 1 at", "no source lines: compile with -g", "no debug information", "has ended after"):
        assert text in done.stdout


def test_commands_for_code_take_captures(
    captured: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """These commands use the captured launch's kernel; `objects` and `extract` use the code object."""
    path, out = str(captured("gfx90a", "-O0")), str(tmp_path / "out")
    assert main(["objects", path]) == main(["lift", path]) == main(["extract", path, "-o", out]) == 0
    text = capsys.readouterr().out
    assert text.count("\nkernel sums: gfx90a") == 1
    assert main(["lift", path, "-k", "nothing"]) == 1
    assert "no kernel matches 'nothing'; choose from sums" in capsys.readouterr().err
    assert list(load_object(out).kernels) == ["sums"]


def test_the_console(captured: Callable[..., Path], tmp_path: Path) -> None:
    script = tmp_path / "commands"
    loop = line_of("in the loop")
    script.write_text(
        f"break debugged.hip:{loop} if step == 1\ncontinue\nprint total\nlane 5\nlocals\nwhere\nlist\nwaves\nstepi\n"
        "reverse-stepi\nregisters 2\ndisassemble\nwatch total\ncontinue\ninfo\ndelete 2\nnonsense\nlane 99\nwave 7\n"
        "memory 0\ngoto 0\nfinish\nhelp\nbreak debugged.hip:1\nquit\n"
    )
    done = run_luthier("debug", "-x", script, captured("gfx90a", "-O0"))
    assert (done.returncode, done.stderr) == (0, "")
    for pattern in (
        r"breakpoint 1 at 0x[0-9a-f]+",
        rf"breakpoint 1: \[\d+\] work-group 0 wave 0 0x[0-9a-f]+ .*debugged.hip:{loop}",
        r"total: by lane 0: 0, 1: 2, 2: 4",
        r"^total = 10$",
        rf"#0 sums at .*debugged.hip:{loop}",
        rf">\s+{loop}  .*in the loop",
        r"\* work-group 0 wave 0",
        r"EXEC 0xf{16}",
        r"watchpoint 2: total: \[0\] 0 became 1 by .*store",
        r"2: total, 1 changes",
        rf"no code at debugged.hip:1; breakpoint 3 at 0x[0-9a-f]+, line {line_of('in triple') - 1} of triple",
        "error: there is no command 'nonsense'",
        "error: the wave has no lane 99, only 64 lanes",
        "error: the work-group has no wave 7, only 1 wave",
        "error: cannot read 64 bytes at 0x0",
        r"reverse-continue: .* \(rc\)",
    ):
        assert re.search(pattern, done.stdout, re.M), (pattern, done.stdout)


def test_a_program(build_program: Callable[..., Path]) -> None:
    program = build_program("debugged", "-g", "-O0")
    done = run_luthier(
        "debug",
        "--device",
        "emu:gfx1030",
        "--",
        program,
        input=f"tbreak debugged.hip:{line_of('in triple')}\nc\nlocals\nc\n",
    )
    assert done.returncode == 0, done.stderr
    assert "value = 3" in done.stdout
    assert "has ended" in done.stdout
    assert run_luthier("debug").returncode == 1
    assert run_luthier("debug", "--device", "hip:0", "nothing.lcap").returncode == 1
    missing = run_luthier("debug", "nothing.lcap")
    assert (missing.returncode, "no such file" in missing.stderr) == (1, True)
    assert "no launch was captured" in run_luthier("debug", "--", "true").stderr


def test_code_that_was_compiled_elsewhere(open_editor: type[Editor], captured: Callable[..., Path]) -> None:
    """An editor has the file under another path than the debug information, and is given its own."""
    editor = open_editor(captured("gfx90a", "-O0", f"-ffile-prefix-map={SOURCE.parent}=/elsewhere/programs"))
    client = editor.client
    editor.take("InitializedEvent")
    client.launch()
    editor.take("launch")
    client.set_breakpoints({"path": str(SOURCE)}, [{"line": line_of("in the loop")}])
    (made,) = editor.take("SetBreakpointsResponse").breakpoints
    assert (made.verified, made.line) == (True, line_of("in the loop"))
    client.configuration_done()
    editor.wait()
    client.continue_(1)
    assert editor.wait().reason == "breakpoint"
    assert editor.top().source.path == str(SOURCE)


def test_files_by_the_ends_of_their_paths(captured: Callable[..., Path]) -> None:
    with opened(captured("gfx90a", "-O0", f"-ffile-prefix-map={SOURCE.parent}=/elsewhere/programs")) as debugger:
        assert debugger.source.file_of("/home/me/debugged.hip") == "/elsewhere/programs/debugged.hip"
        with pytest.raises(LuthierError, match=r"no code comes from file '/elsewhere/programs/other\.hip'"):
            debugger.source.file_of("/elsewhere/programs/other.hip")


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", ONE_A_FAMILY)
def test_a_debug_adapter_conversation(open_editor: type[Editor], captured: Callable[..., Path], target: str) -> None:
    editor = open_editor(captured(target, "-O0"))
    client = editor.client
    editor.take("InitializedEvent")
    client.launch()
    editor.take("launch")
    client.set_breakpoints({"path": str(SOURCE)}, [{"line": line_of("in the loop"), "condition": "step == 1"}])
    (made,) = editor.take("SetBreakpointsResponse").breakpoints
    assert (made.verified, made.line) == (True, line_of("in the loop"))
    client.configuration_done()
    assert editor.wait().reason == "entry"
    client.continue_(1)
    stop = editor.wait()
    assert (stop.reason, stop.hitBreakpointIds) == ("breakpoint", [str(made.id)])
    client.threads()
    threads = editor.take("ThreadsResponse").threads
    assert len(threads) == (64 // (32 if target == "gfx1030" else 64))
    frame = editor.top()
    assert (frame.name, frame.line) == ("sums", line_of("in the loop"))
    variables = editor.locals(frame)
    assert (variables["step"], variables["n"], variables["index"], variables["total"]) == (
        *("1", "128"),
        *(str(one * 32 * (stop.threadId - 1)) for one in (1, 2)),  # of lane 0 of the wave that came first
    )
    client.evaluate("total[9]", frame.id)
    assert editor.take("EvaluateResponse").result == str(2 * (9 + 32 * (stop.threadId - 1)))
    client.step_in(stop.threadId)
    editor.wait()
    while editor.top().name == "sums":
        client.step_in(stop.threadId)
        editor.wait()
    inside = editor.top()
    assert (inside.name, editor.locals(inside)["value"]) == ("twice", variables["index"])
    client.step_out(stop.threadId)
    editor.wait()
    assert editor.top().name == "sums"
    client.step_back(stop.threadId)
    assert editor.wait().reason == "step"
    client.reverse_continue(stop.threadId)
    assert editor.wait().reason == "entry"
    client.continue_(1)
    assert editor.wait().reason == "breakpoint"
    client.data_breakpoint_info("total", frameId=frame.id)
    info = editor.take("DataBreakpointInfoResponse")
    client.set_data_breakpoints([{"dataId": info.dataId}])
    assert editor.take("SetDataBreakpointsResponse").breakpoints[0].verified
    client.continue_(1)
    stop = editor.wait()
    assert (stop.reason, " became " in stop.text) == ("data breakpoint", True)
    client.disassemble(editor.top().instructionPointerReference, 0, 0, 3)
    assert all(one.instruction for one in editor.take("DisassembleResponse").instructions)
    client.set_data_breakpoints([])
    editor.take("SetDataBreakpointsResponse")
    client.set_breakpoints({"path": str(SOURCE)}, [])
    editor.take("SetBreakpointsResponse")
    client.continue_(1)
    editor.take("TerminatedEvent")
    client.disconnect()
    editor.take("disconnect")
    assert editor.process.wait(PATIENCE) == 0


def test_a_launch_that_runs_is_paused(open_editor: type[Editor], captured: Callable[..., Path]) -> None:
    """A pause stops a launch that runs, and the next move goes on; one while it is stopped changes nothing."""
    editor = open_editor(captured("gfx90a", "-O0"))
    client = editor.client
    client.launch()
    client.configuration_done()
    editor.wait()
    client.pause(1)
    editor.take("pause")
    client.step_in(1, granularity="instruction")
    assert editor.wait().reason == "step"
    slow = f"0 * ({' + '.join(['sum(v0)'] * 200)})"  # looked at before each instruction, and never another
    client.set_data_breakpoints([{"dataId": slow}])
    assert editor.take("SetDataBreakpointsResponse").breakpoints[0].verified
    client.continue_(1)
    editor.take("Continued")
    client.pause(1)
    assert editor.wait().reason == "pause"
    client.set_data_breakpoints([])
    editor.take("SetDataBreakpointsResponse")
    client.continue_(1)
    editor.take("TerminatedEvent")
    client.disconnect()
    editor.take("disconnect")
    assert editor.process.wait(PATIENCE) == 0


PROPER = {
    "threadId": 1, "frameId": 0, "variablesReference": 1, "startFrame": 0, "levels": 1, "count": 4, "offset": 0,
    "instructionCount": 2, "instructionOffset": 0, "memoryReference": "PC", "expression": "v0", "name": "v0",
    "source": {"path": "debugged.hip"}, "breakpoints": [{"line": 1, "name": "sums", "dataId": "v0"}],
    "asAddress": True, "bytes": 4,
}  # fmt: skip
"""Arguments of all requests together."""
ODD = (math.inf, math.nan, -(10**30), 10**30, "x", "9" * 5000, None, [1], {"a": 1}, [math.inf], 5, True)
COMMANDS = {
    "setBreakpoints": ("source", "breakpoints"), "setFunctionBreakpoints": ("breakpoints",),
    "setInstructionBreakpoints": ("breakpoints",), "setDataBreakpoints": ("breakpoints",),
    "dataBreakpointInfo": ("name", "asAddress", "bytes"), "stackTrace": ("threadId", "startFrame", "levels"),
    "scopes": ("frameId",), "variables": ("variablesReference",), "evaluate": ("expression", "frameId"),
    "readMemory": ("memoryReference", "offset", "count"), "launch": ("stopOnEntry",),
    "disassemble": ("memoryReference", "offset", "instructionOffset", "instructionCount"),
}  # fmt: skip
EXPRESSIONS = ("1 << 99999999999", "1 << 30000000 << 30000000", "1 << 4096", "-(1 << 4095 << 4095)", f"0x{'f' * 5000}",
               " * ".join(["(1 << 4000)"] * 99), "(1 << 4000) * 1.0", "f32(1 << 4000)", "v0 << (1 << 4000)",
               "v0[1 << 70]", "(" * 500 + "1" + ")" * 500)  # fmt: skip


def test_odd_requests(captured: Callable[..., Path]) -> None:
    """Each is answered, once: whatever an argument is, or the arguments together."""
    with opened(captured("gfx90a", "-O0")) as debugger:
        proper = {**PROPER, "memoryReference": hex(debugger.view().pc)}
        requests: list[dict[str, Any]] = [{"command": one} for one in (None, 5, ["next"], {"a": 1})]
        for command in (*COMMANDS, "threads", "next", "stepBack", "continue", "reverseContinue", "restart"):
            requests += [{"command": command, "arguments": one} for one in ("x", 5, [1], True, math.inf)]
        requests += [{"command": "evaluate", "arguments": {"expression": one}} for one in EXPRESSIONS]
        requests += [
            {"command": command, "arguments": {**proper, name: odd}}
            for command, names in COMMANDS.items()
            for name in names
            for odd in ODD
        ]
        sent = [json.dumps({"seq": at, "type": "request", **one}).encode() for at, one in enumerate(requests)]
        answers = io.BytesIO()
        stream = io.BytesIO(b"".join(b"Content-Length: %d\r\n\r\n%s" % (len(one), one) for one in sent))
        Adapter(debugger, ProtocolChannel(stream, answers)).serve()
    messages = [json.loads(one) for one in re.findall(rb"({.*?})(?:Content-Length|$)", answers.getvalue(), re.S)]
    assert [one["request_seq"] for one in messages if one["type"] == "response"] == list(range(len(requests)))
    refused = {one["request_seq"] for one in messages if not one.get("success", True)}
    assert refused.issuperset(range(4 + 5 * (len(COMMANDS) + 6) + len(EXPRESSIONS) - 2))


def test_numbers_are_bounded() -> None:
    nowhere = cast(ExpressionState, None)  # they ask for nothing
    for text in EXPRESSIONS[:6]:
        with pytest.raises(LuthierError, match="more than 4096 bits"):
            ParsedExpression(text).value(nowhere)
    assert ParsedExpression("(1 << 4095) >> 4095").value(nowhere) == 1


def test_bad_requests(open_editor: type[Editor], captured: Callable[..., Path]) -> None:
    """The answer to a bad request is its error, and the next request is served."""
    editor = open_editor(captured("gfx90a", "-O0"))
    for ask in (
        lambda: editor.client.send_request("nonsense"),
        lambda: editor.client.send_request("stackTrace", {"threadId": 99}),
        lambda: editor.client.send_request("variables", {"variablesReference": "a"}),
        lambda: editor.client.send_request("evaluate", {"expression": "open('x')"}),
        lambda: editor.client.send_request("readMemory", {"memoryReference": "0x10", "count": 4}),
        lambda: editor.client.send_request("setBreakpoints", {}),
    ):
        ask()
        with pytest.raises(AssertionError, match="message"):
            editor.take("Nothing")
    editor.client.disconnect()
    editor.take("disconnect")
    assert editor.process.wait(PATIENCE) == 0
    process = subprocess.Popen(
        [sys.executable, "-c", MAIN, "debug", "--dap", str(captured("gfx90a", "-O0"))],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    _, errors = process.communicate(b"Content-Length: 4\r\n\r\nnone", timeout=PATIENCE)
    assert (process.returncode, b"is not JSON" in errors) == (1, True)


def test_an_editor_that_does_not_listen(captured: Callable[..., Path]) -> None:
    """The adapter ends, with an error, though its standard input stays open."""
    command = [sys.executable, "-c", MAIN, "debug", "--dap", str(captured("gfx90a", "-O0"))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.close()
        request = json.dumps({"seq": 1, "type": "request", "command": "threads"}).encode()
        process.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(request), request))
        process.stdin.flush()
        assert process.wait(PATIENCE) == 1


def test_commands_that_are_no_text(
    captured: Callable[..., Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "commands").write_bytes(b"print 1\n\xff\n")
    with opened(captured("gfx90a", "-O0")):
        pass  # there is room
    task = {
        "file": str(captured("gfx90a", "-O0")),
        "target": None,
        "dap": False,
        "commands": str(tmp_path / "commands"),
    }
    assert _debug_here(task) == 1
    assert "luthier debug: error: 'utf-8' codec can't decode byte" in capfd.readouterr().err
