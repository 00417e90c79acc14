"""``luthier sanitize``: run an unmodified program on virtual devices and check it for errors."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from luthier.cli.captures import captures_of, outcomes, scheduler_option
from luthier.cli.findings import HELP, FindingOptions, Findings, check_option
from luthier.cli.options import CommandOptions, group, option
from luthier.cli.run import seconds
from luthier.cli.selection import is_capture
from luthier.errors import LuthierError
from luthier.support.files import check_writable, write_atomically
from luthier.terminal import say_text, visible

if TYPE_CHECKING:
    from luthier.run import Unfinished
    from luthier.run.findings.collector import Collector


class SanitizeOptions(CommandOptions):
    """Options of ``luthier sanitize``."""

    check: list[str] = check_option(before="--checks", help=f"{HELP} (default: memory)")
    findings: FindingOptions = group(FindingOptions)
    device: str | None = option("--device", metavar="DEVICES", help="as for `luthier run`; for captures: theirs")
    time_limit: float | None = option(
        "--time-limit",
        type=seconds,
        metavar="SECONDS",
        help="stop the program after this time; the exit code is then 124; for captures, stop a replay",
    )
    scheduler: str | None = scheduler_option()
    json: str | None = option("--json", metavar="FILE", help="write the findings as JSON")
    program: list[str] = option(
        "program",
        default=[],
        nargs=argparse.REMAINDER,
        metavar="PROGRAM",
        help="program to run, with its arguments; or captures, and folders of them",
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.usage = (
        "luthier sanitize [--check CHECKS] [--device DEVICES] [OPTION ...] [--] PROGRAM [ARGUMENT ...]\n"
        "       luthier sanitize [--check CHECKS] [OPTION ...] CAPTURE|FOLDER ..."
    )
    SanitizeOptions.declare(parser)


def run(args: argparse.Namespace) -> int:
    """Run the command and return its exit status."""
    from luthier.cli.run import end_as
    from luthier.run import Unfinished

    options = SanitizeOptions.read(args)
    command = options.program[1:] if options.program[:1] == ["--"] else options.program
    if not command:
        raise LuthierError("no program given: name it after the options")
    if options.json:
        check_writable(options.json)
    findings = Findings(options.check or ["memory"], options.findings)
    collector = findings.collector
    unfinished = Unfinished()
    if are_captures(command):
        code = _captures(options, command, collector)
    else:
        code = _program(options, command, collector, unfinished)
    status = findings.tell(unfinished.what)
    if options.json:
        data = {"schema": 1, "exit_code": code, **findings.to_json()}
        data |= {"ended_before": unfinished.what or None, "unfinished": unfinished.to_json()}
        write_atomically(options.json, f"{json.dumps(data, indent=2)}\n".encode())
    return status or end_as(code)


def are_captures(words: Sequence[str]) -> bool:
    """Return whether a command consists of captures and folders."""
    return all(Path(word).is_dir() or is_capture(word) for word in words)


def _program(options: SanitizeOptions, command: list[str], collector: Collector, unfinished: Unfinished) -> int:
    """Run a program and collect findings and what was cut short; return its exit code."""
    from luthier.run import run_program, virtual_devices_for

    if options.scheduler is not None:
        raise LuthierError("--scheduler works for captures, not for programs")
    devices = virtual_devices_for(options.device, command)
    return run_program(command, devices, findings=collector, seconds=options.time_limit, unfinished=unfinished)


def _captures(options: SanitizeOptions, names: list[str], collector: Collector) -> int:
    """Replay captures and collect findings; return the exit status that they have without findings."""
    from luthier.emulator.inspection.checks import DEVICE_CHECKS
    from luthier.findings.finding import Unchecked
    from luthier.findings.kinds import HANDED, FindingKind
    from luthier.replay.launches import Sanitize

    for check in sorted(set(options.check) - set(DEVICE_CHECKS)):
        raise LuthierError(f"the check {check} works for programs, not for captures")
    if HANDED & collector.kinds:
        raise LuthierError("--init copies works for programs, not for captures, which copy nothing")
    if FindingKind.OUTSIDE.label in collector.kinds:
        collector.leave(Unchecked(0, "", "bounds to the byte of memory", "captures record whole pages only"))
    job = Sanitize(kinds=tuple(sorted(collector.kinds)), device=options.device)
    status = 0
    for row in outcomes(job, captures_of(names), options.scheduler, options.time_limit):
        for record in row.records:
            collector.keep(record)
        if row.status and not (row.records and row.explained):
            say_text(f"luthier: {visible(row.file)}: {row.what}", file=sys.stderr)
        status = max(status, row.status)
    return status
