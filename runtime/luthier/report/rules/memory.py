"""Rules about accesses of memory and LDS."""

from __future__ import annotations

import math
from collections.abc import Iterator

from luthier.report.rules.declare import MeasuredLine, ReportRule, RuleFinding
from luthier.report.rules.wording import PAGES, count, number

EFFICIENT = 75.0
"""Percentage of the bytes of accessed cache lines that must be used."""
CONFLICTED = 1.25
"""Cycles per needed cycle from which bank conflicts are reported."""
_OWN = 0.9
"""Cache lines per lane from which each lane has a line of its own."""
_COLUMNS = ("requests", "lanes", "lines", "lines/request", "efficiency %")
_KINDS = {"_store": "stores", "_atomic": "atomics", "_load": "loads"}


def uncoalesced(line: MeasuredLine) -> Iterator[RuleFinding]:
    """Yield a finding for loads, stores or atomic operations that access more cache lines than they need, and use less
    than `EFFICIENT` of them."""
    if line.measured(*_COLUMNS) is not None:
        for kind, part in line.parted(_kind):
            yield from _uncoalesced(kind, part)


def _kind(text: str) -> str:
    return next((noun for part, noun in _KINDS.items() if part in text), "accesses")


def _uncoalesced(kind: str, line: MeasuredLine) -> Iterator[RuleFinding]:
    values = line.measured(*_COLUMNS)
    if values is None:
        return
    requests, lanes, lines, per_request, efficiency = values
    excess = lines * (1 - min(efficiency, 100) / 100)
    # No data layout avoids the one partly used line of a request with few lanes.
    avoidable = min(excess, max(lines - requests, 0))
    if efficiency >= EFFICIENT or not avoidable:
        return
    needed = max(math.ceil((lines - avoidable) / requests), 1)
    if kind == "atomics":
        advice = "add up in the wave or in LDS first, then issue one atomic operation a work-group"
    elif lines >= _OWN * lanes:
        advice = "each lane touches a line of its own: swap the indices, or stage the tile through LDS"
    else:
        advice = "lanes leave gaps: use a structure of arrays, or stage the data through LDS"
    yield RuleFinding(
        text=f"{number(efficiency)} % efficient {kind}, {number(per_request)} cache lines per request where "
        f"{needed} would do",
        advice=advice,
        lost=avoidable,
        at=line.most("lines"),
    )


def conflicts(line: MeasuredLine) -> Iterator[RuleFinding]:
    """Yield a finding if LDS takes at least `CONFLICTED` times the cycles needed."""
    values = line.measured("conflicts", "cycles/needed")
    if values is None or not values[0] or values[1] < CONFLICTED:
        return
    cycles, ratio = values
    yield RuleFinding(
        text=f"{count(cycles)} cycles of LDS bank conflicts, {number(ratio)} times the cycles needed",
        advice="pad the rows of the tile by one element, or swizzle its columns",
        lost=cycles,
        at=line.most("conflicts"),
    )


COALESCING = ReportRule(level="warning", label="memory", explanation=PAGES / "coalescing.md", of_line=uncoalesced)
BANK_CONFLICTS = ReportRule(level="warning", label="LDS", explanation=PAGES / "bank-conflicts.md", of_line=conflicts)
