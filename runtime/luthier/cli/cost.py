"""`luthier cost`: print what a tool would add to each kernel."""

from __future__ import annotations

import argparse

from luthier.cli.common import (
    STANDARD_OUTPUT,
    add_hoist_argument,
    add_json_argument,
    add_stack_argument,
    add_strict_argument,
    add_tool_argument,
    put_json,
    say_fitting,
)
from luthier.cli.patch import patched_object, print_report
from luthier.cli.selection import add_object_arguments


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add_object_arguments(parser)
    add_tool_argument(parser)
    add_strict_argument(parser)
    add_hoist_argument(parser)
    add_stack_argument(parser)
    add_json_argument(parser, "the costs")


def run(args: argparse.Namespace) -> int:
    """Run the command and return its exit status."""
    report = patched_object(args)[1].report
    if args.json:
        put_json(args.json, report.to_json())
    if args.json == STANDARD_OUTPUT:
        return 0
    print_report(report)
    for row in report.kernels:
        before, after = row.waves_per_simd
        say_fitting(
            f"{row.kernel}: {row.added_instructions / max(row.instructions, 1):.1f} added per instruction, "
            f"{row.patched_bytes / max(row.code_bytes, 1):.1f}x code, {before} → {after} waves per SIMD"
        )
    return 0
