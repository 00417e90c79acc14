"""Findings of checks on the command line: which are wanted, and how they are told."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from luthier.errors import LuthierError
from luthier.terminal import say, say_text

if TYPE_CHECKING:
    from luthier.run.findings.collector import Collector
    from luthier.run.findings.finding import Finding

FOUND = 1
"""Exit code where something was found."""
HELP = (
    "memory: bounds of allocations, use after free, bad frees; leak: memory never given back; race: accesses that "
    "nothing orders; init: reads of what was never written; barrier: barriers that lanes skip; early-exit: waves "
    "that end before a barrier that others come to, which hardware allows; waits: registers used before a wait; "
    "hazards: missing wait states; fp: what makes NaN and infinities"
)
"""What the checks are."""


def add_floats_argument(parser: argparse.ArgumentParser) -> None:
    """Declare the option that says what the check ``fp`` tells of."""
    parser.add_argument(
        "--fp",
        default="nan,inf",
        metavar="KIND[,KIND]",
        help="floats that the check fp tells of: nan, inf, denormal where no operand is exceptional; flow: where one "
        "is, too (default: %(default)s)",
    )


def collector_of(checks: str, floats: str) -> Collector:
    """Return what takes the findings of checks.

    Args:
        checks: their names, separated by commas.
        floats: the words of ``--fp``, likewise.

    Raises:
        LuthierError: there is no such check, or no such word.
    """
    from luthier.run.findings.collector import Collector
    from luthier.run.findings.finding import CHECKS
    from luthier.run.findings.floats import kinds_of

    unknown = [check for check in checks.split(",") if check not in CHECKS]
    if unknown:
        raise LuthierError(f"there is no check {unknown[0]!r}: {', '.join(CHECKS)}")
    exceptional = kinds_of(floats.split(","))
    kinds = [exceptional if check == "fp" else CHECKS[check] for check in checks.split(",")]
    return Collector(frozenset[str]().union(*kinds))


def unchecked_under_tools(checks: str) -> Sequence[str]:
    """Return which of these checks do not see kernels that tools have changed."""
    return [check for check in checks.split(",") if check not in ("memory", "leak")]


def tell(findings: Sequence[Finding], suppressed: int = 0) -> None:
    """Print findings, on standard error."""
    for finding in findings:
        say_text("\n".join(f"luthier: {line}" for line in finding.lines()), file=sys.stderr)
    more = f", {suppressed} suppressed" if suppressed else ""
    say(f"luthier: {len(findings)} findings{more}", file=sys.stderr)
