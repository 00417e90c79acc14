"""``luthier minimise``: reduce a failing captured launch to the smallest that still fails."""

from __future__ import annotations

import argparse
from pathlib import Path

from luthier.cli.captures import add_object_argument, checks_of
from luthier.cli.findings import check_option
from luthier.cli.options import add_earlier_spelling, add_option
from luthier.cli.run import seconds
from luthier.errors import LuthierError
from luthier.replay.jobs import ReplayStatus
from luthier.support.files import check_writable
from luthier.terminal import say, say_text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("file", metavar="FILE", help="a capture whose replay fails")
    parser.add_argument("-o", "--output", required=True, metavar="OUT", help="file for the smaller capture")
    add_object_argument(parser, "as for `luthier replay`; results are compared with those of the recorded code")
    parser.add_argument("--device", metavar="DEVICE", help="as for `luthier replay`")
    add_option(parser, check_option(help="as for `luthier replay`; the first finding must remain"), default=[])
    budget = parser.add_argument(
        "--budget",
        type=seconds,
        default=600,
        metavar="SECONDS",
        help="write the smallest capture found in this time (default: 600)",
    )
    add_earlier_spelling(parser, "--time-limit", budget)


def run(args: argparse.Namespace) -> int:
    """Run the command and return its exit status."""
    from luthier.replay.minimising import Minimise
    from luthier.replay.processes import done_elsewhere

    if not Path(args.file).is_file():
        raise LuthierError("there is no such file", object=args.file)
    check_writable(args.output)
    row = done_elsewhere(
        Minimise(
            file=args.file,
            output=args.output,
            object=args.with_object,
            device=args.device,
            checks=checks_of(args.check),
            seconds=args.budget,
        )
    )
    if row.status == ReplayStatus.IMPOSSIBLE:
        raise LuthierError(row.what)
    say_text(f"{row.failure}: {row.what}")
    for what, (before, after) in row.sizes.items():
        say(f"{what}: {before} -> {after}")
    say(f"{row.tries} launches were tried")
    return 0
