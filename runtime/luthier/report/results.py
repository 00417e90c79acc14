"""Results of a run for continuous integration: findings and violated conditions, with their locations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from luthier.objects.names import spellings
from luthier.report import overview
from luthier.report.charging import SourceLine
from luthier.report.code import ReportedCode, codes
from luthier.report.conditions import Verdict, Violation
from luthier.report.findings import KINDS, ReportedFinding, findings
from luthier.report.rows import KernelNumbers
from luthier.run.folder import RunFolder
from luthier.support.wording import counted


class ReportResult(Struct, frozen=True):
    """A finding or a violated condition."""

    rule: str
    """A kind of finding (`luthier.report.findings.KINDS`), or a condition as given."""
    level: str
    """Level as in SARIF: error, warning, note."""
    text: str
    symbol: str = ""
    """Symbol of the kernel; "" if there is none."""
    place: SourceLine | None = None
    """Source line."""
    address: int | None = None
    """Virtual address of the instruction in the code object."""

    @property
    def kernel(self) -> str:
        """Return the kernel's name as in its source."""
        return spellings(self.symbol)[-1] if self.symbol else ""

    @property
    def where(self) -> str:
        """Return kernel, source line and address, if known, as text."""
        address = "" if self.address is None else f"{self.address:#x}"
        return ", ".join(filter(None, (self.kernel, "" if self.place is None else str(self.place), address)))


class Results(Struct, frozen=True):
    """All results of a run."""

    results: list[ReportResult]
    left_out: list[str] = field(default_factory=list)
    """Sentences about what was not examined."""


def results(run: RunFolder, verdicts: Sequence[Verdict] = ()) -> Results:
    """Return the findings of a run and violated conditions.

    Raises:
        LuthierError: the run is damaged.
    """
    numbers = KernelNumbers()
    kernels = overview.kernels(run, numbers)
    tables, left_out = overview.tool_tables(run)
    code_of = codes(run, numbers, kernels, tables)
    reported = [_finding(one, kernels, code_of) for one in findings(kernels, code_of, tables, limit=None)]
    named = {name: number for number, one in enumerate(kernels) for name in (one["name"], one["symbol"]) if name}
    judged = [one for verdict in verdicts for one in _violations(verdict, kernels, code_of, named)]
    missing = [one["name"] for number, one in enumerate(kernels) if number not in code_of and one["instructions"]]
    notes = []
    if left_out:
        notes.append(f"{left_out} tables of tools are too large to search for findings")
    if missing:
        without = counted(len(missing), "kernel")
        notes.append(f"the code of {without} was not examined for findings: {', '.join(missing)}")
    return Results([*judged, *reported], notes)


def violations(verdicts: Sequence[Verdict]) -> Results:
    """Return the violated conditions of a comparison."""
    return Results([one for verdict in verdicts for one in _violations(verdict, (), {}, {})])


def _finding(
    finding: ReportedFinding, kernels: Sequence[Mapping[str, Any]], code_of: Mapping[int, ReportedCode]
) -> ReportResult:
    place, address = _located(code_of.get(finding.kernel), finding.at)
    return ReportResult(
        finding.kind, KINDS[finding.kind].level, finding.text, kernels[finding.kernel]["symbol"] or "", place, address
    )


def _located(code: ReportedCode | None, at: int | None) -> tuple[SourceLine | None, int | None]:
    """Return source line and address of an instruction."""
    return (None, None) if code is None or at is None else (code.places[at], code.columns["address"][at])


def _violations(
    verdict: Verdict,
    kernels: Sequence[Mapping[str, Any]],
    code_of: Mapping[int, ReportedCode],
    named: Mapping[str, int],
) -> Iterator[ReportResult]:
    for violation in verdict.violations:
        number = named.get(violation.kernel)
        symbol = violation.kernel if number is None else kernels[number]["symbol"] or violation.kernel
        where = replace(violation, kernel=spellings(violation.kernel)[-1]).where
        code, address = None if number is None else code_of.get(number), _address(violation)
        place, _ = _located(code, None if code is None or address is None else code.at(address))
        text = f"{verdict.condition.text}: {violation.value}" + (f" ({where})" if where else "")
        yield ReportResult(verdict.condition.text, "error", text, symbol, place, address)


def _address(violation: Violation) -> int | None:
    text = violation.place.get("address")
    try:
        return int(text, 0) if isinstance(text, str) else None
    except ValueError:
        return None
