"""Rules about what tools report, and what they could not measure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from luthier.findings.kinds import KINDS
from luthier.report.rules.declare import MeasuredKernel, ReportRule, RuleFinding
from luthier.report.rules.wording import PAGES, count

_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]{1,16}\b")


def reported(kernel: MeasuredKernel) -> Iterator[RuleFinding]:
    """Yield the races and findings that tools report in tables."""
    code = kernel.code
    for row in kernel.rows:
        if (kind := KINDS.get(str(row.get("kind")))) is not None and {"address", "lanes"} <= row.keys():
            if not kind.optional:  # others only pass on what an earlier instruction made
                lanes = f", in {count(row['lanes'])} lanes" if isinstance(row["lanes"], int) else ""
                address = _ADDRESS.search(str(row["address"]))
                at = code.at(int(address[0], 16)) if code is not None and address else None
                advice = f"read `luthier explain {kind.label}`"
                yield RuleFinding(text=f"{kind.label}: {kind.meaning}{lanes}", advice=advice, at=at)
            continue
        is_race = {"kind", "earlier", "later"} <= row.keys()
        if not is_race and "finding" not in row:
            continue
        text = f"race in LDS: {row['kind']}" if is_race else str(row["finding"])
        address = _ADDRESS.search(str(row["later"] if is_race else row["finding"]))
        at = code.at(int(address[0], 16)) if code is not None and address else None
        if is_race and code is not None and (first := _ADDRESS.search(str(row["earlier"]))):
            earlier = code.at(int(first[0], 16))
            if earlier is not None and code.places[earlier] is not None:
                text += f", with {code.places[earlier]}"
        advice = "put a barrier between the two accesses" if is_race else ""
        yield RuleFinding(text=text, advice=advice, at=at)


def uninstrumented(kernel: MeasuredKernel) -> Iterator[RuleFinding]:
    """Yield a note if instructions lack hooks that tools requested."""
    requested, sites = kernel.facts["requested_sites"] or 0, kernel.facts["sites"] or 0
    if requested > sites:
        yield RuleFinding(
            text=f"{count(requested - sites)} of {count(requested)} instructions lack hooks that tools requested",
            advice="read the reasons in the report's coverage, or run fewer tools together",
        )


TOOL_FINDING = ReportRule(level="error", label="wrong", explanation=PAGES / "tool-finding.md", of_kernel=reported)
NOT_INSTRUMENTED = ReportRule(
    level="note", label="coverage", explanation=PAGES / "not-instrumented.md", of_kernel=uninstrumented
)
