"""Options and output that several sub-commands share."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Sequence
from typing import IO, TYPE_CHECKING, Any

from msgspec.structs import replace

from luthier.cli.options import add_option, option
from luthier.errors import ToolError
from luthier.extensions.records import Extensions
from luthier.support import strict_json
from luthier.support.files import check_writable, write_atomically
from luthier.terminal import say_raw, say_text, visible, visible_lines

if TYPE_CHECKING:
    from luthier.objects import CodeObject
    from luthier.patch import PatchReport
    from luthier.support.table import Table
    from luthier.tool import ToolGroup
    from luthier.tool.options import PatchOptions


def tool_option(**more: Any) -> Any:
    """Declare ``-t``; arguments as for `option`."""
    return option(
        "-t",
        "--tool",
        default=[],
        action="append",
        metavar="TOOL[:OPT=VAL,...]",
        **{
            "help": "an installed tool (see `luthier tools`) with options; repeat it to combine tools, in this order; "
            "PACKAGE:TOOL if several packages provide a tool of this name",
            **more,
        },
    )


def add_tool_argument(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    """Add ``-t`` to a parser."""
    add_option(parser, tool_option(), required=required, default=[])


def add_strict_argument(parser: argparse.ArgumentParser) -> None:
    """Add --strict."""
    parser.add_argument("--strict", action="store_true", help="fail if any hook or kernel is refused")


def hoist_option(**more: Any) -> Any:
    """Declare ``--hoist``; arguments as for `option`."""
    return option(
        "--hoist",
        action=argparse.BooleanOptionalAction,
        help="use counters in registers in place of hooks that only count (default): much faster, but variables change "
        "only when waves end",
        **more,
    )


def add_hoist_argument(parser: argparse._ActionsContainer) -> None:
    """Add ``--hoist`` to a parser."""
    add_option(parser, hoist_option(), default=None)


def add_stack_argument(parser: argparse._ActionsContainer) -> None:
    """Add ``--most-stack`` to a parser."""
    parser.add_argument(
        "--most-stack",
        type=int,
        metavar="BYTES",
        help="limit of the stack, in addition to fixed private memory, of kernels with recursion, indirect calls or "
        "alloca; without it, hooks that need private memory are refused in these kernels",
    )


def options_of(args: argparse.Namespace) -> PatchOptions:
    """Return the options of the three arguments above."""
    from luthier.tool.options import PatchOptions  # not needed where nothing is patched

    return PatchOptions(strict=args.strict, hoist=args.hoist, most_stack=args.most_stack)


def check_tools(tools: ToolGroup, object: CodeObject, kernels: Sequence[str]) -> None:
    """Raise an error if a tool inserted nothing.

    Raises:
        ToolError: a tool inserted nothing.
    """
    for tool in tools.idle:
        message = f"{tool.label()} inserted nothing into {', '.join(kernels)}"
        why = tool.why_idle()
        raise ToolError(f"{message}: {why}" if why else message, object=object.name)


def print_refusals(report: PatchReport) -> None:
    """Print on standard error what was refused, and why."""
    for line in report.refusal_lines():
        say_fitting(line, file=sys.stderr)


class HelpOf:
    """Help texts of extensions. They are made only when printed, since that imports all extensions.

    `argparse` substitutes attributes of an argument in its help: ``action.them = HelpOf(…)`` defines ``%(them)s``.
    """

    def __init__(self, extensions: Extensions[Any]) -> None:
        self._extensions = extensions

    def __str__(self) -> str:
        return "; ".join(f"{visible(name)}: {visible(text)}" for name, text in self._extensions.helps().items())


def terminal_width(stream: IO[str]) -> int:
    """Return the width in columns of the terminal that a stream writes to; 0 if it is not a terminal."""
    try:
        return os.get_terminal_size(stream.fileno()).columns if stream.isatty() else 0
    except (OSError, ValueError):
        return 0


def say_fitting(text: object, *, file: IO[str] | None = None, flush: bool = False) -> None:
    """Print a text, with lines wrapped to the width of the terminal."""
    from luthier.support.table import wrapped

    say_text(wrapped(visible_lines(str(text)), terminal_width(file or sys.stdout)), file=file, flush=flush)


def mangled_option(**more: Any) -> Any:
    """Declare ``--mangled``; arguments as for `option`."""
    return option(
        "--mangled",
        default=False,
        action="store_true",
        help="name kernels by their symbols, not as in the source",
        **more,
    )


def add_mangled_argument(parser: argparse._ActionsContainer) -> None:
    """Add ``--mangled`` to a parser."""
    add_option(parser, mangled_option())


def shown_tables(tables: Iterable[Table], stream: IO[str] | None, *, mangled: bool) -> list[str]:
    """Format tables as text.

    Args:
        stream: terminal whose width limits the tables; None: no limit.
        mangled: name kernels by their symbols.
    """
    from luthier.objects.names import as_in_source

    width = 0 if stream is None else terminal_width(stream)
    return [_relative(table).text(width) for table in (tables if mangled else as_in_source(tables))]


def _relative(table: Table) -> Table:
    """Return a table with paths below the current folder relative to it."""
    try:
        folder = f"{os.getcwd()}/"
    except OSError:  # it was removed
        return table
    return replace(
        table,
        rows=[
            [cell.removeprefix(folder) if isinstance(cell, str) and cell != folder else cell for cell in row]
            for row in table.rows
        ],
    )


STANDARD_OUTPUT = "-"
"""Stands for standard output; with commands that leave it to a program, for standard error."""


def add_json_argument(parser: argparse._ActionsContainer, what: str) -> None:
    """Add ``--json``; its value is None, `STANDARD_OUTPUT` or the path of a file, for `put_json`."""
    parser.add_argument(
        "--json",
        nargs="?",
        const=STANDARD_OUTPUT,
        type=json_file,
        metavar="FILE",
        help=f"print {what} as JSON; with a FILE (--json=FILE, or a name that ends with .json) print text, and write "
        "JSON to the file",
    )


def json_file(path: str) -> str:
    """Return the value of ``--json``, after checking that a file can be written.

    Raises:
        LuthierError: it cannot.
    """
    if path != STANDARD_OUTPUT:
        check_writable(path)
    return path


def put_json(path: str, value: Any, indent: int = 2, stream: IO[str] | None = None) -> None:
    """Write one JSON document to a file, which is replaced as a whole, or for `STANDARD_OUTPUT` to a stream.

    Args:
        stream: standard error if standard output belongs to a program; None: standard output.
    """
    text = strict_json.dumps(value, indent=indent)
    if path == STANDARD_OUTPUT:
        say_raw(visible_lines(text), file=stream)
    else:
        write_atomically(path, f"{text}\n".encode())
