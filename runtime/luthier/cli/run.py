"""``luthier run``: run an unmodified program on virtual devices or GPUs, with or without tools."""

from __future__ import annotations

import argparse
import hashlib  # noqa: F401  # where memory is short later, its import logs a traceback for each hash
import itertools
import math
import os
import resource
import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from luthier.cli.common import (
    hoist_option,
    json_file,
    mangled_option,
    put_json,
    say_fitting,
    shown_tables,
    tool_option,
)
from luthier.cli.findings import HELP, FindingOptions, Findings, check_option, unchecked_under_tools
from luthier.cli.options import CommandOptions, Need, group, option
from luthier.cli.progress import ProgressLine
from luthier.cli.selection import LaunchOptions
from luthier.errors import LuthierError
from luthier.support.extras import require
from luthier.support.processes import signal_name
from luthier.support.wording import counted
from luthier.terminal import say, say_text

if TYPE_CHECKING:
    from luthier.projection.kept import MeasuredRun
    from luthier.run import Devices, Later, Unfinished, VirtualGpu
    from luthier.run.executed import Executed
    from luthier.run.instrumentation import Instrumentation
    from luthier.run.record import Recorder
    from luthier.run.sampling import LaunchSampler
    from luthier.run.selection import Selection
    from luthier.support.table import Table
    from luthier.tool import ToolGroup

_SELECT = "what is instrumented"
_TOOLS = Need(("tool", "capture"), "applies to tools only: give a tool with -t")
_FOLDER = Need(("output",), "adds to the results of -o: give a folder with -o")


def seconds(text: str) -> float:
    """Parse a positive number of seconds."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return value


class RunOptions(CommandOptions):
    """Options of ``luthier run``."""

    tool: list[str] = tool_option()
    device: str | None = option(
        "--device",
        metavar="DEVICES",
        help="GPUs that the program finds: virtual ones, e.g. emu:gfx906,emu:gfx1030, or the machine's own: hip "
        "(all), hip:0,hip:2 (default: a virtual one that the program has code for, if possible emu:gfx90a)",
    )
    time_limit: float | None = option(
        "--time-limit",
        type=seconds,
        in_summary=True,
        metavar="SECONDS",
        help="stop the program after this time; the exit code is then 124",
    )
    debugger: bool = option(
        "--debugger",
        default=False,
        instead="ROCm's debugger attaches to programs on GPUs without Luthier",
        action="store_true",
        help="let ROCm's debugger library (rocm-dbgapi) attach to the program; on gfx90a and gfx942",
    )
    check: list[str] = check_option(
        title="checks",
        instead="use -t memcheck, which checks with hooks",
        in_summary=True,
        help=f"look for errors; {HELP}",
    )
    findings: FindingOptions = group(
        FindingOptions, title="checks", needs=Need(("check",), "applies to findings: name checks with --check")
    )
    chosen: LaunchOptions = group(LaunchOptions, title=_SELECT, needs=_TOOLS)
    device_numbers: str | None = option(
        "--device-numbers",
        before="--devices",
        title=_SELECT,
        needs=_TOOLS,
        in_summary=True,
        metavar="N[,N...]",
        help="devices by number (default: all)",
    )
    runtime_kernels: bool = option(
        "--runtime-kernels",
        default=False,
        title=_SELECT,
        needs=_TOOLS,
        in_summary=True,
        action="store_true",
        help="also kernels that HIP itself launches to copy and fill memory",
    )
    hoist: bool | None = hoist_option(title=_SELECT, needs=_TOOLS, in_summary=True)
    output: str | None = option(
        "-o", "--output", title="results", metavar="RUN", help="new folder for results, for `luthier report`"
    )
    calls: bool = option(
        "--calls",
        default=False,
        title="results",
        needs=_FOLDER,
        action="store_true",
        help="with -o: also record calls of HIP functions and ranges (roctx), for timelines",
    )
    stacks: bool = option(
        "--no-stacks",
        default=True,
        title="results",
        needs=_FOLDER,
        action="store_false",
        help="with -o: do not record the calls of the host that launch each kernel",
    )
    capture: bool = option(
        "--capture",
        default=False,
        title="results",
        needs=_FOLDER,
        action="store_true",
        help="with -o: capture the selected launches to the subfolder captures, for `luthier replay`",
    )
    json: str | None = option(
        "--json", title="results", metavar="FILE", help="write all results as JSON; - is standard error"
    )
    executed: bool = option(
        "--executed",
        default=False,
        title="results",
        instead="use -t instr_count, which counts with hooks",
        action="store_true",
        help="print the number of instructions that virtual devices executed, by kernel",
    )
    project: str | None = option(
        "--project",
        title="results",
        instead="it measures launches on virtual devices",
        in_summary=True,
        nargs="?",
        const="",
        metavar="GPU,...",
        help="measure launches while they run, and print how long they would take on GPUs, by product or processor: "
        "mi250x,gfx1100 (default: the one that stands for the virtual device); write -- before the program",
    )
    keep_command: bool = option(
        "--no-command",
        default=True,
        title="results",
        action="store_false",
        help="omit command lines, which may contain secrets, from the results of -o and --json",
    )
    mangled: bool = mangled_option(title="results")
    allow_nothing: bool = option(
        "--allow-nothing",
        default=False,
        title="results",
        action="store_true",
        help="exit with 0 even if no launch was instrumented",
    )
    program: list[str] = option(
        "program", default=[], nargs=argparse.REMAINDER, metavar="PROGRAM", help="program to run, with its arguments"
    )

    @property
    def command(self) -> list[str]:
        """Return the program with its arguments."""
        return self.program[1:] if self.program[:1] == ["--"] else self.program

    def selection(self) -> Selection:
        """Return the launches to instrument.

        Raises:
            LuthierError: an option is malformed.
        """
        try:
            devices = None if self.device_numbers is None else frozenset(map(int, self.device_numbers.split(",")))
        except ValueError:
            raise LuthierError(f"--device-numbers must be N[,N...], not {self.device_numbers!r}") from None
        return self.chosen.selection(devices, runtime_kernels=self.runtime_kernels)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.usage = "luthier run [-t TOOL[:OPT=VAL,...]] [--device DEVICES] [OPTION ...] [--] PROGRAM [ARGUMENT ...]"
    RunOptions.declare(parser)


def run(args: argparse.Namespace) -> int:
    """Run the command and return its exit status."""
    return run_watched(RunOptions.read(args))


def run_watched(options: RunOptions, answer: Callable[[], None] | None = None) -> int:
    """Run a program with everything that observes it, print the results, and return the exit status.

    Args:
        options: options of the command line.
        answer: prints the results in place of the tools' tables and the coverage; None: these are printed.

    Raises:
        LuthierError: an option is invalid, or a tool could not do its work.
    """
    from luthier.run import MachineGpus, Unfinished, devices_for

    _warn_of_late_options(options)
    if not options.command:
        raise LuthierError("no program given: name it after the options")
    devices = devices_for(options.device, options.command)
    if isinstance(devices, MachineGpus):
        options.check_on_gpus()
    elif options.debugger:
        _check_debugger(options, devices)
    findings = None if not options.check else Findings(options.check, options.findings)
    executed = None
    if options.executed:
        from luthier.run.executed import Executed

        executed = Executed()
    sampler = None if options.project is None else _sampler(options)
    if options.json:
        json_file(options.json)
    if options.output:
        require("pyarrow")
    watched = _WatchedRun(options, devices, findings, executed, Unfinished(), sampler, shows_tables=answer is None)
    has_results = bool(options.tool or options.output or options.json)
    code = watched.run() if has_results else watched.run_plainly()
    if code < 0 and options.json != "-":  # the document has the exit code
        what = "partial results: " if has_results else ""
        say(f"luthier: {what}the program was ended by {signal_name(-code)}", file=sys.stderr)
    try:
        if answer is not None:
            answer()
    finally:  # findings are printed even if the answer cannot be written
        status = _end(code, findings, watched.unfinished)
    return status


def _sampler(options: RunOptions) -> LaunchSampler:
    """Return what measures the launches that are projected.

    Raises:
        LuthierError: there is no such GPU, or the launches are also instrumented or checked.
    """
    if options.tool or options.check:
        other = "-t" if options.tool else "--check"
        raise LuthierError(f"--project measures the program's own code: give it without {other}, in a run of its own")
    from luthier.cli.projections import machines_of
    from luthier.run.sampling import LaunchSampler

    return LaunchSampler(machines_of(options.project or None, (), option="--project"))


def _check_debugger(options: RunOptions, devices: Sequence[VirtualGpu]) -> None:
    """Check that a debugger can see the waves of all devices as the program launches them.

    Raises:
        LuthierError: it cannot.
    """
    from luthier.run.topology import DEBUGGED

    without = {
        "-t": options.tool,
        "--check": options.check,
        "--project": options.project is not None,
        "--capture": options.capture,
    }
    for flag, is_given in without.items():
        if is_given:
            raise LuthierError(f"--debugger shows the program's own code: give it without {flag}")
    for device in devices:
        if device.target.target.name not in DEBUGGED:
            names = " and ".join(DEBUGGED)
            raise LuthierError(f"--debugger works on {names}, not on {device.target.target.name}")


def _warn_of_late_options(options: RunOptions) -> None:
    """Warn if no tool is given, and the program's arguments name one: options behind the program are the program's."""
    words = options.program
    if options.tool or words[:1] == ["--"] or not {"-t", "--tool"} & set(words):
        return
    from luthier.tool.tool import find_entry_points

    tools = {point.name for point in find_entry_points().values()}
    for flag, value in itertools.pairwise(words):
        if flag in ("-t", "--tool") and value.partition(":")[0] in tools:
            say(
                f"luthier run: warning: {flag} {value} is behind the program and was passed to it, so no tool runs; "
                f"write luthier run {flag} {value} {words[0]}",
                file=sys.stderr,
            )
            return


def _end(code: int, findings: Findings | None, unfinished: Unfinished) -> int:
    """Print the findings of checks and return the exit status."""
    status = 0 if findings is None else findings.tell(unfinished.what)
    return status or end_as(code)


@dataclass
class _WatchedRun:
    """A run of the program with everything that observes it."""

    options: RunOptions
    devices: Devices
    findings: Findings | None
    executed: Executed | None
    unfinished: Unfinished
    sampler: LaunchSampler | None
    shows_tables: bool
    recorder: Recorder | None = None

    def run_plainly(self) -> int:
        """Run the program without the tool library; return its exit status, as `run_program` does."""
        code = self._run_program(None)
        self._print_executed()
        self._project()
        return code

    def run(self) -> int:
        """Run the program with the tool library, under tools or not; return its exit status, as `run_program` does."""
        options = self.options
        if options.output:
            from luthier.run.record import Recorder

            self.recorder = Recorder(Path(options.output), calls=options.calls, stacks=options.stacks)
        try:
            return self._run_recorded()
        finally:
            if self.recorder is not None:
                self.recorder.discard()

    def _run_program(self, later: Later | None) -> int:
        from luthier.run import run_program

        return run_program(
            self.options.command,
            self.devices,
            later,
            self.executed,
            findings=None if self.findings is None else self.findings.collector,
            sampler=self.sampler,
            seconds=self.options.time_limit,
            ranges=self.options.calls or (self.recorder is not None and self.recorder.stacks),
            debugger=self.options.debugger,
            unfinished=self.unfinished,
        )

    def _run_recorded(self) -> int:
        from luthier.run import Later, MachineGpus
        from luthier.tool import Tool, parse_tools

        options = self.options
        tools, selection = parse_tools(options.tool), options.selection()
        tools.follow_sources(None if isinstance(self.devices, MachineGpus) else self.devices[0].target)
        later = Later(partial(self._begin, tools, selection), watches_memory=tools.watches_memory)
        if any(type(tool).at_init is not Tool.at_init for tool in tools.tools):
            later.get()  # calls their `at_init` before the program starts
        unchecked = unchecked_under_tools(self.findings.chosen.checks) if self.findings and options.tool else ()
        if unchecked:
            say(
                f"luthier run: instrumented kernels are not checked by {', '.join(unchecked)}",
                file=sys.stderr,
            )
        code = self._run_program(later)
        instrumentation = later.get()
        instrumentation.end()
        if instrumentation.captures is not None:
            from luthier.cli.captures import reduce_captures, tell_refused

            kept = reduce_captures(instrumentation.captures)
            tell_refused(instrumentation.captures)
            say(f"luthier: {counted(len(kept), 'launch')} captured", file=sys.stderr)
        self._print_executed()
        self._report(instrumentation, code, self._project())
        return code

    def _begin(self, tools: ToolGroup, selection: Selection) -> Instrumentation:
        """Return the instrumentation of the kernels."""
        from luthier.run.instrumentation import CAPTURES, Instrumentation

        def patching(kernel: str) -> ProgressLine:
            seen, launches = instrumentation.patcher.seen, sum(session.launches for session in instrumentation.sessions)
            return ProgressLine(f"luthier: {seen} kernels, {launches} launches so far; patching {kernel}")

        captures = None
        if self.options.capture and self.recorder is not None:
            from luthier.run.captures import MOST, Captures

            captures = Captures(self.recorder.folder / CAPTURES, selection, MOST, hold=True)
        instrumentation = Instrumentation(
            tools, selection, self.recorder, patching, hoist=self.options.hoist, captures=captures
        )
        instrumentation.begin()
        return instrumentation

    def _print_executed(self) -> None:
        executed = self.executed
        if executed is not None:
            table = executed.table()
            texts = shown_tables([table], sys.stderr, mangled=self.options.mangled) if table.rows else ()
            _print_section("executed", texts)
            for note in executed.notes:
                say(f"  {note}", file=sys.stderr)
            if not (table.rows or executed.notes or executed.elsewhere):
                say("  no kernel was executed", file=sys.stderr)
            if executed.elsewhere:
                say(f"  and {executed.elsewhere} wave-instructions in patched kernels and the runtime", file=sys.stderr)

    def _project(self) -> MeasuredRun | None:
        """Print the projected times of the measured launches, and keep them in the run folder; None: none are wanted.

        Raises:
            LuthierError: they cannot be written.
        """
        if self.sampler is None:
            return None
        from luthier.cli.projections import print_run
        from luthier.projection.kept import WRITTEN, lifted_kernels, project_run, write_measured

        measured, objects = self.sampler.result()
        kernels = lifted_kernels(measured, objects)
        projected = project_run(measured, kernels, places=bool(self.options.output or self.options.json))
        measured = replace(measured, projections=tuple(projected.projections), refused=tuple(projected.refused))
        if self.options.json != "-":
            print_run("run", projected, measured.left_out, "kernel", sys.stderr, mangled=self.options.mangled)
        if self.recorder is not None:
            for lifted in kernels.lifted.values():
                self.recorder.listed(lifted)
            self.recorder.added(WRITTEN)
            write_measured(self.recorder.folder, measured, objects)
        return measured

    def _report(self, instrumentation: Instrumentation, code: int, measured: MeasuredRun | None) -> None:
        """Report on standard error, since standard output belongs to the program, and in files.

        Args:
            measured: projected launches.

        Raises:
            LuthierError: nothing was instrumented, and ``--allow-nothing`` is not given.
        """
        from luthier.run import MachineGpus, results

        options, devices = self.options, self.devices
        reported = list(results.tables(instrumentation, has_clock=isinstance(devices, MachineGpus)))
        if self.shows_tables and options.json != "-":
            self._print_tables(instrumentation, reported)
        summary = results.summary(
            instrumentation,
            options.command if options.keep_command else None,
            code,
            reported,
            self.executed,
            devices.names if isinstance(devices, MachineGpus) else [f"emu:{gpu.target}" for gpu in devices],
            options.summary(),
            self.unfinished,
        )
        if self.recorder is not None:
            self.recorder.finish(instrumentation, summary)
        if options.json:
            data = results.document(instrumentation, summary)
            if measured is not None:
                from luthier.projection.kept import projections_json

                data |= projections_json(measured)
            data |= {} if self.findings is None else self.findings.to_json()
            put_json(options.json, data, stream=sys.stderr)
        for check in (results.check_tools, *(() if options.allow_nothing else (results.check,))):
            try:
                check(instrumentation)
            except LuthierError as problem:
                if code == 0:
                    raise
                # The exit code of a program that fails takes precedence.
                say_fitting(f"luthier run: error: {problem}", file=sys.stderr)

    def _print_tables(self, instrumentation: Instrumentation, reported: Sequence[tuple[str, list[Table]]]) -> None:
        from luthier.run import results
        from luthier.run.selection import Selection

        kernels = results.kernels(instrumentation)
        tables = [table for _, of_tool in reported for table in of_tool]
        # A kernel in which the tools want nothing is examined by that; which of its launches were selected is unknown.
        idle = sum(kernel.launches for kernel in kernels if kernel.patched.idle)
        launches: int | None = idle + sum(kernel.instrumented for kernel in kernels)
        if idle and self.options.selection().chosen != Selection().chosen:
            launches = None
        shown = [*(table if table.rows else _nothing(table, launches) for table in tables), results.coverage(kernels)]
        texts = iter(shown_tables(shown, sys.stderr, mangled=self.options.mangled))
        for name, of_tool in reported:
            _print_section(name, itertools.islice(texts, len(of_tool)))
        if kernels and reported:
            _print_section("coverage", texts)
        if hoisted := sum(kernel.patched.report.hoisted for kernel in kernels if kernel.patched.report is not None):
            say_fitting(
                f"luthier: {hoisted} hooks were replaced by counters in registers, summed when waves end",
                file=sys.stderr,
            )
        for (tool, channel), records in instrumentation.channels.unkept.items():
            if records:
                say_fitting(
                    f"luthier: {counted(records, 'record')} of {tool}'s channel {channel} "
                    f"{'was' if records == 1 else 'were'} not kept: "
                    "-o RUN keeps them in a table",
                    file=sys.stderr,
                )
        if self.unfinished.launches and reported:
            say_fitting(
                f"luthier: the tables lack what waves of {self.unfinished.what} counted in registers, since they did "
                "not end",
                file=sys.stderr,
            )
        for fault in instrumentation.faults:
            if fault not in instrumentation.failures:  # a failure is reported as the final error
                say_fitting(f"luthier: {fault}", file=sys.stderr)


def _nothing(table: Table, launches: int | None) -> Table:
    """Return a table without rows as a line that says so.

    Args:
        launches: number of launches that were examined; None: of some kernels, an unknown part.
    """
    from luthier.support.table import Table

    where = f" in {counted(launches, 'launch')}" if launches else "; no launch was examined"
    where = " in the selected launches" if launches is None else where
    return Table(f"{table.title or ', '.join(table.columns)}: none{where}", (), ())


def _print_section(title: str, texts: Iterable[str]) -> None:
    say(f"== {title}", file=sys.stderr)
    for text in texts:
        say_text(text, file=sys.stderr)


def end_as(code: int) -> int:
    """Return a program's exit code, or end by the signal that ended it."""
    if code < 0:
        _die_of(-code)
    return code


def _die_of(number: int) -> None:
    """End by the same signal as the program, so that the caller sees the same status, without a second core dump."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    signal.signal(number, signal.SIG_DFL) if number not in (signal.SIGKILL, signal.SIGSTOP) else None
    os.kill(os.getpid(), number)
    raise SystemExit(128 + number)  # a signal that stops or is ignored
