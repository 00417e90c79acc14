"""Verdicts as text."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from luthier.verify.side_by_side import KernelVerdict


def verdict_lines(verdict: KernelVerdict) -> Iterator[str]:
    """Yield lines on what was compared, what was not, and the result."""
    yield f"{verdict.kernel} on {verdict.target}, {verdict.grid} work-groups of {verdict.block}"
    for name, value in verdict.counters.items():
        yield f"  {name} = {value}"
    for table in verdict.tables:
        yield textwrap.indent(table.text(), "  ")
    before, after = verdict.instructions
    yield f"  {before} wave-instructions became {after}; {verdict.compared_bytes} bytes compared"
    if verdict.not_lifted:
        yield f"  NOT INSTRUMENTED: {verdict.not_lifted} of {before}, reached by calls whose targets are not known"
    if verdict.refused:
        yield f"  NOT COUNTED: {verdict.refused} of {before}, where hooks were refused"
    for wait in verdict.missing_waits:
        yield f"  NOTE: {wait}"
    if verdict.missing_waits:
        yield "  NOTE: the results of the original depend on timing; compared with immediate results"
    for race in verdict.races:
        yield f"  NOTE: {race}"
    for hazard in verdict.hazards:
        yield f"  NOTE: {hazard}"
    for text in verdict.made_up:
        yield f"  NOTE: {text}; --write-plan PLAN.toml writes a launch plan to fill in"
    for problem in verdict.problems:
        yield f"  PROBLEM: {problem}"
    if not verdict.equal:
        return
    if verdict.patch is None:
        yield "  nothing was inserted"
    elif not verdict.expected and not verdict.counted:
        yield "  outputs equal; counters were not compared, since the tool predicts none"
    elif verdict.complete:
        yield "  outputs equal, counters equal the emulator's own counts"
    else:
        counted = before - verdict.not_lifted - verdict.refused
        yield f"  outputs equal, counters equal the emulator's own counts of {counted} of {before} wave-instructions"
