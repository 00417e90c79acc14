"""``luthier sanitize``: an unmodified program on virtual devices, with every access of memory checked."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from luthier.cli.captures import add_scheduler_argument, captures_of, outcomes
from luthier.cli.findings import HELP, Findings, add_files_arguments, add_floats_argument, add_init_argument
from luthier.cli.run import seconds
from luthier.cli.selection import is_capture
from luthier.errors import LuthierError
from luthier.support.files import check_writable, write_atomically
from luthier.terminal import say_text, visible

if TYPE_CHECKING:
    from luthier.run import Unfinished
    from luthier.run.findings.collector import Collector


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.usage = (
        "luthier sanitize [--checks CHECKS] [--device DEVICES] [OPTION ...] [--] PROGRAM [ARGUMENT ...]\n"
        "       luthier sanitize [--checks CHECKS] [OPTION ...] CAPTURE|FOLDER ..."
    )
    parser.add_argument(
        "--checks",
        default="memory",
        metavar="CHECK[,CHECK]",
        help=f"{HELP} (default: %(default)s)",
    )
    add_floats_argument(parser)
    add_init_argument(parser)
    parser.add_argument(
        "--device",
        metavar="DEVICES",
        help="as of `luthier run`; of captures: theirs",
    )
    parser.add_argument(
        "--time-limit",
        type=seconds,
        metavar="SECONDS",
        help="end the program after so long; the exit code is 124 then; of captures, end a replay",
    )
    add_scheduler_argument(parser)
    add_files_arguments(parser)
    parser.add_argument("--json", metavar="FILE", help="write the findings as JSON")
    parser.add_argument(
        "program",
        nargs=argparse.REMAINDER,
        metavar="PROGRAM",
        help="what to run, with its arguments; or captures, and folders of them",
    )


def run(args: argparse.Namespace) -> int:
    """Do what the command line asks for; the exit status."""
    from luthier.cli.run import end_as
    from luthier.run import Unfinished

    command = args.program[1:] if args.program[:1] == ["--"] else args.program
    if not command:
        raise LuthierError("no program given")
    if args.json:
        check_writable(args.json)
    findings = Findings(args.checks, args)
    collector = findings.collector
    unfinished = Unfinished()
    if are_captures(command):
        code = _captures(args, command, collector)
    else:
        code = _program(args, command, collector, unfinished)
    status = findings.tell(unfinished.what)
    if args.json:
        data = {"schema": 1, "exit_code": code, **findings.to_json()}
        data |= {"ended_before": unfinished.what or None, "unfinished": unfinished.to_json()}
        write_atomically(args.json, f"{json.dumps(data, indent=2)}\n".encode())
    return status or end_as(code)


def are_captures(words: Sequence[str]) -> bool:
    """Return whether a command is captures and folders."""
    return all(Path(word).is_dir() or is_capture(word) for word in words)


def _program(args: argparse.Namespace, command: list[str], collector: Collector, unfinished: Unfinished) -> int:
    """Run a program, and collect what is found, and what was cut short; its exit code."""
    from luthier.run import run_program, virtual_devices_for

    if args.scheduler is not None:
        raise LuthierError("--scheduler is for captured launches")
    devices = virtual_devices_for(args.device, command)
    return run_program(command, devices, findings=collector, seconds=args.time_limit, unfinished=unfinished)


def _captures(args: argparse.Namespace, names: list[str], collector: Collector) -> int:
    """Replay captures, and collect what is found; the exit status that they would have without it."""
    from luthier.replay.launches import SANITIZED, Sanitize
    from luthier.run.findings.finding import HANDED, OUTSIDE, Unchecked

    for check in sorted(set(args.checks.split(",")) - set(SANITIZED)):
        raise LuthierError(f"the check {check} is of programs, not of captures")
    if HANDED & collector.kinds:
        raise LuthierError("--init copies is of programs, not of captures: nothing is copied there")
    if OUTSIDE in collector.kinds:
        collector.leave(Unchecked(0, "", "bounds to the byte", "captures know the pages of the driver only"))
    job = Sanitize(kinds=tuple(sorted(collector.kinds)), device=args.device)
    status = 0
    for row in outcomes(job, captures_of(names), args.scheduler, args.time_limit):
        for record in row.records:
            collector.keep(record)
        if row.status and not (row.records and row.explained):
            say_text(f"luthier: {visible(row.file)}: {row.what}", file=sys.stderr)
        status = max(status, row.status)
    return status
