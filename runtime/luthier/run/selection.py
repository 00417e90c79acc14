"""Selection of what to instrument: kernels by name, launches by number, devices."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from luthier.errors import LuthierError
from luthier.objects.names import is_selected, matches
from luthier.wire.messages import ChosenLaunches

RUNTIME_KERNELS = ("__amd_rocclr_*",)
"""Kernels that HIP itself launches: copies and fills."""
_ALL = 1 << 63


class Selection(Struct, frozen=True):
    """Conditions that must all hold for a launch to run instrumented."""

    kernels: Sequence[str] = ()
    """Patterns for `luthier.objects.names.is_selected`."""
    first: int = 0
    """First selected launch of a kernel, from 0 in each process."""
    end: int = _ALL
    """End of the selected launches, exclusive."""
    step: int = 1
    """Distance between selected launches."""
    unique_grid: bool = False
    """Select only the first launch of a kernel with the same grid and work-group size."""
    devices: frozenset[int] | None = None
    """Numbers of devices; None: all."""
    runtime_kernels: bool = False
    """Also select kernels that HIP itself launches."""

    @property
    def chosen(self) -> ChosenLaunches:
        """Return the conditions about a kernel's launches."""
        return ChosenLaunches(self.first, self.end, self.step, self.unique_grid)

    def takes(self, number: int) -> bool:
        """Return whether the launch of a kernel with this number may be instrumented."""
        return self.first <= number < self.end and (number - self.first) % self.step == 0

    def skips(self, kernel: str, gpu: int) -> str | None:
        """Return why no launch of a kernel on a device is instrumented; None if some may be."""
        if self.devices is not None and gpu not in self.devices:
            return "device not selected"
        if not self.runtime_kernels and is_of_runtime(kernel):
            return "launched by the HIP runtime itself"
        return None if is_selected(kernel, self.kernels) else "name not selected"


def is_of_runtime(kernel: str) -> bool:
    """Return whether HIP itself launches a kernel."""
    return any(matches(kernel, pattern) for pattern in RUNTIME_KERNELS)


def parse_launches(text: str) -> tuple[int, int, int]:
    """Parse ``first:end:step``, as in Python's slices.

    ``10``: the first ten; ``5:8``: three; ``::100``: every hundredth.

    Raises:
        LuthierError: the text is malformed.
    """
    parts = text.split(":")
    try:
        numbers = [int(part) if part else None for part in parts]
    except ValueError:
        numbers = [-1]
    if not text or len(numbers) > 3 or any(number is not None and number < 0 for number in numbers):
        raise LuthierError(f"launches must be END, FIRST:END or FIRST:END:STEP, not {text!r}")
    if len(numbers) == 1:
        numbers = [0, numbers[0]]
    first, end, step = (*numbers, None, None)[:3]
    if step == 0 or (end is not None and end <= (first or 0)):
        raise LuthierError(f"launches {text!r} select none: END must exceed FIRST, and STEP must be at least 1")
    return first or 0, _ALL if end is None else end, step or 1
