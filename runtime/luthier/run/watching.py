"""Waits and hazards of a program's kernels: what native code is told of instructions, and what it found in words."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from luthier.emulator import layout
from luthier.emulator.binding.program import Code
from luthier.emulator.inspection.hazards import HazardAutomaton, hazard_findings
from luthier.emulator.inspection.waits import WaitFacts, wait_findings
from luthier.emulator.running.worker import put_field
from luthier.errors import DeviceError
from luthier.isa.targets import TargetId
from luthier.run.space import Part

MORE = 1 << 20
"""Instructions of other objects that a kernel may call by pointers; memory that is not touched costs nothing."""


class Watched(Struct, frozen=True):
    """A missing wait or a hazard, as a launch met it."""

    kind: str
    """One of `luthier.run.findings.finding.WATCHED`."""
    record: int
    other: int | None
    """Record of the operation, or of the instruction before; None: there is none."""
    detail: str
    lane: int
    """-1: none."""
    wave: int
    group: int


class Watching:
    """Facts about one code, in memory that the program's processes share.

    Args:
        code: the code.
        target: that of its object.
        space: that memory.
        waits: look for missing waits,
        hazards: for missing wait states.
    """

    def __init__(self, code: Code, target: TargetId, space: Part, *, waits: bool, hazards: bool) -> None:
        self._code = code
        self._room = MORE
        self._facts = code.watcher(WaitFacts, lambda: WaitFacts(code, space.zeros, MORE)) if waits else None
        self._automaton = HazardAutomaton(code, space.zeros, MORE, target) if hazards else None
        self._watch = space.bytes(layout.WATCH.size)
        fields = {} if self._facts is None else self._facts.fields
        if self._automaton is not None:
            # Processes ask by a message instead of by a function that is here.
            fields |= {name: self._automaton.fields[name] for name in ("automaton", "hits")}
        for name, value in fields.items():
            put_field(self._watch, layout.WATCH, name, value)

    @property
    def address(self) -> int:
        """Return where the `layout.WATCH` is that launches begin with."""
        return int(self._watch.ctypes.data)

    def check_room(self, words: int) -> None:
        """Make sure that so many words of code of another object may come.

        Raises:
            DeviceError: there are too many.
        """
        self._room -= words + 1
        if self._room < 0:
            raise DeviceError(
                "a kernel calls code of other objects that is too large for the checks of waits and hazards"
            )

    def follow(self, state: int, record: int) -> bytes:
        """Return steps of the automaton of hazards, as `layout.TRANSITION`s.

        Raises:
            DeviceError: hazards are not checked, or there are no such state and record.
        """
        if self._automaton is None or record >= self._code.count or not self._automaton.knows(state):
            raise DeviceError("a step of an automaton that there is not")
        return np.array(self._automaton.follow(state, record), layout.TRANSITION.dtype).tobytes()

    def findings(self, kernel: str, found: bytes, met: bytes) -> Iterator[Watched]:
        """Yield what the watch of a launch found.

        Args:
            kernel: its name.
            found: `layout.FOUND`s.
            met: `layout.MET`s.

        Raises:
            DeviceError: they are malformed.
        """
        try:
            waits = np.frombuffer(found, layout.FOUND.dtype())
            hazards = np.frombuffer(met, layout.MET.dtype())
        except ValueError as problem:
            raise DeviceError(f"malformed findings: {problem}") from problem
        if self._facts is not None:
            for row, wait in wait_findings(waits, self._facts, self._code, kernel):
                lane = -1 if wait.lane is None else wait.lane
                detail = f"{wait.access} {wait.register}; {wait.counter}({wait.enough}) before it is enough"
                records = int(row["consumer"]), int(row["producer"])
                yield Watched("missing-wait", *records, detail, lane, wait.wave, wait.workgroup)
        if self._automaton is not None:
            for row, hazard in hazard_findings(hazards, self._automaton, self._code, kernel):
                behind = None if hazard.producer is None else int(row["producer"])
                detail = f"{hazard.hazard}{hazard.by}; {hazard.lacks}"
                yield Watched("hazard", int(row["consumer"]), behind, detail, -1, hazard.wave, hazard.workgroup)
