"""Limit on the work of finding the targets of indirect jumps.

The analyses are fixpoint iterations over growing states. Real kernels converge in a few rounds, but a few kilobytes of
adversarial code could take minutes. The limit is linear in the size of the code.
"""

from __future__ import annotations

from collections.abc import Callable

from luthier.errors import LiftError

FLOOR, EACH = 15_000, 64
"""Units of work allowed for any kernel, and for each of its instructions. Output of LLVM needs less than one unit per
instruction; GCC's kernels that reach most of a C library, and patched kernels that call hooks everywhere, need five;
hooks called everywhere in a loop with a switch need 29."""


class Effort:
    """Counter of the work of lifting a kernel, over all attempts. A unit takes 2 to 20 microseconds.

    Args:
        refusal: returns the error for exceeding the limit.
    """

    def __init__(self, refusal: Callable[[str], LiftError]) -> None:
        self._refusal = refusal
        self.spent = 0
        self._most = FLOOR

    def allow(self, instructions: int) -> None:
        """Raise the limit to that of a kernel with this number of instructions."""
        self._most = max(self._most, FLOOR + EACH * instructions)

    @property
    def left(self) -> int:
        """Return the remaining units of work."""
        return self._most - self.spent

    def spend(self, units: int) -> None:
        """Count work.

        Raises:
            LiftError: the limit is exceeded.
        """
        self.spent += units
        if self.spent > self._most:
            raise self._refusal(
                f"the search for targets of indirect jumps and calls exceeds {self._most} steps, more than real code "
                "of this size needs"
            )
