"""Waits and hazards of a program's kernels: what native code is told of instructions, and what it found in words."""

from __future__ import annotations

import numpy as np

from luthier.emulator import layout
from luthier.emulator.binding.program import DecodedCode
from luthier.emulator.inspection.hazards import HazardAutomaton, met_hazards
from luthier.emulator.inspection.waits import WaitFacts, missing_waits
from luthier.emulator.running.worker import put_field
from luthier.errors import DeviceError
from luthier.findings.collector import PairSighting
from luthier.isa.targets import TargetId
from luthier.run.space import SpacePart

MORE = 1 << 20
"""Instructions of other objects that a kernel may call by pointers; memory that is not touched costs nothing."""


class Watching:
    """Facts about one code, in memory that the program's processes share.

    Args:
        code: the code.
        target: that of its object.
        space: that memory.
        waits: look for missing waits,
        hazards: for missing wait states.
    """

    def __init__(self, code: DecodedCode, target: TargetId, space: SpacePart, *, waits: bool, hazards: bool) -> None:
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

    def sightings(self, found: bytes, met: bytes) -> list[PairSighting]:
        """Return what the watch of a launch found.

        Args:
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
        return [
            *([] if self._facts is None else missing_waits(waits, self._facts)),
            *([] if self._automaton is None else met_hazards(hazards, self._automaton)),
        ]
