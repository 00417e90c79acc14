"""``luthier debug``: debug a captured launch, or a launch of a program, forwards and backwards."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from luthier.cli.captures import captures_of
from luthier.cli.selection import add_kernel_argument, is_capture
from luthier.errors import LuthierError
from luthier.replay.jobs import target_of
from luthier.replay.processes import TRIES
from luthier.support.private_folder import private_folder
from luthier.support.processes import end_with, forwarded_signals, start
from luthier.terminal import say, say_text

if TYPE_CHECKING:
    from luthier.debug import Debugger

_TAKEN = 75
"""Exit code of a process in which the addresses of the capture are not free."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.usage = "luthier debug [OPTION ...] FILE | [OPTION ...] -- PROGRAM [ARGUMENT ...]"
    parser.add_argument("--device", metavar="DEVICE", help="e.g. emu:gfx942 (default: as for `luthier replay`)")
    add_kernel_argument(parser)
    parser.add_argument("--launch", type=int, default=0, metavar="N", help="number of the kernel's launch (default: 0)")
    parser.add_argument("-x", "--command", metavar="FILE", help="read commands from a file")
    parser.add_argument(
        "--dap", action="store_true", help="speak the Debug Adapter Protocol on standard input and output"
    )
    parser.add_argument("file", nargs="?", metavar="FILE", help="a capture, or a folder: its first capture is debugged")
    parser.add_argument("program", nargs=argparse.REMAINDER, metavar="PROGRAM", help="program whose launch is debugged")


def run(args: argparse.Namespace) -> int:
    """Run the command and return its exit status."""
    target = target_of(args.device)
    if args.file is None:
        raise LuthierError("nothing to debug: name a capture, or a program after --")
    if not args.program and (Path(args.file).is_dir() or is_capture(args.file)):
        return _debug(captures_of([args.file])[0], target, args)
    with private_folder() as folder:
        command = args.program[1:] if args.file == "--" else [args.file, *args.program]
        return _debug(_captured(command, folder, args), None, args)


def _captured(command: list[str], folder: Path, args: argparse.Namespace) -> Path:
    """Run a program and return the capture of the selected launch."""
    from luthier.run import run_program, virtual_devices_for
    from luthier.run.captures import MOST, Captures
    from luthier.run.selection import Selection, parse_launches

    selection = Selection(tuple(args.kernel), *parse_launches(f"{args.launch}:{args.launch + 1}"))
    captures = Captures(folder, selection, MOST)
    with _output_redirected(args.dap):
        code = run_program(command, virtual_devices_for(args.device, command), captures=captures)
    for text in captures.refused:
        say_text(f"luthier debug: not captured: {text}", file=sys.stderr)
    if not captures.files:
        raise LuthierError(f"the program ended with exit code {code}, and no launch was captured")
    return Path(captures.files[0])


@contextmanager
def _output_redirected(wanted: bool) -> Iterator[None]:
    """Redirect standard output to standard error while a program runs, since the protocol uses standard output."""
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


def _debug(path: Path, target: str | None, args: argparse.Namespace) -> int:
    """Debug a capture in a process of its own, since addresses are free in some processes only; return the exit status.

    Args:
        target: of the device; None: the recorded one.
    """
    task = {"file": str(path), "target": target, "dap": args.dap, "commands": args.command}
    command = [sys.executable, "-m", "luthier.cli.debug", json.dumps(task), str(os.getpid())]
    with forwarded_signals() as (forward_to, _):
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # inherited by the child, whose console handles it
        for _ in range(TRIES):
            child = start(command, env=os.environ)
            forward_to(child.send_signal)
            code = child.wait()
            if code != _TAKEN:
                return code if code >= 0 else 128 - code
    raise LuthierError("the addresses of the capture are in use in every process that was tried", object=str(path))


def _debug_here(task: dict[str, Any]) -> int:
    """Debug in this process; return the exit status."""
    from luthier.capture import read_capture
    from luthier.capture.place import AddressTaken
    from luthier.debug import Debugger

    try:
        try:
            debugger = Debugger(read_capture(task["file"]), task["target"])
        except AddressTaken:
            return _TAKEN
        with debugger:
            _serve(debugger, task)
    except LuthierError as problem:
        say_text(f"luthier debug: error: {problem}", file=sys.stderr)
        return 1
    except (OSError, UnicodeDecodeError) as problem:  # UnicodeDecodeError: from the file of commands
        say(f"luthier debug: error: {problem}", file=sys.stderr)
        return 1
    return 0


def _serve(debugger: Debugger, task: dict[str, Any]) -> None:
    if task["dap"]:
        from luthier.debug.adapter import Adapter
        from luthier.debug.protocol import ProtocolChannel

        # A thread may still read when Python exits, and Python closes `sys.stdin` then: read from a duplicate.
        Adapter(debugger, ProtocolChannel(os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb"))).serve()
        return
    from luthier.debug.console import Console

    if task["commands"] is None:
        Console(debugger).run()
        return
    with open(task["commands"], encoding="utf-8") as commands:
        Console(debugger, commands).run()


if __name__ == "__main__":
    end_with(int(sys.argv[2]))
    sys.exit(_debug_here(json.loads(sys.argv[1])))
