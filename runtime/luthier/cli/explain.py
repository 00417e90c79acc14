"""``luthier explain``: print what a finding means, how it arises and how to fix it."""

from __future__ import annotations

import argparse
import functools
from importlib.resources import files
from pathlib import Path

from luthier.cli.common import say_fitting
from luthier.errors import LuthierError
from luthier.findings.kinds import CHECKS, KINDS
from luthier.support.explanations import Explanation, explanations_in
from luthier.support.suggestions import did_you_mean
from luthier.support.wording import enumerated


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument(
        "topic",
        nargs="?",
        metavar="TOPIC",
        help="a rule of `luthier profile` and `luthier report`, a kind of finding of `luthier sanitize`, or a check; "
        "without it, all are listed",
    )


def run(args: argparse.Namespace) -> int:
    """Print the page of a topic, or list all topics."""
    from luthier.report.rules import RULES

    rules, checks = RULES.names(), tuple(CHECKS)
    if args.topic is None:
        for heading, topics in (
            ("rules of luthier profile and luthier report", rules),
            ("findings of luthier sanitize and luthier check", tuple(sorted(_pages()))),
            ("checks", checks),
        ):
            say_fitting(heading)
            width = max(map(len, topics))
            for topic in topics:
                say_fitting(f"  {topic:{width}}  {_page(topic).summary}")
        return 0
    known = (*rules, *sorted({*_pages(), *CHECKS}))
    if args.topic not in known:
        raise LuthierError(
            f"no topic {args.topic!r}{did_you_mean(args.topic, known)}; `luthier explain` lists all {len(known)}"
        )
    page = _page(args.topic)
    say_fitting(f"{args.topic}: {page.summary}\n\n{page.text}")
    return 0


@functools.cache
def _pages() -> dict[str, Path]:
    """Return the pages about findings of checks."""
    return explanations_in(Path(str(files("luthier.findings") / "explanations")))


def _page(topic: str) -> Explanation:
    """Return the page of a topic; a check has no page of its own: its kinds are listed."""
    from luthier.report.rules import RULES

    if topic in RULES.names():
        return Explanation.read(RULES.load(topic).explanation)
    if (path := _pages().get(topic)) is not None:
        return Explanation.read(path)
    labels = [label for label, kind in KINDS.items() if kind.check == topic]
    return Explanation(CHECKS[topic].purpose, f"Reports {enumerated(labels)}; `luthier explain` has a page for each.")
