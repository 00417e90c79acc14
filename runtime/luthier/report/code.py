"""Code of one kernel on the page: instructions, blocks, their graph, and values to colour them by."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from msgspec import Struct, field

from luthier.report.charging import COLUMNS as SOURCE
from luthier.report.charging import SourceLine, charged, spans
from luthier.report.lines import Lines
from luthier.report.measures import is_per_lane
from luthier.report.rows import KernelNumbers, by_kernel
from luthier.run.folder import RunFolder
from luthier.support.extras import extra

INSTRUCTIONS = 150_000
"""Maximum number on a page; the most costly kernels come first."""
_DRAWN = 1_200
"""Maximum number of blocks in a drawn graph."""
_NODE = (168.0, 42.0)
"""Width and height of a block in the graph, in pixels."""
_STATUS = {"patched": 1, "counted": 2, "refused": 4}
_LISTING = ("address", "text", "kind", "block", "live_sgprs", "live_vgprs")
_BLOCKS = ("block", "function", "address", "instructions", "depth", "exit", "successors", "ways")


class ReportedCode(Struct, dict=True):
    """Code of one kernel. All lists but `blocks` and `heat` have one element for each instruction."""

    columns: dict[str, list[Any]] = field(default_factory=dict)
    """Columns of the table of listings."""
    blocks: dict[str, list[Any]] = field(default_factory=dict)
    """Columns of the table of blocks."""
    executions: list[int | None] = field(default_factory=list)
    lanes: list[int | None] = field(default_factory=list)
    """Sums of active lanes; None for instructions that execute once per wave."""
    sites: list[int] = field(default_factory=list)
    """Bits of `_STATUS`."""
    heat: list[dict[str, Any]] = field(default_factory=list)
    """Values from tools' tables: ``tool``, ``title``, ``name``, ``values``; ``key``: address or block."""
    _positions: dict[int, int] = field(default_factory=dict)

    @cached_property
    def places(self) -> list[SourceLine | None]:
        """The line to which each instruction is charged."""
        return charged(self.columns)

    @cached_property
    def lines(self) -> Lines:
        """Source lines with the measurements at their instructions."""
        return Lines.of(self.places, self.executions, self.lanes, self.columns["kind"], self.heat)

    def at(self, address: int) -> int | None:
        """Return the position of the instruction at an address; None if there is none."""
        if not self._positions:
            self._positions.update({one: at for at, one in enumerate(self.columns["address"])})
        return self._positions.get(address)

    @property
    def titles(self) -> list[str]:
        """The lines of each block, as ``file:first–last``."""
        return spans(self.blocks["block"], self.columns["block"], self.places)

    def to_json(self, files: dict[str, int]) -> dict[str, Any]:
        """Return plain data for the page.

        Args:
            files: number of each source file; new files are added.
        """
        number = {place: at for at, place in enumerate(self.lines.places)}
        return {
            **{name: values for name, values in self.columns.items() if name not in SOURCE},
            "executions": self.executions if any(one is not None for one in self.executions) else None,
            "lanes": self.lanes if any(one is not None for one in self.lanes) else None,
            "sites": self.sites,
            "heat": self.heat,
            "blocks": self.blocks | {"title": self.titles},
            "graph": graph(self.blocks),
            "place": [-1 if place is None else number[place] for place in self.places],
            "chain": self._chains(),
            "source": self.lines.to_json(files),
        }

    def _chains(self) -> dict[str, Any]:
        """Return locations and inlined calls of instructions that differ from the line they are charged to."""
        texts: dict[str, int] = {}
        which = []
        empty = [None] * len(self.places)
        columns = (self.columns.get(name, empty) for name in ("file", "line", "inlined"))
        for place, file, line, inlined in zip(self.places, *columns, strict=True):
            own = SourceLine(file, line) if file and line else None
            if inlined or own != place:
                text = f"{file or '?'}:{line or '?'}" + (f", inlined at {inlined}" if inlined else "")
                which.append(texts.setdefault(text, len(texts)))
            else:
                which.append(-1)
        return {"texts": list(texts), "which": which}


def codes(
    run: RunFolder, numbers: KernelNumbers, kernels: Sequence[dict[str, Any]], tables: Sequence[dict[str, Any]]
) -> dict[int, ReportedCode]:
    """Return the code of the most costly kernels, up to the page's limit.

    Args:
        numbers: of the kernels.
        kernels: from `overview.kernels`.
        tables: from `overview.tool_tables`.

    Raises:
        LuthierError: a table is damaged.
    """
    if "listings" not in run.names or "blocks" not in run.names:
        return {}
    room, wanted = INSTRUCTIONS, set()
    sizes: dict[int, int] = {}
    for row in run.rows("blocks", ["kernel", "digest", "instructions"]):
        number = numbers.of(row["kernel"], row["digest"])
        sizes[number] = sizes.get(number, 0) + (row["instructions"] or 0)
    for number in sorted(range(len(kernels)), key=lambda number: cost(kernels[number]), reverse=True):
        size = sizes.get(number, 0)
        if 0 < size <= room:
            wanted.add(number)
            room -= size
    with run.table("listings") as reader:
        columns = [*_LISTING, *(name for name in SOURCE if name in reader.columns)]
    code_of: dict[int, ReportedCode] = {}
    for number, rows in by_kernel(run, "listings", columns, numbers, wanted):
        code = code_of.setdefault(number, ReportedCode())
        for name, values in rows.items():
            code.columns.setdefault(name, []).extend(values)
    for number, rows in by_kernel(run, "blocks", _BLOCKS, numbers, wanted):
        if number in code_of:
            for name, values in rows.items():
                code_of[number].blocks.setdefault(name, []).extend(values)
    code_of = {number: code for number, code in code_of.items() if code.blocks}
    places = {number: {at: i for i, at in enumerate(code.columns["address"])} for number, code in code_of.items()}
    _count(run, numbers, code_of, places)
    _mark(run, numbers, code_of, places)
    for table in tables:
        _warm(table, kernels, code_of, places)
    return code_of


def cost(kernel: dict[str, Any]) -> tuple[int, int, int]:
    """Return the sort key of kernels: executed instructions, time on a GPU, launches.

    Time of an emulated device does not count, since it is not a cost of the kernel.
    """
    return kernel["executed"] or 0, 0 if kernel["emulated"] else kernel["time"] or 0, kernel["launches"] or 0


Places = dict[int, dict[int, int]]
"""Kernel -> address -> position in its code."""


def _count(run: RunFolder, numbers: KernelNumbers, code_of: dict[int, ReportedCode], places: Places) -> None:
    for number, rows in by_kernel(run, "counts", ("address", "executions", "active_lanes"), numbers, code_of):
        code = code_of[number]
        size = len(code.columns["address"])
        code.executions, code.lanes = code.executions or [None] * size, code.lanes or [None] * size
        for address, times, lanes in zip(*rows.values(), strict=True):
            if (at := places[number].get(address)) is not None:
                code.executions[at] = _sum(code.executions[at], times)
                if is_per_lane(code.columns["text"][at] or ""):
                    code.lanes[at] = _sum(code.lanes[at], lanes)


def _mark(run: RunFolder, numbers: KernelNumbers, code_of: dict[int, ReportedCode], places: Places) -> None:
    for code in code_of.values():
        code.sites = [0] * len(code.columns["address"])
    for number, rows in by_kernel(run, "sites", ("address", "status"), numbers, code_of):
        for address, status in zip(*rows.values(), strict=True):
            if (at := places[number].get(address)) is not None:
                code_of[number].sites[at] |= _STATUS.get(status, 0)


def _sum(left: Any, right: Any) -> Any:
    return left if right is None else right if left is None else left + right


def _warm(
    table: dict[str, Any], kernels: Sequence[dict[str, Any]], code_of: dict[int, ReportedCode], places: Places
) -> None:
    """Add values by address or block from a tool's table as heat over the code.

    The kernel is ``of_kernel``, in column ``kernel`` or in the table's title, or is the only one that contains all the
    addresses.
    """
    names = [str(name) for name in table["columns"]]
    key = next((name for name in ("block", "address") if name in names), None)
    numeric = [
        at
        for at, name in enumerate(names)
        if name not in ("block", "address", "kernel", "instructions", "process", "device")
        and all(isinstance(row[at], int | float) or row[at] is None for row in table["rows"])
    ]
    if key is None or not numeric:
        return
    by_name: dict[str, set[int]] = {}
    for number in code_of:
        for name in (kernels[number]["symbol"], kernels[number]["name"]):
            by_name.setdefault(name, set()).add(number)
    for name, rows in _rows_by_kernel(table, names).items():
        keys = [_number(row[names.index(key)]) for row in rows]
        for number in _kernels_of(table, by_name.get(name, set()), code_of, places, key, keys):
            for at in numeric:
                values = _spread(code_of[number], places[number], key, keys, [row[at] for row in rows])
                entry = {"tool": table["tool"], "title": table["title"], "name": names[at], "values": values}
                code_of[number].heat.append(entry | {"key": key})


def _rows_by_kernel(table: dict[str, Any], columns: list[str]) -> dict[str, list[Any]]:
    """Return the rows of a tool's table by the kernel's name, which is the title if there is no such column."""
    groups: dict[str, list[Any]] = {}
    for row in table["rows"]:
        name = row[columns.index("kernel")] if "kernel" in columns else table["title"]
        groups.setdefault(str(name), []).append(row)
    return groups


def _kernels_of(
    table: dict[str, Any],
    named: set[int],
    code_of: dict[int, ReportedCode],
    places: Places,
    key: str,
    keys: Sequence[int | None],
) -> list[int]:
    """Return the kernels to which rows of a tool's table belong; none if that is ambiguous.

    Args:
        named: kernels with the name that the table gives.
        key, keys: name and contents of the column of addresses or blocks.
    """
    candidates = named if named or "kernel" in table["columns"] else set(code_of)
    if "of_kernel" in table:
        candidates = {table["of_kernel"]} & code_of.keys()
    fitting = [number for number in candidates if _fits(code_of[number], places[number], key, keys)]
    return fitting if len(fitting) == 1 or named else []


def _number(value: Any) -> int | None:
    if isinstance(value, str):
        try:
            return int(value, 0)
        except ValueError:
            return None
    return value if isinstance(value, int) else None


def _fits(code: ReportedCode, places: dict[int, int], key: str, keys: Sequence[int | None]) -> bool:
    known = places if key == "address" else set(code.columns["block"])
    return all(one in known for one in keys)


def _spread(
    code: ReportedCode, places: dict[int, int], key: str, keys: Sequence[int | None], values: Sequence[Any]
) -> list[Any]:
    """Return values by instruction, summed if several belong to one address or block."""
    sums: dict[int | None, Any] = {}
    for key_value, value in zip(keys, values, strict=True):
        sums[key_value] = _sum(sums.get(key_value), value)
    column = code.columns["address" if key == "address" else "block"]
    return [sums.get(one) for one in column]


def graph(blocks: dict[str, list[Any]]) -> dict[str, Any] | None:
    """Lay out the control-flow graph; return None if there are no blocks, or too many.

    Returns:
        ``width`` and ``height``; ``nodes``: upper left corner of each block; ``edges``: source and target block,
        kind (as in the table), and the points between them.
    """
    graphlay = extra("graphlay")

    size = len(blocks.get("block", ()))
    if not 0 < size <= _DRAWN:
        return None
    place = {block: at for at, block in enumerate(blocks["block"])}
    drawing = graphlay.Graph()
    for at in range(size):
        drawing.node(at, width=_NODE[0], height=_NODE[1])
    ways: list[tuple[int, int, str]] = []
    for at, (successors, how) in enumerate(zip(blocks["successors"], blocks["ways"], strict=True)):
        for to, way in zip(successors or (), how or (), strict=False):
            if to in place:
                drawing.edge(at, place[to])
                ways.append((at, place[to], way))
    made = graphlay.layout(
        drawing,
        options={
            "direction": "topbottom",
            "spacing": {"layer_gap": 30.0, "node_gap": 26.0, "dummy_gap": 16.0, "port_gap": 12.0},
        },
    )
    low, high = made.bounds["min"], made.bounds["max"]
    left, top = low["x"], low["y"]

    def point(position: dict[str, float]) -> list[int]:
        return [round(position["x"] - left), round(position["y"] - top)]

    half = (_NODE[0] / 2, _NODE[1] / 2)
    corners = [{"x": n["center"]["x"] - half[0], "y": n["center"]["y"] - half[1]} for n in made.nodes]
    return {
        "width": round(high["x"] - left),
        "height": round(high["y"] - top),
        "node": list(_NODE),
        "nodes": [point(corner) for corner in corners],
        "edges": [[*way, [point(one) for one in edge["points"]]] for way, edge in zip(ways, made.edges, strict=True)],
    }
