"""`luthier patch`: write an instrumented code object, or a program with instrumented kernels."""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import TYPE_CHECKING

from luthier.cli.common import (
    STANDARD_OUTPUT,
    add_hoist_argument,
    add_json_argument,
    add_stack_argument,
    add_strict_argument,
    add_tool_argument,
    check_tools,
    options_of,
    print_refusals,
    put_json,
    say_fitting,
    terminal_width,
)
from luthier.cli.progress import ProgressLine
from luthier.cli.selection import add_object_arguments, selected_object
from luthier.errors import LuthierError
from luthier.support.extras import extra
from luthier.support.files import check_writable, is_same_file, write_atomically, writing_atomically
from luthier.terminal import say, say_text, visible

if TYPE_CHECKING:
    from luthier.objects import CodeObject
    from luthier.patch import PatchedObject, PatchReport
    from luthier.patch.layout.address_map import AddressMap


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add_object_arguments(parser)
    add_tool_argument(parser)
    add_strict_argument(parser)
    add_hoist_argument(parser)
    add_stack_argument(parser)
    parser.add_argument("-o", "--output", required=True, metavar="OUT", help="file for the result")
    parser.add_argument(
        "--code-object",
        action="store_true",
        help="write only the instrumented code object of an executable or shared library, not the whole file",
    )
    parser.add_argument(
        "--map",
        metavar="FILE",
        help="write new addresses of instructions with their source lines: JSON, or Parquet if FILE ends in .parquet",
    )
    add_json_argument(parser, "the report")


def run(args: argparse.Namespace) -> int:
    """Run the command and return its exit status."""
    from luthier.objects.host import is_host_file  # slow to import
    from luthier.objects.kpack import is_archive

    for path in filter(None, (args.output, args.map)):
        check_writable(path)
    if args.map and is_same_file(args.output, args.map):
        raise LuthierError(f"--output and --map name the same file: {args.map}")
    if not args.code_object and (is_host_file(args.file) or is_archive(args.file)):
        return _run_on_program(args)
    object, patched = patched_object(args)
    write_atomically(args.output, patched.data)
    _write_map(args.map, [(object, patched.maps)])
    if args.json:
        put_json(args.json, patched.report.to_json())
    if args.json != STANDARD_OUTPUT:
        print_report(patched.report)
    return 0


def _run_on_program(args: argparse.Namespace) -> int:
    """Instrument an executable or a shared library."""
    from luthier.patch.output.executable import patch_executable_with  # slow to import
    from luthier.tool import parse_tools

    tools = parse_tools(args.tool)
    with ProgressLine("patching") as progress:
        patched = patch_executable_with(
            options_of(args),
            args.file,
            tools.instrument,
            target=args.target,
            object=args.object,
            kernels=args.kernel,
            progress=progress.step,
            output=args.output,
        )
    folder = os.path.dirname(os.path.realpath(args.output))
    beside = {os.path.join(folder, name): data for name, data in patched.beside.items()}
    if beside and os.path.exists(args.output) and not os.path.isfile(args.output):
        raise LuthierError(f"{args.output} is not a regular file, so no archive can be written beside it")
    for object, result in patched.objects:
        check_tools(tools, object, list(object.kernels))
        print_refusals(result.report)
    for name, reason in patched.skipped:
        say_text(f"{visible(name)}: not instrumented: {reason}", file=sys.stderr)
    with writing_atomically(args.output, mode=os.stat(args.file).st_mode) as file:
        patched.file.write(file)
        for path, data in beside.items():  # written first, since the output names them
            write_atomically(path, data)
    _write_map(args.map, [(object, one.maps) for object, one in patched.objects])
    if args.json:
        put_json(args.json, patched.to_json())
    if args.json == STANDARD_OUTPUT:
        return 0
    for object, result in patched.objects:
        say(f"{object.name}: {object.target}")
        print_report(result.report)
    for path in beside:
        say(f"{visible(path)} must stay beside {visible(args.output)}")
    return 0


def _write_map(path: str | None, objects: list[tuple[CodeObject, tuple[AddressMap, ...]]]) -> None:
    if path is None:
        return
    from luthier.patch.layout.address_map import as_columns  # slow to import

    columns = as_columns(objects)
    if not path.endswith(".parquet"):
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        write_atomically(path, json.dumps(rows, indent=1).encode())
        return
    pa = extra("pyarrow")
    pq = extra("pyarrow.parquet")

    with writing_atomically(path) as file:
        pq.write_table(pa.table(columns), file)


def patched_object(args: argparse.Namespace) -> tuple[CodeObject, PatchedObject]:
    """Return the original and the instrumented object for `patch` and `cost`; print what was refused.

    Raises:
        LuthierError: the object cannot be instrumented, or a tool inserted nothing.
    """
    from luthier.patch import RefusedError  # slow to import
    from luthier.patch.output.object import patch_object_with
    from luthier.tool import parse_tools

    tools = parse_tools(args.tool)
    object, kernels = selected_object(args)
    try:
        with ProgressLine("patching", len(kernels)) as progress:
            patched = patch_object_with(options_of(args), object, tools.instrument, kernels, progress.step)
    except RefusedError as problem:
        print_refusals(problem.report)
        if args.json:
            put_json(args.json, problem.report.to_json())
        raise
    check_tools(tools, object, kernels)
    print_refusals(patched.report)
    return object, patched


_NUMBERS = 54
"""Columns of a line of the report after the kernel's name."""


def print_report(report: PatchReport) -> None:
    """Print the report as a table."""
    width = terminal_width(sys.stdout)
    size = max(min(40, width - _NUMBERS), 6) if width else 40
    say(f"{'kernel':{size}} {'sites':>7} {'hooks':>7} {'bytes':>17} {'VGPRs':>9} {'SGPRs':>9}")
    for row in report.kernels:
        name = row.kernel
        if width and len(visible(name)) > size:  # gets a line of its own
            say_fitting(visible(name))
            name = ""
        say(
            f"{name:{size}} {row.sites:7} {row.insertions:7} {row.code_bytes:8}→{row.patched_bytes:<8} "
            f"{row.vgprs[0]:4}→{row.vgprs[1]:<4} {row.sgprs[0]:4}→{row.sgprs[1]:<4}"
        )
        lines = (
            (row.hoisted, f"{row.hoisted} hooks that only count are replaced by counters in registers"),
            (row.calls, f"{row.calls} hooks call one of {row.shared} shared payloads"),
            (row.in_agprs, f"{row.in_agprs} hooks save registers in AGPRs"),
            (row.in_lds, f"{row.in_lds} hooks save registers in LDS"),
            (row.lds[0] != row.lds[1], f"LDS of a work-group: {row.lds[1]} bytes, {row.lds[0]} without hooks"),
            (row.spilling, f"{row.spilling} hooks save registers in private memory"),
            (row.excess, f"{row.excess} hooks exceed the tool's VGPR budget"),
            (row.counters, f"counters in each wave: {row.counters}"),
        )
        for is_so, line in lines:
            if is_so:
                say(f"  {line}")
        if row.unknown_calls:
            say(f"  {row.unknown_calls} calls or jumps have unknown targets, which are not instrumented")
            for call in row.unresolved:
                say_fitting(f"    {call}")
    variables = ", ".join(f"{name} ({bytes} bytes)" for name, bytes in report.variables.items())
    say_fitting(f"variables: {variables or 'none'}")
