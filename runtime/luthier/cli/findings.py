"""Findings of checks on the command line: which are wanted, and how they are told."""

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
"""Exit code where something was found."""
HELP = "; ".join(f"{check}: {what}" for check, what in CHECKS.items())
"""What the checks are."""


FLOATS, INIT = "nan,inf", "reads"
"""Words that ``--fp`` and ``--init`` stand for where these are not given: then they are None."""


def _exit_code(text: str) -> int:
    if not text.isdecimal() or int(text) > 255:
        raise argparse.ArgumentTypeError(f"{text!r} is no exit code from 0 to 255")
    return int(text)


def check_names(text: str) -> list[str]:
    """Return the checks of an argument by their present names; say so of earlier names."""
    names = comma_separated(text)
    for name in sorted(EARLIER_CHECKS.keys() & set(names)):
        say(f"luthier: the check {name} is now called {EARLIER_CHECKS[name]}", file=sys.stderr)
    return [EARLIER_CHECKS.get(name, name) for name in names]


def check_option(**more: Any) -> Any:
    """Return the field of ``--check``; arguments as of `option`."""
    return option("--check", default=[], action="extend", type=check_names, metavar="CHECK[,CHECK]", **more)


class FindingOptions(CommandOptions):
    """Options about what checks find."""

    fp: str | None = option(
        "--fp",
        metavar="KIND[,KIND]",
        help="floats that the check fp tells of: nan, inf, denormal where no operand is exceptional; flow: where one "
        f"is, too (default: {FLOATS})",
    )
    init: str | None = option(
        "--init",
        metavar="KIND[,KIND]",
        help="what the check init tells of: reads of what was never written; decisions: branches, addresses and masks "
        "of lanes that follow from it, also from registers and scratch; copies: what of it is copied to the host "
        f"(default: {INIT})",
    )
    suppress: list[str] = option(
        "--suppress",
        action="append",
        default=[],
        metavar="FILE",
        help="leave findings out that the file's lines fit; repeatable",
    )
    gen_suppressions: str | None = option(
        "--gen-suppressions", metavar="FILE", help="write lines that would leave all findings out"
    )
    sarif: str | None = option("--sarif", metavar="FILE", help="write the findings as SARIF 2.1.0")
    error_exitcode: int = option(
        "--error-exitcode",
        type=_exit_code,
        default=FOUND,
        metavar="N",
        help="exit code where something was found; 0: the program's (default: %(default)s)",
    )


class Findings:
    """Findings of a run on their way to the user: what is wanted, what is left out, and the files.

    Args:
        checks: names.
        options: of the command line.

    Raises:
        LuthierError: a name or a suppression is wrong, or a file cannot be written.
    """

    def __init__(self, checks: Sequence[str], options: FindingOptions) -> None:
        from luthier.findings import suppressions

        self._options = options
        self._left_out = [line for path in options.suppress for line in suppressions.read(path)]
        for path in filter(None, (options.sarif, options.gen_suppressions)):
            check_writable(path)
        self.collector = collector_of(checks, options.fp, options.init)

    @property
    def told(self) -> list[Finding]:
        """Return what was found and is not left out."""
        return [one for one in self.collector.findings if not any(each.fits(one) for each in self._left_out)]

    def to_json(self) -> dict[str, Any]:
        """Return what was found, and what was not checked, as plain data."""
        return {
            "findings": [one.to_json() for one in self.told],
            "not_checked": [one.to_json() for one in self.collector.unchecked],
        }

    def tell(self, unfinished: str = "") -> int:
        """Print the findings and write them to their files; the exit code for them, 0 if the program's counts.

        Args:
            unfinished: what the run was ended before; empty: nothing.
        """
        from luthier import __version__
        from luthier.findings import suppressions
        from luthier.findings.sarif import sarif
        from luthier.findings.text import sentences

        told, options = self.told, self._options
        tell(told, len(self.collector.findings) - len(told), unfinished)
        notes = sentences(self.collector.unchecked)
        for note in notes:
            say_text(f"luthier: not checked: {note}", file=sys.stderr)
        if options.sarif:
            write_atomically(options.sarif, f"{json.dumps(sarif(told, __version__, notes), indent=2)}\n".encode())
        if options.gen_suppressions:
            write_atomically(options.gen_suppressions, suppressions.generate(told).encode())
        return options.error_exitcode if told else 0


def collector_of(checks: Sequence[str], floats: str | None, init: str | None) -> Collector:
    """Return what takes the findings of checks.

    Args:
        checks: their names.
        floats: the words of ``--fp``, separated by commas; None if it is not given.
        init: those of ``--init``.

    Raises:
        LuthierError: there is no such check, or no such word, or no check that it is about.
    """
    from luthier.findings.floats import kinds_of_floats
    from luthier.findings.kinds import kinds_of_check, kinds_of_init
    from luthier.run.findings.collector import Collector

    checks = named_checks(checks)
    for check, words in {"fp": floats, "init": init}.items():
        if words is not None and check not in checks:
            raise LuthierError(
                f"--{check} is about what the check {check} finds, which is not among {','.join(checks)}"
            )
    asked_for = {
        "fp": kinds_of_floats((FLOATS if floats is None else floats).split(",")),
        "init": kinds_of_init((INIT if init is None else init).split(",")),
    }
    kinds = [asked_for[check] if check in asked_for else kinds_of_check(check) for check in checks]
    return Collector(frozenset[str]().union(*kinds))


def unchecked_under_tools(checks: Sequence[str]) -> Sequence[str]:
    """Return which of these checks do not see kernels that tools have changed."""
    return [check for check in checks if check not in ("memory", "leak", "host")]


def tell(findings: Sequence[Finding], suppressed: int = 0, unfinished: str = "") -> None:
    """Print findings, on standard error, and what the run was ended before."""
    from luthier.findings.text import lines_of

    for finding in findings:
        say_text("\n".join(f"luthier: {line}" for line in lines_of(finding)), file=sys.stderr)
    more = f", {suppressed} suppressed" if suppressed else ""
    more += f"; the run was ended before {unfinished} had ended" if unfinished else ""
    say(f"luthier: {counted(len(findings), 'finding')}{more}", file=sys.stderr)
