"""`luthier emulator`: report what the emulated device can execute, and compile operations ahead of time."""

from __future__ import annotations

import argparse
import sys

from luthier.cli.common import STANDARD_OUTPUT, add_json_argument, put_json
from luthier.cli.progress import ProgressLine
from luthier.cli.selection import add_kernel_argument
from luthier.errors import CacheError, LuthierError
from luthier.support.wording import counted
from luthier.terminal import say, say_text, visible

TARGETS = (
    *("gfx906", "gfx908", "gfx90a", "gfx942", "gfx950"),
    *("gfx1030", "gfx1100", "gfx1101", "gfx1102", "gfx1103", "gfx1150", "gfx1151", "gfx1200", "gfx1201"),
)
"""Targets of the report if none is named."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    actions = parser.add_subparsers(dest="action", required=True)
    show = actions.add_parser("coverage", help="count the operations of each target: exact, bounded in error, refused")
    show.add_argument("targets", nargs="*", metavar="TARGET", help="e.g. gfx942 (default: all supported targets)")
    show.add_argument("--refused", action="store_true", help="list refused operations with the reasons")
    add_json_argument(show, "an entry for each target")
    cache = actions.add_parser("cache")  # the spelling of `luthier cache` in earlier versions
    cache.add_argument("--clear", action="store_true")
    ahead = actions.add_parser(
        "compile", help="compile the operations of kernels into the cache, so that first launches are fast"
    )
    ahead.add_argument("files", nargs="+", metavar="FILE", help="as for `luthier objects`")
    add_kernel_argument(ahead)


def run(args: argparse.Namespace) -> int:
    """Run the command and return its exit status."""
    if args.action == "coverage":
        return _coverage(args)
    if args.action == "compile":
        return _compile(args)
    say("luthier emulator cache: use `luthier cache [clear] emulator` instead", file=sys.stderr)
    from luthier.cli import cache

    return cache.run(argparse.Namespace(action="clear" if args.clear else "show", names=[], size=False, json=None))


def _compile(args: argparse.Namespace) -> int:
    from luthier.emulator.ahead import compile_ahead  # slow to import
    from luthier.emulator.native.store import store_file
    from luthier.objects import load_objects
    from luthier.objects.names import is_selected, select

    if store_file() is None:
        raise CacheError("there is no cache to store compiled operations: set LUTHIER_CACHE_DIR to a folder")
    objects = [found for file in args.files for found in load_objects(file)]
    select([name for found in objects for name in found.kernels], args.kernel, file=", ".join(args.files))
    compiled = skipped = 0
    with ProgressLine("compiling", len(objects)) as progress:
        for object in objects:
            progress.step(object.name)
            kernels = [one for name, one in object.kernels.items() if is_selected(name, args.kernel)]
            try:
                compiled += compile_ahead(object, kernels)
            except LuthierError as problem:
                skipped += 1
                say(f"luthier emulator: {visible(object.name)}: {problem}", file=sys.stderr)
    say(f"{counted(compiled, 'operation')} compiled; the others were already in the cache")
    return 1 if skipped == len(objects) else 0


def _coverage(args: argparse.Namespace) -> int:
    from luthier.emulator.inspection.coverage import coverage, report  # slow to import

    results = []
    for target in args.targets or TARGETS:
        with ProgressLine("covering") as progress:
            progress.step(str(target))
            results.append(coverage(target))
        if args.json != STANDARD_OUTPUT:
            say_text(report(results[-1], names=args.refused), flush=True)
    if args.json:
        put_json(args.json, [result.to_json() for result in results])
    return 0
