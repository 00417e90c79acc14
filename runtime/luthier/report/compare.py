"""Differences between two runs: kernels by name and target, executed opcodes, and the tools' variables."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from luthier.report import overview
from luthier.report.rows import KernelNumbers
from luthier.run.folder import RunFolder
from luthier.support.table import Cell, Table

SCHEMA = 1
"""Schema of the comparison as JSON; it grows when something in it changes its meaning or goes."""
_SUMS = ("executed", "lanes", "time", "timed", "launches", "instrumented", "code_bytes", "instructions")
_LARGEST = ("vgprs", "sgprs", "group_segment", "private_segment", "patched_vgprs", "patched_sgprs")
_SMALLEST = ("waves_per_simd", "patched_waves_per_simd")
_SHOWN = (
    *("executed", "lanes active", "time_ns", "mean_ns", "emulation_ns", "launches", "instrumented"),
    *(*_LARGEST, *_SMALLEST, "instructions", "code_bytes"),
)
"""In this order. Sums, the largest or the smallest number of kernels of one name and target in several objects."""

Numbers = Mapping[tuple[str, ...], Mapping[str, float | int | None]]
"""By what rows are matched: numbers by name."""


class ComparedRow(NamedTuple):
    """Row of a table of `compared`."""

    keys: tuple[Cell, ...]
    """What the numbers are of: a kernel and its target, and the opcode; or a tool and its variable."""
    what: Cell
    """Name of the number."""
    run: Cell
    against: Cell
    """Its values; None where a run has none."""
    difference: Cell
    ratio: Cell

    @classmethod
    def of(cls, row: Sequence[Cell]) -> ComparedRow:
        """Return a row of a table by the names of its columns."""
        *keys, what, run, against, difference, ratio = row
        return cls(tuple(keys), what, run, against, difference, ratio)

    @property
    def is_of_both(self) -> bool:
        """Return whether both runs have the number."""
        return self.run is not None and self.against is not None


def words(cells: Iterable[Cell]) -> str:
    """Return cells as one line, without empty ones."""
    return " ".join(str(cell) for cell in cells if cell not in (None, ""))


def compared(run: RunFolder, against: RunFolder) -> list[Table]:
    """Return tables of what both runs have and what only one has: value, the other's value, difference and ratio.

    Kernels come in the order of how much their cost differs. Time of emulated devices, which is without first
    launches, has neither difference nor ratio: it is not that of a GPU. Rows in which nothing differs are there, too.

    Raises:
        LuthierError: one of the runs is damaged.
    """
    both = [(_kernels(one), _opcodes(one), _variables(one)) for one in (run, against)]
    keys = (("kernel", "target"), ("kernel", "target", "opcode"), ("tool", "variable"))
    titles = ("kernels", "executed opcodes", "variables")
    return [
        _table(title, key, both[0][at], both[1][at]) for at, (title, key) in enumerate(zip(titles, keys, strict=True))
    ]


def changed(table: Table) -> Table:
    """Return the table without rows in which nothing differs; the title says how many there are."""
    compared_rows = [(ComparedRow.of(row), row) for row in table.rows]
    rows = [row for compared, row in compared_rows if compared.difference != 0 and compared.what != "emulation_ns"]
    same = len(table.rows) - len(rows)
    return Table(f"{table.title}, {same} the same" if same else table.title, table.columns, rows)


def as_json(run: RunFolder, against: RunFolder) -> dict[str, Any]:
    """Return the tables with both runs' commands, as JSON-compatible data.

    Raises:
        LuthierError: as of `compared`.
    """
    tables = [table.to_json() for table in compared(run, against)]
    runs = {"run": run.summary.command, "against": against.summary.command}
    return {"schema": SCHEMA, "commands": runs, "tables": tables}


def _kernels(run: RunFolder) -> Numbers:
    found: dict[tuple[str, ...], dict[str, Any]] = {}
    for kernel in overview.kernels(run, KernelNumbers()):
        entry = found.setdefault((kernel["name"], kernel["target"] or ""), {})
        entry["wave_size"] = kernel["wave_size"]
        joins: tuple[tuple[tuple[str, ...], Callable[[Any, Any], Any]], ...] = (
            (_SUMS, operator.add),
            (_LARGEST, max),
            (_SMALLEST, min),
        )
        for names, join in joins:
            for name in names:
                old, new = entry.get(name), kernel[name]
                entry[name] = new if old is None else old if new is None else join(old, new)
    for entry in found.values():
        executed, lanes, timed = entry["executed"], entry["lanes"], entry.pop("timed")
        possible = (executed or 0) * (entry["wave_size"] or 0)
        entry["lanes active"] = lanes / possible if lanes and possible else None
        # Emulation is no cost of a kernel: its time has no mean, and nothing is told of how it differs.
        time, emulated = entry.pop("time"), overview.is_emulated(run)
        entry["emulation_ns"] = time if emulated else None
        entry["time_ns"] = None if emulated else time
        entry["mean_ns"] = time / timed if timed and not emulated else None
    return {key: {name: entry[name] for name in _SHOWN} for key, entry in found.items()}


def _opcodes(run: RunFolder) -> Numbers:
    """Return how often waves executed each opcode of each kernel."""
    import pyarrow as pa

    names = {
        (row["kernel"], row["digest"]): (row["name"] or row["kernel"], row["target"] or "")
        for row in run.rows("kernels", ["kernel", "digest", "name", "target"])
    }
    group = ["kernel", "digest", "mnemonic"]
    found: dict[tuple[str, ...], dict[str, Any]] = {}
    with run.table("counts") as reader:
        for batch in reader.batches([*group, "executions"]):
            summed = pa.Table.from_batches([batch]).group_by(group).aggregate([("executions", "sum")])
            for row in summed.to_pylist():
                if row["executions_sum"]:
                    name = names.get((row["kernel"], row["digest"]), (row["kernel"] or "", ""))
                    entry = found.setdefault((*name, row["mnemonic"] or ""), {"executed": 0})
                    entry["executed"] += row["executions_sum"]
    return found


def _variables(run: RunFolder) -> Numbers:
    """Return variables of one element, added up over processes and devices."""
    found: dict[tuple[str, ...], dict[str, Any]] = {}
    for row in run.rows("counters", ["tool", "variable", "first", "unsigned", "signed", "real"]):
        values = row["unsigned"] or row["signed"] or row["real"] or []
        if row["first"] == 0 and len(values) == 1:
            entry = found.setdefault((row["tool"] or "", row["variable"] or ""), {"value": 0})
            entry["value"] += values[0]
    return found


def _table(title: str, key: tuple[str, ...], run: Numbers, against: Numbers) -> Table:
    rows: list[list[Cell]] = []
    for names in dict.fromkeys((*run, *against)):
        here, there = run.get(names, {}), against.get(names, {})
        for what in dict.fromkeys((*here, *there)):
            one, other = here.get(what), there.get(what)
            if one is not None or other is not None:
                rows.append(
                    [*names, what, one, other, *(_difference(one, other) if what != "emulation_ns" else (None, None))]
                )
    weight = _costs(rows)
    rows.sort(key=lambda row: -weight[str(row[0])])
    return Table(title, (*key, "what", "run", "against", "difference", "ratio"), rows)


def _difference(one: float | None, other: float | None) -> tuple[Cell, Cell]:
    """Return difference and ratio of two values; None where only one run has a value."""
    if one is None or other is None:
        return None, None
    by = difference(one, other)
    return by, None if other == 0 else 1.0 if by == 0 else round(one / other, 6)


def difference(one: float, other: float) -> float:
    """Return by how much a value is larger than another; 0 if both are no numbers (NaN), or the same infinity."""
    by = one - other
    same = one == other or (math.isnan(one) and math.isnan(other))
    return 0.0 if same and math.isnan(by) else by


def _costs(rows: Iterable[list[Cell]]) -> dict[str, float]:
    """Return by how much the cost of each first name differs: instructions where they were counted, else time."""
    costs: dict[str, float] = {}
    for compared in map(ComparedRow.of, rows):
        name, what, one, other = compared.keys[0], compared.what, compared.run, compared.against
        if what in ("executed", "value", "time_ns"):
            by = abs(difference(float(one or 0), float(other or 0))) * (1e-9 if what == "time_ns" else 1)
            costs[str(name)] = costs.get(str(name), 0) + (math.inf if math.isnan(by) else by)
        costs.setdefault(str(name), 0)
    return costs
