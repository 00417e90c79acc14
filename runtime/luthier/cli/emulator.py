"""`luthier emulator`: what the emulated device can execute, and its cache of machine code."""

from __future__ import annotations

import argparse

from luthier.cache.folder import VARIABLE, cache_root
from luthier.cli.common import print_json
from luthier.cli.progress import Progress
from luthier.emulator.inspection.coverage import coverage, report
from luthier.emulator.native.store import store_file
from luthier.terminal import say, say_text

TARGETS = (
    *("gfx906", "gfx908", "gfx90a", "gfx942", "gfx950"),
    *("gfx1030", "gfx1100", "gfx1101", "gfx1102", "gfx1103", "gfx1150", "gfx1151", "gfx1200", "gfx1201"),
)
"""Targets that are reported when none is named."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    actions = parser.add_subparsers(dest="action", required=True)
    show = actions.add_parser("coverage", help="operations that LLVM knows, per target: exact, bounded, refused")
    show.add_argument("targets", nargs="*", metavar="TARGET", help="e.g. gfx942; all supported ones if none is given")
    show.add_argument("--refused", action="store_true", help="name every refused operation with the reason")
    show.add_argument("--json", action="store_true", help="a JSON list, one entry a target")
    cache = actions.add_parser("cache", help="where machine code is kept")
    cache.add_argument("--clear", action="store_true", help="remove it")


def run(args: argparse.Namespace) -> int:
    """Print the report, or deal with the cache."""
    if args.action == "coverage":
        return _coverage(args)
    file = store_file()
    if file is None:
        say(
            f"no cache: {VARIABLE} is empty, or no home folder is known"
            if cache_root() is None
            else "no cache: its folder cannot be used"
        )
    elif args.clear:
        for old in file.parent.glob("*.sqlite*"):
            old.unlink(missing_ok=True)
        say(f"emptied {file.parent}")
    else:
        say(f"{file}: {file.stat().st_size / 1e6 if file.exists() else 0:.1f} MB")
    return 0


def _coverage(args: argparse.Namespace) -> int:
    found = []
    for target in args.targets or TARGETS:
        with Progress("covering") as progress:
            progress.step(str(target))
            found.append(coverage(target))
        if not args.json:
            say_text(report(found[-1], names=args.refused), flush=True)
    if args.json:
        print_json([result.to_json() for result in found])
    return 0
