"""`luthier check`: check on every path that kernels wait for results and avoid hazards."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from luthier.cli.common import STANDARD_OUTPUT, HelpOf, add_json_argument, put_json
from luthier.cli.findings import check_names
from luthier.cli.options import SeveralChoices, add_earlier_spelling
from luthier.cli.progress import ProgressLine
from luthier.cli.selection import add_object_arguments, selected_objects
from luthier.errors import LiftError, LuthierError
from luthier.hazards.checks import CHECKS, Check, CheckReport, HasFinding
from luthier.lifting import LiftedRepresentation, lift
from luthier.objects import CodeObject
from luthier.support.files import check_writable, write_atomically
from luthier.support.wording import counted
from luthier.terminal import say, say_text, visible


class _Checked(NamedTuple):
    """A kernel and the report of each check."""

    code: CodeObject
    kernel: str
    instructions: int
    """Number of reachable instructions."""
    reports: Mapping[str, CheckReport]


class _Results(NamedTuple):
    """Results of all checks, and what could not be checked."""

    checks: Mapping[str, Check]
    broken: Sequence[LuthierError]
    """Checks that cannot be imported."""
    kernels: list[_Checked]
    refused: list[tuple[CodeObject, str, LiftError]]

    @property
    def is_clean(self) -> bool:
        """Return whether everything was checked and nothing was found."""
        has_findings = any(report.findings or report.more for one in self.kernels for report in one.reports.values())
        return not (has_findings or self.refused or self.broken)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add_object_arguments(parser)
    check = parser.add_argument(
        "--check",
        action="extend",
        type=check_names,
        choices=SeveralChoices(CHECKS.names()),
        metavar="CHECK[,CHECK]",
        help="run only these checks; repeatable (default: all): %(checks)s",
    )
    check.checks = HelpOf(CHECKS)  # type: ignore[attr-defined]
    add_earlier_spelling(parser, "--only", check)
    parser.add_argument(
        "--unneeded", action="store_true", help="list waits and wait states that no path needs; without it, count them"
    )
    parser.add_argument(
        "--possible",
        action="store_true",
        help="list findings that depend on facts the code does not show; without it, count them",
    )
    add_json_argument(parser, "the results")
    parser.add_argument("--sarif", metavar="FILE", help="write the findings as SARIF 2.1.0")


def run(args: argparse.Namespace) -> int:
    """Run the command and return 0 if everything was checked and nothing was found, otherwise 1."""
    results = _Results(*_checks(args.check), [], [])
    if args.sarif:
        check_writable(args.sarif)
    with ProgressLine("checking") as progress:
        for object, kernels in selected_objects(args):
            for kernel in kernels:
                progress.step(kernel)
                try:
                    lifted = lift(object, kernel)
                    reports = {name: check.run(lifted) for name, check in results.checks.items()}
                    results.kernels.append(_Checked(object, kernel, _length(lifted), reports))
                except LiftError as problem:
                    results.refused.append((object, kernel, problem))
    if args.sarif:
        write_atomically(args.sarif, f"{json.dumps(_as_sarif(results), indent=2)}\n".encode())
    if args.json:
        put_json(args.json, _as_data(results))
    if args.json != STANDARD_OUTPUT:
        _say(results, list_unneeded=args.unneeded, list_possible=args.possible)
    return 0 if results.is_clean else 1


def _checks(names: Sequence[str] | None) -> tuple[Mapping[str, Check], Sequence[LuthierError]]:
    """Return the named checks, or all, and the errors of those that cannot be imported.

    Raises:
        LuthierError: a named check cannot be imported.
    """
    checks, broken = {}, []
    for name in CHECKS.names() if names is None else dict.fromkeys(names):
        try:
            checks[name] = CHECKS.load(name)
        except LuthierError as problem:
            if names is not None:
                raise
            broken.append(problem)
    return checks, broken


def _length(lifted: LiftedRepresentation) -> int:
    return sum(block.last - block.first + 1 for block in lifted.blocks)


def _say(results: _Results, *, list_unneeded: bool, list_possible: bool) -> None:
    for checked in results.kernels:
        _say_findings(checked, list_unneeded=list_unneeded, list_possible=list_possible)
    for object, kernel, refusal in results.refused:
        say_text(f"{object.target}: {visible(kernel)}: NOT CHECKED: {refusal}", file=sys.stderr)
    for problem in results.broken:
        say_text(f"NOT CHECKED: {problem}", file=sys.stderr)
    _say_sums(results, list_possible=list_possible)
    if results.refused:
        say(f"NOT CHECKED: {counted(len(results.refused), 'kernel')}", file=sys.stderr)


def _say_findings(checked: _Checked, *, list_unneeded: bool, list_possible: bool) -> None:
    """Print the findings of a kernel."""
    target, reports = checked.code.target, checked.reports.values()
    for report in reports:
        for finding in report.findings:
            say_text(f"{target}: {finding}")
    for report in reports:
        for wait in report.unneeded if list_unneeded else ():
            say_text(f"{target}: not needed: {wait}")
        for candidate in report.possible if list_possible else ():
            say_text(f"{target}: possible: {candidate}")


def _say_sums(results: _Results, *, list_possible: bool) -> None:
    """Print how much was checked and found in all kernels."""
    reports = {name: [checked.reports[name] for checked in results.kernels] for name in results.checks}
    every = [report for of_check in reports.values() for report in of_check]
    unneeded = " and ".join(
        f"{sum(len(report.unneeded) for report in reports[name])} {check.unneeded}"
        for name, check in results.checks.items()
        if check.unneeded
    )
    instructions = counted(sum(checked.instructions for checked in results.kernels), "instruction")
    findings = counted(sum(len(report.findings) for report in every), "finding")
    say(
        f"{counted(len(results.kernels), 'kernel')} of {instructions} checked: {findings}"
        + (f"; {unneeded} that no path needs" if unneeded else "")
    )
    for name, of_check in reports.items():
        if more := sum(report.more for report in of_check):
            say(f"{name}: {more} more instructions have findings; only some of their producers were examined")
    for name, of_check in reports.items():
        if possible := sum(len(report.possible) for report in of_check):
            listed = "" if list_possible else " (--possible lists them)"
            say(f"{name}: {counted(possible, 'possible finding')}, depending on facts the code does not show{listed}")
    if left_out := sum(report.unchecked for report in every):
        say(f"{left_out} instructions use unknown registers and were not checked")


def _as_sarif(results: _Results) -> dict[str, Any]:
    """Return the findings as SARIF, with a note for everything that was not checked or that SARIF cannot express."""
    from luthier import __version__
    from luthier.findings.sarif import sarif

    findings, notes = [], [f"{kernel} for {object.target}: {problem}" for object, kernel, problem in results.refused]
    notes += map(str, results.broken)
    for checked in results.kernels:
        for name, report in checked.reports.items():
            made = [each.finding(checked.code.name) for each in report.findings if isinstance(each, HasFinding)]
            findings += made
            if left_out := len(report.findings) - len(made) + report.more:
                notes.append(f"{checked.kernel}: SARIF cannot express {counted(left_out, 'finding')} of {name}")
    return sarif(findings, __version__, notes, command="luthier check")


def _as_data(results: _Results) -> dict[str, Any]:
    broken = {"checks_not_done": [str(problem) for problem in results.broken]} if results.broken else {}
    return {
        "kernels": [_kernel_as_data(one) for one in results.kernels],
        "not_checked": [
            {"target": str(object.target), "kernel": kernel, "reason": str(problem)}
            for object, kernel, problem in results.refused
        ],
        **broken,
    }


def _kernel_as_data(checked: _Checked) -> dict[str, Any]:
    made: dict[str, Any] = {"target": str(checked.code.target), "kernel": checked.kernel}
    for name, report in checked.reports.items():
        data = {name: [finding.to_json() for finding in report.findings]} if report.data is None else report.data
        if both := made.keys() & data.keys():
            raise LuthierError(f"check {name} and an earlier check both have data {min(both)}", kernel=checked.kernel)
        made |= data
    return made
