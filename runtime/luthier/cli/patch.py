"""`luthier patch`: write an instrumented code object."""

from __future__ import annotations

import argparse

from luthier.cli.common import (
    add_hoist_argument,
    add_strict_argument,
    add_tool_argument,
    check_tools,
    print_json,
    print_refusals,
    write_atomically,
)
from luthier.cli.progress import Progress
from luthier.cli.selection import add_object_arguments, selected_kernels, selected_object
from luthier.patch import PatchedObject, PatchReport, RefusedError, patch_object
from luthier.tool import parse_tools


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add_object_arguments(parser)
    add_tool_argument(parser)
    add_strict_argument(parser)
    add_hoist_argument(parser)
    parser.add_argument("-o", "--output", required=True, metavar="OUT", help="where the patched code object goes")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")


def run(args: argparse.Namespace) -> int:
    """Do what the command line asks for; the exit status."""
    patched = patched_object(args)
    write_atomically(args.output, patched.data)
    if args.json:
        print_json(patched.report.to_json())
    else:
        print_report(patched.report)
    return 0


def patched_object(args: argparse.Namespace) -> PatchedObject:
    """What the arguments of `patch` and `cost` ask for; what was refused is printed.

    Raises:
        LuthierError: it cannot be done, or a tool inserted nothing.
    """
    tools = parse_tools(args.tool)
    object = selected_object(args)
    kernels = selected_kernels(object, args.kernel)
    try:
        with Progress("patching", len(kernels)) as progress:
            patched = patch_object(
                object, tools.instrument, kernels, progress.step, strict=args.strict, hoist=args.hoist
            )
    except RefusedError as problem:
        print_refusals(problem.report)
        if args.json:
            print_json(problem.report.to_json())
        raise
    check_tools(tools, object, kernels)
    print_refusals(patched.report)
    return patched


def print_report(report: PatchReport) -> None:
    """The report as a table."""
    print(f"{'kernel':40} {'sites':>7} {'hooks':>7} {'bytes':>17} {'VGPRs':>9} {'SGPRs':>9}")
    for row in report.kernels:
        print(
            f"{row.kernel:40} {row.sites:7} {row.insertions:7} {row.code_bytes:8}→{row.patched_bytes:<8} "
            f"{row.vgprs[0]:4}→{row.vgprs[1]:<4} {row.sgprs[0]:4}→{row.sgprs[1]:<4}"
        )
        if row.hoisted:
            print(f"  {row.hoisted} hooks that do nothing but count are counted in registers, until waves end")
        if row.counters:
            print(f"  a wave has {row.counters} counters")
        if row.unknown_calls:
            print(f"  {row.unknown_calls} calls or jumps with unknown targets: what they reach is not instrumented")
    print("variables: " + (", ".join(f"{name} ({size} bytes)" for name, size in report.variables.items()) or "none"))
