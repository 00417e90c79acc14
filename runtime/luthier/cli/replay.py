"""``luthier replay``: captured launches run again, without the program and without ROCm."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from luthier.cli.common import add_hoist_argument, add_mangled_argument, add_tool_argument
from luthier.cli.run import seconds
from luthier.errors import DeviceError, LuthierError
from luthier.terminal import say, say_text

if TYPE_CHECKING:
    from luthier.capture import Capture, Replayed
    from luthier.capture.replay import PreparedLaunch

EQUAL, DIFFERENT, IMPOSSIBLE = range(3)
"""Exit statuses."""
CAPTURE = ".lcap"
"""End of the name of a capture's file."""
TRIES = 16
"""Processes that are started until one has nothing where the program had its memory."""
_ALL = "all"
"""Every check."""
_TASK: dict[str, Any] = {"device": None, "reduce": False, "checks": [], "object": None, "against": None}
"""What a process that replays is asked for, beside its file, where nothing else is said."""
_LEFT_OUT = "memory that the recorded launch never accesses is not in the capture (luthier capture --all-memory)"
_SHOWN = 4
"""Work-groups that are named."""
_AGAIN = "taken"
"""What one says that has."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("files", nargs="+", metavar="FILE", help="captures, or folders of them")
    parser.add_argument("--device", metavar="DEVICE", help="e.g. emu:gfx942 (default: that of the capture)")
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
    parser.add_argument("--json", action="store_true", help="print what was found as JSON")
    parser.add_argument(
        "--check",
        action="append",
        default=[],
        metavar="CHECK[,CHECK...]",
        help="look for what the emulated device can find: uninitialised, races, bounds, waits, hazards, or all; slow",
    )
    parser.epilog = (
        "exit status: 0 all equal to what was recorded, 1 a difference, a fault or a finding, 2 one cannot be run"
    )


def run(args: argparse.Namespace) -> int:
    """Do what the command line asks for; the exit status."""
    if args.times < 1:
        raise LuthierError(f"{args.times} times")
    checks = checks_of(args.check)
    if args.tool and (args.object or args.against):
        raise LuthierError("tools instrument the recorded code: give -t, or --object and --against")
    if args.tool:
        return _under_tools(args, checks)
    if args.output:
        raise LuthierError("-o is for what tools find: give a tool with -t")
    rows = []
    more = {"checks": checks, "object": args.object, "against": args.against, "time_limit": args.time_limit}
    for path in captures_of(args.files):
        for _ in range(args.times):
            rows.append(replay_elsewhere(path, device=args.device, **more))
            if not args.json:
                _print(rows[-1])
    if args.json:
        say_text(json.dumps(rows, indent=2))
    return max(int(row["status"]) for row in rows)


def _under_tools(args: argparse.Namespace, checks: Sequence[str]) -> int:
    """Replay under tools, all captures in one process; the exit status."""
    if checks:
        raise LuthierError("checks look at the original code: give -t or --check")
    from luthier.tool import parse_tools

    parse_tools(args.tool)  # a wrong one is told before anything runs
    task = {
        "files": [str(path) for path in captures_of(args.files) for _ in range(args.times)],
        **{name: getattr(args, name) for name in ("device", "tool", "hoist", "mangled", "output")},
    }
    told = elsewhere("luthier.cli.replay_tools", task, args.time_limit)
    if args.json:
        say_text(json.dumps(told, indent=2))
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


def checks_of(given: Sequence[str]) -> list[str]:
    """Return the checks that options name.

    Raises:
        LuthierError: there is no such check.
    """
    names = [name for one in given for name in one.split(",")]
    if not names:
        return []
    from luthier.emulator.inspection.checks import CHECKS
    from luthier.support.suggestions import did_you_mean

    for name in names:
        if name not in (*CHECKS, _ALL):
            known = ", ".join((*CHECKS, _ALL))
            raise LuthierError(f"no check {name!r}{did_you_mean(name, CHECKS)}; there are: {known}")
    return list(CHECKS) if _ALL in names else list(dict.fromkeys(names))


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


def replay_elsewhere(path: Path, **more: Any) -> dict[str, Any]:
    """Replay a capture in a process of its own, which a capture cannot harm, and whose addresses are others in each.

    Args:
        more: entries of a task: `device`; `checks`, what to look for; `object` and `against`, as the options;
            `reduce`, leave out of the file what it does not access, where it is equal; `time_limit`, seconds.

    Returns:
        `status` and `what` was found, in words; `instructions` and `seconds` if it ran.
    """
    try:
        limit = more.pop("time_limit", None)
        return {"file": str(path)} | elsewhere("luthier.cli.replay", {**_TASK, "file": str(path), **more}, limit)
    except DeviceError as problem:
        return {"file": str(path), "status": IMPOSSIBLE, "what": str(problem)}


def elsewhere(module: str, task: Mapping[str, Any], limit: float | None = None) -> dict[str, Any]:
    """Return what a module that is run as a program prints for a task (`answer`), in a process of its own.

    Args:
        limit: seconds that it may take.

    Raises:
        DeviceError: it fails, or takes longer, or each process has something else where the captures' memory was.
    """
    from luthier.support.processes import run as run_process

    for _ in range(TRIES):
        try:
            told = run_process([sys.executable, "-m", module, json.dumps(task)], error=DeviceError, timeout=limit)
        except DeviceError as problem:  # it was killed, or there is a bug of ours
            if limit is not None and "did not end within" in problem.message:
                raise DeviceError(f"it did not end within {limit:g} seconds") from None
            raise DeviceError(f"the process that replays it failed: {problem}") from None
        if told.strip() != _AGAIN:
            found: dict[str, Any] = json.loads(told)
            return found
    raise DeviceError("addresses of the capture are taken in each process")


def answer(work: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> None:
    """Do the work of a process that `elsewhere` has started, and print what came of it; or `status` and `what` went
    wrong."""
    from luthier.capture.place import AddressTaken

    try:
        say_text(json.dumps(work(json.loads(sys.argv[1]))))
    except AddressTaken:
        say(_AGAIN)
    except LuthierError as problem:
        say_text(json.dumps({"status": IMPOSSIBLE, "what": str(problem)}))


def _print(row: Mapping[str, Any]) -> None:
    count = f", {row['instructions']} wave-instructions, {row['seconds']:.3f} s" if "instructions" in row else ""
    if "recorded_instructions" in row:
        count += f"; recorded {row['recorded_instructions']}"
    say_text(f"{row['file']}: {row['what']}{count}")
    if row.get("groups"):
        ids = ", ".join(str(tuple(group)) for group in row["groups"][:_SHOWN])
        more = f" and {len(row['groups']) - _SHOWN} more" if len(row["groups"]) > _SHOWN else ""
        say_text(f"  only work-groups {ids}{more}")
    for finding in row.get("findings", ()):
        say_text(f"  {finding}")


def _replayed(task: Mapping[str, Any]) -> dict[str, Any]:
    """Return what came of a replay.

    Raises:
        LuthierError: it cannot be run.
    """
    from luthier.capture import read_capture, replay, write_capture
    from luthier.capture.replay import reduced

    capture = read_capture(task["file"])
    if task["against"]:
        capture = _against(capture, task["against"])
    launch = prepared(capture, target_of(task["device"]), task["object"])
    done = launch.run(None, task["checks"])
    if not task["reduce"]:
        done = launch.with_store(done)
    if task["reduce"] and done.fault is None and done.counts_equal:
        # What others wrote meanwhile, to pages that the launch never writes, is not what it did.
        capture = reduced(capture, done)
        done = replay(capture)
        if done.equal:
            write_capture(task["file"], capture)
    row = {"kernel": capture.manifest.kernel, "groups": capture.manifest.groups} | outcome(done)
    if done.fault is not None and capture.manifest.left_out:
        row["what"] += f"; {_LEFT_OUT}"
    if task["object"]:
        row["recorded_instructions"] = int(capture.counts["executions"].sum())
    return row


def prepared(capture: Capture, target: str | None, object: str | None) -> PreparedLaunch:
    """Return a launch that is ready to run, by the recorded code, or by that of a file.

    Raises:
        LuthierError: it cannot be run.
    """
    from luthier.capture.replay import PreparedLaunch

    target = target or capture.manifest.target
    if object is None:
        return PreparedLaunch(capture, target)
    from luthier.capture.substitute import SubstitutedLaunch
    from luthier.isa.targets import TargetId
    from luthier.objects import load_object_for

    return SubstitutedLaunch(capture, load_object_for(object, TargetId.parse(target)), target)


def _against(capture: Capture, given: str) -> Capture:
    """Return a capture that expects what another file says.

    Raises:
        LuthierError: it says nothing of this launch.
    """
    import numpy as np

    from luthier.capture import read_capture
    from luthier.capture.against import expecting, of_capture, pointer

    number, mark, file = given.partition("=")
    if not (mark and number.isdecimal()):
        return expecting(capture, of_capture(capture, read_capture(given)))
    try:
        data = np.fromfile(file, np.uint8)
    except OSError as problem:
        raise LuthierError(f"cannot be read: {problem.strerror or problem}", object=file) from None
    return expecting(capture, [(pointer(capture.manifest, int(number)), data)])


def outcome(done: Replayed) -> dict[str, Any]:
    """Return what a replay did as plain data: `status`, and `what` in words."""
    what = "equal"
    if done.fault is not None:
        what = str(done.fault)
    elif done.difference is not None:
        what = str(done.difference)
    elif done.counts_equal is False:
        what = "the same bytes, by other numbers of instructions"
    row: dict[str, Any] = {
        "instructions": done.instructions,
        "seconds": done.seconds,
        "status": EQUAL if done.equal else DIFFERENT,
        "what": what,
    }
    if done.findings:
        row["findings"] = [str(finding) for finding in done.findings]
        row["what"] += f", {len(done.findings)} findings"
    return row


def target_of(device: str | None) -> str | None:
    """Return the target that an option names; None: it was not given.

    Raises:
        LuthierError: it is no emulated device.
    """
    if device is not None and not device.startswith("emu:"):
        raise LuthierError(f"captures are replayed on emulated devices, such as emu:gfx942, not {device!r}")
    return None if device is None else device.removeprefix("emu:")


if __name__ == "__main__":
    answer(_replayed)
