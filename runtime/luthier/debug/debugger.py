"""A captured launch under control: it goes forwards and backwards, and stops at lines, instructions and changes.

Waves of a launch take turns in an order that is always the same, so a stop has a number: how many instructions all
waves have executed before it. To go back is to begin anew and to stop earlier.
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


class Debugger:
    """A captured launch that is stopped, at first before its first instruction. A context manager.

    Args:
        target: of the device; the recorded one by default.

    Raises:
        AddressTaken: this process has something else where the program had its memory.
        LuthierError: the launch cannot be run.
    """

    def __init__(self, capture: Capture, target: str | None = None) -> None:
        self.launch = PreparedLaunch(capture, target or capture.manifest.target, memory=_SteadyMemory(limit=1 << 62))
        self.breakpoints: dict[int, Breakpoint] = {}
        self.watchpoints: dict[int, Watchpoint] = {}
        self.interrupt = threading.Event()
        """Set it from another thread, or a signal handler, to stop a launch that runs; clear it when it has stopped."""
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
        """The record that was executed last."""
        self._begin()

    # Where it is ----------------------------------------------------------------------------------------------------

    @property
    def where(self) -> WaveStep | None:
        """Return the wave about to execute an instruction; None when the launch has ended."""
        return None if self._session is None else self._session.where

    def view(self, index: int | None = None) -> StoppedWave:
        """Return a wave of the stopped work-group, by default the one that is stopped.

        Raises:
            DeviceError: the launch has ended, or there is no such wave.
        """
        step = self._stopped()
        count = step.worker.group_field("wave_count")
        if index is not None and not 0 <= index < count:
            raise DeviceError(f"the work-group has {count} waves, none is {index}")
        return StoppedWave(self, step, step.wave if index is None else index)

    @property
    def wave_count(self) -> int:
        """Return the waves of the stopped work-group."""
        return self._stopped().worker.group_field("wave_count")

    @functools.cached_property
    def addresses(self) -> list[int]:
        """Return the virtual addresses of all instructions, ascending."""
        return sorted(one for one in self.launch.code.addresses().tolist() if one >= 0)

    def read(self, address: int, size: int) -> bytes:
        """Return memory that the launch may access, its scratch included while it runs.

        Raises:
            DeviceError: some of it is not the launch's.
        """
        memory = self._captured if self.where is None else self.launch.accessible
        holder = memory.find(address)
        if size < 0 or holder is None or address + size > holder.end:
            raise DeviceError(f"no {size} bytes at {address:#x}: {memory.describe(address)}")
        return self._raw(address, size)

    @staticmethod
    def _raw(address: int, size: int) -> bytes:
        return host_bytes(address, size).tobytes()

    def has_frame(self, address: int, register: int) -> bool:
        """Return whether at an instruction a scalar register has the frame of the function that it is in."""
        return self._bodies.has_frame(address, register)

    def lanes(self, view: StoppedWave, variable: DwarfVariable) -> int:
        """Return the lanes of a wave, of those that are on, that a variable is for where it is said to be."""
        expression, on = variable.expression_at(view.pc), view.registers.exec
        if expression is None:
            return on
        found = self._calls.lanes((view.workgroup, view.wave), view.pc, on, variable, expression)
        return on if found is None else found

    # Breakpoints ----------------------------------------------------------------------------------------------------

    def break_at(
        self, place: str, condition: str | None = None, *, ignore: int = 0, temporary: bool = False
    ) -> Breakpoint:
        """Stop before what a place names: ``file.hip:12``, a function, ``*0x1b40``, or ``+0x40`` behind the kernel's
        entry.

        Raises:
            LuthierError: there is no code there, or the condition is no expression.
        """
        found = frozenset(self.source.addresses_of(place))
        self._numbers += 1
        made = Breakpoint(
            *(self._numbers, place, found, self.source.nearest(place)),
            ParsedExpression(condition) if condition else None,
            ignore,
            temporary,
        )
        self.breakpoints[made.number] = made
        return made

    def watch_memory(self, address: int, size: int) -> Watchpoint:
        """Stop behind an instruction of any wave that changes these bytes.

        Raises:
            DeviceError: they are not the launch's.
        """
        last = self.read(address, size)
        self._numbers += 1
        made = Watchpoint(self._numbers, f"{size} bytes at {address:#x}", address, size, last=last)
        self.watchpoints[made.number] = made
        return made

    def watch(self, text: str) -> Watchpoint:
        """Stop behind an instruction of the stopped wave that changes the value of an expression.

        Raises:
            LuthierError: it is none, or has no value here.
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
            DeviceError: there is none of that number.
        """
        if self.breakpoints.pop(number, None) is None and self.watchpoints.pop(number, None) is None:
            raise DeviceError(f"there is no breakpoint {number}")

    # Going on -------------------------------------------------------------------------------------------------------

    def resume(self) -> Stop:
        """Execute up to a breakpoint, a change of a watchpoint or the end."""
        return self._forward(lambda step: False)

    def goto(self, position: int) -> Stop:
        """Go to the stop of a number, forwards or backwards, whatever is between.

        Raises:
            DeviceError: the launch ends before.
        """
        if position < 0:
            raise DeviceError("a position is not negative")
        if position < self.position:
            self._begin()
        stop = Stop("step" if position else "entry", position)
        if position > self.position and self.where is not None:
            stop = self._forward(lambda step: self.position == position, quiet=True)
        if self.where is None:
            if self.position != position:
                raise DeviceError(f"the launch ends after {self.position} instructions")
            return self._end()
        return stop

    def step_instruction(self) -> Stop:
        """Execute one instruction of the stopped wave; those of others between are executed, too."""
        here = self._wave()
        return self._forward(lambda step: self._of(step) == here)

    def step_line(self, *, over: bool) -> Stop:
        """Execute up to another line of the stopped wave.

        Args:
            over: calls, also inlined ones, as one.
        """
        here, depth, frames = self._wave(), self._depth(), self.view().frames
        if not frames:
            return self._forward(lambda step: self._of(step) == here and (not over or self._depth(step) <= depth))
        place = frames[0].file, frames[0].line

        def elsewhere(step: WaveStep) -> bool:
            if self._of(step) != here or (over and self._depth(step) > depth):
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
        """Execute up to where the function that the stopped wave is in, also an inlined one, has returned."""
        here, depth, inlined = self._wave(), self._depth(), len(self.view().frames)

        def outside(step: WaveStep) -> bool:
            if self._of(step) != here:
                return False
            now = self._depth(step)
            return now < depth or (now == depth and 0 < len(self.source.frames(step.address)) < inlined)

        return self._forward(outside)

    # Going back -----------------------------------------------------------------------------------------------------

    def reverse_resume(self) -> Stop:
        """Go back to the last breakpoint or change of a watchpoint; to the beginning if there is none."""
        return self._backward(lambda step: False)

    def reverse_instruction(self) -> Stop:
        """Go back to before the instruction that the stopped wave executed last."""
        here = self._wave()
        return self._backward(lambda step: self._of(step) == here, quiet=True)

    def reverse_line(self, *, over: bool) -> Stop:
        """Go back to the beginning of the line that the stopped wave is in, or was before if it is at its beginning.

        Args:
            over: calls, also inlined ones, as one.
        """
        here, depth, inlined = self._wave(), self._depth(), len(self._frames())
        before: tuple[Any, ...] = ()

        def begins(step: WaveStep) -> bool:
            nonlocal before
            if self._of(step) != here:
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
        """End the launch where it is, and give its memory back. Closing twice does nothing."""
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
        for one in self.breakpoints.values():
            one.hits = 0
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
        """Return the wave that is stopped, or that was the last to execute an instruction."""
        return self._last if self.where is None else self._of(self.where)

    def _depth(self, step: WaveStep | None = None) -> int:
        """Return how many calls deep a wave is, of those that are not inlined; without a step that of `_wave`."""
        return self._calls.depth(self._wave() if step is None else self._of(step))

    def _arrive(self, step: WaveStep) -> None:
        """Take note of a step: its number, and how deep its wave is."""
        self.position += 1
        self._executed = self._calls.record(self._last)
        self._last = self._of(step)
        self._calls.arrive(self._last, step)

    def _reached(self, step: WaveStep) -> Stop | None:
        """Return the stop that breakpoints and watchpoints make before an instruction."""
        changed = [one for one in self.watchpoints.values() if self._changes(one, step)]
        here = [one for one in self.breakpoints.values() if self._hits(one, step)]
        numbers = tuple(one.number for one in changed) + tuple(one.number for one in here)
        if changed:
            return Stop("watchpoint", self.position, "; ".join(one.change for one in changed), numbers)
        problems = "; ".join(one.problem for one in here if one.problem)
        return Stop("breakpoint", self.position, problems, numbers) if here else None

    def _hits(self, one: Breakpoint, step: WaveStep) -> bool:
        if step.address not in one.addresses:
            return False
        one.problem = ""
        if one.condition is not None:
            try:
                if not one.condition.holds(StoppedWave(self, step, step.wave)):
                    return False
            except LuthierError as problem:  # nobody would know why it never stops
                one.problem = f"the condition of breakpoint {one.number} has no value: {problem.message}"
                return True
        one.hits += 1
        return one.hits > one.ignore

    def _changes(self, one: Watchpoint, step: WaveStep) -> bool:
        if one.size:
            return self._update(one, self._raw(one.address, one.size))
        if self._of(step) != one.wave or one.expression is None:
            return False
        try:
            return self._update(one, np.copy(one.expression.value(StoppedWave(self, step, step.wave))))
        except LuthierError:
            return False  # a variable that is nowhere now

    def _update(self, one: Watchpoint, now: Any) -> bool:
        """Return whether a value is another than it was, and remember it."""
        before, one.last = one.last, now
        if before is None or np.array_equal(before, now):
            return False
        one.hits += 1
        address = self.launch.code.address_of(self._executed)
        place = f", {self.source.frames(address)[0].place}" if self.source.frames(address) else ""
        text = self.launch.code.text(self._executed)
        one.change = f"{one.text}: {_differ(before, now)} by {text} at {address:#x}{place}"
        return True

    def _forward(self, wanted: Callable[[WaveStep], bool], *, quiet: bool = False) -> Stop:
        """Execute until `wanted` holds before a step, or, unless `quiet`, something else is reached."""
        self._stopped()
        found: list[Stop] = []

        def until(step: WaveStep) -> bool:
            reached = self._reached(step)
            if reached is not None and not quiet:
                found.append(reached)
            elif wanted(step):
                found.append(Stop("step", self.position))
            elif self.interrupt.is_set():
                found.append(Stop("pause", self.position))
            return bool(found)

        self._execute(until)
        if not found:
            self.position += 1
            self._executed = self._calls.record(self._last)
            return self._end()
        for number in found[0].numbers:
            if number in self.breakpoints and self.breakpoints[number].temporary:
                del self.breakpoints[number]
        return found[0]

    def _execute(self, until: Callable[[WaveStep], bool]) -> None:
        """Execute up to a step before which `until` holds; it is asked before each."""
        assert self._session is not None
        problems: list[BaseException] = []

        def look(step: WaveStep) -> bool:
            try:
                self._arrive(step)
                return until(step)
            except BaseException as problem:  # on the launch's thread: raised where somebody waits
                problems.append(problem)
                return True

        self._session.run(look)
        if problems:
            raise problems[0]

    def _end(self) -> Stop:
        """Return the stop behind the last instruction."""
        if self.fault is not None:
            return Stop("fault", self.position, str(self.fault))
        memory = [one for one in self.watchpoints.values() if one.size]
        changed = [one for one in memory if self._update(one, self._raw(one.address, one.size))]
        return Stop(
            "end", self.position, "; ".join(one.change for one in changed), tuple(one.number for one in changed)
        )

    def _backward(self, wanted: Callable[[WaveStep], bool], *, quiet: bool = False) -> Stop:
        """Go back to the last stop before this one at which `wanted` holds, or something else is reached."""
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
    """Memory that has scratch at the same place each time the launch begins anew: kernels have its address in
    registers."""

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
    """Return what a value was and is; of lanes, the first that differs."""
    if isinstance(now, bytes):
        return f"{before.hex(' ')} became {now.hex(' ')}"
    if np.shape(now) != np.shape(before) or not np.ndim(now):
        return f"{before} became {now}"
    where = tuple(int(one[0]) for one in np.nonzero(before != now))
    return f"[{', '.join(map(str, where))}] {before[where]} became {now[where]}"
