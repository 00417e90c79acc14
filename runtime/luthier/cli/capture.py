"""``luthier capture``: write launches of a program to files that `luthier replay` runs again."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from luthier.cli.captures import reduce_captures, tell_refused
from luthier.cli.run import seconds
from luthier.cli.selection import add_kernel_argument
from luthier.errors import LuthierError
from luthier.support.files import make_private
from luthier.support.wording import counted
from luthier.terminal import say

if TYPE_CHECKING:
    from luthier.run.captures import Captures
    from luthier.run.instrumentation import Instrumentation

UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.usage = "luthier capture [--device DEVICES] [OPTION ...] -o DIR [--] PROGRAM [ARGUMENT ...]"
    parser.add_argument("--device", metavar="DEVICES", help="as for `luthier run`")
    add_kernel_argument(parser)
    parser.add_argument("--launches", default="::", metavar="[FIRST:]END[:STEP]", help="as for `luthier run`")
    parser.add_argument(
        "--runtime-kernels", action="store_true", help="also kernels that HIP itself launches to copy and fill memory"
    )
    parser.add_argument("-o", "--output", required=True, metavar="DIR", help="a new or empty folder for the captures")
    parser.add_argument(
        "--most",
        type=size,
        metavar="BYTES",
        help="limit for all files together, and for the memory of each launch, e.g. 500M (default: 10G)",
    )
    parser.add_argument(
        "--all-memory",
        action="store_true",
        help="keep all memory that a launch can access; without it, each launch is replayed once, and memory that it "
        "does not access is left out",
    )
    parser.add_argument(
        "--patience",
        type=seconds,
        default=60,
        metavar="SECONDS",
        help="how long other launches wait while a launch is captured; after that they run, and the capture is "
        "abandoned (default: 60)",
    )
    parser.add_argument("program", nargs=argparse.REMAINDER, metavar="PROGRAM", help="program to run and its arguments")


def size(text: str) -> int:
    """Parse a number of bytes: 500M, 10G."""
    digits, unit = (text[:-1], text[-1:].upper()) if text[-1:].upper() in ("K", "M", "G") else (text, "")
    if not digits.isdecimal() or int(digits) * UNITS[unit] == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of bytes: use e.g. 500M or 10G")
    return int(digits) * UNITS[unit]


def run(args: argparse.Namespace) -> int:
    """Run the command and return the program's exit status."""
    from luthier.run import MachineGpus, devices_for, run_program
    from luthier.run.captures import MOST, Captures
    from luthier.run.selection import Selection, parse_launches

    command = args.program[1:] if args.program[:1] == ["--"] else args.program
    if not command:
        raise LuthierError("no program given: name it after the options")
    devices = devices_for(args.device, command)
    selection = Selection(tuple(args.kernel), *parse_launches(args.launches), runtime_kernels=args.runtime_kernels)
    folder = Path(args.output)
    try:
        make_private(folder)
        if any(folder.iterdir()):
            raise LuthierError("the folder for captures is not empty: name a new or an empty one", object=str(folder))
    except OSError as problem:
        raise LuthierError(f"cannot use the folder for captures: {problem}", object=str(folder)) from None
    captures = Captures(folder, selection, args.most or MOST, args.patience, hold=not args.all_memory)
    if isinstance(devices, MachineGpus):
        tools = _capturing(captures)
        code = run_program(command, devices, tools)
        tools.end()
    else:
        code = run_program(command, devices, captures=captures)
    kept = captures.files if args.all_memory else reduce_captures(captures)
    tell_refused(captures)
    bytes = sum(path.stat().st_size for path in kept)
    say(
        f"luthier capture: {counted(len(kept), 'launch')}, {bytes} bytes; not captured: {len(captures.refused)}",
        file=sys.stderr,
    )
    if not kept and code == 0:
        raise LuthierError("no launch was captured")
    return code if code >= 0 else 128 - code


def _capturing(captures: Captures) -> Instrumentation:
    """Return an instrumentation without tools that captures launches on GPUs."""
    from luthier.run.instrumentation import Instrumentation
    from luthier.run.selection import Selection
    from luthier.tool import ToolGroup

    return Instrumentation(ToolGroup([]), Selection(), captures=captures)
