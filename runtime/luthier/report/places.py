"""Executed instructions by the user's source line, function, block or address: from the counts of a run folder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, get_args

from luthier.errors import LuthierError
from luthier.objects.user_source import line_text, lines_text
from luthier.report.measures import is_per_lane
from luthier.run.folder import RunFolder
from luthier.support.table import Table

By = Literal["line", "function", "block", "address"]
KINDS: tuple[str, ...] = get_args(By)
_Kernel = tuple[str, str]
"""Symbol and digest."""


def by_place(run: RunFolder, kind: By, top: int = 0) -> Table:
    """Return the executed instructions, most first, by their location.

    Instructions are charged to the user's own lines (`luthier.objects.SourceLocation.user`); without debug information,
    a line is the function and the offset in it.

    Args:
        kind: kind of groups: lines, functions (of the source, also inlined ones), blocks, or instructions.
        top: number of rows; 0: all.

    Returns:
        The columns ``kernel``, ``source``, for some kinds ``function``, ``block``, ``address``, ``instruction``; then
        ``instructions`` (number in the code), ``executed`` (by waves), ``lanes %`` (share of active lanes in
        vector instructions; None if not counted) and ``%`` (of all executed instructions).

    Raises:
        LuthierError: nothing was counted, or a table is damaged.
    """
    counts = _counts(run)
    if not counts:
        raise LuthierError(
            f"{run.path} has no counts of instructions: run with a tool that counts them, such as block_profile"
        )
    if "listings" not in run.names or "blocks" not in run.names:
        raise LuthierError(f"{run.path} has no listings of kernels: it was written by an early version of Luthier")
    kernels = {(row["kernel"], row["digest"]): row for row in run.rows("kernels")}
    groups: dict[tuple[Any, ...], _Group] = {}
    for kernel, row, function in _instructions(run):
        if (counted := counts.get((*kernel, row["address"]))) is None:
            continue
        key = kernel, *_key(kind, row, function)
        groups.setdefault(key, _Group()).add(row, function, *counted)
    ordered = sorted(groups.items(), key=lambda item: -item[1].executed)
    total = sum(group.executed for _, group in ordered)
    more = {"line": (), "function": ("function",), "block": ("block", "address"), "address": ("address", "instruction")}
    rows = []
    for (kernel, *_), group in ordered[: top or None]:
        cells = {"function": group.function, "block": group.block, "address": hex(group.address)}
        cells["instruction"] = group.text
        share = round(100 * group.executed / total, 2) if total else None
        own = (cells[name] for name in more[kind])
        facts = kernels.get(kernel, {})
        name = facts.get("name") or kernel[0]
        lanes = group.lanes_share(facts.get("wave_size") or 0)
        rows.append((name, group.place(), *own, group.instructions, group.executed, lanes, share))
    left = f", the first {len(rows)} of {len(ordered)}" if len(rows) < len(ordered) else ""
    if not total:
        left += "; no instruction was executed"
    elif kind == "line" and not any(group.has_lines for group in groups.values()):
        left += "; there are no source lines: compile with -g"
    columns = ("kernel", "source", *more[kind], "instructions", "executed", "lanes %", "%")
    return Table(f"executed by {kind}{left}", columns, rows)


class _Group:
    """Sums over a group of instructions."""

    def __init__(self) -> None:
        self.instructions = self.executed = 0
        self._vectors = self._lanes = 0
        self.function = self.text = self._offset = ""
        self.block: int | None = None
        self.address = 0
        self._places: list[tuple[str, int]] = []

    def add(self, row: dict[str, Any], function: tuple[str, int], executed: int, lanes: int | None) -> None:
        """Add an instruction, after those at lower addresses."""
        if not self.instructions:
            self.address, self.text, self.block = row["address"], row["text"], row["block"]
            self.function = row.get("user_function") or function[0]
            self._offset = f"{function[0]}+{row['address'] - function[1]:#x}"
        self.instructions += 1
        self.executed += executed
        if lanes is not None and is_per_lane(row["text"] or ""):
            self._vectors += executed
            self._lanes += lanes
        if (file := _file(row)) is not None:
            self._places.append((file, _line(row)))

    def lanes_share(self, wave_size: int) -> float | None:
        """Return the percentage of lanes active in executed vector instructions; None if it is not known."""
        possible = self._vectors * wave_size
        return round(100 * self._lanes / possible, 1) if possible else None

    @property
    def has_lines(self) -> bool:
        """Return whether debug information names lines of its instructions."""
        return bool(self._places)

    def place(self) -> str:
        return lines_text(self._places) or self._offset


def _key(kind: By, row: dict[str, Any], function: tuple[str, int]) -> tuple[Any, ...]:
    if kind == "address":
        return (row["address"],)
    if kind == "block":
        return (row["block"],)
    if kind == "function":
        return (row.get("user_function") or function[0],)
    file = _file(row)
    return (row["address"],) if file is None else (line_text(file, _line(row)),)


def _file(row: dict[str, Any]) -> str | None:
    file: str | None = row.get("user_file", row["file"])
    return file


def _line(row: dict[str, Any]) -> int:
    return row.get("user_line", row["line"]) or 0


def _counts(run: RunFolder) -> dict[tuple[str, str, int], tuple[int, int | None]]:
    return {
        (row["kernel"], row["digest"], row["address"]): (row["executions"], row["active_lanes"])
        for row in run.rows("counts")
        if row["executions"] is not None
    }


def _instructions(run: RunFolder) -> Iterator[tuple[_Kernel, dict[str, Any], tuple[str, int]]]:
    """Yield each instruction with its kernel, and name and lowest address of its function."""
    functions: dict[tuple[str, str, int], str] = {}
    begins: dict[tuple[str, str, str], int] = {}
    for row in run.rows("blocks", ["kernel", "digest", "block", "function", "address"]):
        functions[row["kernel"], row["digest"], row["block"]] = row["function"]
        key = row["kernel"], row["digest"], row["function"]
        begins[key] = min(row["address"], begins.get(key, row["address"]))
    for row in run.rows("listings"):
        kernel = row["kernel"], row["digest"]
        name = functions.get((*kernel, row["block"]), kernel[0])
        yield kernel, row, (name, begins.get((*kernel, name), row["address"]))
