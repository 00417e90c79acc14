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
from luthier.terminal import say_text

if TYPE_CHECKING:
    from luthier.run.captures import Captures

_ALL = "all"
"""Every check of the emulated device."""
Row = TypeVar("Row", bound=ReplayOutcome)


def scheduler_option() -> Any:
    """Return the field of ``--scheduler``."""
    return option(
        "--scheduler",
        metavar="ADDRESS",
        help="replay side by side, on the workers of this scheduler of Dask (tcp://...), or `local`, on this machine",
    )


def add_scheduler_argument(parser: argparse.ArgumentParser) -> None:
    """Declare ``--scheduler``."""
    add_option(parser, scheduler_option())


def add_object_argument(parser: argparse.ArgumentParser, help: str) -> None:
    """Declare ``--with-object``, a file whose kernel runs in place of the recorded one."""
    action = parser.add_argument("--with-object", metavar="FILE", help=help)
    add_earlier_spelling(parser, "--object", action)


def captures_of(names: Sequence[str]) -> list[Path]:
    """Return the captures that arguments name.

    Raises:
        LuthierError: a folder has none.
    """
    paths: list[Path] = []
    for name in names:
        path = Path(name)
        inside = sorted(path.glob(f"*{CAPTURE}")) if path.is_dir() else [path]
        if not inside:
            raise LuthierError("no captures in the folder", object=name)
        paths += inside
    return paths


def checks_of(names: Sequence[str]) -> tuple[str, ...]:
    """Return the checks of ``--check`` of an emulated device.

    Args:
        names: as they were given.

    Raises:
        LuthierError: there is no such check.
    """
    if not names:
        return ()
    from luthier.emulator.inspection.checks import DEVICE_CHECKS
    from luthier.findings.kinds import named_checks

    every = DEVICE_CHECKS if _ALL in names else ()
    return named_checks([*every, *(name for name in names if name != _ALL)], (*DEVICE_CHECKS, _ALL))


def outcomes(job: CaptureJob[Row], paths: Sequence[Path], scheduler: str | None, limit: float | None) -> Iterator[Row]:
    """Yield the outcome of a job on each capture, in their order.

    Args:
        scheduler: address of a cluster that does them side by side (`luthier.replay.cluster`); None: this machine.
        limit: seconds that each may take.
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
    """Replay new captures and write them without what they did not access (`luthier.replay.reduction.reduce`); return
    the files that are left."""
    from luthier.replay.reduction import reduce

    with ProgressLine("replaying", len(captures.files)) as progress:
        return reduce(captures, progress.step)


def tell_refused(captures: Captures) -> None:
    """Say which launches were not captured, and why."""
    for text in captures.refused:
        say_text(f"luthier capture: not captured: {text}", file=sys.stderr)
