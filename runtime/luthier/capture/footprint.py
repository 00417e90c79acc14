"""Bytes that a captured launch reads and writes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from luthier.emulator import layout
from luthier.emulator.binding.program import DecodedCode
from luthier.emulator.inspection.uses import uses_of
from luthier.emulator.running.executor import FOOTPRINT, Executor
from luthier.emulator.running.observation import Observation
from luthier.errors import EmulationError


class Footprint(Observation):
    """Bytes that a launch of a code reads and writes; it runs on one thread."""

    what = layout.OBSERVE_FOOTPRINT

    def __init__(self, code: DecodedCode) -> None:
        self._code = code
        self.pages: NDArray[np.void] = np.zeros(0, FOOTPRINT)
        """`FOOTPRINT` of each page that was accessed, by address."""

    def begin(self) -> int:
        """Return the address of the memory uses of the code."""
        return uses_of(self._code)

    def end(self, executor: Executor, fault: EmulationError | None) -> None:
        """Take the pages of the finished launch."""
        self.pages = executor.footprint()
