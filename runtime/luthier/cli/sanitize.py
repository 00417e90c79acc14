"""``luthier sanitize``: run an unmodified program on virtual devices, or on GPUs, and check it for errors."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from luthier.cli.captures import ONLY_LAUNCHES, captures_of, outcomes, scheduler_option
from luthier.cli.common import json_file, put_json
from luthier.cli.findings import HELP, FindingOptions, Findings, check_option
from luthier.cli.options import CommandOptions, group, option
from luthier.cli.run import seconds
from luthier.cli.selection import LaunchOptions, is_capture
from luthier.errors import LuthierError
from luthier.findings.kinds import CHECKS, DEFAULT
from luthier.terminal import say_text, visible

if TYPE_CHECKING:
    from luthier.run import MachineGpus, Unfinished
    from luthier.run.findings.collector import Collector


_OBSERVED = "launches that checks observe (on virtual devices memory, leak, host, in-flight: always all)"


class SanitizeOptions(CommandOptions):
    """Options of ``luthier sanitize``."""

    check: list[str] = check_option(before="--checks", help=f"{HELP} (default: {DEFAULT})")
    findings: FindingOptions = group(FindingOptions)
    device: str | None = option(
        "--device",
        metavar="DEVICES",
        help="as for `luthier run` or, for captures, `replay`; on GPUs of the machine (hip) hooks check memory, race "
        "(in LDS) and fp",
    )
    chosen: LaunchOptions = group(LaunchOptions, title=_OBSERVED)
    budget: float | None = option(
        "--budget",
        title=_OBSERVED,
        type=seconds,
        metavar="SECONDS",
        help="observe the first launch of each kernel and size, and of the others a fixed selection, fewer and fewer, "
        "until observed launches have taken this time",
    )
    time_limit: float | None = option(
        "--time-limit",
        type=seconds,
        metavar="SECONDS",
        help="stop the program after this time; the exit code is then 124; for captures, stop a replay",
    )
    scheduler: str | None = scheduler_option()
    json: str | None = option("--json", metavar="FILE", help="write the findings as JSON; - is standard error")
    program: list[str] = option(
        "program",
        default=[],
        nargs=argparse.REMAINDER,
        metavar="PROGRAM",
        help="program to run, with its arguments; or captures, and folders of them",
    )

    @property
    def selects(self) -> bool:
        """Return whether an option selects launches."""
        return self.budget is not None or self.chosen != LaunchOptions.defaults()


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
        json_file(options.json)
    unfinished, check_tools = Unfinished(), None
    if are_captures(command):
        findings = _findings_of_captures(options)
        code = _captures(options, command, findings.collector)
    else:
        findings, code, check_tools = _checked_program(options, command, unfinished)
    status = findings.tell(unfinished.what)
    if options.json:
        data = {"schema": 1, "exit_code": code, **findings.to_json()}
        data |= {"ended_before": unfinished.what or None, "unfinished": unfinished.to_json()}
        put_json(options.json, data, stream=sys.stderr)
    if check_tools is not None:
        check_tools()
    return status or end_as(code)


def are_captures(words: Sequence[str]) -> bool:
    """Return whether a command consists of captures and folders."""
    return all(Path(word).is_dir() or is_capture(word) for word in words)


_Checked = tuple[Findings, int, Callable[[], None] | None]
"""Findings of a program, its exit code, and what raises the errors of tools after the findings are printed."""


def _checked_program(options: SanitizeOptions, command: list[str], unfinished: Unfinished) -> _Checked:
    """Run a program, and collect findings and what was cut short."""
    from luthier.run import MachineGpus, devices_for, run_program

    if options.scheduler is not None:
        raise LuthierError("--scheduler works for captures, not for programs")
    devices = devices_for(options.device, command)
    if isinstance(devices, MachineGpus):
        return _checked_by_hooks(options, command, devices, unfinished)
    findings = Findings(
        options.check,
        options.findings,
        selection=options.chosen.selection(),
        budget=options.budget,
    )
    if options.selects and not any(CHECKS[check].observes for check in findings.chosen.checks):
        raise LuthierError(
            f"options that select launches have no effect on {', '.join(findings.chosen.checks)}, which check "
            "every launch: leave them out, or add another check"
        )
    seconds, collector = options.time_limit, findings.collector
    return findings, run_program(command, devices, findings=collector, seconds=seconds, unfinished=unfinished), None


def _checked_by_hooks(
    options: SanitizeOptions, command: list[str], devices: MachineGpus, unfinished: Unfinished
) -> _Checked:
    """Do the same on GPUs of the machine, under the tools that check with hooks.

    Raises:
        LuthierError: an option or a named check needs virtual devices, or a tool is missing.
    """
    from luthier.run import Later, results, run_program
    from luthier.run.hook_checks import NOT_ON_GPUS, collect, hook_tools
    from luthier.run.instrumentation import Instrumentation
    from luthier.tool import parse_tools

    if options.budget is not None:
        raise LuthierError("--budget works on virtual devices only: choose launches with --launches or --preset")
    for check in options.check:
        if check in NOT_ON_GPUS:
            raise LuthierError(f"the check {check} cannot run on {devices.names[0]}: {NOT_ON_GPUS[check]}")
    findings = Findings(options.check, options.findings, impossible=NOT_ON_GPUS, where="the GPU")
    tools = parse_tools(hook_tools(findings.collector.kinds))
    tools.follow_sources()

    def begin() -> Instrumentation:
        made = Instrumentation(tools, options.chosen.selection())
        made.begin()
        return made

    later = Later(begin, watches_memory=tools.watches_memory)
    code = run_program(command, devices, later, seconds=options.time_limit, unfinished=unfinished)
    instrumentation = later.get()
    instrumentation.end()
    collect(instrumentation, findings.collector)
    return findings, code, partial(results.check_tools, instrumentation)


def _findings_of_captures(options: SanitizeOptions) -> Findings:
    """Return the findings that checks of captures can have, and record what these cannot check.

    Raises:
        LuthierError: an option or a named check is for programs.
    """
    from luthier.findings.finding import Unchecked
    from luthier.findings.kinds import DEVICE_CHECKS, HANDED, FindingKind

    if options.selects:
        raise LuthierError("options that select launches work for programs, not for captures: name the captures")
    for check in sorted(CHECKS.keys() & set(options.check) - set(DEVICE_CHECKS)):
        raise LuthierError(f"the check {check} works for programs, not for captures")
    impossible = dict.fromkeys(CHECKS.keys() - set(DEVICE_CHECKS), ONLY_LAUNCHES)
    findings = Findings(options.check, options.findings, impossible=impossible)
    kinds, leave = findings.collector.kinds, findings.collector.leave
    if HANDED & kinds:
        raise LuthierError("--init copies works for programs, not for captures, which copy nothing")
    if FindingKind.OUTSIDE.label in kinds:
        leave(Unchecked(0, "", "bounds to the byte of memory", "captures record whole pages only"))
    return findings


def _captures(options: SanitizeOptions, names: list[str], collector: Collector) -> int:
    """Replay captures and collect findings; return the exit status that they have without findings."""
    from luthier.findings.scope import CheckedScope
    from luthier.replay.jobs import ReplayStatus
    from luthier.replay.launches import Sanitize

    job = Sanitize(kinds=tuple(sorted(collector.kinds)), device=options.device)
    status, launches, kernels = 0, 0, set()
    for row in outcomes(job, captures_of(names), options.scheduler, options.time_limit):
        for record in row.records:
            collector.keep(record)
        if row.status and not (row.records and row.explained):
            say_text(f"luthier: {visible(row.file)}: {row.what}", file=sys.stderr)
        if row.status != ReplayStatus.IMPOSSIBLE:
            launches += 1
            kernels.add(row.kernel)
        status = max(status, row.status)
    collector.scope = partial(CheckedScope, launches, launches, kernels=len(kernels))
    return status
