"""`luthier verify`: compare original and instrumented kernels on the emulated device."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from luthier.cli.captures import add_scheduler_argument, captures_of, outcomes
from luthier.cli.common import (
    STANDARD_OUTPUT,
    add_hoist_argument,
    add_json_argument,
    add_strict_argument,
    add_tool_argument,
    check_tools,
    print_refusals,
    put_json,
    say_fitting,
)
from luthier.cli.options import add_earlier_spelling
from luthier.cli.progress import ProgressLine
from luthier.cli.run import seconds
from luthier.cli.selection import add_object_arguments, is_capture, selected_object
from luthier.errors import LuthierError
from luthier.support.files import write_atomically
from luthier.terminal import say, say_text, visible


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add_object_arguments(parser, "or a folder of captures")
    add_tool_argument(parser)
    add_strict_argument(parser)
    add_hoist_argument(parser)
    plan = parser.add_argument(
        "--plan", metavar="PLAN.toml", help="sizes and arguments of the launches (default: generated)"
    )
    add_earlier_spelling(parser, "--launch", plan)
    written = parser.add_argument(
        "--write-plan", metavar="PLAN.toml", help="write the generated launches to a file, for editing; run nothing"
    )
    add_earlier_spelling(parser, "--write-launch", written)
    parser.add_argument("--device", metavar="DEVICE", help="for captures, as for `luthier replay`")
    parser.add_argument(
        "--time-limit", type=seconds, metavar="SECONDS", help="for captures: those that take longer are not verified"
    )
    add_scheduler_argument(parser)
    add_json_argument(parser, "the verdicts")


def run(args: argparse.Namespace) -> int:
    """Run the command and return its exit status."""
    if Path(args.file).is_dir() or is_capture(args.file):
        return _verify_captures(args)
    for name in ("device", "scheduler", "time_limit"):
        if getattr(args, name) is not None:
            raise LuthierError(f"--{name.replace('_', '-')} is for captured launches")
    from luthier.patch import PatchReport  # slow to import, as the others
    from luthier.tool import parse_tools
    from luthier.verify import verify_object
    from luthier.verify.launch_plan import read_plans
    from luthier.verify.skeleton import skeleton
    from luthier.verify.text import verdict_lines

    tools = parse_tools(args.tool)
    object, kernels = selected_object(args)
    if args.write_plan:
        write_atomically(args.write_plan, skeleton(object, kernels).encode())
        count = f"{len(kernels)} kernel{'s' * (len(kernels) != 1)}"
        say(f"{args.write_plan} is a launch plan of {count}: edit it, and pass it with --plan")
        return 0
    plans = read_plans(args.plan) if args.plan else None
    with ProgressLine("verifying", len(kernels)) as progress:
        verdicts = verify_object(object, tools, kernels, plans, progress.step, strict=args.strict, hoist=args.hoist)
    print_refusals(PatchReport(tuple(verdict.patch for verdict in verdicts if verdict.patch is not None), {}, ()))
    if args.json:
        put_json(args.json, [verdict.to_json() for verdict in verdicts])
    if args.json != STANDARD_OUTPUT:
        for verdict in verdicts:
            for line in verdict_lines(verdict):
                say_text(line)
    check_tools(tools, object, kernels)
    return 0 if all(verdict.equal for verdict in verdicts) else 1


def _verify_captures(args: argparse.Namespace) -> int:
    """Verify the captures that the command line names; return the exit status."""
    from luthier.replay.verification import VerifiedOutcome, Verify  # which imports what runs programs
    from luthier.tool import parse_tools

    for name in ("target", "object", "kernel", "plan", "write_plan"):
        if getattr(args, name):
            raise LuthierError(
                f"--{name.replace('_', '-')} is for code objects; a capture has one launch of one kernel"
            )
    parse_tools(args.tool)  # fail before anything runs
    job = Verify(device=args.device, tools=tuple(args.tool), strict=args.strict, hoist=args.hoist)
    rows: list[VerifiedOutcome] = []
    for row in outcomes(job, captures_of([args.file]), args.scheduler, args.time_limit):
        rows.append(row)
        if args.json != STANDARD_OUTPUT:
            say_text(f"{visible(row.file)}: {row.what}")
            for line in row.lines:
                say_text(f"  {line}")
            for line in row.refusals:
                say_fitting(line, file=sys.stderr)
    if args.json:
        put_json(args.json, [row.to_json() for row in rows])
    return max(row.status for row in rows)
