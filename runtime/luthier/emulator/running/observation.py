"""Observations of launches by native code."""

from __future__ import annotations

from collections.abc import Callable

from luthier.emulator.running.executor import Executor
from luthier.errors import EmulationError


class Observation:
    """Observation of one launch, which runs in one part or several."""

    what: int = 0
    """`luthier.emulator.layout.OBSERVE_RACES` and the like."""

    def begin(self) -> int:
        """Return the address of what the launch is to know of its instructions (`uses` of `layout.PLAN`)."""
        return 0

    def begin_part(self) -> int:
        """Return the address of the `layout.WATCH` of the next part of the launch; 0: there is none."""
        return 0

    def end_part(self, numbering: Callable[[int], int] | None = None) -> None:
        """Take what the watch of the part that has ended knows.

        Args:
            numbering: returns the number of a work-group in the launch, for its number in the part.
        """

    def end(self, executor: Executor, fault: EmulationError | None) -> None:
        """Take what the executor of a launch that has ended knows.

        Args:
            fault: that stopped it.
        """
