"""`luthier lift`: functions, blocks, calls and liveness of kernels, as text or as JSON."""

from __future__ import annotations

import argparse
import json

from luthier.cli.common import say_fitting
from luthier.cli.progress import ProgressLine
from luthier.cli.selection import add_object_arguments, selected_object
from luthier.errors import LuthierError
from luthier.terminal import say_text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_object_arguments(parser)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print a JSON list, one entry a kernel")
    form.add_argument("--llvm", action="store_true", help="print one kernel as LLVM IR, for analyses")
    parser.add_argument("--instructions", action="store_true", help="list the instructions of every block")
    parser.add_argument("--registers", action="store_true", help="name live registers instead of counting them")
    parser.add_argument(
        "--annotate",
        action="store_true",
        help="list instructions with source lines, inlined calls and live registers, and blocks with their loops",
    )
    parser.add_argument(
        "--counts",
        metavar="FILE",
        help="with --annotate how often each instruction ran: a run directory of `luthier run`, or LaunchStats in JSON",
    )


def run(args: argparse.Namespace) -> int:
    """Do what the command line asks for; the exit status."""
    from luthier.cli.counts import counts_of  # slow to import, with all that follow
    from luthier.lifting import lift
    from luthier.lifting.annotations import Annotations
    from luthier.lifting.listing import as_data, as_text
    from luthier.lifting.llvm_view import as_llvm

    code_object, kernels = selected_object(args)
    if args.llvm and len(kernels) != 1:
        raise LuthierError(f"--llvm is of one kernel, these are {len(kernels)}: choose one with --kernel")
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
        for one in lifted:
            counts = counts_of(args.counts, one) if args.counts else None
            annotated[one.kernel.name] = Annotations(one, counts)
    if args.json:
        say_text(json.dumps([as_data(one, annotated.get(one.kernel.name)) for one in lifted], indent=1))
        return 0
    for one in lifted:
        for line in as_text(
            one,
            instructions=args.instructions,
            registers=args.registers,
            annotations=annotated.get(one.kernel.name),
        ):
            say_fitting(line)
    return 0
