"""Command-line options of checks, and printing and writing of findings."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from luthier.cli.options import CommandOptions, comma_separated, option
from luthier.errors import LuthierError
from luthier.findings.kinds import CHECKS, EARLIER_CHECKS, named_checks
from luthier.support.files import check_writable, write_atomically
from luthier.support.wording import counted
from luthier.terminal import say, say_text

if TYPE_CHECKING:
    from luthier.findings.finding import Finding
    from luthier.run.findings.collector import Collector

FOUND = 1
"""Default exit code if something was found."""
HELP = "; ".join(f"{check}: {what}" for check, what in CHECKS.items())
"""Help on the checks."""


FLOATS, INIT = "nan,inf", "reads"
"""Defaults of ``--fp`` and ``--init``. The options are None if they are not given."""


def _exit_code(text: str) -> int:
    if not text.isdecimal() or int(text) > 255:
        raise argparse.ArgumentTypeError(f"{text!r} is not an exit code from 0 to 255")
    return int(text)


def check_names(text: str) -> list[str]:
    """Parse names of checks; replace earlier names and print a note about them."""
    names = comma_separated(text)
    for name in sorted(EARLIER_CHECKS.keys() & set(names)):
        say(f"luthier: the check {name} is now named {EARLIER_CHECKS[name]}", file=sys.stderr)
    return [EARLIER_CHECKS.get(name, name) for name in names]


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
        f"such memory to the host (default: {INIT})",
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
        checks: names.
        options: options of the command line.

    Raises:
        LuthierError: a check or a suppression is invalid, or a file cannot be written.
    """

    def __init__(self, checks: Sequence[str], options: FindingOptions) -> None:
        from luthier.findings import suppressions

        self._options = options
        self._left_out = [line for path in options.suppress for line in suppressions.read(path)]
        for path in filter(None, (options.sarif, options.gen_suppressions)):
            check_writable(path)
        self.collector = collector_of(checks, options.fp, options.init)

    @property
    def shown(self) -> list[Finding]:
        """Return the findings that are not suppressed."""
        return [one for one in self.collector.findings if not any(each.fits(one) for each in self._left_out)]

    def to_json(self) -> dict[str, Any]:
        """Return the findings, and what was not checked, as plain data."""
        return {
            "findings": [one.to_json() for one in self.shown],
            "not_checked": [one.to_json() for one in self.collector.unchecked],
        }

    def tell(self, unfinished: str = "") -> int:
        """Print the findings and write their files; return the exit code, 0 for that of the program.

        Args:
            unfinished: what the run was ended before; "" if it was not.
        """
        from luthier import __version__
        from luthier.findings import suppressions
        from luthier.findings.sarif import sarif
        from luthier.findings.text import sentences

        findings, options = self.shown, self._options
        tell(findings, len(self.collector.findings) - len(findings), unfinished)
        notes = sentences(self.collector.unchecked)
        for note in notes:
            say_text(f"luthier: not checked: {note}", file=sys.stderr)
        if options.sarif:
            write_atomically(options.sarif, f"{json.dumps(sarif(findings, __version__, notes), indent=2)}\n".encode())
        if options.gen_suppressions:
            write_atomically(options.gen_suppressions, suppressions.generate(findings).encode())
        return options.error_exitcode if findings else 0


def collector_of(checks: Sequence[str], floats: str | None, init: str | None) -> Collector:
    """Return a collector for the findings of these checks.

    Args:
        checks: names of the checks.
        floats: value of ``--fp``; None if it is not given.
        init: value of ``--init``.

    Raises:
        LuthierError: there is no such check or word, or an option is given without its check.
    """
    from luthier.findings.floats import kinds_of_floats
    from luthier.findings.kinds import kinds_of_check, kinds_of_init
    from luthier.run.findings.collector import Collector

    checks = named_checks(checks)
    for check, words in {"fp": floats, "init": init}.items():
        if words is not None and check not in checks:
            raise LuthierError(f"--{check} needs the check {check}, which is not among {','.join(checks)}")
    asked_for = {
        "fp": kinds_of_floats((FLOATS if floats is None else floats).split(",")),
        "init": kinds_of_init((INIT if init is None else init).split(",")),
    }
    kinds = [asked_for[check] if check in asked_for else kinds_of_check(check) for check in checks]
    return Collector(frozenset[str]().union(*kinds))


def unchecked_under_tools(checks: Sequence[str]) -> Sequence[str]:
    """Return those of these checks that do not see kernels changed by tools."""
    return [check for check in checks if check not in ("memory", "leak", "host")]


def tell(findings: Sequence[Finding], suppressed: int = 0, unfinished: str = "") -> None:
    """Print findings on standard error, and what the run was ended before."""
    from luthier.findings.text import lines_of

    for finding in findings:
        say_text("\n".join(f"luthier: {line}" for line in lines_of(finding)), file=sys.stderr)
    more = f", {suppressed} suppressed" if suppressed else ""
    more += f"; the run was stopped before {unfinished} ended" if unfinished else ""
    say(f"luthier: {counted(len(findings), 'finding')}{more}", file=sys.stderr)
