"""``luthier replay``: captured launches run again, without the program and without ROCm."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from luthier.errors import DeviceError, LuthierError
from luthier.terminal import say, say_text

EQUAL, DIFFERENT, IMPOSSIBLE = range(3)
"""Exit statuses."""
_TRIES = 16
"""Processes that are started until one has nothing where the program had its memory."""
_AGAIN = "taken"
"""What one says that has."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("files", nargs="+", metavar="FILE", help="captures, or folders of them")
    parser.add_argument("--device", metavar="DEVICE", help="e.g. emu:gfx942 (default: that of the capture)")
    parser.add_argument("--times", type=int, default=1, metavar="N", help="how often each is run (default: 1)")
    parser.add_argument("--json", action="store_true", help="print what was found as JSON")
    parser.epilog = "exit status: 0 all equal to what was recorded, 1 a difference or a fault, 2 one cannot be run"


def run(args: argparse.Namespace) -> int:
    """Do what the command line asks for; the exit status."""
    if args.times < 1:
        raise LuthierError(f"{args.times} times")
    rows = []
    for path in _files(args.files):
        for _ in range(args.times):
            rows.append(replay_elsewhere(path, device=args.device))
            if not args.json:
                _print(rows[-1])
    if args.json:
        say_text(json.dumps(rows, indent=2))
    return max(int(row["status"]) for row in rows)


def _files(names: list[str]) -> list[Path]:
    """Return the captures that arguments name.

    Raises:
        LuthierError: a folder has none.
    """
    found: list[Path] = []
    for name in names:
        path = Path(name)
        inside = sorted(path.glob("*.lcap")) if path.is_dir() else [path]
        if not inside:
            raise LuthierError("no captures in the folder", object=name)
        found += inside
    return found


def replay_elsewhere(path: Path, *, device: str | None = None, reduce: bool = False) -> dict[str, Any]:
    """Replay a capture in a process of its own, which a capture cannot harm, and whose addresses are others in each.

    Args:
        reduce: where it is equal, leave out of the file what it does not access.

    Returns:
        `status` and `what` was found, in words; `instructions` and `seconds` if it ran.
    """
    from luthier.support.processes import run as run_process

    task = json.dumps({"file": str(path), "device": device, "reduce": reduce})
    for _ in range(_TRIES):
        try:
            told = run_process([sys.executable, "-m", "luthier.cli.replay", task], error=DeviceError)
        except DeviceError as problem:  # it was killed, or there is a bug of ours
            return {"file": str(path), "status": IMPOSSIBLE, "what": f"the process that replays it failed: {problem}"}
        if told.strip() != _AGAIN:
            found: dict[str, Any] = json.loads(told)
            return found
    return {"file": str(path), "status": IMPOSSIBLE, "what": "addresses of the capture are taken in each process"}


def _print(row: Mapping[str, Any]) -> None:
    count = f", {row['instructions']} wave-instructions, {row['seconds']:.3f} s" if "instructions" in row else ""
    say(f"{row['file']}: {row['what']}{count}")


def _here(task: Mapping[str, Any]) -> None:
    """Replay in this process, and print what came of it."""
    from luthier.capture import read_capture, replay, write_capture
    from luthier.capture.place import AddressTaken
    from luthier.capture.replay import reduced

    row: dict[str, Any] = {"file": task["file"]}
    try:
        capture = read_capture(task["file"])
        row["kernel"] = capture.manifest.kernel
        done = replay(capture, target=target_of(task["device"]), find_store=not task["reduce"])
        if task["reduce"] and done.fault is None and done.counts_equal:
            # What others wrote meanwhile, to pages that the launch never writes, is not what it did.
            capture = reduced(capture, done)
            done = replay(capture)
            if done.equal:
                write_capture(task["file"], capture)
        row |= {"instructions": done.instructions, "seconds": done.seconds}
        row |= {"status": EQUAL if done.equal else DIFFERENT, "what": "equal"}
        if done.fault is not None:
            row["what"] = str(done.fault)
        elif done.difference is not None:
            row["what"] = str(done.difference)
        elif not done.counts_equal:
            row["what"] = "the same bytes, by other numbers of instructions"
    except AddressTaken:
        say(_AGAIN)
        return
    except LuthierError as problem:
        row |= {"status": IMPOSSIBLE, "what": str(problem)}
    say_text(json.dumps(row))


def target_of(device: str | None) -> str | None:
    """Return the target that ``--device`` names, None where it is not given.

    Raises:
        LuthierError: it is no emulated device.
    """
    if device is not None and not device.startswith("emu:"):
        raise LuthierError(f"captures are replayed on emulated devices, such as emu:gfx942, not {device!r}")
    return None if device is None else device.removeprefix("emu:")


if __name__ == "__main__":
    _here(json.loads(sys.argv[1]))
