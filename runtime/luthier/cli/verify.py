"""`luthier verify`: original and patched kernels side by side on the emulated device."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Iterator
from pathlib import Path

from luthier.cli.common import (
    add_hoist_argument,
    add_strict_argument,
    add_tool_argument,
    check_tools,
    print_json,
    print_refusals,
)
from luthier.cli.progress import Progress
from luthier.cli.replay import add_scheduler_argument
from luthier.cli.run import seconds
from luthier.cli.selection import add_object_arguments, is_capture, selected_object
from luthier.errors import LuthierError
from luthier.patch import PatchReport
from luthier.support.files import write_atomically
from luthier.terminal import say, say_text
from luthier.tool import parse_tools
from luthier.verify import KernelVerdict, verify_object
from luthier.verify.launch_plan import read_plans
from luthier.verify.skeleton import skeleton


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add_object_arguments(parser, "or a folder of captures")
    add_tool_argument(parser)
    add_strict_argument(parser)
    add_hoist_argument(parser)
    parser.add_argument("--launch", metavar="PLAN.toml", help="sizes and arguments of the launches (default: made up)")
    parser.add_argument(
        "--write-launch", metavar="PLAN.toml", help="run nothing: write the launches that would be made up, to fill in"
    )
    parser.add_argument("--device", metavar="DEVICE", help="of captures, as of `luthier replay`")
    parser.add_argument(
        "--time-limit", type=seconds, metavar="SECONDS", help="of captures: one that takes longer cannot be verified"
    )
    add_scheduler_argument(parser)
    parser.add_argument("--json", action="store_true", help="print the verdicts as JSON")


def run(args: argparse.Namespace) -> int:
    """Do what the command line asks for; the exit status."""
    if Path(args.file).is_dir() or is_capture(args.file):
        from luthier.cli import verify_captured  # which imports what runs programs

        return verify_captured.run(args)
    for name in ("device", "scheduler", "time_limit"):
        if getattr(args, name) is not None:
            raise LuthierError(f"--{name.replace('_', '-')} is for captured launches")
    tools = parse_tools(args.tool)
    object, kernels = selected_object(args)
    if args.write_launch:
        write_atomically(args.write_launch, skeleton(object, kernels).encode())
        count = f"{len(kernels)} kernel{'s' * (len(kernels) != 1)}"
        say(f"{args.write_launch} is a launch plan of {count}: fill it in, and give it as --launch")
        return 0
    plans = read_plans(args.launch) if args.launch else None
    with Progress("verifying", len(kernels)) as progress:
        verdicts = verify_object(object, tools, kernels, plans, progress.step, strict=args.strict, hoist=args.hoist)
    print_refusals(PatchReport(tuple(verdict.patch for verdict in verdicts if verdict.patch is not None), {}, ()))
    if args.json:
        print_json([verdict.to_json() for verdict in verdicts])
    else:
        for verdict in verdicts:
            for line in verdict_lines(verdict):
                say_text(line)
    check_tools(tools, object, kernels)
    return 0 if all(verdict.equal for verdict in verdicts) else 1


def verdict_lines(verdict: KernelVerdict) -> Iterator[str]:
    """Yield as text what was compared, what was not, and whether that was equal."""
    yield f"{verdict.kernel} on {verdict.target}, {verdict.grid} work-groups of {verdict.block}"
    for name, value in verdict.counters.items():
        yield f"  {name} = {value}"
    for table in verdict.tables:
        yield textwrap.indent(table.text(), "  ")
    before, after = verdict.instructions
    yield f"  {before} wave-instructions became {after}; {verdict.compared_bytes} bytes compared"
    if verdict.not_lifted:
        yield f"  NOT INSTRUMENTED: {verdict.not_lifted} of {before}, behind calls whose targets are not known"
    if verdict.refused:
        yield f"  NOT COUNTED: {verdict.refused} of {before}, where hooks were refused"
    for wait in verdict.missing_waits:
        yield f"  NOTE: {wait}"
    if verdict.missing_waits:
        yield "  NOTE: what the original computes depends on time; compared with results that are there at once"
    for race in verdict.races:
        yield f"  NOTE: {race}"
    for hazard in verdict.hazards:
        yield f"  NOTE: {hazard}"
    for text in verdict.made_up:
        yield f"  NOTE: {text}; --write-launch PLAN.toml writes a launch plan to fill in"
    for problem in verdict.problems:
        yield f"  PROBLEM: {problem}"
    if not verdict.equal:
        return
    if verdict.patch is None:
        yield "  nothing was inserted"
    elif not verdict.expected and not verdict.counted:
        yield "  outputs equal; no counters predicted"
    elif verdict.complete:
        yield "  outputs equal, counters equal the emulator's own counts"
    else:
        counted = before - verdict.not_lifted - verdict.refused
        yield f"  outputs equal, counters equal the emulator's own counts of {counted} of {before} wave-instructions"
