"""Progress of a launch that does not end: how many work-groups have begun, where those are that run, and why no others
begin."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from luthier.emulator.binding.program import Code
from luthier.errors import LuthierError
from luthier.support.wording import counted

_MOST_PLACES = 4
"""Of places in sentences."""


class Progress(Struct, frozen=True):
    """State of a launch."""

    groups: int
    """Work-groups of it."""
    begun: int
    running: int
    """Those that have begun, and of these those that have not ended."""
    resident: int
    """As many as the device holds at once."""
    is_full: bool
    """As many run as can, and others have not begun."""
    repeats: bool
    """And those that run have come back to a state in which they were."""
    places: tuple[tuple[str, int], ...] = ()
    """Instructions at which waves are that neither wait at a barrier nor have ended, and how many work-groups have some
    there; most first."""

    def lines(self) -> list[str]:
        """Return sentences about what it does, and why it does not end if that is known."""
        ended = self.begun - self.running
        lines = [f"{self.begun} of {counted(self.groups, 'work-group')} have begun, {ended} have ended"]
        verb = "loop" if self.repeats else "are"
        for place, groups in self.places[:_MOST_PLACES]:
            lines.append(f"waves of {counted(groups, 'work-group')} {verb} at {place}")
        if (more := len(self.places) - _MOST_PLACES) > 0:
            lines.append(f"others are at {counted(more, 'more instruction')}")
        if self.is_full:
            lines.append(
                f"{self.groups - self.begun} cannot begin before others end, since the device holds {self.resident} "
                "work-groups of this kernel at once; as a cooperative launch it would have been refused"
            )
        if self.repeats:
            lines.append(
                "all that run repeat themselves, with the same in all registers: it never ends if they wait for those "
                "that have not begun"
            )
        return lines

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "work_groups": self.groups,
            "begun": self.begun,
            "ended": self.begun - self.running,
            "resident": self.resident,
            "is_full": self.is_full,
            "repeats": self.repeats,
            "places": [{"place": place, "work_groups": groups} for place, groups in self.places],
        }


def named_places(code: Code, kernel: str, entry: int, places: Iterable[tuple[int, int]]) -> tuple[tuple[str, int], ...]:
    """Return where records are, and the numbers of work-groups; most first.

    Args:
        kernel: symbol of the kernel,
        entry: and the address of its code, in which places are told by their distance.
        places: records and numbers of work-groups.
    """
    named = [(_place(code, kernel, entry, record), groups) for record, groups in places if record < code.count]
    return tuple(sorted(named, key=lambda item: -item[1]))


def _place(code: Code, kernel: str, entry: int, record: int) -> str:
    address = code.address_of(record)
    try:
        origin = code.origin(address, lambda index: 0)
    except LuthierError:
        origin = ""
    where = f"{kernel}+{address - entry:#x}" if address >= entry else f"{address:#x}"
    return f"{code.text(record)} {origin or f'in {where}'}"
