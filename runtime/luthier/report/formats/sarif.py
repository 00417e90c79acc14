"""Findings and conditions that hold as SARIF, which code hosts show beside the source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO, TYPE_CHECKING, Any

from luthier.report.formats.declare import ReportFormat
from luthier.support import strict_json

if TYPE_CHECKING:
    from luthier.report.conditions import Verdict
    from luthier.report.results import ReportResult, Results
    from luthier.run.folder import RunFolder


def write(folder: RunFolder, out: IO[bytes], verdicts: Sequence[Verdict] = ()) -> None:
    """Write the findings of a run and violated conditions."""
    from luthier.report.results import results

    _write(results(folder, verdicts), verdicts, out)


def compare(folder: RunFolder, against: RunFolder, out: IO[bytes], verdicts: Sequence[Verdict] = ()) -> None:
    """Write the differences of two runs for which conditions hold."""
    from luthier.report.results import violations

    _write(violations(verdicts), verdicts, out)


def _write(reported: Results, verdicts: Sequence[Verdict], out: IO[bytes]) -> None:
    from luthier import __version__
    from luthier.report.findings import loaded_rules
    from luthier.support.sarif import log

    rules = {name: rule.to_json()["summary"] for name, rule in loaded_rules().items()}
    rules |= {one.condition.text: f"the report fails if {one.condition.text}" for one in verdicts}
    notes = [*reported.left_out, *(line for one in verdicts for line in one.unjudged())]
    notifications = [{"level": "warning", "message": {"text": text}} for text in notes]
    ended = {"executionSuccessful": True, **({"toolExecutionNotifications": notifications} if notifications else {})}
    results = [_result(one, rules) for one in reported.results]
    data = log("luthier report", __version__, rules, results, invocations=[ended])
    out.write(strict_json.dumps(data, indent=2).encode() + b"\n")


def _result(reported: ReportResult, rules: dict[str, str]) -> dict[str, Any]:
    from luthier.support.sarif import location, physical, rule

    source = None if reported.place is None else physical(reported.place.file, reported.place.line)
    result = {**rule(rules, reported.rule), "level": reported.level, "message": {"text": reported.sentence}}
    if place := location(source, reported.symbol, reported.kernel):
        result["locations"] = [place]
    if reported.address is not None:
        result["properties"] = {"address": reported.address}
    return result


FORMAT = ReportFormat(
    help="findings and conditions (--fail-if) as SARIF 2.1.0", write=write, compare=compare, verdicts=True
)
