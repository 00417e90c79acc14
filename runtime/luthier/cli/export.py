"""``luthier export``: write a captured launch as a program of its own."""

from __future__ import annotations

import argparse

from luthier.errors import LuthierError
from luthier.support.wording import counted
from luthier.terminal import say, say_text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("file", metavar="FILE", help="a capture")
    parser.add_argument("--hip", action="store_true", required=True, help="write a HIP program and its data")
    parser.add_argument("-o", "--output", required=True, metavar="DIR", help="new or empty folder for the program")
    parser.add_argument(
        "--relocate",
        action="store_true",
        help="treat words of memory that look like addresses of the launch's memory as pointers, and adjust them to "
        "where the memory is now; without it, a launch with such words is refused",
    )


def run(args: argparse.Namespace) -> int:
    """Run the command and return its exit status."""
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
        say(f"{made.pointers} words of memory are treated as pointers")
    say_text(f"{COMPILE} && ./launch")
    return 0
