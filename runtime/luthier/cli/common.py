"""Parts that several sub-commands share: options of tools, writing results."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Sequence
from typing import IO, TYPE_CHECKING, Any

from luthier.cli.options import add_option, option
from luthier.errors import ToolError
from luthier.extensions.records import Extensions
from luthier.support import strict_json
from luthier.terminal import say_text, visible, visible_lines

if TYPE_CHECKING:
    from luthier.objects import CodeObject
    from luthier.patch import PatchReport
    from luthier.support.table import Table
    from luthier.tool import ToolGroup
    from luthier.tool.options import PatchOptions


def tool_option(**more: Any) -> Any:
    """Return the field of ``-t``; arguments as of `option`."""
    return option(
        "-t",
        "--tool",
        default=[],
        action="append",
        metavar="TOOL[:OPT=VAL,...]",
        help="an installed tool (see `luthier tools`) with options; several work together, in this order; PACKAGE:TOOL "
        "where several packages have one of that name",
        **more,
    )


def add_tool_argument(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    """Add -t TOOL, repeatable."""
    add_option(parser, tool_option(), required=required, default=[])


def add_strict_argument(parser: argparse.ArgumentParser) -> None:
    """Add --strict."""
    parser.add_argument(
        "--strict", action="store_true", help="all or nothing: a hook or kernel that is refused is an error"
    )


def hoist_option(**more: Any) -> Any:
    """Return the field of ``--no-hoist``; arguments as of `option`."""
    return option(
        "--hoist",
        action=argparse.BooleanOptionalAction,
        help="count in registers what hooks do nothing but count (default): much quicker, but variables change when "
        "waves end",
        **more,
    )


def add_hoist_argument(parser: argparse._ActionsContainer) -> None:
    """Add --no-hoist."""
    add_option(parser, hoist_option(), default=None)


def add_stack_argument(parser: argparse._ActionsContainer) -> None:
    """Add --most-stack."""
    parser.add_argument(
        "--most-stack",
        type=int,
        metavar="BYTES",
        help="how much stack kernels with recursion, calls by pointers or alloca use at most, beyond their fixed "
        "private memory; without it, hooks that need private memory are refused in them",
    )


def options_of(args: argparse.Namespace) -> PatchOptions:
    """Return the options that the three arguments above ask for."""
    from luthier.tool.options import PatchOptions  # not needed where nothing is patched

    return PatchOptions(strict=args.strict, hoist=args.hoist, most_stack=args.most_stack)


def check_tools(tools: ToolGroup, object: CodeObject, kernels: Sequence[str]) -> None:
    """Raise an error unless every tool has done something.

    Raises:
        ToolError: one inserted nothing.
    """
    for tool in tools.idle:
        message = f"{tool.label()} inserted nothing into {', '.join(kernels)}"
        why = tool.why_idle()
        raise ToolError(f"{message}: {why}" if why else message, object=object.name)


def print_refusals(report: PatchReport) -> None:
    """Print on standard error how much was left out and why; nothing if nothing was."""
    for line in report.refusal_lines():
        say_fitting(line, file=sys.stderr)


class HelpOf:
    """The help of extensions as text, made when it is printed: it takes the import of them all.

    `argparse` puts attributes of an argument into its help: with ``action.them = HelpOf(…)``, ``%(them)s`` is this.
    """

    def __init__(self, extensions: Extensions[Any]) -> None:
        self._extensions = extensions

    def __str__(self) -> str:
        return "; ".join(f"{visible(name)}: {visible(text)}" for name, text in self._extensions.helps().items())


def terminal_width(stream: IO[str]) -> int:
    """Return the columns of the terminal that a stream writes to.

    It is 0 if it is none, so that files and pipes get everything.
    """
    try:
        return os.get_terminal_size(stream.fileno()).columns if stream.isatty() else 0
    except (OSError, ValueError):
        return 0


def say_fitting(text: object, *, file: IO[str] | None = None, flush: bool = False) -> None:
    """Print a text, with lines broken that are wider than the terminal that it goes to."""
    from luthier.support.table import wrapped

    say_text(wrapped(visible_lines(str(text)), terminal_width(file or sys.stdout)), file=file, flush=flush)


def mangled_option(**more: Any) -> Any:
    """Return the field of ``--mangled``; arguments as of `option`."""
    return option(
        "--mangled",
        default=False,
        action="store_true",
        help="kernels by their symbols instead of their names in the source",
        **more,
    )


def add_mangled_argument(parser: argparse._ActionsContainer) -> None:
    """Declare ``--mangled``."""
    add_option(parser, mangled_option())


def shown_tables(tables: Iterable[Table], stream: IO[str] | None, *, mangled: bool) -> list[str]:
    """Return tables as texts for people.

    Args:
        stream: a terminal whose width they are to fit; None: as wide as they get.
        mangled: whether kernels have their symbols as names.
    """
    from luthier.objects.names import as_in_source

    width = 0 if stream is None else terminal_width(stream)
    return [table.text(width) for table in (tables if mangled else as_in_source(tables))]


def print_json(value: Any) -> None:
    """Print one JSON document on standard output."""
    say_text(strict_json.dumps(value, indent=2))
