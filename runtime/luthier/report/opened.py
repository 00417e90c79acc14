"""Results of a run for notebooks and scripts: tables, which become data frames and plots, and a roofline."""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path
from typing import Any

from luthier.errors import LuthierError
from luthier.report.analysis import AnalysedRun
from luthier.report.compare import opcodes
from luthier.report.digest import RunDigest
from luthier.report.places import By, by_place
from luthier.report.projected import projected
from luthier.run.folder import RunFolder
from luthier.support.markup import escape
from luthier.support.plots import HEAT, as_is, describe, new_axes, number
from luthier.support.suggestions import did_you_mean
from luthier.support.table import Cell, Table
from luthier.terminal import visible

_SHOWN = 10
"""Rows of a table that a run shows in a notebook."""
_COLOURS = {True: "#2a7f9e", False: HEAT}
"""Colours of roofs, of bytes and of operations."""


class OpenedRun:
    """The results of a run, as tables. A notebook shows the answer of `luthier profile`.

    Args:
        path: the run folder.

    Raises:
        LuthierError: it is not a run folder, or is unfinished or damaged.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.folder = RunFolder(Path(path))
        """The folder, for tables of tools and of launches."""

    @cached_property
    def analysed(self) -> AnalysedRun:
        """Everything that the report page shows."""
        return AnalysedRun.of(self.folder)

    @cached_property
    def digest(self) -> RunDigest:
        """The answer of `luthier profile`."""
        return RunDigest.of(self.analysed)

    @property
    def kernels(self) -> Table:
        """Launched kernels, most costly first.

        Executed instructions, their share in percent, launches, active lanes in percent, and time in nanoseconds, or
        None where it is not known.
        """
        columns = tuple(self.digest.kernels[0]) if self.digest.kernels else ("name", "executed")
        rows = [[row[name] for name in columns] for row in self.digest.kernels]
        return Table("kernels by cost", ("kernel", *columns[1:]), rows)

    @property
    def lines(self) -> Table:
        """Source lines by executed instructions, most first.

        Raises:
            LuthierError: no tool counted instructions.
        """
        return self.by("line")

    @property
    def opcodes(self) -> Table:
        """Opcodes of each kernel by executed instructions, most first, with their share of all in percent.

        The target of each kernel has a column if there are several.

        Raises:
            LuthierError: no tool counted instructions.
        """
        self.by("function")  # an error if nothing was counted
        counts = {key: int(numbers["executed"] or 0) for key, numbers in opcodes(self.folder).items()}
        total = sum(counts.values())
        targets = {target for _, target, _ in counts}
        rows = [
            [self._names.get(kernel, kernel), *([target] if len(targets) > 1 else []), opcode, count, share]
            for (kernel, target, opcode), count in sorted(counts.items(), key=lambda item: -item[1])
            for share in [round(100 * count / total, 2)]
        ]
        columns = ("kernel", *(["target"] if len(targets) > 1 else []), "opcode", "executed", "%")
        return Table("executed by opcode", columns, rows)

    @property
    def findings(self) -> Table:
        """Findings with advice, most important first."""
        columns = ("level", "rule", "kernel", "place", "text", "advice")
        rows = [[getattr(finding, name) for name in columns] for finding in self.digest.findings]
        return Table("findings", columns, rows)

    @property
    def projections(self) -> Table:
        """Projected times of kernels on GPUs, in microseconds; without rows if nothing was projected."""
        projection = self._projection
        names = ("time_us", "low_us", "high_us", "bound_by", "occupancy", "operations", "memory_bytes", "launches")
        rows = [
            [self._name(row["kernel"]), projection["gpus"][row["gpu"]]["name"], *(row[name] for name in names)]
            for row in projection["kernels"]
        ]
        return Table("projected times", ("kernel", "GPU", *names), rows)

    def by(self, kind: By) -> Table:
        """Return executed instructions by ``line``, ``function``, ``block`` or ``address``, most first.

        Raises:
            LuthierError: no tool counted instructions.
        """
        table = by_place(self.folder, kind)
        last = table.columns.index("instructions")  # the size of the code goes behind what was executed
        order = [*(at for at in range(len(table.columns)) if at != last), last]
        rows = [[self._names.get(str(row[0]), row[0]), *(row[at] for at in order[1:])] for row in table.rows]
        return Table(table.title, [table.columns[at] for at in order], rows)

    def roofline(self, gpu: str | None = None, *, axes: Any = None) -> Any:
        """Draw the roofline of a GPU with the projected kernels, and return the Matplotlib axes.

        Args:
            gpu: its name; None: the first of `projections`.
            axes: axes to draw into; None: those of a new figure.

        Raises:
            LuthierError: the run has no projected times on it, or Matplotlib is not installed.
        """
        names = [one["name"] for one in self._projection["gpus"]]
        if not names:
            raise LuthierError(f"{self.folder.path} has no projected times: run the program with --project")
        if gpu is not None and gpu not in names:
            raise LuthierError(
                f"the run is not projected on {gpu!r}, but on {', '.join(names)}{did_you_mean(gpu, names)}"
            )
        at = 0 if gpu is None else names.index(gpu)
        kernels = [row for row in self._projection["kernels"] if row["gpu"] == at]
        points = [row for row in kernels if min(row["operations"], row["memory_bytes"], row["time_us"]) > 0]
        axes = new_axes(4.5) if axes is None else axes
        intensities = [row["operations"] / row["memory_bytes"] for row in points]
        every = self._projection["gpus"][at]["roofs"]
        roofs = {name: (rate, of_bytes) for name, (rate, of_bytes) in every.items() if rate > 0}
        peak = max((rate for rate, of_bytes in roofs.values() if not of_bytes), default=1.0)
        bands = [rate for rate, of_bytes in roofs.values() if of_bytes]
        low = min([0.1, *intensities]) / 2
        high = max([10 * peak / min(bands, default=peak), *intensities]) * 2
        for name, (rate, of_bytes) in roofs.items():
            start, end = (low, peak / rate) if of_bytes else (rate / max(bands, default=rate), high)
            axes.plot(
                [start, end], [start * rate, peak] if of_bytes else [rate, rate], color=_COLOURS[of_bytes], lw=1.2
            )
            text = f"{name}: {number(rate)} {'GB/s' if of_bytes else 'Gop/s'}"
            place = (start, start * rate) if of_bytes else (high, rate)
            axes.annotate(
                text, place, (2, 3), textcoords="offset points", fontsize="x-small", ha="left" if of_bytes else "right"
            )
        drawn = [
            axes.plot([intensity], [row["operations"] / (1e3 * row["time_us"])], "o")[0]
            for row, intensity in zip(points, intensities, strict=True)
        ]
        axes.set_xscale("log")
        axes.set_yscale("log")
        if points:
            labels = [visible(self._name(row["kernel"])) for row in points]
            as_is(*axes.legend(drawn, labels, fontsize="small").get_texts())
        notes = [f"{names[at]}, projected"]
        if any(row["sampled"] for row in points):
            notes.append("operations of some kernels are estimated from samples")
        if len(points) < len(kernels):
            notes.append(
                f"{len(kernels) - len(points)} not drawn: no floating-point operations, no time, or all data in L2"
            )
        describe(axes, "\n".join(notes), "operations for each byte beyond L2", "billion operations in a second")
        return axes

    @cached_property
    def _projection(self) -> dict[str, Any]:
        return projected(self.analysed.projected, self.analysed.numbers)

    @cached_property
    def _names(self) -> dict[str, Cell]:
        """Names of the digest by the kernels' whole names."""
        return dict(zip((one["name"] for one in self.analysed.kernels), self.digest.names, strict=True))

    def _name(self, kernel: int) -> str:
        return self.digest.names[kernel] if kernel < len(self.digest.names) else "unknown kernel"

    def _repr_html_(self) -> str:
        """Return the answer as HTML for notebooks."""
        tables = [self.kernels, self.findings]
        if self.digest.hot:
            tables.insert(1, self.lines)
        shown = [_first(table)._repr_html_() for table in tables if table.rows]
        return "\n".join([_paragraph(self.digest.headline), *shown, *map(_paragraph, self.digest.notes)])


def open_run(path: str | os.PathLike[str]) -> OpenedRun:
    """Open the folder that `luthier run -o` or `luthier profile` wrote.

    Raises:
        LuthierError: it is not a run folder, or is unfinished or damaged.
    """
    return OpenedRun(path)


def _first(table: Table) -> Table:
    rows = table.rows[:_SHOWN]
    more = f", the first {len(rows)} of {len(table.rows)}" if len(rows) < len(table.rows) else ""
    return Table(table.title + more, table.columns, rows)


def _paragraph(text: str) -> str:
    return f"<p>{escape(text)}</p>"
