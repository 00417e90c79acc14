"""The debugger's front end for a terminal."""

from __future__ import annotations

import cmd
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import IO

from luthier.debug import describe
from luthier.debug.debugger import Debugger
from luthier.debug.expressions import ParsedExpression
from luthier.debug.stops import Stop
from luthier.debug.view import StoppedWave
from luthier.errors import LuthierError
from luthier.terminal import say_text

_SHORT = {
    "b": "break", "tb": "tbreak", "c": "continue", "rc": "reverse-continue", "s": "step", "n": "next", "si": "stepi",
    "rs": "reverse-step", "rn": "reverse-next", "rsi": "reverse-stepi", "bt": "where", "l": "list", "p": "print",
    "d": "delete", "q": "quit", "EOF": "quit", "x": "memory", "i": "info", "h": "help", "fin": "finish",
}  # fmt: skip
"""Command by its short name."""
_AROUND = 5
"""Lines or instructions that are listed before and after the current one."""
_LINE = 16
"""Bytes of memory in a line."""


class Console(cmd.Cmd):
    """Reads commands from a stream and writes answers to standard output.

    Args:
        commands: None: standard input, with history and completion if it is a terminal.
    """

    prompt = "(luthier) "

    def __init__(self, debugger: Debugger, commands: IO[str] | None = None) -> None:
        super().__init__(stdin=commands)
        self._debugger = debugger
        self._wave: int | None = None
        """The selected wave; None: the stopped one."""
        self._lane: int | None = None
        self.use_rawinput = commands is None and sys.stdin.isatty()
        if not self.use_rawinput:
            self.prompt = ""

    def run(self) -> None:
        """Run commands until the end of the input or ``quit``; an interrupt stops a running launch."""
        before = signal.signal(signal.SIGINT, self._interrupt)
        try:
            self._say(describe.stopped(self._debugger, Stop("entry", 0)))
            self.cmdloop()
        finally:
            signal.signal(signal.SIGINT, before)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        self._debugger.interrupt.set()

    def onecmd(self, line: str) -> bool:
        """Run one command; print its errors."""
        word, _, rest = line.strip().partition(" ")
        word = _SHORT.get(word, word).replace("-", "_")
        try:
            return bool(super().onecmd(f"{word} {rest}".strip()))
        except LuthierError as problem:
            self._say(f"error: {problem.message}")
        except ValueError as problem:
            self._say(f"error: {problem}")
        return False

    def completenames(self, text: str, *ignored: object) -> list[str]:
        """Return the commands that begin with `text`."""
        return [name for name in map(_dashed, super().completenames(text.replace("-", "_"))) if name.startswith(text)]

    def default(self, line: str) -> None:
        """Report an unknown command."""
        self._say(f"error: there is no command {line.split()[0]!r}; `help` lists them")

    def emptyline(self) -> bool:
        """Repeat the last command, like other debuggers."""
        return self.onecmd(self.lastcmd) if self.lastcmd and self.use_rawinput else False

    def do_help(self, arg: str) -> None:
        """help: list the commands"""
        names = [name for name in self.get_names() if name.startswith("do_")]
        lines = [(getattr(self, name).__doc__ or "").strip() for name in names]
        shorts = {full: short for short, full in _SHORT.items() if short != "EOF"}
        for line in sorted(lines):
            word = line.split(" ")[0].rstrip(":")
            self._say(f"{line} ({shorts[word]})" if word in shorts else line)

    # Breakpoints ----------------------------------------------------------------------------------------------------

    def do_break(self, arg: str) -> None:
        """break PLACE [if EXPRESSION]: stop before FILE:LINE, FUNCTION, *ADDRESS or +OFFSET"""
        self._break(arg, temporary=False)

    def do_tbreak(self, arg: str) -> None:
        """tbreak PLACE [if EXPRESSION]: like break, for one stop"""
        self._break(arg, temporary=True)

    def _break(self, arg: str, *, temporary: bool) -> None:
        place, _, condition = arg.partition(" if ")
        if not place.strip():
            raise LuthierError("break needs a place: FILE:LINE, FUNCTION, *ADDRESS or +OFFSET")
        made = self._debugger.break_at(place.strip(), condition.strip() or None, temporary=temporary)
        self._say(made.where)

    def do_watch(self, arg: str) -> None:
        """watch EXPRESSION, or *ADDRESS BYTES: stop after this wave changes its value, or any wave the memory"""
        if arg.startswith("*"):
            address, _, size = arg[1:].partition(" ")
            made = self._debugger.watch_memory(int(address, 0), int(size or "4", 0))
        else:
            made = self._debugger.watch(arg)
        self._say(f"watchpoint {made.number}: {made.text}")

    def do_delete(self, arg: str) -> None:
        """delete NUMBER: remove a breakpoint or watchpoint"""
        self._debugger.delete(int(arg))

    def do_info(self, arg: str) -> None:
        """info: list breakpoints and watchpoints"""
        for breakpoint in self._debugger.breakpoints.values():
            condition = f" if {breakpoint.condition.text}" if breakpoint.condition else ""
            self._say(f"{breakpoint.number}: {breakpoint.text}{condition}, {breakpoint.hits} hits")
        for watch in self._debugger.watchpoints.values():
            self._say(f"{watch.number}: {watch.text}, {watch.hits} changes")

    # Going on -------------------------------------------------------------------------------------------------------

    def do_continue(self, arg: str) -> None:
        """continue: execute up to a breakpoint, a change of a watchpoint or the end"""
        self._go(self._debugger.resume)

    def do_reverse_continue(self, arg: str) -> None:
        """reverse-continue: go back to the breakpoint or change before"""
        self._go(self._debugger.reverse_resume)

    def do_step(self, arg: str) -> None:
        """step: execute this wave up to another line"""
        self._go(lambda: self._debugger.step_line(over=False))

    def do_next(self, arg: str) -> None:
        """next: execute this wave up to another line, stepping over calls"""
        self._go(lambda: self._debugger.step_line(over=True))

    def do_stepi(self, arg: str) -> None:
        """stepi: execute one instruction of this wave"""
        self._go(self._debugger.step_instruction)

    def do_finish(self, arg: str) -> None:
        """finish: execute until this function has returned"""
        self._go(self._debugger.finish)

    def do_reverse_step(self, arg: str) -> None:
        """reverse-step: go back to the beginning of this line, or of the one before"""
        self._go(lambda: self._debugger.reverse_line(over=False))

    def do_reverse_next(self, arg: str) -> None:
        """reverse-next: like reverse-step, stepping over calls"""
        self._go(lambda: self._debugger.reverse_line(over=True))

    def do_reverse_stepi(self, arg: str) -> None:
        """reverse-stepi: go back to before the last instruction of this wave"""
        self._go(self._debugger.reverse_instruction)

    def do_goto(self, arg: str) -> None:
        """goto POSITION: go to the point after this number of instructions"""
        self._go(lambda: self._debugger.goto(int(arg, 0)))

    def _go(self, how: Callable[[], Stop]) -> None:
        self._debugger.interrupt.clear()
        stop = how()
        self._wave = None
        self._say(describe.stopped(self._debugger, stop))

    # Looking --------------------------------------------------------------------------------------------------------

    def _view(self) -> StoppedWave:
        return self._debugger.view(self._wave)

    def _chosen_lane(self, view: StoppedWave) -> int:
        return describe.first_active(view) if self._lane is None else self._lane

    def do_where(self, arg: str) -> None:
        """where: the location of this wave, and the calls that are inlined there"""
        view = self._view()
        self._say(describe.place(view))
        for number, frame in enumerate(view.frames):
            self._say(f"#{number} {frame.name} at {frame.place}")

    def do_waves(self, arg: str) -> None:
        """waves: the locations of all waves of the work-group"""
        for index in range(self._debugger.wave_count):
            view = self._debugger.view(index)
            mark = "*" if index == self._view().wave else " "
            self._say(f"{mark} wave {index} has ended" if view.ended else f"{mark} {describe.place(view)}")

    def do_wave(self, arg: str) -> None:
        """wave INDEX: select another wave of the work-group"""
        self._debugger.view(int(arg))
        self._wave = int(arg)
        self._say(describe.place(self._view()))

    def do_lane(self, arg: str) -> None:
        """lane [INDEX]: show variables of a lane; without INDEX, of the first active lane"""
        size = self._view().registers.wave_size
        if arg and not 0 <= int(arg) < size:
            raise LuthierError(f"the wave has no lane {arg}, only {size} lanes")
        self._lane = int(arg) if arg else None

    def do_locals(self, arg: str) -> None:
        """locals: the variables that are visible here"""
        view = self._view()
        lane = self._chosen_lane(view)
        variables = view.variables()
        for variable in variables:
            self._say(f"{variable.name} = {describe.variable(view, variable, lane)}")
        if not variables:
            self._say("no variables are known here" if view.frames else "the code object has no debug information")

    def do_print(self, arg: str) -> None:
        """print EXPRESSION: its value, by lane if lanes differ"""
        view = self._view()
        known = {one.name: one for one in view.variables()}
        if arg in known:
            self._say(f"{arg} = {describe.variable(view, known[arg], self._chosen_lane(view))}")
            if view.variable(arg) is None:
                return
        self._say(f"{arg}: {describe.value(view, ParsedExpression(arg).value(view), self._lane)}")

    def do_registers(self, arg: str) -> None:
        """registers [VGPRS]: the non-zero scalar registers, and the first VGPRS vector registers"""
        self._say(self._view().registers.dump(vgprs=int(arg or "0")))

    def do_memory(self, arg: str) -> None:
        """memory ADDRESS [BYTES]: the contents of memory"""
        first, _, count = arg.partition(" ")
        address = int(first, 0)
        data = self._debugger.read(address, int(count or "64", 0))
        for at in range(0, len(data), _LINE):
            self._say(f"{address + at:#x}  {data[at : at + _LINE].hex(' ', 4)}")

    def do_list(self, arg: str) -> None:
        """list: source lines around this location"""
        frames = self._view().frames
        if not frames:
            raise LuthierError("the source location is not known")
        for number in range(frames[0].line - _AROUND, frames[0].line + _AROUND + 1):
            line = describe.source_line(frames[0].file, number)
            if line is not None:
                self._say(f"{'>' if number == frames[0].line else ' '}{number:5}  {line}")

    def do_disassemble(self, arg: str) -> None:
        """disassemble: instructions around this one"""
        view, code = self._view(), self._debugger.launch.code
        at = self._debugger.addresses.index(view.pc)
        for address in self._debugger.addresses[max(at - _AROUND, 0) : at + _AROUND + 1]:
            self._say(f"{'>' if address == view.pc else ' '} {address:#x}  {code.text(code.record_at(address) or 0)}")

    def do_quit(self, arg: str) -> bool:
        """quit: end the session"""
        return True

    @staticmethod
    def _say(text: str) -> None:
        say_text(text, flush=True)


def _dashed(name: str) -> str:
    return name.replace("_", "-")
