"""The findings of a run: errors and losses, most costly first, each with its location in the code.

Costs of different kinds are compared in one unit, *slots* of a wave: a vector instruction with half of its lanes idle
loses half a slot; each cache line that a request does not need loses one; each cycle of an LDS bank conflict loses one.
This ranks findings; it does not predict time.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from luthier.errors import LuthierError
from luthier.report.code import ReportedCode
from luthier.report.rules import RULES, MeasuredKernel, ReportRule, RuleFinding, lines_of
from luthier.report.rules.declare import LEVELS

SHOWN = 200
"""Maximum number of findings on a page."""
_LEAST = 0.01
"""Losses below this share of the largest loss, or of the instructions that their kernel executed, are not reported."""


class ReportedFinding(Struct, frozen=True):
    """A finding about a run."""

    rule: str
    """Name in `luthier.report.rules.RULES`, which is also a topic of ``luthier explain``."""
    level: str
    """Of the rule."""
    kernel: int
    """Number of the kernel."""
    fault: RuleFinding

    def to_json(self, codes: Mapping[int, ReportedCode], files: dict[str, int]) -> dict[str, Any]:
        """Return plain data for the page."""
        at, code = self.fault.at, codes.get(self.kernel)
        place = code.places[at] if code is not None and at is not None else None
        where = None if place is None else [files.setdefault(place.file, len(files)), place.line]
        shown = {"rule": self.rule, "level": self.level, "kernel": self.kernel, "at": at, "place": where}
        return shown | {"text": self.fault.text, "advice": self.fault.advice, "lost": round(self.fault.lost, 1)}


def loaded_rules() -> dict[str, ReportRule]:
    """Import all rules, and return them by name.

    Raises:
        LuthierError: a package's rule cannot be imported.
    """
    return {name: RULES.load(name) for name in RULES.names()}


def findings(
    kernels: Sequence[dict[str, Any]],
    codes: Mapping[int, ReportedCode],
    tables: Sequence[Mapping[str, Any]],
    filled: Mapping[int, float],
    limit: int | None = SHOWN,
) -> list[ReportedFinding]:
    """Return findings: errors, then losses, most costly first, then notes about whole kernels.

    Kernels that were not selected, such as HIP's own, have none.

    Args:
        kernels: from `luthier.report.overview.kernels`.
        codes: code of the kernels for which it is known.
        tables: from `luthier.report.overview.tool_tables`.
        filled: from `luthier.report.shapes.filled`.
        limit: maximum number; None: all.

    Raises:
        LuthierError: a rule of a package fails.
    """
    rules = loaded_rules()
    rows = _rows_of_kernels(kernels, tables)
    reported: list[ReportedFinding] = []
    for number, facts in enumerate(kernels):
        if not facts["skipped"]:
            kernel = MeasuredKernel(
                facts=facts, code=codes.get(number), rows=rows.get(number, ()), full=filled.get(number, 1.0)
            )
            for name, finding in _judged(kernel, rules):
                reported.append(ReportedFinding(name, rules[name].level, number, finding))
    most = max((one.fault.lost for one in reported), default=0.0)

    def costs(finding: ReportedFinding) -> bool:
        least = _LEAST * max(most, kernels[finding.kernel]["executed"] or 0)
        return finding.level != "warning" or finding.fault.lost >= least

    costly = sorted(filter(costs, reported), key=lambda finding: (LEVELS.index(finding.level), -finding.fault.lost))
    return costly[:limit]


def _judged(kernel: MeasuredKernel, rules: Mapping[str, ReportRule]) -> Iterator[tuple[str, RuleFinding]]:
    """Yield the findings of all rules in a kernel, with the rules' names."""
    lines = list(lines_of(kernel))
    for name, rule in rules.items():
        try:
            judged = [rule.of_line(line) for line in lines] if rule.of_line is not None else []
            judged += [rule.of_kernel(kernel)] if rule.of_kernel is not None else []
            for finding in itertools.chain.from_iterable(judged):
                if not isinstance(finding, RuleFinding):
                    raise TypeError(f"it yields {finding!r}, not a RuleFinding")
                yield name, finding
        except Exception as problem:  # rules of packages may raise anything
            raise LuthierError(f"the report rule {name} failed: {problem!r}") from problem


def _rows_of_kernels(
    kernels: Sequence[Mapping[str, Any]], tables: Sequence[Mapping[str, Any]]
) -> dict[int, list[Mapping[str, Any]]]:
    """Return the rows of tools' tables with a column ``kernel`` by the number of the kernel that they name."""
    numbers: dict[str, int] = {}
    for number, kernel in enumerate(kernels):
        for name in (kernel["symbol"], kernel["name"]):
            numbers.setdefault(str(name), number)
    rows: dict[int, list[Mapping[str, Any]]] = {}
    for table in tables:
        if "kernel" in table["columns"]:
            for row in table["rows"]:
                cells = dict(zip(table["columns"], row, strict=True))
                if (kernel_number := numbers.get(str(cells["kernel"]))) is not None:
                    rows.setdefault(kernel_number, []).append(cells)
    return rows
