"""Debugging of a captured launch: it runs forwards and backwards, and stops at lines, instructions and changes.

The order of waves is always the same, so each stop has a position: the number of instructions that all waves executed
before it. Going back means starting again and stopping earlier.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType
from typing import Any

import numpy as np

from luthier.capture.form import Capture
from luthier.capture.place import fresh
from luthier.capture.replay import PreparedLaunch
from luthier.debug.bodies import Bodies
from luthier.debug.calls import CallStacks
from luthier.debug.expressions import ParsedExpression
from luthier.debug.lanes import VariableLocations
from luthier.debug.source_places import SourcePlaces
from luthier.debug.stops import Breakpoint, Stop, Watchpoint
from luthier.debug.view import StoppedWave
from luthier.emulator.inspection.debug import Trace, WaveStep, observer_of
from luthier.emulator.inspection.debugger import DebugSession
from luthier.emulator.running.memory import AllocationTable, DeviceAllocation, host_bytes
from luthier.errors import DeviceError, EmulationError, LuthierError
from luthier.objects.source import SourceFrame
from luthier.objects.variables import DwarfVariable
from luthier.support.wording import counted


class Debugger:
    """A stopped captured launch, initially before its first instruction. A context manager.

    Args:
        target: target of the device; None: the recorded one.

    Raises:
        AddressTaken: this process uses addresses of the captured memory.
        LuthierError: the launch cannot be run.
    """

    def __init__(self, capture: Capture, target: str | None = None) -> None:
        self.launch = PreparedLaunch(capture, target or capture.manifest.target, memory=_SteadyMemory(limit=1 << 62))
        self.breakpoints: dict[int, Breakpoint] = {}
        self.watchpoints: dict[int, Watchpoint] = {}
        self.interrupt = threading.Event()
        """Set it in another thread or a signal handler to stop a running launch; clear it after the stop."""
        self.position = 0
        self.fault: EmulationError | None = None
        self._numbers = 0
        self._opened = ExitStack()
        self._opened.enter_context(self.launch.memory())
        self._captured = AllocationTable(limit=1 << 62)
        for address, size in capture.manifest.ranges:
            self._captured.register(address, size, "captured memory")
        self._session: DebugSession | None = None
        self._calls = CallStacks(
            self.launch.code,
            VariableLocations(self.launch.object.variables.near(self.addresses), self.addresses),
        )
        self._bodies = Bodies(self.launch.object.source, self.launch.code, self.addresses)
        self.source = SourcePlaces(self.launch, self._bodies, self.addresses)
        self._last = 0, 0
        self._executed = 0
        """Record executed last."""
        self._begin()

    # Where it is ----------------------------------------------------------------------------------------------------

    @property
    def where(self) -> WaveStep | None:
        """Return the wave about to execute an instruction; None: the launch has ended."""
        return None if self._session is None else self._session.where

    def view(self, index: int | None = None) -> StoppedWave:
        """Return a wave of the stopped work-group; None: the stopped wave.

        Raises:
            DeviceError: the launch has ended, or the work-group has no such wave.
        """
        step = self._stopped()
        count = step.worker.group_field("wave_count")
        if index is not None and not 0 <= index < count:
            raise DeviceError(f"the work-group has no wave {index}, only {counted(count, 'wave')}")
        return StoppedWave(self, step, step.wave if index is None else index)

    @property
    def wave_count(self) -> int:
        """Return the number of waves of the stopped work-group."""
        return self._stopped().worker.group_field("wave_count")

    @functools.cached_property
    def addresses(self) -> list[int]:
        """Return the virtual addresses of all instructions, ascending."""
        return sorted(address for address in self.launch.code.addresses().tolist() if address >= 0)

    def read(self, address: int, size: int) -> bytes:
        """Return memory that the launch may access; while it runs, also its scratch.

        Raises:
            DeviceError: some of the bytes are outside that memory.
        """
        memory = self._captured if self.where is None else self.launch.accessible
        holder = memory.find(address)
        if size < 0 or holder is None or address + size > holder.end:
            raise DeviceError(f"cannot read {size} bytes at {address:#x}: {memory.describe(address)}")
        return self._raw(address, size)

    @staticmethod
    def _raw(address: int, size: int) -> bytes:
        return host_bytes(address, size).tobytes()

    def has_frame(self, address: int, register: int) -> bool:
        """Return whether a scalar register holds the function's frame at an instruction."""
        return self._bodies.has_frame(address, register)

    def lanes(self, view: StoppedWave, variable: DwarfVariable) -> int:
        """Return the mask of the active lanes of a wave for which the location of a variable holds."""
        expression, on = variable.expression_at(view.pc), view.registers.exec
        if expression is None:
            return on
        lanes = self._calls.lanes((view.workgroup, view.wave), view.pc, on, variable, expression)
        return on if lanes is None else lanes

    # Breakpoints ----------------------------------------------------------------------------------------------------

    def break_at(
        self, place: str, condition: str | None = None, *, ignore: int = 0, temporary: bool = False
    ) -> Breakpoint:
        """Set a breakpoint at ``file.hip:12``, a function, ``*0x1b40``, or ``+0x40`` from the kernel's entry.

        Raises:
            LuthierError: the place has no code, or the condition is not an expression.
        """
        addresses = frozenset(self.source.addresses_of(place))
        self._numbers += 1
        made = Breakpoint(
            *(self._numbers, place, addresses, self.source.nearest(place)),
            ParsedExpression(condition) if condition else None,
            ignore,
            temporary,
        )
        self.breakpoints[made.number] = made
        return made

    def watch_memory(self, address: int, size: int) -> Watchpoint:
        """Stop after an instruction of any wave that changes these bytes.

        Raises:
            DeviceError: the launch may not access them.
        """
        last = self.read(address, size)
        self._numbers += 1
        made = Watchpoint(self._numbers, f"{size} bytes at {address:#x}", address, size, last=last)
        self.watchpoints[made.number] = made
        return made

    def watch(self, text: str) -> Watchpoint:
        """Stop after an instruction of the stopped wave that changes the value of an expression.

        Raises:
            LuthierError: it is not an expression, or has no value at this stop.
        """
        view, expression = self.view(), ParsedExpression(text)
        last = expression.value(view)
        self._numbers += 1
        made = Watchpoint(
            self._numbers, text, expression=expression, wave=(view.workgroup, view.wave), last=np.copy(last)
        )
        self.watchpoints[made.number] = made
        return made

    def delete(self, number: int) -> None:
        """Remove a breakpoint or a watchpoint.

        Raises:
            DeviceError: there is none with this number.
        """
        if self.breakpoints.pop(number, None) is None and self.watchpoints.pop(number, None) is None:
            raise DeviceError(f"there is no breakpoint or watchpoint {number}")

    # Going on -------------------------------------------------------------------------------------------------------

    def resume(self) -> Stop:
        """Execute up to a breakpoint, a change of a watchpoint or the end."""
        return self._forward(lambda step: False)

    def goto(self, position: int) -> Stop:
        """Go to a position, forwards or backwards, without stopping at breakpoints.

        Raises:
            DeviceError: the position is negative, or the launch ends before it.
        """
        if position < 0:
            raise DeviceError(f"a position must not be negative, but is {position}")
        if position < self.position:
            self._begin()
        stop = Stop("step" if position else "entry", position)
        if position > self.position and self.where is not None:
            stop = self._forward(lambda step: self.position == position, quiet=True)
        if self.where is None:
            if self.position != position:
                raise DeviceError(f"no position {position}: the launch ends after {self.position} instructions")
            return self._end()
        return stop

    def step_instruction(self) -> Stop:
        """Execute one instruction of the stopped wave; other waves may execute instructions in between."""
        wave = self._wave()
        return self._forward(lambda step: self._of(step) == wave)

    def step_line(self, *, over: bool) -> Stop:
        """Execute the stopped wave up to another line.

        Args:
            over: step over calls, also inlined ones.
        """
        wave, depth, frames = self._wave(), self._depth(), self.view().frames
        if not frames:
            return self._forward(lambda step: self._of(step) == wave and (not over or self._depth(step) <= depth))
        place = frames[0].file, frames[0].line

        def elsewhere(step: WaveStep) -> bool:
            if self._of(step) != wave or (over and self._depth(step) > depth):
                return False
            body = self._bodies.body(step.address)
            if body is not None and step.address < body.start:
                return False
            now = self.source.frames(step.address)
            if not now or not now[0].line or (over and self._depth(step) == depth and len(now) > len(frames)):
                return False
            return (now[0].file, now[0].line) != place or len(now) < len(frames) or self._depth(step) != depth

        return self._forward(elsewhere)

    def finish(self) -> Stop:
        """Execute until the current function of the stopped wave, which may be inlined, has returned."""
        wave, depth, inlined = self._wave(), self._depth(), len(self.view().frames)

        def outside(step: WaveStep) -> bool:
            if self._of(step) != wave:
                return False
            now = self._depth(step)
            return now < depth or (now == depth and 0 < len(self.source.frames(step.address)) < inlined)

        return self._forward(outside)

    # Going back -----------------------------------------------------------------------------------------------------

    def reverse_resume(self) -> Stop:
        """Go back to the last breakpoint or change of a watchpoint, or to the beginning."""
        return self._backward(lambda step: False)

    def reverse_instruction(self) -> Stop:
        """Go back to before the instruction that the stopped wave executed last."""
        wave = self._wave()
        return self._backward(lambda step: self._of(step) == wave, quiet=True)

    def reverse_line(self, *, over: bool) -> Stop:
        """Go back to the beginning of the stopped wave's line, or from there to the line before.

        Args:
            over: step over calls, also inlined ones.
        """
        wave, depth, inlined = self._wave(), self._depth(), len(self._frames())
        before: tuple[Any, ...] = ()

        def begins(step: WaveStep) -> bool:
            nonlocal before
            if self._of(step) != wave:
                return False
            now, frames = self._depth(step), self.source.frames(step.address)
            if over and (now > depth or (now == depth and len(frames) > max(inlined, 1))):
                return False
            place = (now, len(frames), *((frames[0].file, frames[0].line) if frames else (step.address,)))
            new, before = place != before, place
            return new and (not frames or bool(frames[0].line))

        return self._backward(begins, quiet=True)

    def _frames(self) -> tuple[SourceFrame, ...]:
        """Return the places in the source of `_wave`'s instruction."""
        return self.source.frames(self.launch.code.address_of(self._calls.record(self._wave())))

    # The launch -----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """End the launch and free its memory. Closing twice has no effect."""
        if self._session is not None:
            self._session.close()
            self._session = None
        self._opened.close()

    def __enter__(self) -> Debugger:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _begin(self) -> None:
        if self._session is not None:
            self._session.close()
            fresh(self.launch.capture.manifest.ranges)
        launch = self.launch

        def run(trace: Trace) -> None:
            *_, fault = launch.execute(1, observer_of(launch.code, trace, None))
            self.fault = fault

        self.position, self.fault = 0, None
        self._calls.clear()
        self._session = DebugSession(launch.kernel, launch.code, launch.accessible, run)
        for breakpoint in self.breakpoints.values():
            breakpoint.hits = 0
        for watch in self.watchpoints.values():
            watch.hits = 0
            if watch.size:
                watch.last = self._raw(watch.address, watch.size)
            elif watch.expression is not None:
                watch.last = None
        if self.where is not None:
            self._last = self._of(self.where)
            self._calls.arrive(self._last, self.where)

    def _stopped(self) -> WaveStep:
        if self.where is None:
            raise DeviceError("the launch has ended", kernel=self.launch.kernel.name)
        return self.where

    @staticmethod
    def _of(step: WaveStep) -> tuple[int, int]:
        return step.workgroup, step.wave

    def _wave(self) -> tuple[int, int]:
        """Return the stopped wave, or the one that executed the last instruction."""
        return self._last if self.where is None else self._of(self.where)

    def _depth(self, step: WaveStep | None = None) -> int:
        """Return the depth of real (not inlined) calls of a wave; None: of `_wave`."""
        return self._calls.depth(self._wave() if step is None else self._of(step))

    def _arrive(self, step: WaveStep) -> None:
        """Record a step: its position, and the calls of its wave."""
        self.position += 1
        self._executed = self._calls.record(self._last)
        self._last = self._of(step)
        self._calls.arrive(self._last, step)

    def _reached(self, step: WaveStep) -> Stop | None:
        """Return the stop that breakpoints and watchpoints make before an instruction."""
        changed = [one for one in self.watchpoints.values() if self._changes(one, step)]
        hit = [one for one in self.breakpoints.values() if self._hits(one, step)]
        numbers = tuple(one.number for one in changed) + tuple(one.number for one in hit)
        if changed:
            return Stop("watchpoint", self.position, "; ".join(one.change for one in changed), numbers)
        problems = "; ".join(one.problem for one in hit if one.problem)
        return Stop("breakpoint", self.position, problems, numbers) if hit else None

    def _hits(self, breakpoint: Breakpoint, step: WaveStep) -> bool:
        if step.address not in breakpoint.addresses:
            return False
        breakpoint.problem = ""
        if breakpoint.condition is not None:
            try:
                if not breakpoint.condition.holds(StoppedWave(self, step, step.wave)):
                    return False
            except LuthierError as problem:  # stop, so that the user learns why the condition never holds
                breakpoint.problem = f"the condition of breakpoint {breakpoint.number} has no value: {problem.message}"
                return True
        breakpoint.hits += 1
        return breakpoint.hits > breakpoint.ignore

    def _changes(self, watch: Watchpoint, step: WaveStep) -> bool:
        if watch.size:
            return self._update(watch, self._raw(watch.address, watch.size))
        if self._of(step) != watch.wave or watch.expression is None:
            return False
        try:
            return self._update(watch, np.copy(watch.expression.value(StoppedWave(self, step, step.wave))))
        except LuthierError:
            return False  # a variable that is nowhere now

    def _update(self, watch: Watchpoint, now: Any) -> bool:
        """Return whether a watched value has changed, and remember the new one."""
        before, watch.last = watch.last, now
        if before is None or np.array_equal(before, now):
            return False
        watch.hits += 1
        address = self.launch.code.address_of(self._executed)
        place = f", {self.source.frames(address)[0].place}" if self.source.frames(address) else ""
        text = self.launch.code.text(self._executed)
        watch.change = f"{watch.text}: {_differ(before, now)} by {text} at {address:#x}{place}"
        return True

    def _forward(self, wanted: Callable[[WaveStep], bool], *, quiet: bool = False) -> Stop:
        """Execute until `wanted` holds before a step, or unless `quiet`, up to a breakpoint or watchpoint."""
        self._stopped()
        stops: list[Stop] = []

        def until(step: WaveStep) -> bool:
            reached = self._reached(step)
            if reached is not None and not quiet:
                stops.append(reached)
            elif wanted(step):
                stops.append(Stop("step", self.position))
            elif self.interrupt.is_set():
                stops.append(Stop("pause", self.position))
            return bool(stops)

        self._execute(until)
        if not stops:
            self.position += 1
            self._executed = self._calls.record(self._last)
            return self._end()
        for number in stops[0].numbers:
            if number in self.breakpoints and self.breakpoints[number].temporary:
                del self.breakpoints[number]
        return stops[0]

    def _execute(self, until: Callable[[WaveStep], bool]) -> None:
        """Execute until `until` holds; it is called before each step."""
        assert self._session is not None
        problems: list[BaseException] = []

        def look(step: WaveStep) -> bool:
            try:
                self._arrive(step)
                return until(step)
            except BaseException as problem:  # on the launch's thread: raised again in the waiting one
                problems.append(problem)
                return True

        self._session.run(look)
        if problems:
            raise problems[0]

    def _end(self) -> Stop:
        """Return the stop after the last instruction."""
        if self.fault is not None:
            return Stop("fault", self.position, str(self.fault))
        memory = [one for one in self.watchpoints.values() if one.size]
        changed = [one for one in memory if self._update(one, self._raw(one.address, one.size))]
        return Stop(
            "end", self.position, "; ".join(one.change for one in changed), tuple(one.number for one in changed)
        )

    def _backward(self, wanted: Callable[[WaveStep], bool], *, quiet: bool = False) -> Stop:
        """Go back to the last stop at which `wanted` holds, or unless `quiet`, to a breakpoint or watchpoint."""
        end, best = self.position, Stop("entry", 0)
        if end == 0:
            return best
        self._begin()

        def look(step: WaveStep) -> bool:
            nonlocal best
            if self.position < end:
                reached = self._reached(step)
                if reached is not None and not quiet:
                    best = reached
                elif wanted(step):
                    best = Stop("step", self.position)
            return self.position >= end - 1 or self.interrupt.is_set()

        if not look(self._stopped()):
            self._execute(look)
        if self.interrupt.is_set():
            return Stop("pause", self.position)
        self.goto(best.position)
        return best


class _SteadyMemory(AllocationTable):
    """Memory that gives scratch the same address each time the launch starts again: it shows in registers."""

    def __init__(self, limit: int) -> None:
        super().__init__(limit=limit)
        self._kept: dict[int, DeviceAllocation] = {}

    def allocate(self, size: int, label: str = "buffer", align: int = 256) -> DeviceAllocation:
        """Allocate `size` bytes of zeroed memory; there is one allocation of a size at a time."""
        kept = self._kept.get(size)
        if kept is None:
            kept = self._kept[size] = AllocationTable().allocate(size, label, align)
        else:
            kept.view()[:] = 0
        return self.register(kept.address, size, label, kept.keep)


def _differ(before: Any, now: Any) -> str:
    """Return the old and the new value; for arrays, the first element that differs."""
    if isinstance(now, bytes):
        return f"{before.hex(' ')} became {now.hex(' ')}"
    if np.shape(now) != np.shape(before) or not np.ndim(now):
        return f"{before} became {now}"
    where = tuple(int(one[0]) for one in np.nonzero(before != now))
    return f"[{', '.join(map(str, where))}] {before[where]} became {now[where]}"
