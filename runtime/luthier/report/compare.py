"""Differences between two runs: kernels by name and target, executed opcodes, and the tools' variables."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from luthier.report import overview
from luthier.report.rows import KernelNumbers
from luthier.run.folder import RunFolder
from luthier.support.extras import extra
from luthier.support.table import Cell, Table
from luthier.support.wording import counted

SCHEMA = 1
"""Schema of the comparison as JSON; incremented if a field changes its meaning or is removed."""
_SUMS = (
    "executed",
    "vector_executed",
    "lanes",
    "time",
    "timed",
    "launches",
    "instrumented",
    "code_bytes",
    "instructions",
)
_LARGEST = ("vgprs", "sgprs", "group_segment", "private_segment", "patched_vgprs", "patched_sgprs")
_SMALLEST = ("waves_per_simd", "patched_waves_per_simd")
_SHOWN = (
    *("executed", "lanes active", "time_ns", "mean_ns", "emulation_ns", "launches", "instrumented"),
    *(*_LARGEST, *_SMALLEST, "instructions", "code_bytes"),
)
"""In this order. If several objects have kernels of the same name and target: sums, largest or smallest values."""

Numbers = Mapping[tuple[str, ...], Mapping[str, float | int | None]]
"""Key that matches rows -> name -> number."""


class ComparedRow(NamedTuple):
    """Row of a table that `compared` returns."""

    keys: tuple[Cell, ...]
    """Kernel and target, also opcode; or tool and variable."""
    what: Cell
    """Name of the number."""
    run: Cell
    against: Cell
    """Values in both runs; None if a run has none."""
    difference: Cell
    ratio: Cell

    @classmethod
    def of(cls, row: Sequence[Cell]) -> ComparedRow:
        """Name the cells of a table's row."""
        *keys, what, run, against, difference, ratio = row
        return cls(tuple(keys), what, run, against, difference, ratio)

    @property
    def is_of_both(self) -> bool:
        """Return whether both runs have the number."""
        return self.run is not None and self.against is not None


def words(cells: Iterable[Cell]) -> str:
    """Join cells that are not empty into one line."""
    return " ".join(str(cell) for cell in cells if cell not in (None, ""))


def compared(run: RunFolder, against: RunFolder) -> list[Table]:
    """Return tables of both runs with value, the other's value, difference and ratio, including equal rows.

    Kernels are sorted by the difference in cost. Time of emulated devices, which excludes first launches, has no
    difference or ratio, since it is not the time of a GPU.

    Raises:
        LuthierError: one of the runs is damaged.
    """
    both = [(_kernels(one), opcodes(one), _variables(one)) for one in (run, against)]
    keys = (("kernel", "target"), ("kernel", "target", "opcode"), ("tool", "variable"))
    titles = ("kernels", "executed opcodes", "variables")
    return [
        _table(title, key, both[0][at], both[1][at]) for at, (title, key) in enumerate(zip(titles, keys, strict=True))
    ]


def changed(table: Table) -> Table:
    """Return the table without equal rows, whose number the title gives, and without times of emulated devices."""
    compared_rows = [(ComparedRow.of(row), row) for row in table.rows]
    rows = [
        [*row[:-1], float(f"{row[-1]:.4g}") if isinstance(row[-1], float) else row[-1]]
        for compared, row in compared_rows
        if compared.difference != 0 and compared.what != "emulation_ns"
    ]
    same = sum(compared.difference == 0 for compared, _ in compared_rows)
    left = [f"{counted(same, 'row')} of equal numbers"] if same else []
    left += ["times of emulated devices"] if len(table.rows) > len(rows) + same else []
    title = f"{table.title}; {' and '.join(left)} left out" if left else table.title
    return Table(title, table.columns, rows)


def as_json(run: RunFolder, against: RunFolder) -> dict[str, Any]:
    """Return the tables with both runs' commands, as JSON-compatible data.

    Raises:
        LuthierError: as for `compared`.
    """
    tables = [table.to_json() for table in compared(run, against)]
    runs = {"run": run.summary.command, "against": against.summary.command}
    return {"schema": SCHEMA, "commands": runs, "tables": tables}


def _kernels(run: RunFolder) -> Numbers:
    numbers_by_kernel: dict[tuple[str, ...], dict[str, Any]] = {}
    for kernel in overview.kernels(run, KernelNumbers()):
        entry = numbers_by_kernel.setdefault((kernel["name"], kernel["target"] or ""), {})
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
    for entry in numbers_by_kernel.values():
        vectors, lanes, timed = entry["vector_executed"], entry["lanes"], entry.pop("timed")
        possible = (vectors or 0) * (entry["wave_size"] or 0)
        entry["lanes active"] = lanes / possible if lanes and possible else None
        # Emulation is not a cost of a kernel: its time has no mean and is not compared.
        time, emulated = entry.pop("time"), overview.is_emulated(run)
        entry["emulation_ns"] = time if emulated else None
        entry["time_ns"] = None if emulated else time
        entry["mean_ns"] = time / timed if timed and not emulated else None
    return {key: {name: entry[name] for name in _SHOWN} for key, entry in numbers_by_kernel.items()}


def opcodes(run: RunFolder) -> Numbers:
    """Return how often waves executed each opcode: name and target of the kernel, opcode -> ``executed``."""
    pa = extra("pyarrow")

    names = {
        (row["kernel"], row["digest"]): (row["name"] or row["kernel"], row["target"] or "")
        for row in run.rows("kernels", ["kernel", "digest", "name", "target"])
    }
    group = ["kernel", "digest", "mnemonic"]
    numbers_by_opcode: dict[tuple[str, ...], dict[str, Any]] = {}
    with run.table("counts") as reader:
        for batch in reader.batches([*group, "executions"]):
            summed = pa.Table.from_batches([batch]).group_by(group).aggregate([("executions", "sum")])
            for row in summed.to_pylist():
                if row["executions_sum"]:
                    name = names.get((row["kernel"], row["digest"]), (row["kernel"] or "", ""))
                    entry = numbers_by_opcode.setdefault((*name, row["mnemonic"] or ""), {"executed": 0})
                    entry["executed"] += row["executions_sum"]
    return numbers_by_opcode


def _variables(run: RunFolder) -> Numbers:
    """Return variables of one element, summed over processes and devices."""
    numbers_by_variable: dict[tuple[str, ...], dict[str, Any]] = {}
    for row in run.rows("counters", ["tool", "variable", "first", "unsigned", "signed", "real"]):
        values = row["unsigned"] or row["signed"] or row["real"] or []
        if row["first"] == 0 and len(values) == 1:
            entry = numbers_by_variable.setdefault((row["tool"] or "", row["variable"] or ""), {"value": 0})
            entry["value"] += values[0]
    return numbers_by_variable


def _table(title: str, key: tuple[str, ...], run: Numbers, against: Numbers) -> Table:
    rows: list[list[Cell]] = []
    for names in dict.fromkeys((*run, *against)):
        run_numbers, against_numbers = run.get(names, {}), against.get(names, {})
        for what in dict.fromkeys((*run_numbers, *against_numbers)):
            value, base = run_numbers.get(what), against_numbers.get(what)
            if value is not None or base is not None:
                rows.append(
                    [*names, what, value, base, *(_difference(value, base) if what != "emulation_ns" else (None, None))]
                )
    weight = _costs(rows)
    rows.sort(key=lambda row: -weight[str(row[0])])
    return Table(title, (*key, "what", "run", "against", "difference", "ratio"), rows)


def _difference(value: float | None, base: float | None) -> tuple[Cell, Cell]:
    """Return difference and ratio of two values; None if a run has no value."""
    if value is None or base is None:
        return None, None
    by = difference(value, base)
    return by, None if base == 0 else 1.0 if by == 0 else round(value / base, 6)


def difference(value: float, base: float) -> float:
    """Return by how much a value exceeds a base; 0 if both are NaN, or the same infinity."""
    by = value - base
    same = value == base or (math.isnan(value) and math.isnan(base))
    return 0.0 if same and math.isnan(by) else by


def _costs(rows: Iterable[list[Cell]]) -> dict[str, float]:
    """Return the cost difference for each first key: instructions if they were counted, otherwise time."""
    costs: dict[str, float] = {}
    for compared in map(ComparedRow.of, rows):
        name, what, value, base = compared.keys[0], compared.what, compared.run, compared.against
        if what in ("executed", "value", "time_ns"):
            by = abs(difference(float(value or 0), float(base or 0))) * (1e-9 if what == "time_ns" else 1)
            costs[str(name)] = costs.get(str(name), 0) + (math.inf if math.isnan(by) else by)
        costs.setdefault(str(name), 0)
    return costs
