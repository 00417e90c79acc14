"""Results of a run for continuous integration: findings and violated conditions, with their locations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from luthier.objects.names import spellings
from luthier.report.analysis import AnalysedRun
from luthier.report.charging import SourceLine
from luthier.report.code import ReportedCode
from luthier.report.conditions import Verdict, Violation
from luthier.report.findings import ReportedFinding
from luthier.run.folder import RunFolder


class ReportResult(Struct, frozen=True):
    """A finding or a violated condition."""

    rule: str
    """A rule (`luthier.report.rules`), or a condition as given."""
    level: str
    """Level as in SARIF: error, warning, note."""
    text: str
    symbol: str = ""
    """Symbol of the kernel; "" if there is none."""
    place: SourceLine | None = None
    """Source line."""
    advice: str = ""
    """What to change; "" if there is no advice."""
    address: int | None = None
    """Virtual address of the instruction in the code object."""

    @property
    def sentence(self) -> str:
        """Return the text with the advice."""
        return f"{self.text}; {self.advice}" if self.advice else self.text

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
    analysed = AnalysedRun.of(run)
    reported = [_finding(one, analysed.kernels, analysed.codes) for one in analysed.findings]
    named = {name: at for at, one in enumerate(analysed.kernels) for name in (one["name"], one["symbol"]) if name}
    judged = [one for verdict in verdicts for one in _violations(verdict, analysed.kernels, analysed.codes, named)]
    return Results([*judged, *reported], analysed.unexamined)


def violations(verdicts: Sequence[Verdict]) -> Results:
    """Return the violated conditions of a comparison."""
    return Results([one for verdict in verdicts for one in _violations(verdict, (), {}, {})])


def _finding(
    finding: ReportedFinding, kernels: Sequence[Mapping[str, Any]], code_of: Mapping[int, ReportedCode]
) -> ReportResult:
    place, address = _located(code_of.get(finding.kernel), finding.fault.at)
    symbol = kernels[finding.kernel]["symbol"] or ""
    return ReportResult(
        finding.rule, finding.level, finding.fault.text, symbol, place, address=address, advice=finding.fault.advice
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
        yield ReportResult(verdict.condition.text, "error", text, symbol, place, address=address)


def _address(violation: Violation) -> int | None:
    text = violation.place.get("address")
    try:
        return int(text, 0) if isinstance(text, str) else None
    except ValueError:
        return None
