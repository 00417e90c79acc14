"""Parts of the sub-commands that project launches: their machines, and their output."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

from luthier.cli.common import say_fitting, shown_tables
from luthier.errors import LuthierError
from luthier.terminal import say_text, visible

if TYPE_CHECKING:
    from luthier.projection import MachineModel
    from luthier.projection.kept import ProjectedRun


def machines_of(names: str | None, files: Sequence[str], option: str = "--to") -> list[MachineModel]:
    """Return the machines of names, separated by commas, and of files; each of them once.

    Args:
        option: that has the names.

    Raises:
        LuthierError: there is no such machine, a file has none, or two machines have the same name.
    """
    from luthier.projection import machine_named, machine_names, read_machine

    try:
        machines = [machine_named(name.strip()) for name in (names or "").split(",") if name.strip()]
    except LuthierError as problem:
        raise LuthierError(f"{option}: {problem}") from None
    if names is not None and not machines:
        raise LuthierError(f"{option} names no GPU; there are {', '.join(machine_names())}")
    machines += [read_machine(file) for file in files]
    machines = [machine for at, machine in enumerate(machines) if machine not in machines[:at]]
    if len({machine.name for machine in machines}) < len(machines):
        raise LuthierError("two machines have the same name: change `name` in the file of --machine")
    return machines


def print_run(
    command: str,
    projected: ProjectedRun,
    left_out: Sequence[str],
    by: str,
    out: TextIO,
    *,
    mangled: bool,
    explain: str = "",
) -> None:
    """Print projections of a run, and what is not projected.

    Args:
        command: the sub-command that prints.
        by: ``kernel`` or ``line``.
        explain: name or glob of kernels to explain instead.

    Raises:
        LuthierError: no launch is of a kernel to explain.
    """
    from luthier.objects.names import matches, spellings
    from luthier.projection.text import explained, kernel_table, line_table, totals

    projections = projected.projections
    if explain:
        chosen = [projection for projection in projections if matches(projection.kernel, explain)]
        if projections and not chosen:
            names = ", ".join(sorted({spellings(projection.kernel)[-1] for projection in projections}))
            raise LuthierError(f"no launch of a kernel {explain!r}; there are launches of {names}")
        for projection in chosen:
            for line in explained(projection):
                say_fitting(line, file=out)
    elif projections:
        table = line_table(projections) if by == "line" else kernel_table(projections)
        for text in shown_tables([table], out, mangled=mangled):
            say_text(text, file=out)
        for total in totals(projections):
            say_fitting(total, file=out)
        for note in dict.fromkeys(note for projection in projections for note in projection.notes):
            say_fitting(f"note: {note}", file=out)
    for problem in (*left_out, *projected.refused):
        say_fitting(f"luthier {command}: not projected: {visible(problem)}", file=sys.stderr)
    if not (projections or left_out or projected.refused):
        say_fitting(f"luthier {command}: no launch was measured, so none is projected", file=sys.stderr)
