"""Options that select code objects and kernels. This module imports nothing slow."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from luthier.cli.options import CommandOptions, add_option, option

if TYPE_CHECKING:
    from luthier.objects import CodeObject
    from luthier.objects.container import Source
    from luthier.run.selection import Selection

CAPTURE = ".lcap"
PRESETS = {"once": ("0:1", False), "grids": (None, True), "sample": ("::100", False)}
"""Value of ``--preset`` -> launches, and whether only one of each grid."""
FILES = "code object, offload bundle, executable, library, archive or capture"
"""Kinds of files with code objects."""


def is_capture(name: str) -> bool:
    """Return whether a file name is that of a captured launch."""
    return Path(name).suffix == CAPTURE


def add_object_arguments(parser: argparse.ArgumentParser, more: str = "") -> None:
    """Add FILE, --target, --object and --kernel to a parser; `more`: what else FILE may be."""
    parser.add_argument("file", metavar="FILE", help=f"{FILES}, {more}" if more else FILES)
    parser.add_argument(
        "--target", metavar="ID", help="target of the code objects, if FILE has several: gfx942, gfx942:xnack-"
    )
    parser.add_argument(
        "--object", metavar="N|NAME", help="code object by number or name, as `luthier objects` prints them"
    )
    add_kernel_argument(parser)


def kernel_option(**more: Any) -> Any:
    """Declare ``--kernel``; arguments as for `option`."""
    return option(
        "-k",
        "--kernel",
        default=[],
        action="append",
        metavar="NAME",
        help="kernels by symbol or C++ name, with or without template arguments, also as a glob; !NAME excludes; "
        "repeatable (default: all)",
        **more,
    )


def add_kernel_argument(parser: argparse._ActionsContainer) -> None:
    """Add --kernel to a parser: `args.kernel` is a list of patterns for `luthier.objects.names`."""
    add_option(parser, kernel_option(), default=[])


class LaunchOptions(CommandOptions):
    """Options that select launches of a program."""

    kernel: list[str] = kernel_option(in_summary=True)
    launches: str | None = option(
        "--launches",
        in_summary=True,
        metavar="[FIRST:]END[:STEP]",
        help="launches of each kernel, numbered from 0; 10: the first ten, ::100: every hundredth",
    )
    unique_grid: bool = option(
        "--unique-grid",
        default=False,
        in_summary=True,
        action="store_true",
        help="of a kernel's launches with the same sizes, only the first",
    )
    preset: str | None = option(
        "--preset",
        in_summary=True,
        choices=PRESETS,
        help="once: first launch of each kernel; grids: one launch for each grid; sample: every hundredth launch",
    )

    def selection(self, devices: frozenset[int] | None = None, *, runtime_kernels: bool = False) -> Selection:
        """Return the selected launches.

        Args:
            devices: numbers of devices; None: all.
            runtime_kernels: whether kernels that HIP itself launches are selected, too.

        Raises:
            LuthierError: an option is malformed.
        """
        from luthier.run.selection import Selection, parse_launches

        launches, unique = PRESETS.get(self.preset or "", (None, False))
        first, end, step = parse_launches(self.launches or launches or "::")
        return Selection(tuple(self.kernel), first, end, step, self.unique_grid or unique, devices, runtime_kernels)


class Searched(NamedTuple):
    """Container in which a sub-command looks for code objects."""

    source: Source
    name: str
    kernel: str | None
    """Kernel of a captured launch, the default; None for other files."""


def searched(file: str) -> Searched:
    """Return the container that FILE names: itself, or the code object of a captured launch.

    Raises:
        LuthierError: the capture cannot be read.
    """
    if not is_capture(file):
        return Searched(file, file, None)
    from luthier.capture import read_capture

    capture = read_capture(file)
    return Searched(capture.object, f"{file}[{capture.manifest.object}]", capture.manifest.kernel)


def selected_object(args: argparse.Namespace) -> tuple[CodeObject, list[str]]:
    """Return the one code object that FILE, --target, --object and --kernel select, and its selected kernels.

    Raises:
        LuthierError: no object or several are selected, or it has no such kernel.
    """
    from luthier.objects import load_object
    from luthier.objects.names import select

    source, name, kernel = searched(args.file)
    object = load_object(source, args.target, name, object=args.object, kernels=args.kernel)
    return object, select(list(object.kernels), _patterns(args, kernel), file=object.name)


def selected_objects(args: argparse.Namespace) -> list[tuple[CodeObject, list[str]]]:
    """Return all code objects that FILE, --target, --object and --kernel select, and their selected kernels.

    Raises:
        LuthierError: nothing is selected.
    """
    from luthier.objects import load_objects
    from luthier.objects.names import is_selected, select

    source, name, kernel = searched(args.file)
    objects = load_objects(source, name, args.target, object=args.object, kernels=args.kernel)
    patterns = _patterns(args, kernel)
    select(sorted({kernel for object in objects for kernel in object.kernels}), patterns, file=name)
    return [(object, [one for one in object.kernels if is_selected(one, patterns)]) for object in objects]


def _patterns(args: argparse.Namespace, kernel: str | None) -> Sequence[str]:
    """Return the patterns of --kernel, by default the kernel of a captured launch."""
    patterns: list[str] = args.kernel
    return patterns or ([] if kernel is None else [kernel])
