"""Progress of a launch that does not end: how many work-groups have begun, where the running ones are, and why no
others begin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from luthier.emulator.binding.program import DecodedCode
from luthier.errors import LuthierError
from luthier.support.wording import counted
from luthier.wire.messages import Progress

_MOST_PLACES = 4
"""The most places that are listed."""


def progress_lines(progress: Progress, places: Sequence[tuple[str, int]]) -> list[str]:
    """Return sentences about the progress of a launch, and why it does not end if that is known.

    Args:
        places: as `named_places` returns them.
    """
    ended = progress.begun - progress.running
    lines = [f"{progress.begun} of {counted(progress.groups, 'work-group')} have begun, {ended} have ended"]
    verb = "loop" if progress.repeats else "are"
    for place, groups in places[:_MOST_PLACES]:
        lines.append(f"waves of {counted(groups, 'work-group')} {verb} at {place}")
    if (more := len(places) - _MOST_PLACES) > 0:
        lines.append(f"other waves are at {counted(more, 'more instruction')}")
    if progress.is_full:
        lines.append(
            f"{progress.groups - progress.begun} cannot begin before others end, since the device holds "
            f"{progress.resident} work-groups of this kernel at once; a cooperative launch of this size is refused"
        )
    if progress.repeats:
        lines.append(
            "all running work-groups loop with unchanged registers: the launch never ends if they wait for "
            "work-groups that have not begun"
        )
    return lines


def progress_json(progress: Progress, places: Sequence[tuple[str, int]]) -> dict[str, Any]:
    """Return the state of a launch as plain data.

    Args:
        places: as `named_places` returns them.
    """
    return {
        "work_groups": progress.groups,
        "begun": progress.begun,
        "ended": progress.begun - progress.running,
        "resident": progress.resident,
        "is_full": progress.is_full,
        "repeats": progress.repeats,
        "places": [{"place": place, "work_groups": groups} for place, groups in places],
    }


def named_places(progress: Progress, code: DecodedCode, kernel: str, entry: int) -> tuple[tuple[str, int], ...]:
    """Return where waves of a launch are, and the number of work-groups there; most first.

    Args:
        kernel: symbol of the kernel.
        entry: address of its code; places are given relative to it.
    """
    places = [place for place in progress.places if place.record < code.count]
    named = [(_place(code, kernel, entry, place.record), place.groups) for place in places]
    return tuple(sorted(named, key=lambda item: -item[1]))


def _place(code: DecodedCode, kernel: str, entry: int, record: int) -> str:
    address = code.address_of(record)
    try:
        origin = code.origin(address, lambda index: 0)
    except LuthierError:
        origin = ""
    where = f"{kernel}+{address - entry:#x}" if address >= entry else f"{address:#x}"
    return f"{code.text(record)} {origin or f'in {where}'}"
