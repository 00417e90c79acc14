"""Findings and conditions as test cases, in JUnit's XML, for continuous integration."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import IO, TYPE_CHECKING
from xml.etree.ElementTree import Element, ElementTree, SubElement, indent

from luthier.report.formats.declare import ReportFormat
from luthier.support.wording import counted

if TYPE_CHECKING:
    from luthier.report.conditions import Verdict
    from luthier.report.results import ReportResult, Results
    from luthier.run.folder import RunFolder


def write(folder: RunFolder, out: IO[bytes], verdicts: Sequence[Verdict] = ()) -> None:
    """Write a suite of conditions, and one of the run's findings.

    Conditions that hold and errors are failures; other findings are output of test cases that pass.
    """
    from luthier.report.results import results

    write_results(results(folder, verdicts), out, verdicts)


def compare(folder: RunFolder, against: RunFolder, out: IO[bytes], verdicts: Sequence[Verdict] = ()) -> None:
    """Write a suite of conditions about two runs."""
    from luthier.report.results import violations

    write_results(violations(verdicts), out, verdicts)


def write_results(
    results: Results,
    out: IO[bytes],
    verdicts: Sequence[Verdict] = (),
    *,
    command: str = "luthier report",
    passed: Sequence[str] = (),
) -> None:
    """Write a suite of conditions, and one of results.

    Args:
        command: command that found them.
        passed: names of further test cases, which pass.
    """
    suites = Element("testsuites", name=command)
    conditions = SubElement(suites, "testsuite", name="conditions")
    for verdict in verdicts:
        text = verdict.condition.text
        broken = [one for one in results.results if one.rule == text]
        _case(conditions, "--fail-if", text, broken, [counted(verdict.rows, "row"), *verdict.unjudged()])
    findings = SubElement(suites, "testsuite", name="findings")
    results_by_case: dict[tuple[str, str], list[ReportResult]] = {}
    for result in results.results:
        if result.rule not in {verdict.condition.text for verdict in verdicts}:
            results_by_case.setdefault((result.kernel or "unknown", result.rule), []).append(result)
    for (kernel, rule), several in results_by_case.items():
        wrong = [one for one in several if one.level == "error"]
        _case(findings, kernel, rule, wrong, (_line(one) for one in several if one.level != "error"))
    for name in passed:
        _case(findings, "checks", name, (), ())
    if results.left_out:
        SubElement(findings, "system-out").text = _clean("\n".join(results.left_out))
    for suite in (conditions, findings):
        failures = len(suite.findall("testcase/failure"))
        _number(suite, len(suite.findall("testcase")), failures)
    _number(suites, len(suites.findall("*/testcase")), len(suites.findall("*/testcase/failure")))
    indent(suites)
    ElementTree(suites).write(out, encoding="utf-8", xml_declaration=True)
    out.write(b"\n")


def _case(suite: Element, group: str, name: str, failures: Sequence[ReportResult], output: Iterable[str]) -> None:
    case = SubElement(suite, "testcase", classname=_clean(group), name=_clean(name), time="0")
    if failures and failures[0].place is not None:
        case.set("file", _clean(failures[0].place.file))
        case.set("line", str(failures[0].place.line))
    if failures:
        message = failures[0].text + (f", and {len(failures) - 1} more" if len(failures) > 1 else "")
        failure = SubElement(case, "failure", type=_clean(failures[0].rule), message=_clean(message))
        failure.text = _clean("\n".join(map(_line, failures)))
    if text := "\n".join(output):
        SubElement(case, "system-out").text = _clean(text)


def _line(result: ReportResult) -> str:
    return f"{result.sentence} [{result.where}]" if result.where else result.sentence


def _number(suite: Element, tests: int, failures: int) -> None:
    for name, value in (("tests", tests), ("failures", failures), ("errors", 0), ("skipped", 0)):
        suite.set(name, str(value))
    suite.set("time", "0")


def _clean(text: str) -> str:
    """Escape characters that are not printable, for XML."""
    from luthier.terminal import visible_lines

    return visible_lines(text)


FORMAT = ReportFormat(
    help="findings and conditions (--fail-if) as test cases in JUnit's XML", write=write, compare=compare, verdicts=True
)
