"""Parts of the sub-commands that replay captures."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import replace

from luthier.cli.options import add_earlier_spelling, add_option, option
from luthier.cli.progress import ProgressLine
from luthier.cli.selection import CAPTURE
from luthier.errors import LuthierError
from luthier.replay.jobs import CaptureJob, ReplayOutcome
from luthier.terminal import say, say_text

if TYPE_CHECKING:
    from luthier.run.captures import Captures

Row = TypeVar("Row", bound=ReplayOutcome)
ONLY_LAUNCHES = "captures are of launches, not of programs"
"""Why captures do not have a check."""


def scheduler_option() -> Any:
    """Declare ``--scheduler``."""
    return option(
        "--scheduler",
        metavar="ADDRESS",
        help="replay in parallel on the workers of this Dask scheduler (tcp://...), or with `local` on this machine",
    )


def add_scheduler_argument(parser: argparse.ArgumentParser) -> None:
    """Add ``--scheduler`` to a parser."""
    add_option(parser, scheduler_option())


def add_object_argument(parser: argparse.ArgumentParser, help: str) -> None:
    """Add ``--with-object``, a file whose kernel replaces the recorded one."""
    action = parser.add_argument("--with-object", metavar="FILE", help=help)
    add_earlier_spelling(parser, "--object", action)


def captures_of(names: Sequence[str]) -> list[Path]:
    """Return the captures in files and folders.

    Raises:
        LuthierError: a folder has no captures.
    """
    paths: list[Path] = []
    for name in names:
        path = Path(name)
        inside = sorted(path.glob(f"*{CAPTURE}")) if path.is_dir() else [path]
        if not inside:
            raise LuthierError(f"no captures (*{CAPTURE}) in the folder", object=name)
        paths += inside
    return paths


def checks_of(names: Sequence[str]) -> tuple[str, ...]:
    """Return the emulated device's checks that ``--check`` chooses; none if it is not given.

    Checks of a set that captures cannot have, and what else replays do not look for, are printed.

    Raises:
        LuthierError: there is no such check.
    """
    from luthier.findings.kinds import DEVICE_CHECKS, INIT, chosen_checks

    if not names:
        return ()
    chosen = chosen_checks(names, DEVICE_CHECKS)
    if chosen.impossible:
        say(f"luthier: not checked: {', '.join(chosen.impossible)}: {ONLY_LAUNCHES}", file=sys.stderr)
    if "init" in chosen.checks and chosen.init != INIT:
        say("luthier: not checked: init of decisions (luthier sanitize has it for captures)", file=sys.stderr)
    return chosen.checks


def outcomes(job: CaptureJob[Row], paths: Sequence[Path], scheduler: str | None, limit: float | None) -> Iterator[Row]:
    """Run a job on each capture and yield the outcomes in order.

    Args:
        scheduler: address of a cluster that runs them in parallel (`luthier.replay.cluster`); None: this machine.
        limit: seconds for each capture.
    """
    if scheduler is None:
        from luthier.replay.processes import replayed_elsewhere

        for path in paths:
            yield replayed_elsewhere(replace(job, file=str(path)), limit)
        return
    from luthier.replay.cluster import cluster, outcomes_on

    with cluster(scheduler) as client, ProgressLine("replaying", len(paths)) as progress:
        for row in outcomes_on(client, paths, job, limit):
            progress.step(Path(row.file).name)
            yield row


def reduce_captures(captures: Captures) -> list[Path]:
    """Replay new captures and remove memory that they do not access (`luthier.replay.reduction.reduce`); return the
    remaining files."""
    from luthier.replay.reduction import reduce

    with ProgressLine("replaying", len(captures.files)) as progress:
        return reduce(captures, progress.step)


def tell_refused(captures: Captures) -> None:
    """Print which launches were not captured, and why."""
    for text in captures.refused:
        say_text(f"luthier capture: not captured: {text}", file=sys.stderr)
