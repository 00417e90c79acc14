"""A number by stack of calls, one stack a line, for flame graph tools."""

from __future__ import annotations

import sys
from typing import IO, TYPE_CHECKING

from luthier.report.formats.declare import ReportFormat

if TYPE_CHECKING:
    from luthier.run.folder import RunFolder


def write(folder: RunFolder, out: IO[bytes], number: str | None = None) -> None:
    """Write lines ``call;call;kernel number``, the outermost call first, and on standard error what was not counted.

    Args:
        number: one of `luthier.report.stacks.NUMBERS`; None: instructions, if they were counted, otherwise launches.

    Raises:
        LuthierError: the run has no stacks, or not this number.
    """
    from luthier.report.stacks import COUNTED, LaunchStacks, number_of
    from luthier.terminal import say, visible

    stacks = LaunchStacks.of(folder)
    name = number_of(stacks, number)
    for row in stacks.rows:
        path = [*stacks.path(row, "stack", starts=True), stacks.kernels[row.kernel]]
        words = (visible(one).replace(";", ":") for one in path)
        if value := row.numbers[name]:
            out.write(f"{';'.join(words)} {value}\n".encode())
    if stacks.partial and name in COUNTED:
        say(f"luthier report: {stacks.partial}", file=sys.stderr)


FORMAT = ReportFormat(
    help="a number (--number) by the host's stack of calls, one stack a line, for flame graphs",
    write=write,
    numbers=True,
)
