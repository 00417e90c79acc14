"""`luthier lift`: print functions, blocks, calls and liveness of kernels as text or JSON."""

from __future__ import annotations

import argparse

from luthier.cli.common import STANDARD_OUTPUT, add_json_argument, put_json, say_fitting
from luthier.cli.progress import ProgressLine
from luthier.cli.selection import add_object_arguments, selected_object
from luthier.errors import LuthierError
from luthier.terminal import say_text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add_object_arguments(parser)
    form = parser.add_mutually_exclusive_group()
    add_json_argument(form, "an entry for each kernel")
    form.add_argument("--llvm", action="store_true", help="print one kernel as LLVM IR, for analyses")
    parser.add_argument("--instructions", action="store_true", help="list the instructions of every block")
    parser.add_argument("--registers", action="store_true", help="list live registers instead of their number")
    parser.add_argument(
        "--annotate",
        action="store_true",
        help="list instructions with source lines, inlined calls and live registers, and blocks with their loops",
    )
    parser.add_argument(
        "--counts",
        metavar="FILE",
        help="with --annotate: how often instructions ran, from a folder of `luthier run` or LaunchStats as JSON",
    )


def run(args: argparse.Namespace) -> int:
    """Run the command and return its exit status."""
    from luthier.cli.counts import counts_of  # slow to import, as the others
    from luthier.lifting import lift
    from luthier.lifting.annotations import Annotations
    from luthier.lifting.listing import as_data, as_text
    from luthier.lifting.llvm_view import as_llvm

    code_object, kernels = selected_object(args)
    if args.llvm and len(kernels) != 1:
        raise LuthierError(f"--llvm prints one kernel, but {len(kernels)} are selected: choose one with --kernel")
    lifted = []
    with ProgressLine("lifting", len(kernels)) as progress:
        for kernel in kernels:
            progress.step(kernel)
            lifted.append(lift(code_object, kernel))
    if args.llvm:
        say_text(as_llvm(lifted[0]), end="")
        return 0
    annotated = {}
    if args.annotate or args.counts:
        for representation in lifted:
            counts = counts_of(args.counts, representation) if args.counts else None
            annotated[representation.kernel.name] = Annotations(representation, counts)
    if args.json:
        put_json(args.json, [as_data(one, annotated.get(one.kernel.name)) for one in lifted], indent=1)
    if args.json == STANDARD_OUTPUT:
        return 0
    for representation in lifted:
        for line in as_text(
            representation,
            instructions=args.instructions,
            registers=args.registers,
            annotations=annotated.get(representation.kernel.name),
        ):
            say_fitting(line)
    return 0
