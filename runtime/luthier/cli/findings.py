"""Command-line options of checks, and printing and writing of findings."""

from __future__ import annotations

import argparse
import io
import json
import mmap
import os
import sys
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from luthier.cli.options import CommandOptions, comma_separated, option
from luthier.errors import LuthierError
from luthier.findings.kinds import (
    ALL,
    CHECKS,
    DEFAULT,
    EARLIER_CHECKS,
    FAST,
    LANES,
    LEAK,
    SETS,
    TRACKING,
    WARNINGS,
    WITHOUT,
    ChosenChecks,
    chosen_checks,
    follows_unwritten,
    tracks_undefined,
)
from luthier.support.files import check_writable, write_atomically
from luthier.support.shortage import memory_limits
from luthier.support.wording import counted
from luthier.terminal import say, say_text

if TYPE_CHECKING:
    from luthier.findings.causes import Cause
    from luthier.findings.finding import Finding, Unchecked
    from luthier.run.selection import Selection

FOUND = 1
"""Default exit code if something was found."""
HELP = (
    "; ".join(f"{check}: {facts.purpose}" for check, facts in CHECKS.items())
    + f"; {DEFAULT}: {', '.join(SETS[DEFAULT])}; {FAST}: {', '.join(SETS[FAST])}; {ALL}: all of them but in-flight; "
    f"{WITHOUT}race: all of {DEFAULT} but race"
)
"""Help on the checks."""


GITHUB, NONE = "github", "none"
"""Styles of annotations."""
_ON_GITHUB = "GITHUB_ACTIONS"
"""Environment variable that GitHub's workflows set to `true`."""
_NO_RESERVE = 0x4000
"""MAP_NORESERVE of Linux."""
_SHADOW = 32 << 40
"""Bytes of address space that processes reserve to follow undefined values."""
FLOATS = "nan,inf"
"""Default of ``--fp``. The option is None if it is not given, as is ``--init``."""


def _exit_code(text: str) -> int:
    if not text.isdecimal() or int(text) > 255:
        raise argparse.ArgumentTypeError(f"{text!r} is not an exit code from 0 to 255")
    return int(text)


def check_names(text: str) -> list[str]:
    """Parse words for `chosen_checks`; replace earlier names and print a note about them."""
    words = comma_separated(text)
    names = [word.removeprefix(WITHOUT) for word in words]
    for name in sorted(EARLIER_CHECKS.keys() & set(names)):
        say(f"luthier: the check {name} is now named {EARLIER_CHECKS[name]}", file=sys.stderr)
    return [word.removesuffix(name) + EARLIER_CHECKS.get(name, name) for word, name in zip(words, names, strict=True)]


def check_option(**more: Any) -> Any:
    """Declare ``--check``; arguments as for `option`."""
    return option("--check", default=[], action="extend", type=check_names, metavar="CHECK[,CHECK]", **more)


class FindingOptions(CommandOptions):
    """Options about findings."""

    fp: str | None = option(
        "--fp",
        metavar="KIND[,KIND]",
        help="what the check fp reports; nan, inf, denormal: such results from ordinary operands; flow: also from "
        f"exceptional operands (default: {FLOATS})",
    )
    init: str | None = option(
        "--init",
        metavar="KIND[,KIND]",
        help="what the check init reports; reads: reads of memory that was never written; decisions: branches, "
        "addresses and lane masks that depend on such memory, or on unwritten registers and scratch; copies: copies of "
        "such memory to the host (default: reads; decisions where init is not named)",
    )
    suppress: list[str] = option(
        "--suppress",
        action="append",
        default=[],
        metavar="FILE",
        help="leave out findings that match a line of this file; repeatable",
    )
    gen_suppressions: str | None = option(
        "--gen-suppressions", metavar="FILE", help="write lines for --suppress that match all findings"
    )
    sarif: str | None = option("--sarif", metavar="FILE", help="write the findings as SARIF 2.1.0")
    junit: str | None = option(
        "--junit", metavar="FILE", help="write the findings and the checks as test cases in JUnit's XML"
    )
    annotations: str | None = option(
        "--annotations",
        choices=(GITHUB, NONE),
        help=f"annotate source lines; {GITHUB}: as GitHub's workflows show them (default: {GITHUB} if "
        f"{_ON_GITHUB}=true, otherwise {NONE})",
    )
    error_exitcode: int = option(
        "--error-exitcode",
        type=_exit_code,
        default=FOUND,
        metavar="N",
        help="exit code if there are findings; 0: that of the program (default: %(default)s)",
    )


class Findings:
    """Findings of a run, as the user sees them: selected by checks, filtered by suppressions, printed and written.

    Args:
        checks: words for `chosen_checks`; none: the default.
        options: options of the command line.
        impossible: checks of sets that cannot run -> why.
        selection: launches that are observed; None: all.
        budget: as for `luthier.run.findings.collector.Collector`.
        where: the device that checks, for messages.

    Raises:
        LuthierError: a check or a suppression is invalid, or a file cannot be written.
    """

    def __init__(
        self,
        checks: Sequence[str],
        options: FindingOptions,
        *,
        impossible: Mapping[str, str] = MappingProxyType({}),
        selection: Selection | None = None,
        budget: float | None = None,
        where: str = "a virtual device",
    ) -> None:
        from luthier.findings import suppressions
        from luthier.findings.finding import Unchecked
        from luthier.run.findings.collector import Collector

        self._options, self._where = options, where
        if why := _without_addresses():
            named = {*checks, *(["init"] if options.init is not None else [])}
            impossible = {**dict.fromkeys(TRACKING - named, why), **impossible}
        self.chosen = chosen_checks(checks, [check for check in CHECKS if check not in impossible])
        self._left_out = [line for path in options.suppress for line in suppressions.read(path)]
        for path in filter(None, (options.sarif, options.junit, options.gen_suppressions)):
            check_writable(path)
        kinds = kinds_of_options(self.chosen, options.fp, options.init)
        if why and tracks_undefined(kinds):
            checks_of_it = " and ".join(sorted(TRACKING & set(self.chosen.checks)))
            raise LuthierError(f"{checks_of_it}: {why}: lift the limit, or leave out the check")
        self.collector = Collector(kinds, selection, budget)
        for why in dict.fromkeys(impossible.values()):
            checks_left = [check for check in self.chosen.impossible if impossible[check] == why]
            if checks_left:
                self.collector.leave(Unchecked(0, "", ", ".join(checks_left), why))
        if follows_unwritten(kinds) and not LANES.isdisjoint(kinds):
            why = "beside init they may be of values that were never written (--check wave-size alone reports them)"
            self.collector.leave(Unchecked(0, "", "stores of values of inactive lanes", why))

    @property
    def shown(self) -> list[Finding]:
        """Return the findings that are not suppressed."""
        return [one for one in self.collector.findings if not any(each.fits(one) for each in self._left_out)]

    def to_json(self) -> dict[str, Any]:
        """Return the findings, and what was not checked, as plain data."""
        scope = self.collector.scope()
        return {
            "findings": [
                {**one.to_json(), "level": "error" if self.is_error(one) else "warning"} for one in self.shown
            ],
            "not_checked": [one.to_json() for one in self._unchecked()],
            "checked": scope.to_json(self.chosen, self.collector.kinds),
        }

    def _unchecked(self) -> list[Unchecked]:
        """Return what was not checked: of a program without launches, them all."""
        from luthier.findings.finding import Unchecked

        nothing = Unchecked(0, "", "launches", f"no kernel of the program ran on {self._where}")
        unchecked = self.collector.unchecked
        is_explained = self.collector.scope().launches or any(each.what == nothing.what for each in unchecked)
        return [*unchecked, *([] if is_explained else [nothing])]

    def is_error(self, finding: Finding) -> bool:
        """Return whether a finding makes the exit code that of findings: a warning does only if its check is named."""
        return finding.kind not in WARNINGS or finding.check in self.chosen.named

    def tell(self, unfinished: str = "") -> int:
        """Print the findings and write their files; return the exit code, 0 for that of the program.

        Args:
            unfinished: what the run was ended before; "" if it was not.
        """
        from luthier.findings.causes import causes
        from luthier.findings.text import leaks, lines_of_cause, sentences

        findings, options = self.shown, self._options
        leaked = [one for one in findings if one.kind == LEAK and not self.is_error(one)]
        every = causes(findings)
        for cause in every:
            if self.is_error(cause.finding) or cause.finding.kind != LEAK:
                prefix = "" if self.is_error(cause.finding) else "warning: "
                say_text("\n".join(f"luthier: {line}" for line in lines_of_cause(cause, prefix)), file=sys.stderr)
        if leaked:
            say_text(f"luthier: warning: {leaks(leaked)}", file=sys.stderr)
        if (options.annotations or (GITHUB if os.environ.get(_ON_GITHUB) == "true" else NONE)) == GITHUB:
            from luthier.findings.annotations import github

            for cause in every:
                say(github(cause, is_error=self.is_error(cause.finding)), file=sys.stderr)
        notes = sentences(self._unchecked())
        checked = self.collector.scope().lines(self.chosen, self.collector.kinds)
        for line in (*checked, *(f"not checked: {note}" for note in notes)):
            say_text(f"luthier: {line}", file=sys.stderr)
        say(f"luthier: {self._verdict(every, unfinished)}", file=sys.stderr)
        self._write(findings, notes)
        return options.error_exitcode if any(map(self.is_error, findings)) else 0

    def _verdict(self, every: Sequence[Cause], unfinished: str) -> str:
        """Return the number of findings by cause, and what the run was ended before."""
        errors = [cause for cause in every if self.is_error(cause.finding)]
        folded = sum(len(cause.all) - 1 for cause in errors)
        warnings = len(every) - len(errors)
        more = f" ({folded} more repeat them or follow from them)" if folded else ""
        more += f", {counted(warnings, 'warning')}" if warnings else ""
        suppressed = len(self.collector.findings) - len(self.shown)
        more += f", {suppressed} suppressed" if suppressed else ""
        more += f"; the run was stopped before {unfinished} ended" if unfinished else ""
        return f"{counted(len(errors), 'finding')}{more}"

    def _write(self, findings: Sequence[Finding], notes: Sequence[str]) -> None:
        """Write the files that the options name."""
        from luthier import __version__
        from luthier.findings import suppressions
        from luthier.findings.sarif import sarif

        options = self._options
        if options.sarif:
            about = self.collector.scope().to_json(self.chosen, self.collector.kinds)
            data = sarif(findings, __version__, notes, checked=about, is_error=self.is_error)
            write_atomically(options.sarif, f"{json.dumps(data, indent=2)}\n".encode())
        if options.junit:
            write_atomically(options.junit, self._junit(findings, notes))
        if options.gen_suppressions:
            write_atomically(options.gen_suppressions, suppressions.generate(findings).encode())

    def _junit(self, findings: Sequence[Finding], notes: Sequence[str]) -> bytes:
        """Return the findings as test cases by kernel and kind, and a case for each check without findings."""
        from luthier.findings.finding import source_of
        from luthier.report.charging import SourceLine
        from luthier.report.formats.junit import write_results
        from luthier.report.results import ReportResult, Results

        results = []
        for finding in findings:
            frame = source_of(finding.frames)
            place = SourceLine(frame.file, frame.line) if frame is not None and frame.line else None
            level, address = (
                "error" if self.is_error(finding) else "warning",
                finding.offset if finding.kernel else None,
            )
            results.append(ReportResult(finding.kind, level, finding.message, finding.kernel, place, address=address))
        wrong = {one.check for one in findings if self.is_error(one)}
        out = io.BytesIO()
        scope = self.collector.scope()
        looked = {check: scope.observed if scope.observes(check) else scope.launches for check in self.chosen.checks}
        passed = [check for check, launches in looked.items() if launches and check not in wrong]
        left_out = [f"not checked: {note}" for note in notes]
        write_results(Results(results, left_out), out, command="luthier sanitize", passed=passed)
        return out.getvalue()


def _without_addresses() -> str:
    """Return why a process may not reserve the addresses that tracking of undefined values needs; "" if it may."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE
    try:
        mmap.mmap(-1, _SHADOW, flags).close()
    except OSError as problem:
        why = memory_limits() or problem.strerror
        return f"decisions and lanes need 32 TiB of addresses, which a process may not reserve ({why})"
    return ""


def kinds_of_options(chosen: ChosenChecks, floats: str | None, init: str | None) -> frozenset[str]:
    """Return the kinds of findings that checks report.

    Args:
        floats: value of ``--fp``; None if it is not given.
        init: value of ``--init``.

    Raises:
        LuthierError: there is no such word, or an option is given without its check.
    """
    from luthier.findings.floats import kinds_of_floats
    from luthier.findings.kinds import kinds_of_check, kinds_of_init

    for check, words in {"fp": floats, "init": init}.items():
        if words is not None and check not in chosen.checks:
            raise LuthierError(f"--{check} needs the check {check}, which is not among {','.join(chosen.checks)}")
    asked_for = {
        "fp": kinds_of_floats((FLOATS if floats is None else floats).split(",")),
        "init": kinds_of_init((chosen.init if init is None else init).split(",")),
    }
    kinds = [asked_for[check] if check in asked_for else kinds_of_check(check) for check in chosen.checks]
    return frozenset[str]().union(*kinds)


def unchecked_under_tools(checks: Sequence[str]) -> Sequence[str]:
    """Return those of these checks that do not see kernels changed by tools."""
    return [check for check in checks if CHECKS[check].observes]
