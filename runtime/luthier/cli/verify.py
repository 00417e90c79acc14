"""`luthier verify`: original and patched kernels side by side on the emulated device."""

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
from luthier.launch_plan import read_plans
from luthier.tool import parse_tool
from luthier.verify import verify_object


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_object_arguments(parser)
    add_tool_argument(parser)
    parser.add_argument("--launch", metavar="PLAN.toml", help="sizes and arguments of the launches (default: made up)")
    parser.add_argument("--json", action="store_true", help="print the verdicts as JSON")


def run(args: argparse.Namespace) -> int:
    tool = parse_tool(args.tool)
    object = selected_object(args)
    kernels = selected_kernels(object, args.kernel)
    plans = read_plans(args.launch) if args.launch else None
    try:
        verdicts = verify_object(object, tool, kernels, plans, lambda name: show_progress(f"verifying {name}"))
    finally:
        end_progress()
    if args.json:
        print_json([verdict.to_json() for verdict in verdicts])
    else:
        for verdict in verdicts:
            print(f"{verdict.kernel} on {verdict.target}, {verdict.grid} work-groups of {verdict.block}")
            for name, value in verdict.counters.items():
                print(f"  {name} = {value}")
            before, after = verdict.instructions
            print(f"  {before} wave-instructions became {after}; {verdict.compared_bytes} bytes compared")
            for problem in verdict.problems:
                print(f"  PROBLEM: {problem}")
            if verdict.equal and verdict.expected:
                print("  outputs equal, counters equal the emulator's own counts")
            elif verdict.equal:
                print("  outputs equal; the tool predicts no counters")
    return 0 if all(verdict.equal for verdict in verdicts) else 1
