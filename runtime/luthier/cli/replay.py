"""``luthier replay``: captured launches run again, without the program and without ROCm."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from luthier.cli.common import add_hoist_argument, add_mangled_argument, add_tool_argument
from luthier.cli.progress import Progress
from luthier.cli.replay_process import REPLAY, SANITIZED, elsewhere, is_gpu, row_elsewhere
from luthier.cli.run import seconds
from luthier.cli.selection import CAPTURE
from luthier.errors import LuthierError
from luthier.support import strict_json
from luthier.terminal import say, say_text, visible

"""End of the name of a capture's file."""
_ALL = "all"
"""Every check of the emulated device."""
_SHOWN = 4
"""Work-groups that are named."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("files", nargs="+", metavar="FILE", help="captures, or folders of them")
    parser.add_argument(
        "--device",
        metavar="DEVICE",
        help="e.g. emu:gfx942, or a GPU: hip:0 (default: an emulated one, of the capture's target)",
    )
    parser.add_argument(
        "--relocate",
        action="store_true",
        help="on a GPU, where memory is at other addresses: take words of memory that look like addresses of the "
        "launch's memory for pointers; without it a launch with such words is refused",
    )
    parser.add_argument("--times", type=int, default=1, metavar="N", help="how often each is run (default: 1)")
    parser.add_argument(
        "--object",
        metavar="FILE",
        help="run the kernel of that name in this code object, bundle or executable; --device chooses the target",
    )
    parser.add_argument(
        "--against",
        metavar="FILE|N=FILE",
        help="compare with what another capture of the launch has left where arguments point, or with the bytes of a "
        "file from where argument N (from 0) points, and elsewhere with what was recorded",
    )
    add_tool_argument(parser, required=False)
    add_hoist_argument(parser)
    parser.add_argument(
        "-o", "--output", metavar="RUN", help="with tools: a new folder for their results: see `luthier report`"
    )
    add_mangled_argument(parser)
    parser.add_argument(
        "--time-limit",
        type=seconds,
        metavar="SECONDS",
        help="end a replay after so long: it counts as one that cannot be run",
    )
    add_scheduler_argument(parser)
    parser.add_argument(
        "--split",
        type=int,
        metavar="N",
        help="run each launch in N ranges of work-groups, side by side with --scheduler; refused where one writes what "
        "another uses",
    )
    parser.add_argument("--json", action="store_true", help="print what was found as JSON")
    parser.add_argument(
        "--check",
        action="append",
        default=[],
        metavar="CHECK[,CHECK...]",
        help="look for what the emulated device can find: uninitialised, races, bounds, waits, hazards, or all of "
        "these; slow; or for what `luthier sanitize` finds in captures: memory, race, init, barrier, early-exit, fp",
    )
    parser.epilog = (
        "exit status: 0 all equal to what was recorded, 1 a difference, a fault or a finding, 2 one cannot be run"
    )


def run(args: argparse.Namespace) -> int:
    """Do what the command line asks for; the exit status."""
    if args.times < 1:
        raise LuthierError(f"{args.times} times")
    checks = checks_of(args.check, SANITIZED)
    if is_gpu(args.device):
        _check_on_gpu(args)
    elif args.relocate:
        raise LuthierError("--relocate is for GPUs, --device hip:0: an emulated device has memory where it was")
    if args.split is not None:
        _check_split(args, checks)
    if args.tool:
        return _under_tools(args, checks)
    if args.output:
        raise LuthierError("-o is for what tools find: give a tool with -t")
    rows = []
    for row in _replays(args, checks):
        rows.append(row)
        if not args.json:
            _print(row)
    if args.json:
        say_text(json.dumps(rows, indent=2))
    return max(int(row["status"]) for row in rows)


def _files(args: argparse.Namespace) -> list[Path]:
    return [path for path in captures_of(args.files) for _ in range(args.times)]


def _replays(args: argparse.Namespace, checks: Sequence[str]) -> Iterator[dict[str, Any]]:
    names = ("device", "object", "against", "time_limit", "relocate")
    options = {"checks": checks, **{name: getattr(args, name) for name in names}}
    if args.split is not None:
        from luthier.cli import replay_split

        return replay_split.rows(args, _files(args))
    return rows_of(_files(args), options, args.scheduler)


def _check_on_gpu(args: argparse.Namespace) -> None:
    """Refuse what is not done on GPUs.

    Raises:
        LuthierError: the command line asks for it.
    """
    for name in ("tool", "check", "object", "split", "scheduler"):
        if getattr(args, name):
            raise LuthierError(f"--{name} is for emulated devices, not {args.device}")


def _check_split(args: argparse.Namespace, checks: Sequence[str]) -> None:
    """Refuse what cannot be done in parts.

    Raises:
        LuthierError: the command line asks for it.
    """
    if args.split < 1:
        raise LuthierError(f"{args.split} parts")
    if args.tool or checks or args.object:
        raise LuthierError("--split is for the recorded code alone: without -t, --check and --object")


def rows_of(
    paths: Sequence[Path], options: Mapping[str, Any], scheduler: str | None, module: str = REPLAY
) -> Iterator[dict[str, Any]]:
    """Yield what comes of each capture, here or on a cluster.

    Args:
        options: entries of the tasks, as of `luthier.cli.replay_process.replay_elsewhere`.
        scheduler: address of the cluster's; None: here.
        module: what each process runs.
    """
    if scheduler is None:
        for path in paths:
            yield row_elsewhere(module, path, options)
        return
    from luthier.cli.replay_cluster import cluster, replay_on

    with cluster(scheduler) as client, Progress("replaying", len(paths)) as progress:
        for row in replay_on(client, paths, options, module):
            progress.step(Path(row["file"]).name)
            yield row


def add_scheduler_argument(parser: argparse.ArgumentParser) -> None:
    """Declare ``--scheduler``."""
    parser.add_argument(
        "--scheduler",
        metavar="ADDRESS",
        help="replay side by side, on the workers of this scheduler of Dask (tcp://...), or `local`, on this machine",
    )


def _under_tools(args: argparse.Namespace, checks: Sequence[str]) -> int:
    """Replay under tools, all captures in one process but for clusters; the exit status."""
    from luthier.tool import parse_tools

    for check in SANITIZED:
        if check in checks:
            raise LuthierError(f"the check {check} is not made of kernels that tools have changed")
    parse_tools(args.tool)  # a wrong one is told before anything runs
    names = ("device", "tool", "hoist", "mangled", "object", "against")
    options = {name: getattr(args, name) for name in names} | {"checks": checks}
    if args.scheduler is None:
        task = {"files": list(map(str, _files(args))), **options, "output": args.output}
        told = elsewhere("luthier.cli.replay_tools", task, args.time_limit)
    else:
        from luthier.cli.replay_cluster import cluster, replay_on_under_tools

        with cluster(args.scheduler) as client, tempfile.TemporaryDirectory() as folder:
            output = Path(args.output or Path(folder) / "run")
            told = replay_on_under_tools(client, _files(args), {**options, "time_limit": args.time_limit}, output)
    if args.json:
        say_text(strict_json.dumps(told, indent=2))
    else:
        for row in told["replays"]:
            _print(row)
        for name, texts in told["sections"]:
            say(f"== {name}")
            for text in texts:
                say_text(text)
        for fault in told["faults"]:
            say_text(f"luthier: {fault}", file=sys.stderr)
    if told["error"]:
        raise LuthierError(told["error"])
    return max(int(row["status"]) for row in told["replays"])


def checks_of(given: Sequence[str], more: Sequence[str] = ()) -> list[str]:
    """Return the checks that options name.

    Args:
        more: names that there are beside those of the emulated device.

    Raises:
        LuthierError: there is no such check.
    """
    names = [name for one in given for name in one.split(",")]
    if not names:
        return []
    from luthier.emulator.inspection.checks import CHECKS
    from luthier.support.suggestions import did_you_mean

    known = (*CHECKS, _ALL, *more)
    for name in names:
        if name not in known:
            raise LuthierError(f"no check {name!r}{did_you_mean(name, known)}; there are: {', '.join(known)}")
    all_of_them = CHECKS if _ALL in names else ()
    return list(dict.fromkeys([*all_of_them, *(name for name in names if name != _ALL)]))


def captures_of(names: list[str]) -> list[Path]:
    """Return the captures that arguments name.

    Raises:
        LuthierError: a folder has none.
    """
    found: list[Path] = []
    for name in names:
        path = Path(name)
        inside = sorted(path.glob(f"*{CAPTURE}")) if path.is_dir() else [path]
        if not inside:
            raise LuthierError("no captures in the folder", object=name)
        found += inside
    return found


def _print(row: Mapping[str, Any]) -> None:
    count = f", {row['instructions']} wave-instructions, {row['seconds']:.3f} s" if "instructions" in row else ""
    if "recorded_instructions" in row:
        count += f"; recorded {row['recorded_instructions']}"
    say_text(f"{visible(row['file'])}: {row['what']}{count}")
    if row.get("groups"):
        ids = ", ".join(str(tuple(group)) for group in row["groups"][:_SHOWN])
        more = f" and {len(row['groups']) - _SHOWN} more" if len(row["groups"]) > _SHOWN else ""
        say_text(f"  only work-groups {ids}{more}")
    for finding in row.get("findings", ()):
        say_text("\n".join(f"  {line}" for line in str(finding).splitlines()))
