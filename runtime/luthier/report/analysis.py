"""A run folder with everything that the page, the formats and the summary derive from it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from msgspec import Struct

from luthier.projection.kept import MeasuredRun
from luthier.report import overview
from luthier.report.code import ReportedCode, codes
from luthier.report.findings import ReportedFinding, findings
from luthier.report.projected import cycle_tables, measured_run
from luthier.report.rows import KernelNumbers
from luthier.report.shapes import filled, shapes
from luthier.run.folder import RunFolder
from luthier.support.table import Table
from luthier.support.wording import counted


class AnalysedRun(Struct, dict=True):
    """Kernels of a run by number, with their code, launches and findings."""

    run: RunFolder
    numbers: KernelNumbers
    kernels: list[dict[str, Any]]
    """From `luthier.report.overview.kernels`."""
    tables: list[dict[str, Any]]
    """Tables of tools, from `luthier.report.overview.tool_tables`."""
    tables_left_out: int
    """Number of tables that are too large."""
    codes: dict[int, ReportedCode]
    """Code by kernel, from `luthier.report.code.codes`."""
    shapes: list[list[Any]]
    """Launches by size, from `luthier.report.shapes.shapes`."""
    projected: MeasuredRun
    """Projected launches."""

    @classmethod
    def of(cls, run: RunFolder, measured: Sequence[Table] = ()) -> AnalysedRun:
        """Read a run.

        Args:
            measured: tables of what a GPU measured, beside those of the tools.

        Raises:
            LuthierError: the run is damaged.
        """
        numbers = KernelNumbers()
        kernels = overview.kernels(run, numbers)
        projected = measured_run(run)
        tables, left_out = overview.tool_tables(run, measured, tuple(cycle_tables(projected, numbers)))
        code_of = codes(run, numbers, kernels, tables)
        return cls(run, numbers, kernels, tables, left_out, code_of, shapes(run, numbers, kernels), projected)

    @cached_property
    def findings(self) -> list[ReportedFinding]:
        """All findings, in the order of `luthier.report.findings.findings`."""
        return findings(self.kernels, self.codes, self.tables, filled(self.shapes, self.kernels), limit=None)

    @property
    def unexamined(self) -> list[str]:
        """Sentences about what was not searched for findings."""
        missing = [one["name"] for at, one in enumerate(self.kernels) if at not in self.codes and one["instructions"]]
        notes = []
        if self.tables_left_out:
            notes.append(f"{self.tables_left_out} tables of tools are too large to search for findings")
        if missing:
            without = counted(len(missing), "kernel")
            notes.append(f"the code of {without} was not examined for findings: {', '.join(missing)}")
        return notes
