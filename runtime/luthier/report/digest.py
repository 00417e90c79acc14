"""The answer of a run in a few lines: kernels by cost, hottest source lines, findings with advice."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from luthier.objects.names import spellings
from luthier.report.analysis import AnalysedRun
from luthier.report.charging import SourceLine
from luthier.report.code import cost
from luthier.report.findings import ReportedFinding
from luthier.report.rules.wording import count, number
from luthier.report.sources import read_sources
from luthier.run.summary import RunSummary
from luthier.support.processes import signal_name
from luthier.support.table import Cell, Table, wrapped
from luthier.support.wording import counted
from luthier.terminal import visible

LINES = 14
"""Maximum number of lines of a digest, so that the name of a page fits into 15."""
MEASURING = ("divergence", "coalescing", "lds_bank_conflicts")
"""Tools whose measurements the rules judge."""
_KERNELS, _HOT = 3, 2
"""Rows of kernels and of source lines."""
_NOTES = 2
_FINDINGS = 2
"""Findings on terminals, whose width may break lines."""
_TEXT = 70
"""Characters of a source line."""
SCHEMA = 1
"""Schema of the digest as JSON; incremented if a field changes its meaning or is removed."""


class DigestedFinding(Struct, frozen=True):
    """A finding with its location as text."""

    rule: str
    level: str
    kernel: str
    place: str
    """``file:line``; "" if unknown."""
    text: str
    advice: str
    lost: float
    """Lost slots (`luthier.report.findings`)."""


class RunDigest(Struct, frozen=True):
    """Summary of the results of a run."""

    headline: str
    kernels: list[dict[str, Any]]
    """All launched and selected kernels, most costly first: name, executed instructions, their share in percent,
    launches, active lanes in percent, time in nanoseconds; None where it is not known."""
    hot: list[dict[str, Any]]
    """The hottest lines: file, line, executed instructions, their share in percent, text of the source."""
    findings: list[DigestedFinding]
    """All findings, most important first."""
    notes: list[str]
    """What the numbers lack."""
    is_measured: bool
    """Whether the rules had all counts of all launches."""
    names: list[str]
    """Name of each kernel of the run, by its number."""

    @classmethod
    def of(cls, analysed: AnalysedRun, *, mangled: bool = False) -> RunDigest:
        """Summarise a run.

        Args:
            analysed: the run.
            mangled: name kernels by their symbols.

        Raises:
            LuthierError: the run is damaged.
        """
        names = _names(analysed.kernels, mangled)
        findings = [_digested(finding, analysed, names) for finding in analysed.findings]
        launched = [at for at, one in enumerate(analysed.kernels) if one["launches"] and not one["skipped"]]
        launched.sort(key=lambda at: cost(analysed.kernels[at]), reverse=True)
        executed = sum(analysed.kernels[at]["executed"] or 0 for at in launched)
        kernels = [_kernel(analysed.kernels[at], names[at], executed) for at in launched]
        hot = list(_hot(analysed))
        lacking = list(_lacking(analysed))
        notes = lacking + (["no source lines: compile with -g"] if executed and not hot else [])
        headline = _headline(analysed.run.summary, [analysed.kernels[at] for at in launched])
        return cls(headline, kernels, hot, findings, notes, bool(kernels) and not lacking, names)

    def lines(self, width: int = 0) -> Iterator[str]:
        """Yield the digest as at most `LINES` lines of printable text, or more to fit a terminal.

        Args:
            width: columns of the terminal; 0: unlimited.
        """
        yield from (part for line in self._lines(width) for part in wrapped(visible(line), width).split("\n"))

    def _lines(self, width: int) -> Iterator[str]:
        yield self.headline
        notes = self.notes if len(self.notes) <= _NOTES else [*self.notes[: _NOTES - 1], _more_notes(self.notes)]
        kernels = self._kernel_table().text(width).split("\n") if self.kernels else []
        hot = self._hot_table().text(width).split("\n") if self.hot else []
        yield from kernels
        yield from hot
        room = (LINES - 2 - len(kernels) - len(hot) - len(notes)) // 2
        room = min(room, _FINDINGS) if width else room
        groups: dict[tuple[str, str, str], list[DigestedFinding]] = {}
        for finding in self.findings:
            text = finding.text if finding.level == "error" else ""  # waste of one kind is one group
            groups.setdefault((finding.rule, finding.kernel, text), []).append(finding)
        shown = list(groups.values())[:room]
        if shown:
            more = f", of which {len(shown)} are shown" if len(shown) < len(groups) else ""
            yield f"findings: {len(groups)}{more} (luthier explain NAME has more about each)"
        elif self.is_measured:
            yield "no findings: lanes, cache lines and LDS banks are used well"
        elif self.kernels:
            yield "no findings"
        else:
            why = "no launched kernel was selected" if self.names else "no kernel was launched"
            yield f"nothing was measured: {why}"
        for first, *rest in shown:
            where = f"{first.place} {first.kernel}".strip()
            places = list(dict.fromkeys(other.place for other in rest if other.place not in ("", first.place)))
            file = first.place.rpartition(":")[0]
            named = [place.removeprefix(file) if file else place for place in places[:2]]
            also = f"; also {', '.join(named)}" if named else ""
            also += f" and {counted(len(places) - 2, 'line')} more" if len(places) > 2 else ""
            yield f"  {first.rule}: {where}: {first.text}{also}"
            yield f"    {first.advice or 'its table has more'}"
        yield from notes

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain data."""
        findings = [
            {name: getattr(finding, name) for name in finding.__struct_fields__} | {"lost": round(finding.lost, 1)}
            for finding in self.findings
        ]
        data = {"schema": SCHEMA, "headline": self.headline, "kernels": self.kernels, "lines": self.hot}
        return data | {"findings": findings, "notes": self.notes}

    def _kernel_table(self) -> Table:
        shown = self.kernels if len(self.kernels) <= _KERNELS else self.kernels[: _KERNELS - 1]
        rows = [list(row.values()) for row in shown]
        if rest := self.kernels[len(shown) :]:
            sums = {name: _sum(rest, name) for name in ("executed", "%", "launches", "time_ns")}
            rows.append([{"name": f"{len(rest)} others", "lanes %": None, **sums}[name] for name in rest[0]])
        columns = [("kernels by cost" if name == "name" else name) for name in self.kernels[0]]
        used = [at for at in range(len(columns)) if any(row[at] is not None for row in rows)]
        return Table("", [columns[at] for at in used], [[row[at] for at in used] for row in rows])

    def _hot_table(self) -> Table:
        rows: list[list[Cell]] = []
        for line in self.hot[:_HOT]:
            text = line["text"] or ""
            name = f"{line['file'].rsplit('/', 1)[-1]}:{line['line']}"
            rows.append([name, line["executed"], line["%"], text if len(text) <= _TEXT else f"{text[: _TEXT - 1]}…"])
        columns = ("hottest lines", "executed", "%", "source")
        if not any(row[-1] for row in rows):
            return Table("", columns[:-1], [row[:-1] for row in rows])
        return Table("", columns, rows)


def _sum(rows: Sequence[Mapping[str, Any]], name: str) -> Cell:
    values = [row[name] for row in rows if row[name] is not None]
    return round(sum(values), 1) if values else None


def _names(kernels: Sequence[Mapping[str, Any]], mangled: bool) -> list[str]:
    """Return symbols, or names as in the source, without parameters unless two kernels would share one."""
    if mangled:
        return [str(one["symbol"] or one["name"]) for one in kernels]
    spelled = [spellings(str(one["symbol"] or one["name"])) for one in kernels]
    short = [names[-1] for names in spelled]
    return [names[-1] if short.count(names[-1]) == 1 or len(names) < 3 else names[1] for names in spelled]


def _kernel(kernel: Mapping[str, Any], name: str, executed: int) -> dict[str, Any]:
    possible = (kernel["vector_executed"] or 0) * (kernel["wave_size"] or 0)
    return {
        "name": name,
        "executed": kernel["executed"],
        "%": round(100 * kernel["executed"] / executed, 1) if kernel["executed"] else None,
        "launches": kernel["launches"],
        "lanes %": round(100 * kernel["lanes"] / possible, 1) if kernel["lanes"] and possible else None,
        "time_ns": None if kernel["emulated"] else kernel["time"],
    }


def _hot(analysed: AnalysedRun) -> Iterator[dict[str, Any]]:
    """Yield the lines of all kernels with the most executed instructions."""
    executed: dict[SourceLine, int] = {}
    total = 0
    for code in analysed.codes.values():
        total += sum(times or 0 for times in code.executions)
        for place, times in zip(code.lines.places, code.lines.executed, strict=True):
            executed[place] = executed.get(place, 0) + (times or 0)
    hottest = sorted((place for place in executed if executed[place]), key=lambda place: -executed[place])[:10]
    files = list(dict.fromkeys(place.file for place in hottest))
    texts = {one.path: one.lines for one in read_sources(files, (), analysed.run.summary.began_ns)}
    for place in hottest:
        text = texts[place.file] or ()
        yield {
            "file": place.file,
            "line": place.line,
            "executed": executed[place],
            "%": round(100 * executed[place] / total, 1),
            "text": text[place.line - 1].strip() if 0 < place.line <= len(text) else None,
        }


def _digested(finding: ReportedFinding, analysed: AnalysedRun, names: Sequence[str]) -> DigestedFinding:
    at, code = finding.fault.at, analysed.codes.get(finding.kernel)
    place = code.places[at] if code is not None and at is not None else None
    fault, kernel = finding.fault, names[finding.kernel]
    where = "" if place is None else str(place)
    return DigestedFinding(finding.rule, finding.level, kernel, where, fault.text, fault.advice, fault.lost)


def _headline(summary: RunSummary, kernels: Sequence[Mapping[str, Any]]) -> str:
    command = shlex.join(summary.command) or "the program"
    devices = f" on {', '.join(summary.devices)}" if summary.devices else ""
    devices += f" ({options})" if (options := summary.option_words()) else ""
    launches, executed = (sum(kernel[name] or 0 for kernel in kernels) for name in ("launches", "executed"))
    facts = [counted(len(kernels), "kernel"), f"{count(launches)} launch{'' if launches == 1 else 'es'}"]
    if executed:
        facts.append(f"{count(executed)} instructions executed by waves")
    possible = sum((kernel["vector_executed"] or 0) * (kernel["wave_size"] or 0) for kernel in kernels)
    if possible:
        facts.append(f"{number(100 * sum(kernel['lanes'] or 0 for kernel in kernels) / possible)} % of lanes active")
    return f"{command}{devices}: {', '.join(facts)}"


def _lacking(analysed: AnalysedRun) -> Iterator[str]:
    """Yield sentences about what was lost or not measured, most important first."""
    summary = analysed.run.summary
    if summary.exit_code < 0:
        yield f"partial: the program was ended by {signal_name(-summary.exit_code)}"
    elif summary.exit_code:
        yield f"possibly partial: the program ended with exit code {summary.exit_code}"
    if summary.ended_before:
        yield f"partial: the run was stopped before {summary.ended_before} ended"
    yield from (f"fault: {fault}" for fault in summary.faults)
    missed = sum(kernel["launches"] - kernel["instrumented"] for kernel in analysed.kernels if not kernel["skipped"])
    if missed and summary.tools:
        yield f"not measured: {counted(missed, 'launch')} (luthier report RUN --table kernels has the reasons)"
    ran = {tool.tool for tool in summary.tools}
    if lacking := [tool for tool in MEASURING if tool not in ran]:
        yield f"not measured: {', '.join(lacking)} did not run (luthier profile runs them)"
    yield from (f"not projected: {reason}" for reason in (*analysed.projected.left_out, *analysed.projected.refused))
    yield from (f"not examined: {note}" for note in analysed.unexamined)


def _more_notes(notes: Sequence[str]) -> str:
    return f"and {counted(len(notes) - _NOTES + 1, 'more note')}: {'; '.join(notes[_NOTES - 1 :])}"
