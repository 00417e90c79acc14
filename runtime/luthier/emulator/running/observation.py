"""Observations of launches by native code."""

from __future__ import annotations

from luthier.emulator.running.executor import Executor
from luthier.errors import EmulationError


class Observation:
    """Observation of one launch."""

    what: int = 0
    """`luthier.emulator.layout.OBSERVE_RACES` and the like."""

    def begin(self) -> int:
        """Return the address of what the launch is to know of its instructions (`uses` of `layout.PLAN`)."""
        return 0

    def watch(self) -> int:
        """Return the address of the launch's `layout.WATCH`; 0: there is none."""
        return 0

    def end(self, executor: Executor, fault: EmulationError | None) -> None:
        """Take what the watch and the executor of a launch that has ended know.

        Args:
            fault: that stopped it.
        """
