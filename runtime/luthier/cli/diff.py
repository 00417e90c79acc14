"""``luthier diff``: compare kernels of two code objects, or two captured launches."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from luthier.cli.captures import add_object_argument
from luthier.cli.common import STANDARD_OUTPUT, add_json_argument, add_mangled_argument, put_json, shown_tables
from luthier.cli.selection import add_kernel_argument, is_capture
from luthier.errors import LuthierError
from luthier.replay.jobs import ReplayStatus, target_of
from luthier.support.wording import counted
from luthier.terminal import say, say_text

if TYPE_CHECKING:
    from luthier.replay.measures import MeasuredOutcome
    from luthier.report.code_diff import Measures

SCHEMA = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("a", metavar="A", help="code object, bundle, executable, or a capture (*.lcap)")
    parser.add_argument("b", metavar="B", nargs="?", help="second input, or a code object with which to replay A")
    add_object_argument(parser, "code object with which to replay the capture A, instead of B")
    parser.add_argument(
        "--target", metavar="ID", help="target to choose in A, if A has several; also in B, unless --device is given"
    )
    parser.add_argument("--device", metavar="DEVICE", help="device of B, or device for the replay, e.g. emu:gfx942")
    add_kernel_argument(parser)
    parser.add_argument("--all", action="store_true", help="also print equal values")
    add_mangled_argument(parser)
    add_json_argument(parser, "everything")
    parser.epilog = "exit status: 0 equal, 1 different, 2 not comparable"


def run(args: argparse.Namespace) -> int:
    """Run the command and return its exit status."""
    try:
        return _compare(args)
    except LuthierError as problem:
        say_text(f"luthier diff: error: {problem}", file=sys.stderr)
        return ReplayStatus.IMPOSSIBLE


def _compare(args: argparse.Namespace) -> int:
    from luthier.report.code_diff import changed, differences, table

    if (args.b is None) == (args.with_object is None):
        raise LuthierError("two inputs are needed: A and B, or a capture and --with-object")
    other = args.b or args.with_object
    replay: MeasuredOutcome | None = None
    if is_capture(args.a):
        left = _recorded(args.a, args.kernel)
        if args.b is not None and is_capture(args.b):
            right = _recorded(args.b, args.kernel)
        else:
            replay = _replayed(args.a, other, args.device)
            right = {str(replay.kernel): replay.measures}
    elif args.with_object is not None or is_capture(other):
        raise LuthierError("only captures can be compared with captures or replayed: A must be a capture")
    else:
        left = _of_object(args.a, args.target, args.kernel)
        right = _of_object(other, target_of(args.device) or args.target, args.kernel)
    rows = differences(left, right)
    different = changed(rows)
    equal = not different and (replay is None or replay.status == ReplayStatus.EQUAL)
    if args.json:
        document: dict[str, Any] = {"schema": SCHEMA, "equal": equal, "replay": None}
        if replay is not None:
            document["replay"] = {name: value for name, value in replay.to_json().items() if name != "measures"}
        put_json(args.json, {**document, **table(rows).to_json()})
    if args.json != STANDARD_OUTPUT:
        if replay is not None:
            say_text(f"{args.a} by {other}: {replay.what}")
        shown = rows if args.all else different
        for text in shown_tables([table(shown)], sys.stdout, mangled=args.mangled) if shown else ():
            say_text(text)
        if not different:
            say(f"{len(rows)} values of {counted(len(left), 'kernel')} are equal")
    return ReplayStatus.EQUAL if equal else ReplayStatus.DIFFERENT


def _of_object(name: str, target: str | None, patterns: list[str]) -> dict[str, Measures]:
    from luthier.objects import load_object
    from luthier.objects.names import select
    from luthier.report.code_diff import measured

    object = load_object(name, target, kernels=patterns)
    return {kernel: measured(object, kernel) for kernel in select(list(object.kernels), patterns, file=object.name)}


def _recorded(name: str, patterns: list[str]) -> dict[str, Measures]:
    """Return the recorded measures of a captured launch."""
    from luthier.capture import read_capture
    from luthier.objects.names import select
    from luthier.replay.measures import recorded_measures

    capture = read_capture(name)
    kernel = capture.manifest.kernel
    select([kernel], patterns, file=name)
    return {kernel: recorded_measures(capture)}


def _replayed(name: str, object: str, device: str | None) -> MeasuredOutcome:
    """Replay a capture with another code object and measure it.

    Raises:
        LuthierError: it cannot be replayed.
    """
    from luthier.replay.measures import Measure
    from luthier.replay.processes import done_elsewhere

    row = done_elsewhere(Measure(file=name, object=object, device=device))
    if row.status == ReplayStatus.IMPOSSIBLE:
        raise LuthierError(row.what, object=name)
    return row
