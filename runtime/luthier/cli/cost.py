"""`luthier cost`: what a tool would add to each kernel, without writing anything."""

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
)
from luthier.cli.patch import print_report
from luthier.patch import patch_object
from luthier.tool import parse_tool


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_object_arguments(parser)
    add_tool_argument(parser)
    parser.add_argument("--json", action="store_true", help="print the costs as JSON")


def run(args: argparse.Namespace) -> int:
    tool = parse_tool(args.tool)
    object = selected_object(args)
    kernels = selected_kernels(object, args.kernel)
    try:
        report = patch_object(object, tool.instrument, kernels, lambda name: show_progress(f"patching {name}")).report
    finally:
        end_progress()
    if args.json:
        print_json(report.to_json())
        return 0
    print_report(report)
    for row in report.kernels:
        before, after = row.waves_per_simd
        print(
            f"{row.kernel}: {row.added_instructions / max(row.instructions, 1):.1f} instructions added to each, "
            f"{row.patched_bytes / max(row.code_bytes, 1):.1f}x code, {before} → {after} waves a SIMD"
        )
    return 0
