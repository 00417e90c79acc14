"""``luthier run``: an unmodified program on virtual devices."""

from __future__ import annotations

import argparse
import os
import resource
import signal
import sys

from luthier.cli.common import add_tool_argument
from luthier.errors import LuthierError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "luthier run [--device emu:TARGET[,emu:TARGET...]] [--] PROGRAM [ARGUMENT ...]"
    parser.add_argument(
        "--device",
        default="emu:gfx90a",
        metavar="DEVICES",
        help="the GPUs that the program finds, e.g. emu:gfx906,emu:gfx1030 (default: %(default)s)",
    )
    add_tool_argument(parser, required=False)
    parser.add_argument("program", nargs=argparse.REMAINDER, metavar="PROGRAM", help="what to run, with its arguments")


def run(args: argparse.Namespace) -> int:
    from luthier.run import parse_devices, run_program
    from luthier.tool import parse_tools

    command = args.program[1:] if args.program[:1] == ["--"] else args.program
    if not command:
        raise LuthierError("no program given")
    devices = parse_devices(args.device)
    if not args.tool:
        code = run_program(command, devices)
    else:
        from luthier.run.instrumentation import Instrumentation, sums
        from luthier.run.selection import Selection

        instrumentation = Instrumentation(parse_tools(args.tool), Selection())
        code = run_program(command, devices, instrumentation)
        print(sums(instrumentation.sessions, instrumentation.blocks), instrumentation.faults, file=sys.stderr)
        for session in instrumentation.sessions:
            for kernel in session.kernels:
                print(kernel.name, session.counts[kernel.row], kernel.patched.reason, file=sys.stderr)
    if code < 0:
        _die_of(-code)
    return code


def _die_of(number: int) -> None:
    """End as the program did, so that whoever waits sees the same; without a second memory dump."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    signal.signal(number, signal.SIG_DFL) if number not in (signal.SIGKILL, signal.SIGSTOP) else None
    os.kill(os.getpid(), number)
    raise SystemExit(128 + number)  # one that only stops or is ignored
