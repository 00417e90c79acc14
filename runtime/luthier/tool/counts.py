"""Counting without hooks: requests of tools, and the counts by instruction, block and opcode.

A request is a weighted sum of executions of instructions. A patched kernel counts only as much as all requested sums
follow from (`luthier.patch.counters.planning`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal, NamedTuple, Protocol, cast

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from luthier.errors import HookError, PatchError, ToolError
from luthier.isa.registers import SGPRS
from luthier.isa.targets import TargetId
from luthier.lifting import LiftedRepresentation
from luthier.lifting.flow import FlowEdge, FlowGraph
from luthier.lifting.places import Places
from luthier.module import DeviceContents, DeviceVariable, LoadedModule, VariableStorage
from luthier.objects.names import spellings
from luthier.support import markup
from luthier.support.extras import extra
from luthier.tool.wave_counts import RowLayout, WaveCounts

Per = Literal["wave", "lane"]
"""Unit of counts: executions of an instruction by waves, or the sum of the lanes active then."""
Granularity = Literal["total", "wave"]
"""Granularity of counts: sums over all waves, or also the counts of each wave (`KernelCounts.waves`)."""
CELL_BYTES = 8
GROUP = np.dtype([("label", object), ("instructions", np.int64), ("executions", np.int64), ("active_lanes", np.int64)])
"""A record of `KernelCounts.by`."""


class CounterBudget(Struct, frozen=True):
    """Maximum number of registers that counters may use."""

    sgprs: int = len(SGPRS)
    vgprs: int = 8


class Cell(Struct, frozen=True):
    """A 64-bit number in device memory that counts are added to: a tool's variable, or an element of it."""

    module: LoadedModule
    variable: str
    index: int = 0
    """Index of the 64-bit element."""

    def check(self) -> None:
        """Check that the variable has such an element.

        Raises:
            HookError: there is no such cell.
        """
        variable = self.module.variables.get(self.variable)
        if variable is None:
            names = ", ".join(self.module.variables) or "none"
            raise HookError(f"{self.module.name} has no variable {self.variable!r}; it has {names}")
        if variable.storage.problem:
            raise HookError(f"variable {self.variable} cannot receive counts: {variable.storage.problem}")
        if not 0 <= self.index < variable.size // CELL_BYTES or variable.storage.align % CELL_BYTES:
            raise HookError(
                f"variable {self.variable} has no 64-bit element {self.index}: it has {variable.size} bytes, aligned "
                f"to {variable.storage.align}"
            )


class CountRequest(Struct, frozen=True, eq=False):
    """A weighted sum of executions of instructions."""

    sites: tuple[tuple[int, int], ...]
    """(instruction index, weight); an index may occur several times."""
    per: Per
    into: Cell | None
    """Cell that the device adds the count to; None: `KernelCounts.total` returns it."""
    granularity: Granularity = "total"


class _Loaded(Protocol):
    """A module loaded on a device."""

    @property
    def waves(self) -> Mapping[str, int]:
        """Return the number of launched waves of each kernel."""
        ...

    def variable(self, name: str) -> Any: ...


class CellSum(NamedTuple):
    """A linear combination of a kernel's cells and its number of waves."""

    amounts: Mapping[int, int]
    """Cell -> its coefficient."""
    waves: int
    """Coefficient of the number of launched waves."""

    def value(self, cells: NDArray[np.int64], waves: int) -> Any:
        """Return the value of the sum: a number, or [waves] numbers.

        Args:
            cells: [cells], or [cells, waves] if each wave has its own.
            waves: number of launched waves.
        """
        return sum((amount * cells[cell] for cell, amount in self.amounts.items()), self.waves * waves)

    def to_json(self) -> list[Any]:
        """Return the sum as plain data."""
        return [list(map(list, self.amounts.items())), self.waves]

    @classmethod
    def of_json(cls, data: Sequence[Any]) -> CellSum:
        """Return the sum from the data of `to_json`."""
        amounts, waves = data
        return cls(dict(amounts), waves)


class CountedFlow(Struct, frozen=True, eq=False):
    """One function's flow graph with its counters, from which the executions of all its code follow."""

    graph: FlowGraph
    chords: Mapping[int, CellSum]
    """Executions of each chord; those of all other edges follow. A chord is counted, is known to be passed once per
    launched wave, or is derived from counters of calls."""
    stretches: tuple[tuple[int, int, int], ...]
    """Node, and the first and last instruction of the stretch that runs as often as it."""

    def to_json(self) -> dict[str, Any]:
        """Return the flow as plain data."""
        return {
            "nodes": self.graph.nodes,
            "edges": [[edge.source, edge.to] for edge in self.graph.edges],
            "chords": [[edge, count.to_json()] for edge, count in self.chords.items()],
            "stretches": self.stretches,
        }

    @classmethod
    def of_json(cls, data: Mapping[str, Any]) -> CountedFlow:
        """Return the flow from the data of `to_json`, without the costs of counting edges."""
        graph = FlowGraph(data["nodes"], tuple(FlowEdge(source, to, 0.0) for source, to in data["edges"]))
        stretches = tuple((node, first, last) for node, first, last in data["stretches"])
        return cls(graph, {edge: CellSum.of_json(count) for edge, count in data["chords"]}, stretches)

    def solved(
        self, cells: NDArray[np.int64], waves: int = 0
    ) -> tuple[NDArray[np.int64], list[tuple[tuple[int, int], NDArray[np.int64]]]]:
        """Solve the flow equations for the contents of the cells.

        Args:
            cells: [cells], or [cells, waves] if each wave has its own.
            waves: number of launched waves.

        Returns:
            [nodes] or [nodes, waves] executions; and for each edge between stretches, the last instruction of its
            source, the first of its destination, and its executions. There are no edges if each stretch is counted
            separately.
        """
        edges = self.graph.solve({edge: count.value(cells, waves) for edge, count in self.chords.items()})
        begins = {node: first for node, first, _ in self.stretches}
        ends = {node + 1: last for node, _, last in self.stretches}
        between = [
            ((ends[edge.source], begins[edge.to]), times)
            for edge, times in zip(self.graph.edges, edges, strict=True)
            if edge.source in ends and edge.to in begins
        ]
        return self.graph.node_counts(edges), between


class SolvedSum(Struct, frozen=True, eq=False):
    """A sum that the reader of a variable adds to it, instead of the device."""

    into: Cell
    lacks: CellSum

    def to_json(self, modules: Sequence[LoadedModule]) -> list[Any]:
        """Return the sum as plain data, with its module as an index into `modules`."""
        number = next(at for at, module in enumerate(modules) if module is self.into.module)
        return [number, self.into.variable, self.into.index, self.lacks.to_json()]

    @classmethod
    def of_json(cls, data: Sequence[Any], modules: Sequence[LoadedModule]) -> SolvedSum:
        """Return the sum from the data of `to_json` for the same modules."""
        number, variable, index, lacks = data
        return cls(Cell(modules[number], variable, index), CellSum.of_json(lacks))


class MissingSums:
    """Sums that one variable on one device lacks since it was last written.

    Args:
        counted: returns the sums since the variable was placed: 64-bit element -> value.
    """

    def __init__(self, counted: Callable[[], Mapping[int, int]]) -> None:
        self._counted = counted
        self._before: Mapping[int, int] = {}

    def missing(self) -> dict[int, int]:
        """Return the value to add to each 64-bit element, by its index."""
        return {index: value - self._before.get(index, 0) for index, value in self._counted().items()}

    def written(self) -> None:
        """Record that the variable was written: its new value is complete."""
        self._before = self._counted()


def completed(data: bytes, missing: Mapping[int, int]) -> bytes:
    """Return the contents of a variable with the missing sums added.

    Args:
        missing: 64-bit element -> value to add.
    """
    if not missing:
        return data
    contents = bytearray(data)
    for index, value in missing.items():
        element = slice(CELL_BYTES * index, CELL_BYTES * (index + 1))
        total = int.from_bytes(contents[element], "little") + value
        contents[element] = (total % (1 << 8 * CELL_BYTES)).to_bytes(CELL_BYTES, "little")
    return bytes(contents)


class KernelCounters(Struct, frozen=True, eq=False):
    """The counters of one patched kernel, and how to derive counts from them."""

    kernel: str
    symbol: str
    """Variable of the patched object that holds the cells."""
    cells: int
    """Number of 64-bit cells in it."""
    addresses: NDArray[np.int64]
    """[n] virtual address of each instruction."""
    mnemonics: Mapping[int, str]
    opcodes: NDArray[np.int32]
    """[n] key in `mnemonics`."""
    block_of: NDArray[np.int32]
    """[n] block of each instruction, -1 if unreachable."""
    waves: tuple[CountedFlow, ...]
    lanes: tuple[CountedFlow, ...]
    rows: RowLayout | None = None
    """Layout of the rows that waves write after the cells."""
    sums: tuple[SolvedSum, ...] = ()
    """Sums that variables lack (`InstrumentationTask.solve_sums`)."""
    places: Places | None = None
    """Source locations of instructions; None if not known."""

    @classmethod
    def of(
        cls,
        lifted: LiftedRepresentation,
        symbol: str,
        cells: int,
        waves: Iterable[CountedFlow],
        lanes: Iterable[CountedFlow],
        rows: RowLayout | None = None,
        sums: Iterable[SolvedSum] = (),
    ) -> KernelCounters:
        """Return the counters of a kernel, with the columns of its instructions."""
        block_of = np.array(lifted.block_of, np.int32)
        opcodes = np.where(block_of >= 0, lifted.code.opcode, -1).astype(np.int32)
        numbers = sorted(set(opcodes.tolist()))  # `np.unique` imports masked arrays, for 15 ms
        return cls(
            lifted.kernel.name,
            symbol,
            cells,
            np.array(lifted.code.addresses),
            {number: lifted.isa.opcode(number).mnemonic if number >= 0 else "" for number in numbers},
            opcodes,
            block_of,
            tuple(waves),
            tuple(lanes),
            rows,
            tuple(sums),
            lifted.places,
        )

    def to_json(self, modules: Sequence[LoadedModule] = ()) -> dict[str, Any]:
        """Return the counters as plain data, without what the lifted kernel provides.

        Args:
            modules: those of the variables of `sums`, among others.
        """
        groups = {"waves": self.waves, "lanes": self.lanes}
        lists: dict[str, Any] = {name: [flow.to_json() for flow in flows] for name, flows in groups.items()}
        lists["sums"] = [each.to_json(modules) for each in self.sums]
        return {"symbol": self.symbol, "cells": self.cells, **lists, "rows": self.rows and self.rows.to_json()}

    @classmethod
    def of_json(
        cls, lifted: LiftedRepresentation, data: Mapping[str, Any], modules: Sequence[LoadedModule] = ()
    ) -> KernelCounters:
        """Return the counters from the data of `to_json` for the same kernel."""
        waves, lanes = (map(CountedFlow.of_json, data[name]) for name in ("waves", "lanes"))
        rows = data["rows"] and RowLayout.of_json(data["rows"])
        sums = (SolvedSum.of_json(each, modules) for each in data["sums"])
        return cls.of(lifted, data["symbol"], data["cells"], waves, lanes, rows, sums)

    @property
    def profiled(self) -> bool:
        """Return whether there are counts that go to no variable, so that `counts` reports them."""
        return bool(self.waves or self.lanes)

    @property
    def size(self) -> int:
        """Return the size of the variable in bytes."""
        return CELL_BYTES * self.cells if self.rows is None else self.rows.offset + self.rows.size

    @property
    def needs_waves(self) -> bool:
        """Return whether `counts` needs the number of waves (`InstrumentationTask.waves_given`)."""
        return any(count.waves for flow in (*self.waves, *self.lanes) for count in flow.chords.values())

    def read(self, module: _Loaded, waves: int | None = None) -> KernelCounts:
        """Return what was counted since the object was loaded.

        Args:
            module: the patched object on a device.
            waves: number of waves launched since then. None: those that the module launched.
        """
        if waves is None and self.needs_waves:
            waves = module.waves.get(self.kernel, 0)
        return self.together([module.variable(self.symbol).read()] if self.size else [], waves)

    def together(self, memories: Sequence[bytes], waves: int | None = None) -> KernelCounts:
        """Return the counts of several devices added up.

        Args:
            memories: contents of the variable on each device.
            waves: number of launched waves, needed if `needs_waves`.
        """
        cells = np.zeros(self.cells, np.int64)
        for memory in memories:
            cells += np.frombuffer(memory, np.int64, self.cells)
        counts = self.counts(cells, waves)
        if self.rows is None:
            return counts
        flows = self.waves, self.lanes
        return replace(counts, waves=WaveCounts.of(self.kernel, self.rows, flows, self.block_of, memories))

    def missing(self, module: LoadedModule, variable: str, memories: Iterable[bytes], waves: int) -> dict[int, int]:
        """Return the sums that a variable lacks: 64-bit element -> value.

        Args:
            module: the tool's module.
            variable: symbol of the variable.
            memories: contents of the kernel's cells on the device; empty if the kernel has not run there.
            waves: number of waves launched there.
        """
        cells = np.zeros(self.cells, np.int64)
        for memory in memories:
            cells += np.frombuffer(memory, np.int64, self.cells)
        return {
            each.into.index: int(each.lacks.value(cells, waves))
            for each in self.sums
            if each.into.module is module and each.into.variable == variable
        }

    def counts(self, cells: NDArray[np.int64], waves: int | None = None) -> KernelCounts:
        """Return the counts that follow from the contents of the cells.

        Args:
            cells: [`cells`] as read from the device.
            waves: as for `together`.

        Raises:
            PatchError: the number of cells does not match, or the number of waves is needed and missing.
        """
        if len(cells) != self.cells:
            raise PatchError(f"{self.symbol} has {self.cells} cells, not {len(cells)}", kernel=self.kernel)
        if waves is None and self.needs_waves:
            raise PatchError("the number of waves was not counted: pass `waves`", kernel=self.kernel)
        columns = []
        edge_counts: list[dict[tuple[int, int], int]] = []
        for flows in (self.waves, self.lanes):
            column, known = np.zeros(len(self.addresses), np.int64), np.zeros(len(self.addresses), bool)
            taken: dict[tuple[int, int], int] = {}
            for flow in flows:
                nodes, between = flow.solved(cells, waves or 0)
                for node, first, last in flow.stretches:
                    column[first : last + 1] = nodes[node]
                    known[first : last + 1] = True
                for edge, times in between:
                    taken[edge] = taken.get(edge, 0) + int(times)
            columns.append((column, known))
            edge_counts.append(taken)
        (executions, counted), (lanes, lanes_counted) = columns
        block = self.block_of.tolist()
        edges = tuple(EdgeRow(block[last], block[first], count) for (last, first), count in edge_counts[0].items())
        return KernelCounts(self, executions, counted, lanes, lanes_counted, edges)


class BlockRow(NamedTuple):
    """One block of a kernel."""

    block: int
    """Index in the lifted kernel."""
    address: int
    """Virtual address of its first instruction."""
    instructions: int
    """Number of instructions."""
    executions: int
    """Number of times that waves entered it."""
    source: str
    """``file:first-last``, its lines in the user's source, or ``function+0x…``."""


class EdgeRow(NamedTuple):
    """An edge from one block of a kernel to another in the same function."""

    source: int
    """Index of the source block in the lifted kernel."""
    to: int
    executions: int
    """Number of times that waves took the edge, by a branch or by falling through."""


Key = Literal["instruction", "address", "opcode", "block"]
"""Built-in keys for grouping counts."""


class KernelCounts(Struct, frozen=True, eq=False, dict=True):
    """Executions of each instruction of a kernel, over all launches."""

    counters: KernelCounters
    executions: NDArray[np.int64]
    """[n] executions by waves, by instruction index of the lifted kernel; 0 where `counted` is not set."""
    counted: NDArray[np.bool_]
    """[n] whether `executions` was counted: in functions with requests per wave."""
    active_lanes: NDArray[np.int64]
    """[n] sum of the active lanes over all executions; 0 where `lanes_counted` is not set."""
    lanes_counted: NDArray[np.bool_]
    """[n] whether `active_lanes` was counted: in functions with requests per lane."""
    edges: tuple[EdgeRow, ...] = ()
    """Edges between blocks of functions with requests per wave. Functions that share code or contain jumps with unknown
    targets have none, since each of their blocks is counted separately."""
    waves: WaveCounts | None = None
    """Counts of each wave, if they were requested."""

    def labels(self, key: Key) -> NDArray[Any]:
        """Return [n] the label of each instruction: its index, virtual address, mnemonic or block."""
        counters = self.counters
        if key == "opcode":
            numbers, where = np.unique(counters.opcodes, return_inverse=True)
            return np.array([counters.mnemonics[number] for number in numbers.tolist()], object)[where]
        columns: dict[Key, NDArray[Any]] = {
            "instruction": np.arange(len(counters.addresses)),
            "address": counters.addresses,
            "block": counters.block_of,
        }
        return columns[key]

    def by(self, key: Key | Sequence[Any]) -> NDArray[np.void]:
        """Return the counts grouped by a label of each instruction.

        Args:
            key: a `Key`, or a label for each instruction, such as its source line; None excludes an instruction.

        Returns:
            [labels] records with the fields `label`, `instructions` (number of counted instructions), `executions`
            (sum over these) and `active_lanes` (likewise), in the order in which labels first occur.

        Raises:
            PatchError: the number of labels differs from the number of instructions.
        """
        labels: list[Any] = self.labels(cast(Key, key)).tolist() if isinstance(key, str) else list(key)
        if len(labels) != len(self.executions):
            message = f"{len(labels)} labels for {len(self.executions)} instructions"
            raise PatchError(message, kernel=self.counters.kernel)
        numbers: dict[Any, int] = {}
        known = (self.counted | self.lanes_counted) & (self.counters.block_of >= 0)
        chosen = [index for index in np.flatnonzero(known).tolist() if labels[index] is not None]
        where = np.array([numbers.setdefault(labels[index], len(numbers)) for index in chosen], np.int64)
        records = np.zeros(len(numbers), GROUP)
        records["label"] = np.fromiter(numbers, object, len(numbers))
        for name, column in (("executions", self.executions), ("active_lanes", self.active_lanes)):
            np.add.at(records[name], where, column[chosen])
        np.add.at(records["instructions"], where, 1)
        return records

    def to_arrow(self, key: Key | Sequence[Any] = "address") -> Any:
        """Return the result of `by` as a ``pyarrow.Table``."""
        pyarrow = extra("pyarrow")  # takes 0.2 s

        records = self.by(key)
        return pyarrow.table({name: pyarrow.array(records[name].tolist()) for name in GROUP.names or ()})

    def total(self, request: CountRequest) -> int:
        """Return the sum of a request.

        Raises:
            PatchError: an instruction of the request was not counted in this kernel.
        """
        column, known = (
            (self.executions, self.counted) if request.per == "wave" else (self.active_lanes, self.lanes_counted)
        )
        if not all(known[index] for index, _ in request.sites):
            raise PatchError("an instruction of the request was not counted", kernel=self.counters.kernel)
        return sum(weight * int(column[index]) for index, weight in request.sites)

    @cached_property
    def opcodes(self) -> dict[str, int]:
        """Return the executions of each mnemonic by waves, the most frequent first."""
        return self._by_opcode(self.executions)

    @cached_property
    def opcode_lanes(self) -> dict[str, int]:
        """Return the sum of active lanes of each mnemonic over its executions, the largest first."""
        return self._by_opcode(self.active_lanes)

    def block_rows(self) -> list[BlockRow]:
        """Return the blocks of functions with requests per wave, in address order."""
        block_of = self.counters.block_of
        reached = np.flatnonzero((block_of >= 0) & self.counted)
        numbers, first, sizes = np.unique(block_of[reached], return_index=True, return_counts=True)
        begins = reached[first]
        rows = zip(
            numbers.tolist(),
            self.counters.addresses[begins].tolist(),
            sizes.tolist(),
            self.executions[begins].tolist(),
            map(self.place_of_block, numbers.tolist()),
            strict=True,
        )
        return sorted((BlockRow(*row) for row in rows), key=lambda row: row.address)

    def place_of_block(self, block: int) -> str:
        """Return ``file:first-last`` of a block, or the function and the offset of its first instruction."""
        places = self.counters.places
        return "" if places is None else places.of_block(block)

    def _repr_html_(self) -> str:
        """Return HTML for notebooks: a table of blocks with bars for the instructions executed."""
        rows = [
            (
                row.block,
                row.source,
                hex(row.address),
                row.instructions,
                row.executions,
                row.executions * row.instructions,
            )
            for row in self.block_rows()
        ]
        columns = ("block", "source", "address", "instructions", "entered", "executed")
        return markup.table(spellings(self.counters.kernel)[-1], columns, rows, "executed")

    def _by_opcode(self, column: NDArray[np.int64]) -> dict[str, int]:
        totals: dict[str, int] = {}
        numbers, where = np.unique(self.counters.opcodes, return_inverse=True)
        sums = np.zeros(len(numbers), np.int64)
        np.add.at(sums, where, column)
        for number, count in zip(numbers.tolist(), sums.tolist(), strict=True):
            if count:
                name = self.counters.mnemonics[number]
                totals[name] = totals.get(name, 0) + count
        return dict(sorted(totals.items(), key=lambda item: -item[1]))


class CellModule:
    """The cells of one kernel, with the interface of a tool's module that defines one variable.

    Args:
        name: name of the module, unique for each kernel of each object.
    """

    def __init__(self, name: str, counters: KernelCounters) -> None:
        self.name = name
        self.symbol = counters.symbol
        size = counters.size
        storage = VariableStorage(align=CELL_BYTES, initial=bytes(size))
        self.variables = {
            counters.symbol: DeviceVariable(counters.symbol, counters.symbol, "", size, False, False, storage=storage)
        }

    def contents_for(self, target: TargetId) -> DeviceContents:
        """Raise a ToolError, since cells have no code."""
        raise ToolError("cells of counters have no code", object=self.name, target=str(target))
