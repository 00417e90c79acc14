"""The report page of a run, or of two runs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING

from luthier.report.formats.declare import ReportFormat
from luthier.terminal import say

if TYPE_CHECKING:
    from luthier.run.folder import RunFolder
    from luthier.support.table import Table


def write(folder: RunFolder, out: IO[bytes], roots: Sequence[Path] = (), measured: Sequence[Table] = ()) -> None:
    """Write the page of a run, and print the source files that it contains on standard error."""
    from luthier.report.analysis import AnalysedRun
    from luthier.report.page import write_page

    if places := write_page(AnalysedRun.of(folder, measured), out, roots):
        say(f"luthier report: files in the page: {', '.join(places)}", file=sys.stderr)


def compare(folder: RunFolder, against: RunFolder, out: IO[bytes]) -> None:
    """Write the page of two runs."""
    from luthier.report.page import write_comparison

    write_comparison(folder, against, out)


FORMAT = ReportFormat(help="a page in one file", write=write, compare=compare, sources=True, measured=True)
