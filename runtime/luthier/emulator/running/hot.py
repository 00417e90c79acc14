"""Hot code: each run of frequently executed instructions becomes one function, compiled in the background.

A separate thread compiles the functions (`native.fused`) and keeps them on disk. Later launches use them; a running
launch uses them from the next time on that its waiting thread looks.
"""

from __future__ import annotations

import atexit
import collections
import functools
import os
import threading
import warnings
import weakref
from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from luthier.emulator import layout
from luthier.emulator.binding.program import BoundInstruction, DecodedCode
from luthier.emulator.ir.variant import FusedKey
from luthier.support.threads import Worker

HOT = 1 << 20
"""Executed wave-instructions that make a stretch of code hot: a few milliseconds of execution."""
LEAST = 3
"""The fewest instructions with an effect in a run."""
_WORK = threading.RLock()
"""Held while the thread holds other locks: a process forked meanwhile would have them locked for ever."""
os.register_at_fork(before=_WORK.acquire, after_in_parent=_WORK.release, after_in_child=_WORK.release)
_OFTEN = 4
"""Searches for hot code in the time that the first code takes to become hot."""


class Heat:
    """Executions of one `DecodedCode` so far."""

    def __init__(self, code: DecodedCode) -> None:
        self._code = weakref.ref(code)
        self._executions = np.zeros(0, np.uint64)
        self._fresh = 0
        """Wave-instructions added since the last search for hot code."""
        self._seen: set[int] = set()
        """First records of stretches that are compiled or queued."""

    def add(self, executions: NDArray[np.uint64]) -> None:
        """Add the executions of a finished launch, by record, and compile what has become hot."""
        if len(self._executions) < len(executions):
            self._executions = self._with(executions)
        else:
            self._executions[: len(executions)] += executions
        self._fresh += int(executions.sum())
        if self._fresh * _OFTEN >= HOT:
            self._fresh = 0
            self._compile(self._executions)

    def look(self, executions: NDArray[np.uint64]) -> None:
        """Compile what has become hot.

        Args:
            executions: by record, in addition to those that were added.
        """
        self._compile(self._with(executions))

    def _with(self, executions: NDArray[np.uint64]) -> NDArray[np.uint64]:
        total = np.zeros(max(len(self._executions), len(executions)), np.uint64)
        total[: len(self._executions)] += self._executions
        total[: len(executions)] += executions
        return total

    def _compile(self, executions: NDArray[np.uint64]) -> None:
        code = self._code()
        if code is None or int(executions.sum()) < HOT:
            return
        hot = [
            records
            for records in code.straight(executions > 0)
            if len(records) >= LEAST
            and records.start not in self._seen
            and int(executions[records.start : records.stop].sum()) >= HOT
        ]
        self._seen.update(records.start for records in hot)
        if hot:
            compiler().put(code, hot)


class Compiler:
    """A thread that compiles runs; it ends with the process."""

    def __init__(self) -> None:
        self._wanted: collections.deque[tuple[weakref.ref[DecodedCode], range]] = collections.deque()
        self._changed = threading.Condition()
        self._busy = self._ended = False
        self._process = os.getpid()
        Worker(self._work)
        # LLVM must not be running while the process exits.
        atexit.register(self.end)

    def put(self, code: DecodedCode, stretches: Iterable[range]) -> None:
        """Queue the runs in stretches of code."""
        with self._changed:
            if not self._ended:
                self._wanted.extend((weakref.ref(code), stretch) for stretch in stretches)
                self._changed.notify_all()

    def wait(self) -> None:
        """Wait until everything queued is compiled."""
        with self._changed:
            self._changed.wait_for(lambda: not self._wanted and not self._busy)

    def end(self) -> None:
        """Stop compiling, and wait for the current run; a forked process has none."""
        if self._process != os.getpid():
            return
        with self._changed:
            self._ended = True
            self._wanted.clear()
        self.wait()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._wanted)
                reference, stretch = self._wanted.popleft()
                self._busy = True
            try:
                if (code := reference()) is not None:
                    compile_runs(code, stretch)
            except Exception as problem:  # a bug, or no memory: instructions are still executed one by one
                if not self._ended:  # else the process lacks what its end has taken away; a later one compiles
                    warnings.warn(f"cannot compile functions for hot code: {problem!r}", RuntimeWarning, stacklevel=1)
            finally:
                code = None
                with self._changed:
                    self._busy = False
                    self._changed.notify_all()


@functools.lru_cache(1)
def _compiler(process: int) -> Compiler:
    return Compiler()


def compiler() -> Compiler:
    """Return the compiler of this process."""
    return _compiler(os.getpid())


_HEATS: weakref.WeakKeyDictionary[DecodedCode, Heat] = weakref.WeakKeyDictionary()


def heat(code: DecodedCode) -> Heat:
    """Return the executions of a code so far."""
    known = _HEATS.get(code)
    if known is None:
        known = _HEATS[code] = Heat(code)
    return known


def compile_runs(code: DecodedCode, stretch: range) -> None:
    """Compile the runs in a stretch of code, for each value of MODE that waves used there."""
    from luthier.emulator.native.machine import machine_code

    with _WORK:
        instructions_by_key = {key: code.instructions(key, stretch) for key in code.tables_with_runs()}
    for key, instructions in instructions_by_key.items():
        for part in _parts(instructions):
            own = instructions[part]
            run = FusedKey(tuple(one.variant for one in own if one.variant), tuple(one.slots for one in own))
            # One by one: whoever needs other code, or forks, waits meanwhile.
            with _WORK:
                functions = machine_code().addresses([run.symbol], {run.symbol: run}.__getitem__, calls=False)
                if run.symbol in functions:
                    code.run_at(key, stretch[part], functions[run.symbol], own)


def _parts(instructions: list[BoundInstruction]) -> Iterator[slice]:
    """Yield the slices of instructions that are runs."""
    from luthier.emulator.native.emit import PURE
    from luthier.emulator.native.fused import step_of

    begin = 0
    steps = [step_of(one.variant, one.slots) for one in instructions]
    for end in range(len(steps) + 1):
        if end < len(steps) and steps[end] is not None and end - begin < layout.RUN_MOST:
            continue
        inside = [step for step in steps[begin:end] if step is not None]
        if sum(step.form in PURE for step in inside) >= LEAST:
            yield slice(begin, end)
        begin = end if end < len(steps) and steps[end] is not None else end + 1
