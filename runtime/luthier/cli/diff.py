"""``luthier diff``: what is different between kernels of two code objects, or of two captured launches."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from luthier.cli.common import add_mangled_argument, print_json, shown_tables
from luthier.cli.replay_answers import DIFFERENT, EQUAL, IMPOSSIBLE, answer
from luthier.cli.replay_process import elsewhere, outcome, prepared, target_of
from luthier.cli.selection import add_kernel_argument, is_capture
from luthier.errors import LuthierError
from luthier.support.wording import counted
from luthier.terminal import say, say_text

if TYPE_CHECKING:
    from luthier.objects import CodeObject
    from luthier.report.code_diff import Measures

SCHEMA = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("a", metavar="A", help="code object, bundle, executable, or a capture (*.lcap)")
    parser.add_argument("b", metavar="B", nargs="?", help="another one, or a code object that A, a capture, is run by")
    parser.add_argument("--object", metavar="FILE", help="what A, a capture, is run by, in the place of B")
    parser.add_argument(
        "--target", metavar="ID", help="which code object of A where it holds several; of B too, unless --device"
    )
    parser.add_argument("--device", metavar="DEVICE", help="what B is for, or --object is run on, e.g. emu:gfx942")
    add_kernel_argument(parser)
    parser.add_argument("--all", action="store_true", help="also what is equal")
    add_mangled_argument(parser)
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    parser.epilog = "exit status: 0 equal, 1 different, 2 cannot be compared"


def run(args: argparse.Namespace) -> int:
    """Do what the command line asks for; the exit status."""
    try:
        return _compare(args)
    except LuthierError as problem:
        say_text(f"luthier diff: error: {problem}", file=sys.stderr)
        return IMPOSSIBLE


def _compare(args: argparse.Namespace) -> int:
    from luthier.report.code_diff import changed, differences, table

    if (args.b is None) == (args.object is None):
        raise LuthierError("give two things to compare: A and B, or a capture and --object")
    other = args.b or args.object
    told: dict[str, Any] | None = None
    if is_capture(args.a):
        one = _recorded(args.a, args.kernel)
        if args.b is not None and is_capture(args.b):
            two = _recorded(args.b, args.kernel)
        else:
            told, two = _replayed(args.a, other, args.device)
    elif args.object is not None or is_capture(other):
        raise LuthierError("a capture is compared with captures, or run by a code object: A must be one")
    else:
        one = _of_object(args.a, args.target, args.kernel)
        two = _of_object(other, target_of(args.device) or args.target, args.kernel)
    rows = differences(one, two)
    different = changed(rows)
    replayed = told is None or told["status"] == EQUAL
    if args.json:
        document: dict[str, Any] = {"schema": SCHEMA, "equal": replayed and not different}
        print_json({**document, "replay": told, **table(rows).to_json()})
    else:
        if told is not None:
            say_text(f"{args.a} by {other}: {told['what']}")
        shown = rows if args.all else different
        for text in shown_tables([table(shown)], args, sys.stdout) if shown else ():
            say_text(text)
        if not different:
            say(f"{len(rows)} values of {counted(len(one), 'kernel')} are equal")
    return EQUAL if replayed and not different else DIFFERENT


def _of_object(name: str, target: str | None, patterns: list[str]) -> dict[str, Measures]:
    from luthier.objects import load_object
    from luthier.objects.names import select
    from luthier.report.code_diff import measured

    object = load_object(name, target, kernels=patterns)
    return {kernel: measured(object, kernel) for kernel in select(list(object.kernels), patterns, file=object.name)}


def _recorded(name: str, patterns: list[str]) -> dict[str, Measures]:
    """Return the measures of a captured launch, as it was recorded."""
    from luthier.capture import read_capture
    from luthier.objects import CodeObject
    from luthier.objects.names import select

    capture = read_capture(name)
    told, counts = capture.manifest, capture.counts
    object = CodeObject(capture.object, told.object)
    select([told.kernel], patterns, file=name)
    columns = [counts[column].tolist() for column in ("address", "executions", "lanes")]
    return {told.kernel: _measured(object, told.kernel, columns)}


def _measured(object: CodeObject, kernel: str, columns: list[list[int]]) -> Measures:
    import numpy as np

    from luthier.report.code_diff import Executions, measured

    return measured(object, kernel, Executions(*(np.array(column, np.uint64) for column in columns)))


def _replayed(name: str, object: str, device: str | None) -> tuple[dict[str, Any], dict[str, Measures]]:
    """Run a capture by another code object; return what came of it, and its measures.

    Raises:
        LuthierError: it cannot be run.
    """
    told = elsewhere("luthier.cli.diff", {"file": name, "object": object, "device": device})
    if told["status"] == IMPOSSIBLE:
        raise LuthierError(told["what"], object=name)
    return told, {told["kernel"]: told.pop("measures")}


def _here(task: Mapping[str, Any]) -> dict[str, Any]:
    """Run a capture by another code object in this process."""
    from luthier.capture import read_capture

    capture = read_capture(task["file"])
    launch = prepared(capture, target_of(task["device"]), task["object"])
    done = launch.with_store(launch.run())
    columns = [done.counts[column].tolist() for column in ("address", "executions", "lanes")]
    measures = dict(_measured(launch.object, launch.kernel.name, columns))
    return {"kernel": launch.kernel.name, "measures": measures, **outcome(done)}


if __name__ == "__main__":
    answer(_here)
