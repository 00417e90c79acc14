"""Limit on the work spent on finding the targets of indirect jumps.

These are fixpoint analyses over states that grow. Real kernels settle in a few rounds; code that is made for it takes
minutes on a few kilobytes. So work is counted, and an amount linear in the size of the code is allowed.
"""

from __future__ import annotations

from collections.abc import Callable

from luthier.errors import LiftError

FLOOR, EACH = 15_000, 64
"""Units of work for any kernel, and for each of its instructions. What LLVM makes takes less than one for each; kernels
of GCC that reach most of a C library, and those patched here with hooks called all over them, take five; hooks called
all over a loop with a switch 29."""


class Effort:
    """Counts the work of lifting a kernel, over all attempts at it. A unit takes 2 to 20 microseconds.

    Args:
        refusal: makes the error for when it is too much.
    """

    def __init__(self, refusal: Callable[[str], LiftError]) -> None:
        self._refusal = refusal
        self.spent = 0
        self._most = FLOOR

    def allow(self, instructions: int) -> None:
        """Let the work be what so many instructions may cost."""
        self._most = max(self._most, FLOOR + EACH * instructions)

    @property
    def left(self) -> int:
        """Return the work that may still be done."""
        return self._most - self.spent

    def spend(self, units: int) -> None:
        """Count work.

        Raises:
            LiftError: it is more than is allowed.
        """
        self.spent += units
        if self.spent > self._most:
            raise self._refusal(
                f"where jumps and calls by register go is not found within {self._most} steps, which real code of its "
                "size does not need"
            )
