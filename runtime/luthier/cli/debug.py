"""``luthier debug``: a captured launch, or one of a program, under a debugger that goes forwards and backwards."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from luthier.cli.replay import target_of
from luthier.cli.selection import add_kernel_argument
from luthier.errors import LuthierError
from luthier.terminal import say, say_text

_TRIES = 16
"""Processes that are started until one has nothing where the program had its memory."""
_TAKEN = 75
"""Exit code of one that has."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.usage = "luthier debug [OPTION ...] FILE | [OPTION ...] -- PROGRAM [ARGUMENT ...]"
    parser.add_argument("--device", metavar="DEVICE", help="e.g. emu:gfx942 (default: the capture's; else emu:gfx90a)")
    add_kernel_argument(parser)
    parser.add_argument("--launch", type=int, default=0, metavar="N", help="which launch of the kernel (default: 0)")
    parser.add_argument("-x", "--command", metavar="FILE", help="read commands from a file")
    parser.add_argument(
        "--dap", action="store_true", help="speak the Debug Adapter Protocol on standard input and output"
    )
    parser.add_argument("file", nargs="?", metavar="FILE", help="a capture, or a folder of them: then the first")
    parser.add_argument("program", nargs=argparse.REMAINDER, metavar="PROGRAM", help="what to capture a launch of")


def run(args: argparse.Namespace) -> int:
    """Do what the command line asks for; the exit status."""
    target_of(args.device)
    words = [*([args.file] if args.file is not None else []), *args.program]
    is_program = "--" in sys.argv or len(words) > 1
    if not words:
        raise LuthierError("nothing to debug: name a capture, or a program behind --")
    if not is_program:
        return _debug(_first(Path(words[0])), args)
    with tempfile.TemporaryDirectory(prefix="luthier-debug-") as folder:
        return _debug(_captured(words[1:] if words[0] == "--" else words, Path(folder), args), args)


def _first(path: Path) -> Path:
    """Return a capture, of a folder the first.

    Raises:
        LuthierError: it has none.
    """
    if not path.is_dir():
        return path
    found = sorted(path.glob("*.lcap"))
    if not found:
        raise LuthierError("no captures in the folder", object=str(path))
    return found[0]


def _captured(command: list[str], folder: Path, args: argparse.Namespace) -> Path:
    """Run a program, and return the capture of the launch that is asked for."""
    from luthier.run import parse_devices, run_program
    from luthier.run.captures import Captures
    from luthier.run.selection import Selection, parse_launches

    selection = Selection(tuple(args.kernel), *parse_launches(f"{args.launch}:{args.launch + 1}"))
    captures = Captures(folder, selection, 10 << 30)
    with _aside(args.dap):
        code = run_program(command, parse_devices(args.device or "emu:gfx90a"), captures=captures)
    for text in captures.refused:
        say_text(f"luthier debug: not captured: {text}", file=sys.stderr)
    if not captures.files:
        raise LuthierError(f"the program ended with exit code {code}, and no launch was captured")
    return Path(captures.files[0])


@contextmanager
def _aside(wanted: bool) -> Iterator[None]:
    """Provide standard error in place of standard output, which is for the protocol, to what a program prints."""
    if not wanted:
        yield
        return
    sys.stdout.flush()
    kept = os.dup(1)
    try:
        os.dup2(2, 1)
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def _debug(path: Path, args: argparse.Namespace) -> int:
    """Debug a capture in a process of its own, whose addresses are others in each; its exit status."""
    from luthier.support.processes import start

    task = {"file": str(path), "device": args.device, "dap": args.dap, "commands": args.command}
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is the debugger's
    try:
        for _ in range(_TRIES):
            child = start([sys.executable, "-m", "luthier.cli.debug", json.dumps(task)], env=os.environ)
            code = child.wait()
            if code != _TAKEN:
                return code if code >= 0 else 128 - code
    finally:
        signal.signal(signal.SIGINT, before)
    raise LuthierError("addresses of the capture are taken in each process", object=str(path))


def _here(task: dict[str, Any]) -> int:
    """Debug in this process; the exit status."""
    from luthier.capture import read_capture
    from luthier.capture.place import AddressTaken
    from luthier.debug import Debugger

    try:
        try:
            debugger = Debugger(read_capture(task["file"]), target_of(task["device"]))
        except AddressTaken:
            return _TAKEN
        with debugger:
            _serve(debugger, task)
    except LuthierError as problem:
        say_text(f"luthier debug: error: {problem}", file=sys.stderr)
        return 1
    except OSError as problem:
        say(f"luthier debug: error: {problem}", file=sys.stderr)
        return 1
    return 0


def _serve(debugger: Any, task: dict[str, Any]) -> None:
    if task["dap"]:
        from luthier.debug.adapter import Adapter
        from luthier.debug.protocol import Channel

        Adapter(debugger, Channel(sys.stdin.buffer, os.fdopen(os.dup(1), "wb"))).serve()
        return
    from luthier.debug.console import Console

    if task["commands"] is None:
        Console(debugger).run()
        return
    with open(task["commands"], encoding="utf-8") as commands:
        Console(debugger, commands).run()


if __name__ == "__main__":
    sys.exit(_here(json.loads(sys.argv[1])))
