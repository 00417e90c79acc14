"""Checks of waits and hazards: facts about instructions for native code, and its sightings."""

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
"""Capacity for instructions of other objects that a kernel calls by pointers; unused memory costs nothing."""


class Watching:
    """Facts about one code, in memory shared with the program's processes.

    Args:
        code: the code.
        target: target of its object.
        space: shared memory.
        waits: check for missing waits.
        hazards: check for missing wait states.
    """

    def __init__(self, code: DecodedCode, target: TargetId, space: SpacePart, *, waits: bool, hazards: bool) -> None:
        self._code = code
        self._room = MORE
        self._facts = code.watcher(WaitFacts, lambda: WaitFacts(code, space.zeros, MORE)) if waits else None
        self._automaton = HazardAutomaton(code, space.zeros, MORE, target) if hazards else None
        self._watch = space.bytes(layout.WATCH.size)
        fields = {} if self._facts is None else self._facts.fields
        if self._automaton is not None:
            # Processes send a message instead of calling a function here.
            fields |= {name: self._automaton.fields[name] for name in ("automaton", "hits")}
        for name, value in fields.items():
            put_field(self._watch, layout.WATCH, name, value)

    @property
    def address(self) -> int:
        """Return the address of the initial `layout.WATCH` of launches."""
        return int(self._watch.ctypes.data)

    def check_room(self, words: int) -> None:
        """Check that this number of words of another object's code fits.

        Raises:
            DeviceError: it does not.
        """
        self._room -= words + 1
        if self._room < 0:
            raise DeviceError("a kernel calls too much code of other objects for the checks of waits and hazards")

    def follow(self, state: int, record: int) -> bytes:
        """Return transitions of the hazard automaton, as `layout.TRANSITION`s.

        Raises:
            DeviceError: hazards are not checked, or there is no such state or record.
        """
        if self._automaton is None or record >= self._code.count or not self._automaton.knows(state):
            raise DeviceError("there is no such state or record of the hazard automaton")
        return np.array(self._automaton.follow(state, record), layout.TRANSITION.dtype).tobytes()

    def sightings(self, missed: bytes, met: bytes) -> list[PairSighting]:
        """Return the sightings of the watch of a launch.

        Args:
            missed: `layout.FOUND`s.
            met: `layout.MET`s.

        Raises:
            DeviceError: they are malformed.
        """
        try:
            waits = np.frombuffer(missed, layout.FOUND.dtype())
            hazards = np.frombuffer(met, layout.MET.dtype())
        except ValueError as problem:
            raise DeviceError(f"malformed findings: {problem}") from problem
        return [
            *([] if self._facts is None else missing_waits(waits, self._facts)),
            *([] if self._automaton is None else met_hazards(hazards, self._automaton)),
        ]
