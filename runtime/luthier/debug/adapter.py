"""The debugger's front end for editors: a debug adapter (https://microsoft.github.io/debug-adapter-protocol).

Threads are the waves of the stopped work-group; frames are the calls that are inlined at a wave's instruction.
"""

from __future__ import annotations

import base64
import queue
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath
from typing import Any

from luthier import __version__
from luthier.debug import describe
from luthier.debug.debugger import Debugger
from luthier.debug.expressions import ParsedExpression
from luthier.debug.protocol import ProtocolChannel
from luthier.debug.stops import Stop
from luthier.debug.view import StoppedWave
from luthier.errors import LuthierError
from luthier.isa.registers import SGPRS
from luthier.support.threads import Worker

Body = dict[str, Any]
Arguments = Mapping[str, Any]

CAPABILITIES = {
    "supportsConfigurationDoneRequest": True,
    "supportsFunctionBreakpoints": True,
    "supportsConditionalBreakpoints": True,
    "supportsHitConditionalBreakpoints": True,
    "supportsInstructionBreakpoints": True,
    "supportsDataBreakpoints": True,
    "supportsEvaluateForHovers": True,
    "supportsStepBack": True,
    "supportsSteppingGranularity": True,
    "supportsReadMemoryRequest": True,
    "supportsDisassembleRequest": True,
    "supportsTerminateRequest": True,
    "supportsRestartRequest": True,
}
_REASONS = {"entry": "entry", "step": "step", "breakpoint": "breakpoint", "watchpoint": "data breakpoint",
            "pause": "pause", "fault": "exception"}  # fmt: skip
_VGPRS_SHOWN = 256
_MOST_INSTRUCTIONS = 1 << 16
"""The most instructions of one request."""
_FRAMES = 64
"""Frame numbers reserved for each wave."""
_SCOPES = 3
_LOCALS, _SCALARS, _VECTORS = range(_SCOPES)


class Adapter:
    """Serves one client until it disconnects."""

    def __init__(self, debugger: Debugger, channel: ProtocolChannel) -> None:
        self._debugger, self._channel = debugger, channel
        self._set: dict[str, list[int]] = {}
        """Numbers of breakpoints by kind of request: a file, functions, instructions, data."""
        self._files: dict[str, str] = {}
        """The client's paths of source files, by those in the debug information."""
        self._requests: queue.SimpleQueue[dict[str, Any] | LuthierError | None] = queue.SimpleQueue()
        self._stops_at_entry = True
        self._open = True
        self._handlers: dict[str, Callable[[Arguments], Body | None]] = {
            "initialize": self._initialize,
            "launch": self._launch,
            "attach": self._launch,
            "configurationDone": lambda arguments: None,
            "setBreakpoints": self._set_breakpoints,
            "setFunctionBreakpoints": self._set_function_breakpoints,
            "setInstructionBreakpoints": self._set_instruction_breakpoints,
            "setExceptionBreakpoints": lambda arguments: {"breakpoints": []},
            "dataBreakpointInfo": self._data_breakpoint_info,
            "setDataBreakpoints": self._set_data_breakpoints,
            "threads": self._threads,
            "stackTrace": self._stack_trace,
            "scopes": self._scopes,
            "variables": self._variables,
            "evaluate": self._evaluate,
            "readMemory": self._read_memory,
            "disassemble": self._disassemble,
            "pause": self._pause,
            "terminate": self._terminate,
            "disconnect": self._disconnect,
        }
        self._moves: dict[str, Callable[[Arguments], Stop]] = {
            "continue": lambda arguments: debugger.resume(),
            "reverseContinue": lambda arguments: debugger.reverse_resume(),
            "next": lambda arguments: self._step(arguments, over=True),
            "stepIn": lambda arguments: self._step(arguments, over=False),
            "stepOut": lambda arguments: debugger.finish(),
            "stepBack": self._step_back,
            "restart": lambda arguments: debugger.goto(0),
        }

    def serve(self) -> None:
        """Answer requests until the stream ends or the client disconnects."""
        Worker(self._receive)
        while self._open:
            request = self._requests.get()
            if request is None:
                return
            if isinstance(request, LuthierError):
                raise request
            if request.get("type") == "request":
                self._answer(request)

    def _receive(self) -> None:
        """Read requests from the stream; a pause takes effect immediately."""
        while True:
            try:
                request = self._channel.receive()
            except LuthierError as problem:
                self._requests.put(problem)
                return
            if request is not None and request.get("command") in ("pause", "terminate"):
                self._debugger.interrupt.set()
            self._requests.put(request)
            if request is None or request.get("command") == "disconnect":
                self._debugger.interrupt.set()
                return

    def _answer(self, request: Mapping[str, Any]) -> None:
        command, arguments = request.get("command"), request.get("arguments") or {}
        if not isinstance(command, str) or not isinstance(arguments, dict):
            self._channel.refuse(request, "a request needs a command that is text and arguments that are an object")
            return
        try:
            if command in self._moves:
                self._channel.respond(request, {"allThreadsContinued": True} if command == "continue" else None)
                self._tell_stop(self._moves[command](arguments))
                return
            if command not in self._handlers:
                raise LuthierError(f"request {command!r} is not supported")
            self._channel.respond(request, self._handlers[command](arguments))
        except LuthierError as problem:
            if command in self._moves:
                self._channel.tell("output", category="stderr", output=f"{problem}\n")
                self._channel.tell("stopped", reason="pause", threadId=self._thread(), allThreadsStopped=True)
            else:
                self._channel.refuse(request, problem.message)
            return
        except (KeyError, TypeError, ValueError, IndexError, AttributeError, ArithmeticError) as problem:
            self._channel.refuse(request, f"the arguments do not follow the protocol: {problem!r}")
            return
        if command == "initialize":
            self._channel.tell("initialized")
        elif command == "configurationDone":
            stop = Stop("entry", 0) if self._stops_at_entry else self._debugger.resume()
            self._tell_stop(stop)

    def _tell_stop(self, stop: Stop) -> None:
        if stop.text:
            self._channel.tell("output", category="console", output=f"{stop.text}\n")
        if stop.why == "end":
            self._channel.tell("exited", exitCode=0)
            self._channel.tell("terminated")
            return
        self._channel.tell(
            "stopped",
            reason=_REASONS[stop.why],
            threadId=self._thread(),
            allThreadsStopped=True,
            hitBreakpointIds=list(stop.numbers),
            description=f"{stop.why}, after {stop.position} instructions",
            text=stop.text,
        )

    def _thread(self) -> int:
        where = self._debugger.where
        return 1 if where is None else where.wave + 1

    # Beginning and end ----------------------------------------------------------------------------------------------

    def _initialize(self, arguments: Arguments) -> Body:
        return CAPABILITIES

    def _launch(self, arguments: Arguments) -> None:
        self._stops_at_entry = bool(arguments.get("stopOnEntry", True))
        manifest = self._debugger.launch.capture.manifest
        self._channel.tell("output", category="console", output=f"luthier {__version__}: {manifest.kernel}\n")

    def _pause(self, arguments: Arguments) -> None:
        """Answer a pause request, which already took effect (`_receive`). Requests are answered in order, so the launch
        has stopped."""
        self._debugger.interrupt.clear()

    def _terminate(self, arguments: Arguments) -> None:
        self._debugger.interrupt.clear()
        self._channel.tell("terminated")

    def _disconnect(self, arguments: Arguments) -> None:
        self._open = False

    # Breakpoints ----------------------------------------------------------------------------------------------------

    def _replace(self, kind: str, wanted: Sequence[Arguments], make: Callable[[Arguments], Body]) -> Body:
        """Replace the breakpoints of the last request of a kind by new ones."""
        for number in self._set.pop(kind, []):
            if number in self._debugger.breakpoints or number in self._debugger.watchpoints:
                self._debugger.delete(number)
        made: list[Body] = []
        numbers = self._set[kind] = list[int]()
        for arguments in wanted:
            try:
                made.append({"verified": True, **make(arguments)})
                numbers.append(made[-1]["id"])
            except LuthierError as problem:
                made.append({"verified": False, "message": problem.message})
        return {"breakpoints": made}

    def _break(self, place: str, arguments: Arguments) -> Body:
        ignore = int(arguments.get("hitCondition") or 1) - 1
        made = self._debugger.break_at(place, arguments.get("condition") or None, ignore=ignore)
        address = min(made.addresses)
        message = {"message": made.where} if made.nearest else {}
        return {"id": made.number, "instructionReference": hex(address), **self._location(address), **message}

    def _source(self, file: str) -> Body:
        return {"name": PurePath(file).name, "path": self._files.get(file, file)}

    def _location(self, address: int) -> Body:
        frames = self._debugger.source.frames(address)
        return {"source": self._source(frames[0].file), "line": frames[0].line} if frames else {}

    def _set_breakpoints(self, arguments: Arguments) -> Body:
        path, breakpoints = arguments["source"]["path"], arguments.get("breakpoints") or []
        return self._replace(f"file {path}", breakpoints, lambda breakpoint: self._break_line(path, breakpoint))

    def _break_line(self, path: str, arguments: Arguments) -> Body:
        file = self._debugger.source.file_of(path)
        self._files[file] = path
        made = self._break(f"{file}:{arguments['line']}", arguments)
        frames = self._debugger.source.frames(int(made["instructionReference"], 16))
        wanted = arguments["line"]
        lines = [frame.line for frame in frames if frame.file == file and frame.line and frame.line >= wanted]
        return {**made, "line": min(lines, default=wanted)}

    def _set_function_breakpoints(self, arguments: Arguments) -> Body:
        breakpoints = arguments["breakpoints"]
        return self._replace("functions", breakpoints, lambda breakpoint: self._break(breakpoint["name"], breakpoint))

    def _set_instruction_breakpoints(self, arguments: Arguments) -> Body:
        def make(breakpoint: Arguments) -> Body:
            address = int(breakpoint["instructionReference"], 16) + int(breakpoint.get("offset", 0))
            return self._break(f"*{address}", breakpoint)

        return self._replace("instructions", arguments["breakpoints"], make)

    def _data_breakpoint_info(self, arguments: Arguments) -> Body:
        name = arguments["name"]
        if arguments.get("asAddress"):
            size = int(arguments.get("bytes") or 1)
            self._debugger.read(int(name, 0), size)
            return {"dataId": f"*{name} {size}", "description": f"{size} bytes at {name}", "accessTypes": ["write"]}
        ParsedExpression(name).value(self._debugger.view())
        return {"dataId": name, "description": name, "accessTypes": ["write"]}

    def _set_data_breakpoints(self, arguments: Arguments) -> Body:
        def make(breakpoint: Arguments) -> Body:
            text = breakpoint["dataId"]
            if not text.startswith("*"):
                return {"id": self._debugger.watch(text).number}
            address, _, size = text[1:].partition(" ")
            return {"id": self._debugger.watch_memory(int(address, 0), int(size)).number}

        return self._replace("data", arguments["breakpoints"], make)

    # Moving ---------------------------------------------------------------------------------------------------------

    def _step(self, arguments: Arguments, *, over: bool) -> Stop:
        if arguments.get("granularity") == "instruction":
            return self._debugger.step_instruction()
        return self._debugger.step_line(over=over)

    def _step_back(self, arguments: Arguments) -> Stop:
        if arguments.get("granularity") == "instruction":
            return self._debugger.reverse_instruction()
        return self._debugger.reverse_line(over=True)

    # Looking --------------------------------------------------------------------------------------------------------

    def _threads(self, arguments: Arguments) -> Body:
        if self._debugger.where is None:
            return {"threads": [{"id": 1, "name": "the launch has ended"}]}
        group = self._debugger.where.workgroup
        views = [self._debugger.view(index) for index in range(self._debugger.wave_count)]
        return {
            "threads": [
                {"id": one.wave + 1, "name": f"work-group {group} wave {one.wave}{' (ended)' if one.ended else ''}"}
                for one in views
            ]
        }

    def _stack_trace(self, arguments: Arguments) -> Body:
        view = self._debugger.view(int(arguments["threadId"]) - 1)
        frames = view.frames[:_FRAMES]
        first = {"instructionPointerReference": hex(view.pc)}
        shown: list[Body] = [
            {
                "id": view.wave * _FRAMES + number,
                "name": frame.name or self._debugger.launch.kernel.name,
                "line": frame.line,
                "column": frame.column,
                "source": self._source(frame.file),
                **(first if number == 0 else {}),
            }
            for number, frame in enumerate(frames)
        ]
        if not shown:
            name = f"{self._debugger.launch.kernel.name} {view.text}"
            shown = [{"id": view.wave * _FRAMES, "name": name, "line": 0, "column": 0, **first}]
        start = int(arguments.get("startFrame") or 0)
        count = int(arguments.get("levels") or len(shown))
        return {"stackFrames": shown[start : start + count], "totalFrames": len(shown)}

    def _scopes(self, arguments: Arguments) -> Body:
        frame = int(arguments["frameId"])
        view = self._debugger.view(frame // _FRAMES)
        lane = describe.first_active(view)
        names = (f"Locals (lane {lane})", "Scalar registers", "Vector registers (by lane)")
        return {
            "scopes": [
                {"name": name, "variablesReference": 1 + frame * _SCOPES + number, "expensive": number == _VECTORS}
                for number, name in enumerate(names)
            ]
        }

    def _variables(self, arguments: Arguments) -> Body:
        frame, scope = divmod(int(arguments["variablesReference"]) - 1, _SCOPES)
        index, number = divmod(frame, _FRAMES)
        view = self._debugger.view(index)
        if scope == _LOCALS:
            depth = max(len(view.frames) - 1 - number, 0)
            lane = describe.first_active(view)
            rows = [(one.name, describe.variable(view, one, lane), one.type.name) for one in view.variables(depth)]
        elif scope == _SCALARS:
            registers = view.registers
            named = [(name, getattr(registers, name)) for name in ("exec", "vcc", "scc", "m0", "mode")]
            numbered = [(f"s{at}", registers.sgpr(at)) for at in range(len(SGPRS))]
            rows = [(name, f"{value:#x}", "") for name, value in (("pc", view.pc), *named, *numbered)]
        else:
            count = min(view.registers.vgprs, _VGPRS_SHOWN)
            rows = [(f"v{at}", " ".join(f"{one:x}" for one in view.registers.vgpr(at)), "") for at in range(count)]
        return {
            "variables": [
                {"name": name, "value": value, "type": kind, "evaluateName": name, "variablesReference": 0}
                for name, value, kind in rows
            ]
        }

    def _evaluate(self, arguments: Arguments) -> Body:
        text = arguments["expression"]
        frame = arguments.get("frameId")
        view = self._debugger.view(None if frame is None else int(frame) // _FRAMES)
        return {"result": self._value(view, text), "variablesReference": 0}

    @staticmethod
    def _value(view: StoppedWave, text: str) -> str:
        known = {one.name: one for one in view.variables()}
        if text in known and view.variable(text) is None:
            return describe.variable(view, known[text], describe.first_active(view))
        return describe.value(view, ParsedExpression(text).value(view))

    def _read_memory(self, arguments: Arguments) -> Body:
        address = int(arguments["memoryReference"], 0) + int(arguments.get("offset") or 0)
        data = self._debugger.read(address, int(arguments["count"]))
        return {"address": hex(address), "data": base64.b64encode(data).decode()}

    def _disassemble(self, arguments: Arguments) -> Body:
        code, addresses = self._debugger.launch.code, self._debugger.addresses
        at = int(arguments["memoryReference"], 0) + int(arguments.get("offset") or 0)
        if at not in addresses:
            raise LuthierError(f"no instruction begins at {at:#x}")
        first = addresses.index(at) + int(arguments.get("instructionOffset") or 0)
        count = int(arguments["instructionCount"])
        if count > _MOST_INSTRUCTIONS:
            raise LuthierError(f"instructionCount must be at most {_MOST_INSTRUCTIONS}, not {count}")
        shown: list[Body] = []
        for number in range(first, first + count):
            if not 0 <= number < len(addresses):
                shown.append({"address": "0x0", "instruction": "", "presentationHint": "invalid"})
                continue
            address = addresses[number]
            place = self._location(address)
            shown.append(
                {
                    "address": hex(address),
                    "instruction": code.text(code.record_at(address) or 0),
                    **({"location": place["source"], "line": place["line"]} if place else {}),
                }
            )
        return {"instructions": shown}
