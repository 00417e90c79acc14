"""``luthier sanitize``: an unmodified program on virtual devices, with every access of memory checked."""

from __future__ import annotations

import argparse
import json

from luthier.cli.findings import FOUND, HELP, add_floats_argument, collector_of, tell
from luthier.cli.run import seconds
from luthier.errors import LuthierError
from luthier.support.files import check_writable, write_atomically


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.usage = "luthier sanitize [--checks CHECKS] [--device DEVICES] [OPTION ...] [--] PROGRAM [ARGUMENT ...]"
    parser.add_argument(
        "--checks",
        default="memory",
        metavar="CHECK[,CHECK]",
        help=f"{HELP} (default: %(default)s)",
    )
    add_floats_argument(parser)
    parser.add_argument(
        "--device",
        default="emu:gfx90a",
        metavar="DEVICES",
        help="the GPUs that the program finds, e.g. emu:gfx906,emu:gfx1030 (default: %(default)s)",
    )
    parser.add_argument(
        "--time-limit", type=seconds, metavar="SECONDS", help="end the program after so long; the exit code is 124 then"
    )
    parser.add_argument(
        "--suppress",
        action="append",
        default=[],
        metavar="FILE",
        help="leave out what the file's lines fit; repeatable",
    )
    parser.add_argument("--gen-suppressions", metavar="FILE", help="write lines that would leave all of this out")
    parser.add_argument("--json", metavar="FILE", help="write the findings as JSON")
    parser.add_argument("--sarif", metavar="FILE", help="write the findings as SARIF 2.1.0")
    parser.add_argument(
        "--error-exitcode",
        type=_exit_code,
        default=FOUND,
        metavar="N",
        help="exit code where something was found; 0: the program's (default: %(default)s)",
    )
    parser.add_argument("program", nargs=argparse.REMAINDER, metavar="PROGRAM", help="what to run, with its arguments")


def _exit_code(text: str) -> int:
    if not text.isdecimal() or int(text) > 255:
        raise argparse.ArgumentTypeError(f"{text!r} is no exit code from 0 to 255")
    return int(text)


def run(args: argparse.Namespace) -> int:
    """Do what the command line asks for; the exit status."""
    from luthier import __version__
    from luthier.cli.run import end_as
    from luthier.run import parse_devices, run_program
    from luthier.run.findings import suppressions
    from luthier.run.findings.sarif import sarif

    command = args.program[1:] if args.program[:1] == ["--"] else args.program
    if not command:
        raise LuthierError("no program given")
    left_out = [one for path in args.suppress for one in suppressions.read(path)]
    for path in filter(None, (args.json, args.sarif, args.gen_suppressions)):
        check_writable(path)
    collector = collector_of(args.checks, args.fp)
    code = run_program(command, parse_devices(args.device), findings=collector, seconds=args.time_limit)
    told = [one for one in collector.findings if not any(each.fits(one) for each in left_out)]
    tell(told, len(collector.findings) - len(told))
    if args.json:
        data = {"schema": 1, "exit_code": code, "findings": [one.to_json() for one in told]}
        write_atomically(args.json, f"{json.dumps(data, indent=2)}\n".encode())
    if args.sarif:
        write_atomically(args.sarif, f"{json.dumps(sarif(told, __version__), indent=2)}\n".encode())
    if args.gen_suppressions:
        write_atomically(args.gen_suppressions, suppressions.generate(told).encode())
    return args.error_exitcode if told and args.error_exitcode else end_as(code)
