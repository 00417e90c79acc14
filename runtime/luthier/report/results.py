"""Results of a run for continuous integration: its findings, and the conditions that are fulfilled, each with its
place."""

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
    """One of them."""

    rule: str
    """A kind of finding (`luthier.report.findings.KINDS`), or a condition as it was given."""
    level: str
    """As SARIF has it: error, warning, note."""
    text: str
    symbol: str = ""
    """Of the kernel; empty where it is of none."""
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
        """Return kernel, source line and address, as far as they are known, in words."""
        address = "" if self.address is None else f"{self.address:#x}"
        return ", ".join(filter(None, (self.kernel, "" if self.place is None else str(self.place), address)))


class Results(Struct, frozen=True):
    """All of a run."""

    results: list[ReportResult]
    left_out: list[str] = field(default_factory=list)
    """What was not looked at, in sentences."""


def results(run: RunFolder, verdicts: Sequence[Verdict] = ()) -> Results:
    """Return findings of a run and what conditions say of it.

    Raises:
        LuthierError: the run is damaged.
    """
    numbers = KernelNumbers()
    kernels = overview.kernels(run, numbers)
    tables, left_out = overview.tool_tables(run)
    found = codes(run, numbers, kernels, tables)
    told = [_finding(one, kernels, found) for one in findings(kernels, found, tables, limit=None)]
    named = {name: number for number, one in enumerate(kernels) for name in (one["name"], one["symbol"]) if name}
    judged = [one for verdict in verdicts for one in _violations(verdict, kernels, found, named)]
    missing = [one["name"] for number, one in enumerate(kernels) if number not in found and one["instructions"]]
    notes = []
    if left_out:
        notes.append(f"{left_out} tables of tools are too large to be searched for findings")
    if missing:
        without = counted(len(missing), "kernel")
        notes.append(f"no findings in the code of {without}, which was not looked at: {', '.join(missing)}")
    return Results([*judged, *told], notes)


def violations(verdicts: Sequence[Verdict]) -> Results:
    """Return what conditions say of a comparison of runs."""
    return Results([one for verdict in verdicts for one in _violations(verdict, (), {}, {})])


def _finding(
    one: ReportedFinding, kernels: Sequence[Mapping[str, Any]], found: Mapping[int, ReportedCode]
) -> ReportResult:
    place, address = _located(found.get(one.kernel), one.at)
    return ReportResult(one.kind, KINDS[one.kind].level, one.text, kernels[one.kernel]["symbol"] or "", place, address)


def _located(code: ReportedCode | None, at: int | None) -> tuple[SourceLine | None, int | None]:
    """Return source line and address of an instruction."""
    return (None, None) if code is None or at is None else (code.places[at], code.columns["address"][at])


def _violations(
    verdict: Verdict, kernels: Sequence[Mapping[str, Any]], found: Mapping[int, ReportedCode], named: Mapping[str, int]
) -> Iterator[ReportResult]:
    for one in verdict.violations:
        number = named.get(one.kernel)
        symbol = one.kernel if number is None else kernels[number]["symbol"] or one.kernel
        where = replace(one, kernel=spellings(one.kernel)[-1]).where
        code, address = None if number is None else found.get(number), _address(one)
        place, _ = _located(code, None if code is None or address is None else code.at(address))
        text = f"{verdict.condition.text}: {one.value}" + (f" ({where})" if where else "")
        yield ReportResult(verdict.condition.text, "error", text, symbol, place, address)


def _address(one: Violation) -> int | None:
    text = one.place.get("address")
    try:
        return int(text, 0) if isinstance(text, str) else None
    except ValueError:
        return None
