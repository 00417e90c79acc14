"""``luthier run``: an unmodified program on virtual devices or GPUs, under tools or not."""

from __future__ import annotations

import argparse
import itertools
import math
import os
import resource
import signal
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from luthier.cli.common import (
    add_hoist_argument,
    add_mangled_argument,
    add_tool_argument,
    say_fitting,
    shown_tables,
)
from luthier.cli.findings import (
    FOUND,
    HELP,
    Findings,
    add_files_arguments,
    add_floats_argument,
    add_init_argument,
    unchecked_under_tools,
)
from luthier.cli.progress import Progress
from luthier.cli.selection import add_kernel_argument
from luthier.errors import LuthierError
from luthier.support import strict_json
from luthier.support.files import check_writable, write_atomically
from luthier.support.wording import counted
from luthier.terminal import say, say_raw, say_text, visible_lines

if TYPE_CHECKING:
    from luthier.run import Devices, Unfinished
    from luthier.run.executed import Executed
    from luthier.run.instrumentation import Instrumentation
    from luthier.run.record import Recorder
    from luthier.run.selection import Selection

PRESETS = {"once": ("0:1", False), "grids": (None, True), "sample": ("::100", False)}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.usage = "luthier run [-t TOOL[:OPT=VAL,...]] [--device DEVICES] [OPTION ...] [--] PROGRAM [ARGUMENT ...]"
    add_tool_argument(parser, required=False)
    parser.add_argument(
        "--device",
        metavar="DEVICES",
        help="the GPUs that the program finds: virtual ones, e.g. emu:gfx906,emu:gfx1030, or the machine's own: hip "
        "(all), hip:0,hip:2 (default: a virtual one that the program has code for, emu:gfx90a if it can be)",
    )
    parser.add_argument(
        "--time-limit", type=seconds, metavar="SECONDS", help="end the program after so long; the exit code is 124 then"
    )
    checks = parser.add_argument_group("checks")
    checks.add_argument("--check", metavar="CHECK[,CHECK]", help=f"look for what is done wrong; {HELP}")
    add_floats_argument(checks)
    add_init_argument(checks)
    add_files_arguments(checks)
    select = parser.add_argument_group("what of the program is instrumented")
    add_kernel_argument(select)
    select.add_argument(
        "--launches",
        metavar="[FIRST:]END[:STEP]",
        help="launches of each kernel by number, from 0: 10 is the first ten, ::100 every hundredth",
    )
    select.add_argument(
        "--unique-grid", action="store_true", help="of launches of a kernel with the same sizes only the first"
    )
    select.add_argument("--devices", metavar="N[,N...]", help="devices by number (default: all)")
    select.add_argument(
        "--preset",
        choices=PRESETS,
        help="once: each kernel's first launch; grids: one launch for each grid; sample: every hundredth",
    )
    select.add_argument(
        "--runtime-kernels", action="store_true", help="also what HIP launches of its own to copy and fill memory"
    )
    add_hoist_argument(select)
    results = parser.add_argument_group("results")
    results.add_argument("-o", "--output", metavar="RUN", help="a new folder for results: see `luthier report`")
    results.add_argument(
        "--calls",
        action="store_true",
        help="record the program's calls of HIP functions and its ranges (roctx), too: for time lines, with -o",
    )
    results.add_argument(
        "--capture",
        action="store_true",
        help="capture the selected launches, to the folder captures of -o: `luthier replay` runs them again",
    )
    results.add_argument("--json", metavar="FILE", help="write all results as JSON; - is standard error")
    results.add_argument(
        "--executed", action="store_true", help="print how many instructions the virtual devices executed, by kernel"
    )
    results.add_argument(
        "--no-command",
        dest="keep_command",
        action="store_false",
        help="leave command lines out of what -o and --json write: they may have secrets in them",
    )
    add_mangled_argument(results)
    results.add_argument("--allow-nothing", action="store_true", help="it is no error if nothing was instrumented")
    parser.add_argument("program", nargs=argparse.REMAINDER, metavar="PROGRAM", help="what to run, with its arguments")


def run(args: argparse.Namespace) -> int:
    """Do what the command line asks for; the exit status."""
    from luthier.run import MachineGpus, Unfinished, devices_for, run_program

    command = args.program[1:] if args.program[:1] == ["--"] else args.program
    if not command:
        raise LuthierError("no program given")
    devices = devices_for(args.device, command)
    if isinstance(devices, MachineGpus):
        _check_on_gpus(args)
        args.device = ",".join(devices.names)
    else:
        args.device = ",".join(f"emu:{gpu.target}" for gpu in devices)
    if args.check is None:
        _check_without_checks(args)
    findings = None if args.check is None else Findings(args.check, args)
    executed = None
    if args.executed:
        from luthier.run.executed import Executed

        executed = Executed()
    if not args.tool and not args.capture:
        _check_without_tools(args)
    if args.capture and not args.output:
        raise LuthierError("--capture writes to the folder of results: give one with -o")
    if args.calls and not args.output:
        raise LuthierError("--calls is about what -o writes: give a folder with -o")
    if args.json and args.json != "-":
        check_writable(args.json)
    unfinished = Unfinished()
    if not (args.tool or args.output or args.json):
        collector = None if findings is None else findings.collector
        code = run_program(
            command,
            devices,
            executed=executed,
            findings=collector,
            seconds=args.time_limit,
            unfinished=unfinished,
        )
        _print_executed(executed, args)
        return _end(code, findings, unfinished)
    recorder = None
    if args.output:
        from luthier.run.record import Recorder

        recorder = Recorder(Path(args.output), calls=args.calls)
    try:
        code = _run_watched(args, command, devices, recorder, executed, findings, unfinished)
    finally:
        if recorder is not None:
            recorder.discard()
    return _end(code, findings, unfinished)


def _end(code: int, findings: Findings | None, unfinished: Unfinished) -> int:
    """Tell what checks have found; the exit status."""
    status = 0 if findings is None else findings.tell(unfinished.what)
    return status or end_as(code)


def _check_on_gpus(args: argparse.Namespace) -> None:
    """Raise an error if something is asked for that only virtual devices do.

    Raises:
        LuthierError: it is.
    """
    for name, remedy in (("executed", "-t instr_count counts by hooks"), ("check", "-t memcheck looks by hooks")):
        if getattr(args, name):
            raise LuthierError(f"--{name} is what virtual devices do, not {args.device}: {remedy}")


def _check_without_checks(args: argparse.Namespace) -> None:
    """Raise an error if options for findings are given without a check.

    Raises:
        LuthierError: there are such options.
    """
    for name, default in _OF_CHECKS.items():
        if getattr(args, name) != default:
            raise LuthierError(f"--{name.replace('_', '-')} is about what checks find: name them with --check")


def _check_without_tools(args: argparse.Namespace) -> None:
    """Raise an error if options for instrumentation are given without a tool.

    Raises:
        LuthierError: there are such options.
    """
    for name, default in _OF_TOOLS.items():
        if getattr(args, name) != default:
            raise LuthierError(f"--{name.replace('_', '-')} is about what tools instrument: give a tool with -t")


_OF_CHECKS: dict[str, object] = {
    "fp": None,
    "init": None,
    "suppress": [],
    "gen_suppressions": None,
    "sarif": None,
    "error_exitcode": FOUND,
}
"""Options for what checks find, with their values where they are not given."""

_OF_TOOLS: dict[str, object] = {
    "kernel": [],
    "launches": None,
    "unique_grid": False,
    "devices": None,
    "preset": None,
    "runtime_kernels": False,
    "hoist": None,
}
"""Options, with their values where they are not given."""


def _run_watched(
    args: argparse.Namespace,
    command: list[str],
    devices: Devices,
    recorder: Recorder | None,
    executed: Executed | None,
    findings: Findings | None,
    unfinished: Unfinished,
) -> int:
    """Run the program with the tool library, under tools or not; its exit status, as of `run_program`."""
    from luthier.run import Later, run_program
    from luthier.tool import Tool, parse_tools

    tools, selection = parse_tools(args.tool), _selection(args)

    def begin() -> Instrumentation:
        from luthier.run.instrumentation import CAPTURES, Instrumentation

        def patching(kernel: str) -> Progress:
            seen, launches = instrumentation.patcher.seen, sum(one.launches for one in instrumentation.sessions)
            return Progress(f"luthier: {seen} kernels, {launches} launches so far; patching {kernel}")

        captures = None
        if args.capture and recorder is not None:
            from luthier.run.captures import MOST, Captures

            captures = Captures(recorder.folder / CAPTURES, selection, MOST, hold=True)
        instrumentation = Instrumentation(tools, selection, recorder, patching, hoist=args.hoist, captures=captures)
        instrumentation.begin()
        return instrumentation

    later = Later(begin, watches_memory=tools.watches_memory)
    if any(type(tool).at_init is not Tool.at_init for tool in tools.tools):
        later.get()  # their `at_init` is called before the program starts
    unchecked = unchecked_under_tools(args.check) if args.check and args.tool else ()
    if unchecked:
        say(
            f"luthier run: kernels that tools have changed are not checked by {', '.join(unchecked)}",
            file=sys.stderr,
        )
    collector = None if findings is None else findings.collector
    code = run_program(
        command,
        devices,
        later,
        executed,
        findings=collector,
        seconds=args.time_limit,
        ranges=args.calls,
        unfinished=unfinished,
    )
    instrumentation = later.get()
    instrumentation.end()
    if instrumentation.captures is not None:
        from luthier.cli.captures import reduce_captures, tell_refused

        kept = reduce_captures(instrumentation.captures)
        tell_refused(instrumentation.captures)
        say(f"luthier: {counted(len(kept), 'launch')} captured", file=sys.stderr)
    _print_executed(executed, args)
    _report(instrumentation, recorder, executed, command, code, args, findings, unfinished)
    return code


def seconds(text: str) -> float:
    """Return a positive number of seconds, as an argument."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds above 0")
    return value


def _print_executed(executed: Executed | None, args: argparse.Namespace) -> None:
    if executed is not None:
        table = executed.table()
        _print_section("executed", shown_tables([table], args, sys.stderr) if table.rows else ())
        for note in executed.notes:
            say(f"  {note}", file=sys.stderr)
        if not (table.rows or executed.notes or executed.elsewhere):
            say("  no kernel was executed", file=sys.stderr)
        if executed.elsewhere:
            say(f"  and {executed.elsewhere} wave-instructions of patched kernels and the runtime", file=sys.stderr)


def _selection(args: argparse.Namespace) -> Selection:
    from luthier.run.selection import Selection, parse_launches

    launches, unique = PRESETS.get(args.preset, (None, False))
    first, end, step = parse_launches(args.launches or launches or "::")
    try:
        devices = None if args.devices is None else frozenset(map(int, args.devices.split(",")))
    except ValueError:
        raise LuthierError(f"devices are numbers separated by commas, not {args.devices!r}") from None
    return Selection(tuple(args.kernel), first, end, step, args.unique_grid or unique, devices, args.runtime_kernels)


def _print_section(title: str, texts: Iterable[str]) -> None:
    say(f"== {title}", file=sys.stderr)
    for text in texts:
        say_text(text, file=sys.stderr)


def _report(
    instrumentation: Instrumentation,
    recorder: Recorder | None,
    executed: Executed | None,
    command: list[str],
    code: int,
    args: argparse.Namespace,
    findings: Findings | None,
    unfinished: Unfinished,
) -> None:
    """Report on standard error, since standard output is the program's.

    Raises:
        LuthierError: nothing was instrumented, though it had to be.
    """
    from luthier.run import results

    reported = list(results.tables(instrumentation))
    if args.json != "-":
        found = results.kernels(instrumentation)
        coverage = results.coverage(found)
        texts = iter(shown_tables([*(one for _, tables in reported for one in tables), coverage], args, sys.stderr))
        for name, tables in reported:
            _print_section(name, itertools.islice(texts, len(tables)))
        if found and reported:
            _print_section("coverage", texts)
        if hoisted := sum(kernel.patched.report.hoisted for kernel in found if kernel.patched.report is not None):
            say_fitting(
                f"luthier: {hoisted} hooks that count were replaced by counters in registers, added up when waves end",
                file=sys.stderr,
            )
        if unfinished.launches and reported:
            say_fitting(
                f"luthier: of {unfinished.what} the tables lack what waves count in registers: they add it when they "
                "end",
                file=sys.stderr,
            )
        for fault in instrumentation.faults:
            if fault in instrumentation.failures:
                continue  # that is the error which ends this
            say_fitting(f"luthier: {fault}", file=sys.stderr)
    kept = command if args.keep_command else None
    cut_short: dict[str, Any] = {} if executed is None or not executed.notes else {"executed_notes": executed.notes}
    if unfinished.what:
        cut_short |= {"ended_before": unfinished.what, "unfinished": unfinished.to_json()}
    if recorder is not None:
        summary = {**results.head(instrumentation, kept, code, reported, executed), **cut_short}
        summary["devices"] = args.device.split(",")
        recorder.finish(instrumentation, summary)
    if args.json:
        summary = results.summary(instrumentation, kept, code, reported, executed) | cut_short
        if findings is not None:
            summary |= findings.to_json()
        text = strict_json.dumps(summary, indent=2)
        if args.json == "-":
            say_raw(visible_lines(text), file=sys.stderr)
        else:
            write_atomically(args.json, f"{text}\n".encode())
    for check in (results.check_tools, *(() if args.allow_nothing else (results.check,))):
        try:
            check(instrumentation)
        except LuthierError as problem:
            if code == 0:
                raise
            # The program's own failure is what is passed on.
            say_fitting(f"luthier run: error: {problem}", file=sys.stderr)


def end_as(code: int) -> int:
    """Return a program's exit code, or end by the signal that ended it."""
    if code < 0:
        _die_of(-code)
    return code


def _die_of(number: int) -> None:
    """End as the program did, so that whoever waits sees the same; without a second memory dump."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    signal.signal(number, signal.SIG_DFL) if number not in (signal.SIGKILL, signal.SIGSTOP) else None
    os.kill(os.getpid(), number)
    raise SystemExit(128 + number)  # one that only stops or is ignored
