"""``luthier replay``: run captured launches again, without the program and ROCm."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from luthier.cli.captures import add_object_argument, add_scheduler_argument, captures_of, checks_of, outcomes
from luthier.cli.common import (
    STANDARD_OUTPUT,
    add_hoist_argument,
    add_json_argument,
    add_mangled_argument,
    add_tool_argument,
    put_json,
)
from luthier.cli.findings import check_option
from luthier.cli.options import add_option
from luthier.cli.run import seconds
from luthier.errors import LuthierError
from luthier.findings.kinds import DEVICE_CHECKS
from luthier.replay.jobs import ReplayOutcome, is_gpu
from luthier.support.private_folder import private_folder
from luthier.terminal import say, say_text, visible

_SHOWN = 4
"""Number of work-groups listed."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("files", nargs="+", metavar="FILE", help="captures, or folders of them")
    parser.add_argument(
        "--device",
        metavar="DEVICE",
        help="e.g. emu:gfx942, or a GPU: hip:0 (default: an emulated device of the capture's target)",
    )
    parser.add_argument(
        "--relocate",
        action="store_true",
        help="on a GPU, where memory has other addresses: treat words of memory that look like addresses of the "
        "launch's memory as pointers; without it, a launch with such words is refused",
    )
    parser.add_argument("--times", type=int, default=1, metavar="N", help="number of runs of each launch (default: 1)")
    add_object_argument(
        parser, "run the kernel of this code object, bundle or executable instead; --device selects the target"
    )
    parser.add_argument(
        "--against",
        metavar="FILE|N=FILE",
        help="FILE: compare the memory that arguments point to with that in another capture of the launch; N=FILE: the "
        "memory that argument N (from 0) points to with the bytes of a file, and the rest with the recording",
    )
    add_tool_argument(parser, required=False)
    add_hoist_argument(parser)
    parser.add_argument(
        "-o", "--output", metavar="RUN", help="with tools: new folder for their results, for `luthier report`"
    )
    add_mangled_argument(parser)
    parser.add_argument(
        "--time-limit",
        type=seconds,
        metavar="SECONDS",
        help="stop a replay after this time; its launch then counts as one that cannot be run",
    )
    add_scheduler_argument(parser)
    parser.add_argument(
        "--split",
        type=int,
        metavar="N",
        help="run each launch as N ranges of work-groups, with --scheduler in parallel; refused if a range writes what "
        "another accesses",
    )
    add_json_argument(parser, "the results")
    add_option(
        parser,
        check_option(help=f"run these checks of the emulated device: {', '.join(DEVICE_CHECKS)}, or all"),
        default=[],
    )
    parser.epilog = (
        "exit status: 0 all results equal the recorded ones, 1 a difference, fault or finding, 2 a launch cannot be run"
    )


def run(args: argparse.Namespace) -> int:
    """Run the command and return its exit status."""
    if args.times < 1:
        raise LuthierError(f"--times must be at least 1, not {args.times}")
    checks = checks_of(args.check)
    if is_gpu(args.device):
        _check_on_gpu(args)
    elif args.relocate:
        raise LuthierError("--relocate is for GPUs (--device hip:0): an emulated device keeps the addresses of memory")
    if args.split is not None:
        _check_split(args, checks)
    if args.tool:
        return _under_tools(args, checks)
    if args.output:
        raise LuthierError("-o is for results of tools: give a tool with -t")
    rows = []
    for row in _replays(args, checks):
        rows.append(row)
        if args.json != STANDARD_OUTPUT:
            _print(row)
    if args.json:
        put_json(args.json, [row.to_json() for row in rows])
    return max(row.status for row in rows)


def _files(args: argparse.Namespace) -> list[Path]:
    return [path for path in captures_of(args.files) for _ in range(args.times)]


def _replays(args: argparse.Namespace, checks: tuple[str, ...]) -> Iterator[ReplayOutcome]:
    from luthier.replay.launches import Replay
    from luthier.replay.ranges import ReplayRange, replays_in_ranges

    files = _files(args)
    if args.split is not None:
        part = ReplayRange(device=args.device, against=args.against)
        return replays_in_ranges(part, files, args.split, args.scheduler, args.time_limit)
    job = Replay(
        device=args.device, object=args.with_object, against=args.against, checks=checks, relocate=args.relocate
    )
    return outcomes(job, files, args.scheduler, args.time_limit)


def _check_on_gpu(args: argparse.Namespace) -> None:
    """Check that the options are available on GPUs.

    Raises:
        LuthierError: one is not.
    """
    for name in ("tool", "check", "with_object", "split", "scheduler"):
        if getattr(args, name):
            raise LuthierError(f"--{name.replace('_', '-')} is for emulated devices, not {args.device}")


def _check_split(args: argparse.Namespace, checks: Sequence[str]) -> None:
    """Check that the options can be combined with ``--split``.

    Raises:
        LuthierError: one cannot.
    """
    if args.split < 1:
        raise LuthierError(f"--split must be at least 1, not {args.split}")
    if args.tool or checks or args.with_object:
        raise LuthierError("--split runs the recorded code only: leave out -t, --check and --with-object")


def _under_tools(args: argparse.Namespace, checks: tuple[str, ...]) -> int:
    """Replay under tools, all captures in one process unless on a cluster; return the exit status."""
    from luthier.replay.processes import done_elsewhere
    from luthier.replay.tools import ReplayUnderTools
    from luthier.tool import parse_tools

    parse_tools(args.tool)  # fail before anything runs
    job = ReplayUnderTools(
        files=tuple(map(str, _files(args))),
        device=args.device,
        object=args.with_object,
        against=args.against,
        checks=checks,
        tools=tuple(args.tool),
        hoist=args.hoist,
        mangled=args.mangled,
        output=args.output,
    )
    if args.scheduler is None:
        outcome = done_elsewhere(job, args.time_limit)
    else:
        from luthier.replay.cluster import cluster, replayed_under_tools_on

        with cluster(args.scheduler) as client, private_folder() as folder:
            output = Path(args.output or folder / "run")
            outcome = replayed_under_tools_on(client, _files(args), job, args.time_limit, output)
    if args.json:
        put_json(args.json, msgspec.to_builtins(outcome))
    if args.json != STANDARD_OUTPUT:
        for row in outcome.replays:
            _print(row)
        for name, texts in outcome.sections:
            say(f"== {name}")
            for text in texts:
                say_text(text)
        for fault in outcome.faults:
            say_text(f"luthier: {fault}", file=sys.stderr)
    if outcome.error:
        raise LuthierError(outcome.error)
    return max(row.status for row in outcome.replays)


def _print(row: ReplayOutcome) -> None:
    count = f", {row.instructions} wave-instructions, {row.seconds:.3f} s" if isinstance(row.instructions, int) else ""
    if isinstance(row.recorded_instructions, int):
        count += f"; recorded {row.recorded_instructions}"
    say_text(f"{visible(row.file)}: {row.what}{count}")
    if isinstance(row.groups, tuple) and row.groups:
        ids = ", ".join(map(str, row.groups[:_SHOWN]))
        more = f" and {len(row.groups) - _SHOWN} more" if len(row.groups) > _SHOWN else ""
        say_text(f"  only work-groups {ids}{more}")
    for finding in row.findings:
        say_text("\n".join(f"  {line}" for line in finding.splitlines()))
