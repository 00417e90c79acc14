"""Selection of the code object and kernels of a sub-command.

Imports nothing slow.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from luthier.objects import CodeObject


def add_object_arguments(parser: argparse.ArgumentParser, more: str = "") -> None:
    """Add FILE, --target and --kernel.

    Args:
        more: what else FILE may be.
    """
    kinds = "code object, offload bundle, executable, library or archive"
    parser.add_argument("file", metavar="FILE", help=f"{kinds}, {more}" if more else kinds)
    parser.add_argument(
        "--target", metavar="ID", help="which code object where FILE holds several, e.g. gfx942 or gfx942:xnack-"
    )
    add_kernel_argument(parser)


def add_kernel_argument(parser: argparse._ActionsContainer) -> None:
    """Add --kernel, repeatable: `args.kernel` is a list of patterns for `luthier.objects.names`."""
    parser.add_argument(
        "-k",
        "--kernel",
        action="append",
        default=[],
        metavar="NAME",
        help="kernels by symbol, C++ name, or glob of either; !NAME leaves out; repeatable (default: all)",
    )


def selected_object(args: argparse.Namespace) -> CodeObject:
    """Return the one code object that FILE and --target name."""
    from luthier.objects import load_object

    return load_object(args.file, args.target)


def selected_kernels(object: CodeObject, patterns: Sequence[str]) -> list[str]:
    """Return the kernels of an object that --kernel asks for.

    Raises:
        ObjectError: it asks for one that is not there.
    """
    from luthier.objects.names import select

    return select(list(object.kernels), patterns, file=object.name)
