"""Observations of launches by native code."""

from __future__ import annotations

from luthier.emulator.running.execution import QUANTUM
from luthier.emulator.running.executor import Executor
from luthier.errors import EmulationError


class Observation:
    """Observation of one launch."""

    what: int = 0
    """Bits such as `luthier.emulator.layout.OBSERVE_RACES`."""
    quantum: int = QUANTUM
    """Backward branches of a wave's turn."""

    def begin(self) -> int:
        """Return the address of the facts about instructions that the launch needs (`uses` of `layout.PLAN`)."""
        return 0

    def watch(self) -> int:
        """Return the address of the launch's `layout.WATCH`; 0: there is none."""
        return 0

    def costs(self) -> int:
        """Return the address of the `layout.COST_MODEL` for `layout.OBSERVE_COSTS`; 0: there is none."""
        return 0

    def end(self, executor: Executor, fault: EmulationError | None) -> None:
        """Collect the results of a finished launch from its watch and executor.

        Args:
            fault: the fault that stopped it.
        """
