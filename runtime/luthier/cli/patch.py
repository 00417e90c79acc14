"""`luthier patch`: write an instrumented code object."""

from __future__ import annotations

import argparse

from luthier.cli.common import (
    add_object_arguments,
    add_tool_argument,
    end_progress,
    print_json,
    selected_kernels,
    selected_object,
    show_progress,
    write_atomically,
)
from luthier.errors import PatchError
from luthier.patch import PatchReport, patch_object
from luthier.tool import parse_tool


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_object_arguments(parser)
    add_tool_argument(parser)
    parser.add_argument("-o", "--output", required=True, metavar="OUT", help="where the patched code object goes")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")


def run(args: argparse.Namespace) -> int:
    tool = parse_tool(args.tool)
    object = selected_object(args)
    kernels = selected_kernels(object, args.kernel)
    try:
        patched = patch_object(object, tool.instrument, kernels, lambda name: show_progress(f"patching {name}"))
    finally:
        end_progress()
    if not patched.report.kernels:
        raise PatchError(f"{tool.label()} inserted nothing into {', '.join(kernels)}", object=object.name)
    write_atomically(args.output, patched.data)
    if args.json:
        print_json(patched.report.to_json())
    else:
        print_report(patched.report)
    return 0


def print_report(report: PatchReport) -> None:
    """The report as a table."""
    print(f"{'kernel':40} {'sites':>7} {'hooks':>7} {'bytes':>17} {'VGPRs':>9} {'SGPRs':>9}")
    for row in report.kernels:
        print(
            f"{row.kernel:40} {row.sites:7} {row.insertions:7} {row.code_bytes:8}→{row.patched_bytes:<8} "
            f"{row.vgprs[0]:4}→{row.vgprs[1]:<4} {row.sgprs[0]:4}→{row.sgprs[1]:<4}"
        )
        if row.unknown_calls:
            print(f"  {row.unknown_calls} calls or jumps with unknown targets: what they reach is not instrumented")
    print("variables: " + (", ".join(f"{name} ({size} bytes)" for name, size in report.variables.items()) or "none"))
