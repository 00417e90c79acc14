"""`luthier check`: whether kernels wait for what they use and keep apart what must be, on every path."""

from __future__ import annotations

import argparse
import sys
from typing import NamedTuple

from luthier.cli.common import print_json
from luthier.cli.progress import Progress
from luthier.cli.selection import add_object_arguments, selected_kernels
from luthier.errors import LiftError, ObjectError
from luthier.lifting import lift
from luthier.lifting.hazards import HazardFinding, HazardReport, check_hazards
from luthier.lifting.waits import Finding, WaitReport, check_waits
from luthier.objects import CodeObject, load_object, load_objects
from luthier.terminal import say, say_text, visible


class _Checked(NamedTuple):
    """A kernel and what was found."""

    code: CodeObject
    waits: WaitReport
    hazards: HazardReport

    @property
    def findings(self) -> tuple[Finding | HazardFinding, ...]:
        """Of both checks."""
        return *self.waits.findings, *self.hazards.findings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add_object_arguments(parser)
    parser.add_argument(
        "--unneeded", action="store_true", help="list waits and wait states that no path needs, not only count them"
    )
    parser.add_argument("--json", action="store_true", help="print what was found as JSON")


def run(args: argparse.Namespace) -> int:
    """Do what the command line asks for; the exit status: 0 only if all was checked and nothing found."""
    results: list[_Checked] = []
    refused: list[tuple[CodeObject, str, LiftError]] = []
    with Progress("checking") as progress:
        for object, kernels in _kernels(args):
            for kernel in kernels:
                progress.step(kernel)
                try:
                    lifted = lift(object, kernel)
                    results.append(_Checked(object, check_waits(lifted), check_hazards(lifted)))
                except LiftError as problem:
                    refused.append((object, kernel, problem))
    if args.json:
        print_json(_as_data(results, refused))
    else:
        _say(results, refused, list_unneeded=args.unneeded)
    found = any(one.findings or one.hazards.more for one in results)
    return 1 if found or refused else 0


def _kernels(args: argparse.Namespace) -> list[tuple[CodeObject, list[str]]]:
    """The kernels that are asked for, of every code object in the file that has any of them.

    Raises:
        ObjectError: none has, or there is no code object.
    """
    objects = [load_object(args.file, args.target)] if args.target else list(load_objects(args.file))
    found = []
    problem: ObjectError | None = None
    for object in objects:
        try:
            found.append((object, selected_kernels(object, args.kernel)))
        except ObjectError as missing:
            problem = missing
    if not found:
        raise problem or ObjectError("there is no code object", object=args.file)
    return found


def _say(
    results: list[_Checked],
    refused: list[tuple[CodeObject, str, LiftError]],
    *,
    list_unneeded: bool,
) -> None:
    for one in results:
        for finding in one.findings:
            say_text(f"{one.code.target}: {finding}")
        if list_unneeded:
            for wait in (*one.waits.unneeded, *one.hazards.unneeded):
                say_text(f"{one.code.target}: not needed: {wait}")
    for object, kernel, problem in refused:
        say_text(f"{object.target}: {visible(kernel)}: NOT CHECKED: {problem}", file=sys.stderr)
    findings = sum(len(one.findings) for one in results)
    unneeded = sum(len(one.waits.unneeded) for one in results)
    nops = sum(len(one.hazards.unneeded) for one in results)
    instructions = sum(one.waits.instructions for one in results)
    left_out = sum(one.waits.unchecked for one in results)
    say(
        f"{len(results)} kernels of {instructions} instructions checked: {findings} findings; "
        f"{unneeded} waits and {nops} s_nop that no path needs"
    )
    if more := sum(one.hazards.more for one in results):
        say(f"hazards at {more} more instructions, of which not all producers were looked for")
    if left_out:
        say(f"of {left_out} instructions some registers are not known, and not checked")
    if refused:
        say(f"{len(refused)} kernels were NOT CHECKED", file=sys.stderr)


def _as_data(results: list[_Checked], refused: list[tuple[CodeObject, str, LiftError]]) -> dict[str, object]:
    return {
        "kernels": [
            {
                "target": str(object.target),
                "kernel": waits.kernel,
                "instructions": waits.instructions,
                "unchecked": waits.unchecked,
                "findings": [finding.to_json() for finding in waits.findings],
                "unneeded": [wait.to_json() for wait in waits.unneeded],
                "hazards": [finding.to_json() for finding in hazards.findings],
                "more_hazards": hazards.more,
                "unneeded_nops": [nop.to_json() for nop in hazards.unneeded],
            }
            for object, waits, hazards in results
        ],
        "not_checked": [
            {"target": str(object.target), "kernel": kernel, "reason": str(problem)}
            for object, kernel, problem in refused
        ],
    }
