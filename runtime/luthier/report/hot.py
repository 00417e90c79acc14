"""Source lines of all kernels, most costly first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from luthier.report.code import ReportedCode

SHOWN = 100
"""Maximum number of lines on a page."""


def hot_lines(codes: Mapping[int, ReportedCode], files: dict[str, int]) -> dict[str, Any]:
    """Return the lines with the most executed instructions.

    Args:
        codes: by number of the kernel.
        files: number of each source file; new files are added.

    Returns:
        ``counted``: executed instructions of all kernels; ``unknown``: of these, without a line; ``lines``: kernel,
        file, line, executed instructions, executions, active lanes, and executed instructions by unit.
    """
    rows: list[list[Any]] = []
    counted = unknown = 0
    for number, code in codes.items():
        lines = code.lines
        counted += sum(times or 0 for times in code.executions)
        pairs = zip(code.executions, code.places, strict=False)
        unknown += sum(times or 0 for times, place in pairs if place is None)
        for at, place in enumerate(lines.places):
            if lines.executed[at]:
                facts = (lines.executed[at], lines.times[at], lines.lanes[at], lines.kinds[at])
                rows.append([number, place, *facts])
    rows.sort(key=lambda row: -row[2])
    more = max(len(rows) - SHOWN, 0)
    shown = [
        [number, files.setdefault(place.file, len(files)), place.line, *facts] for number, place, *facts in rows[:SHOWN]
    ]
    return {"counted": counted, "unknown": unknown, "lines": shown, "more": more}
