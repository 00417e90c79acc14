"""``luthier export``: a captured launch as a program of its own."""

from __future__ import annotations

import argparse

from luthier.errors import LuthierError
from luthier.support.wording import counted
from luthier.terminal import say, say_text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("file", metavar="FILE", help="a capture")
    parser.add_argument("--hip", action="store_true", required=True, help="as a HIP program, with its data")
    parser.add_argument("-o", "--output", required=True, metavar="DIR", help="a new or empty folder for it")
    parser.add_argument(
        "--relocate",
        action="store_true",
        help="take words of memory that look like addresses of the launch's memory for pointers, and change them as "
        "memory moves; without it a launch with such words is refused",
    )


def run(args: argparse.Namespace) -> int:
    """Do what the command line asks for; the exit status."""
    from luthier.capture import read_capture
    from luthier.capture.export import COMPILE, export_hip

    capture = read_capture(args.file)
    try:
        made = export_hip(capture, args.output, relocate=args.relocate)
    except LuthierError as problem:
        raise LuthierError(problem.message, object=args.file, kernel=problem.kernel) from None
    bytes = sum(one.size for one in made.buffers)
    say_text(f"{args.output}: {capture.manifest.kernel}, {counted(len(made.buffers), 'buffer')} of {bytes} bytes")
    if made.pointers:
        say(f"{made.pointers} words of memory are taken for pointers")
    say_text(f"{COMPILE} && ./launch")
    return 0
