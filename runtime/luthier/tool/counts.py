"""Counting without hooks: what a tool asks to be counted, and what was counted, by instruction, block and opcode.

A request is a sum of weights times how often instructions run, so a patched kernel counts only what the rest follows
from (`luthier.patch.counters.planning`).
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
from luthier.tool.wave_counts import RowLayout, WaveCounts

Per = Literal["wave", "lane"]
"""What a count counts: the times that a wave runs an instruction, or the lanes that are active then, added up."""
Granularity = Literal["total", "wave"]
"""Granularity of counts: sums over all waves only, or also those of each wave (`KernelCounts.waves`)."""
CELL_BYTES = 8
GROUP = np.dtype([("label", object), ("instructions", np.int64), ("executions", np.int64), ("active_lanes", np.int64)])
"""A record of `KernelCounts.by`."""


class CounterBudget(Struct, frozen=True):
    """Registers that counters may use at most: for tests of each storage, and for who wants them for something else."""

    sgprs: int = len(SGPRS)
    vgprs: int = 8


class Cell(Struct, frozen=True):
    """A 64-bit number in device memory that counts are added to: a variable of a tool, or an element of it."""

    module: LoadedModule
    variable: str
    index: int = 0
    """Element, counted in 64-bit numbers."""

    def check(self) -> None:
        """Raise an error unless the variable has such an element.

        Raises:
            HookError: there is no such cell.
        """
        found = self.module.variables.get(self.variable)
        if found is None:
            names = ", ".join(self.module.variables) or "none"
            raise HookError(f"{self.module.name} has no variable {self.variable!r}; it has {names}")
        if found.storage.problem:
            raise HookError(f"variable {self.variable} cannot be counted into: {found.storage.problem}")
        if not 0 <= self.index < found.size // CELL_BYTES or found.storage.align % CELL_BYTES:
            raise HookError(
                f"variable {self.variable} has no 64-bit element {self.index}: it has {found.size} bytes, aligned to "
                f"{found.storage.align}"
            )


class CountRequest(Struct, frozen=True, eq=False):
    """Weights times how often instructions run, all added up."""

    sites: tuple[tuple[int, int], ...]
    """(instruction index, weight); one index may be there several times."""
    per: Per
    into: Cell | None
    """Cell that the device adds the count to; None: it is read by `KernelCounts.total`."""
    granularity: Granularity = "total"


class _Loaded(Protocol):
    """A module loaded on a device."""

    @property
    def waves(self) -> Mapping[str, int]:
        """Return the number of waves of each kernel that were launched."""
        ...

    def variable(self, name: str) -> Any: ...


class CellSum(NamedTuple):
    """A number that follows from cells of a kernel."""

    amounts: Mapping[int, int]
    """Cell -> what it is counted times."""
    waves: int
    """Coefficient of the number of waves that were launched."""

    def value(self, cells: NDArray[np.int64], waves: int) -> Any:
        """Return the value of the sum: a number, or [waves] numbers.

        Args:
            cells: [cells], or [cells, waves] where each wave has its own.
            waves: how many were launched.
        """
        return sum((amount * cells[cell] for cell, amount in self.amounts.items()), self.waves * waves)

    def to_json(self) -> list[Any]:
        """Return the sum as plain data."""
        return [list(map(list, self.amounts.items())), self.waves]

    @classmethod
    def of_json(cls, data: Sequence[Any]) -> CellSum:
        """Return the sum that `to_json` gave as plain data."""
        amounts, waves = data
        return cls(dict(amounts), waves)


class CountedFlow(Struct, frozen=True, eq=False):
    """One function's counters, and how often its stretches of code run by them."""

    graph: FlowGraph
    chords: Mapping[int, CellSum]
    """Executions of each chord, the edges from which those of all others follow: counted, or known since each launched
    wave went along it once, or derived from counters of calls."""
    stretches: tuple[tuple[int, int, int], ...]
    """Node, and the first and last of the instructions that run as often as it."""

    def to_json(self) -> dict[str, Any]:
        """Return the flow as plain data."""
        return {
            "nodes": self.graph.nodes,
            "edges": [[edge.source, edge.to] for edge in self.graph.edges],
            "chords": [[edge, one.to_json()] for edge, one in self.chords.items()],
            "stretches": self.stretches,
        }

    @classmethod
    def of_json(cls, data: Mapping[str, Any]) -> CountedFlow:
        """Return the flow that `to_json` gave as plain data, without the costs of counting edges."""
        graph = FlowGraph(data["nodes"], tuple(FlowEdge(source, to, 0.0) for source, to in data["edges"]))
        stretches = tuple((node, first, last) for node, first, last in data["stretches"])
        return cls(graph, {edge: CellSum.of_json(one) for edge, one in data["chords"]}, stretches)

    def solved(
        self, cells: NDArray[np.int64], waves: int = 0
    ) -> tuple[NDArray[np.int64], list[tuple[tuple[int, int], NDArray[np.int64]]]]:
        """Solve the flow equations for the contents of the cells.

        Args:
            cells: [cells], or [cells, waves] where each wave has its own.
            waves: how many were launched.

        Returns:
            [nodes] or [nodes, waves] times; and for each edge between stretches the last instruction of one and the
            first of the other, and how often it was taken: none where each stretch is counted by itself.
        """
        edges = self.graph.solve({edge: one.value(cells, waves) for edge, one in self.chords.items()})
        begins = {node: first for node, first, _ in self.stretches}
        ends = {node + 1: last for node, _, last in self.stretches}
        between = [
            ((ends[edge.source], begins[edge.to]), times)
            for edge, times in zip(self.graph.edges, edges, strict=True)
            if edge.source in ends and edge.to in begins
        ]
        return self.graph.node_counts(edges), between


class SolvedSum(Struct, frozen=True, eq=False):
    """A sum for a variable that nothing is added to on the device: the reader of the variable adds it."""

    into: Cell
    lacks: CellSum

    def to_json(self, modules: Sequence[LoadedModule]) -> list[Any]:
        """Return the sum as plain data, with its module as an index into `modules`."""
        number = next(at for at, module in enumerate(modules) if module is self.into.module)
        return [number, self.into.variable, self.into.index, self.lacks.to_json()]

    @classmethod
    def of_json(cls, data: Sequence[Any], modules: Sequence[LoadedModule]) -> SolvedSum:
        """Return the sum that `to_json` gave as plain data for the same modules."""
        number, variable, index, lacks = data
        return cls(Cell(modules[number], variable, index), CellSum.of_json(lacks))


class MissingSums:
    """Sums that the contents of one variable on one device lack since it was last written.

    Args:
        counted: returns them since it was placed: element of 64 bits -> value.
    """

    def __init__(self, counted: Callable[[], Mapping[int, int]]) -> None:
        self._counted = counted
        self._before: Mapping[int, int] = {}

    def missing(self) -> dict[int, int]:
        """Return what is to be added to each 64-bit element, by its index."""
        return {index: value - self._before.get(index, 0) for index, value in self._counted().items()}

    def written(self) -> None:
        """Note that the variable has a new value, which lacks nothing."""
        self._before = self._counted()


def completed(data: bytes, missing: Mapping[int, int]) -> bytes:
    """Return the contents of a variable with the missing sums added.

    Args:
        missing: element of 64 bits -> what is to be added to it.
    """
    if not missing:
        return data
    contents = bytearray(data)
    for index, value in missing.items():
        place = slice(CELL_BYTES * index, CELL_BYTES * (index + 1))
        total = int.from_bytes(contents[place], "little") + value
        contents[place] = (total % (1 << 8 * CELL_BYTES)).to_bytes(CELL_BYTES, "little")
    return bytes(contents)


class KernelCounters(Struct, frozen=True, eq=False):
    """The counters of one patched kernel, and what they say."""

    kernel: str
    symbol: str
    """Variable of the patched object that holds the cells."""
    cells: int
    """64-bit numbers in it."""
    addresses: NDArray[np.int64]
    """[n] virtual address of each instruction."""
    mnemonics: Mapping[int, str]
    opcodes: NDArray[np.int32]
    """[n] key in `mnemonics`."""
    block_of: NDArray[np.int32]
    """[n] block of each instruction, -1 where control does not reach."""
    waves: tuple[CountedFlow, ...]
    lanes: tuple[CountedFlow, ...]
    rows: RowLayout | None = None
    """Layout of what each wave writes besides, behind the cells."""
    sums: tuple[SolvedSum, ...] = ()
    """Sums that variables lack (`InstrumentationTask.solve_sums`)."""
    places: Places | None = None
    """Where instructions come from; None if that is not known."""

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
        """Return the counters of a kernel with what is known of its instructions."""
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
            modules: those of the variables of `sums`; there may be others.
        """
        flows = {"waves": self.waves, "lanes": self.lanes}
        lists: dict[str, Any] = {name: [flow.to_json() for flow in some] for name, some in flows.items()}
        lists["sums"] = [one.to_json(modules) for one in self.sums]
        return {"symbol": self.symbol, "cells": self.cells, **lists, "rows": self.rows and self.rows.to_json()}

    @classmethod
    def of_json(
        cls, lifted: LiftedRepresentation, data: Mapping[str, Any], modules: Sequence[LoadedModule] = ()
    ) -> KernelCounters:
        """Return the counters that `to_json` gave as plain data for the same kernel."""
        waves, lanes = (map(CountedFlow.of_json, data[name]) for name in ("waves", "lanes"))
        rows = data["rows"] and RowLayout.of_json(data["rows"])
        sums = (SolvedSum.of_json(one, modules) for one in data["sums"])
        return cls.of(lifted, data["symbol"], data["cells"], waves, lanes, rows, sums)

    @property
    def profiled(self) -> bool:
        """Return whether something was counted that goes to no variable, so that `counts` reports it."""
        return bool(self.waves or self.lanes)

    @property
    def size(self) -> int:
        """Return the size of the variable in bytes."""
        return CELL_BYTES * self.cells if self.rows is None else self.rows.offset + self.rows.size

    @property
    def needs_waves(self) -> bool:
        """Return whether `counts` needs the number of waves, which is not counted.

        See `InstrumentationTask.waves_given`.
        """
        return any(one.waves for flow in (*self.waves, *self.lanes) for one in flow.chords.values())

    def read(self, module: _Loaded, waves: int | None = None) -> KernelCounts:
        """Return what was counted since the object was loaded.

        Args:
            module: the patched object on a device.
            waves: how many were launched since then, if others launched some of them; else the module knows.
        """
        if waves is None and self.needs_waves:
            waves = module.waves.get(self.kernel, 0)
        return self.together([module.variable(self.symbol).read()] if self.size else [], waves)

    def together(self, memories: Sequence[bytes], waves: int | None = None) -> KernelCounts:
        """Return the counts of several devices added up.

        Args:
            memories: its contents on each.
            waves: how many were launched, where `needs_waves` wants it.
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
            module: of the tool.
            variable: its symbol.
            memories: contents of the kernel's cells, on the device in question; none if nothing has run there.
            waves: how many were launched there.
        """
        cells = np.zeros(self.cells, np.int64)
        for memory in memories:
            cells += np.frombuffer(memory, np.int64, self.cells)
        mine = (one for one in self.sums if one.into.module is module and one.into.variable == variable)
        return {one.into.index: int(one.lacks.value(cells, waves)) for one in mine}

    def counts(self, cells: NDArray[np.int64], waves: int | None = None) -> KernelCounts:
        """Return the counts that follow from the contents of the cells.

        Args:
            cells: [`cells`] as read from the device.
            waves: as for `together`.

        Raises:
            PatchError: their number is wrong, or the number of waves is needed and not given.
        """
        if len(cells) != self.cells:
            raise PatchError(f"{self.symbol} has {self.cells} cells, {len(cells)} given", kernel=self.kernel)
        if waves is None and self.needs_waves:
            raise PatchError("the number of waves was not counted and is not given", kernel=self.kernel)
        columns = []
        ways: list[dict[tuple[int, int], int]] = []
        for flows in (self.waves, self.lanes):
            column, known = np.zeros(len(self.addresses), np.int64), np.zeros(len(self.addresses), bool)
            gone: dict[tuple[int, int], int] = {}
            for flow in flows:
                nodes, between = flow.solved(cells, waves or 0)
                for node, first, last in flow.stretches:
                    column[first : last + 1] = nodes[node]
                    known[first : last + 1] = True
                for way, times in between:
                    gone[way] = gone.get(way, 0) + int(times)
            columns.append((column, known))
            ways.append(gone)
        (executions, counted), (lanes, lanes_counted) = columns
        block = self.block_of.tolist()
        edges = tuple(EdgeRow(block[last], block[first], count) for (last, first), count in ways[0].items())
        return KernelCounts(self, executions, counted, lanes, lanes_counted, edges)


class BlockRow(NamedTuple):
    """One block of a kernel."""

    block: int
    """Its index in the lifted kernel."""
    address: int
    """Virtual address of its first instruction."""
    instructions: int
    """Number of its instructions."""
    executions: int
    """Times that waves entered it."""
    source: str
    """``file:first-last``, the user's lines that it is made of, or ``function+0x…``."""


class EdgeRow(NamedTuple):
    """An edge from one block of a kernel to another in the same function."""

    source: int
    """Block that control leaves: its index in the lifted kernel."""
    to: int
    executions: int
    """Times that waves went it, by a branch or by falling through."""


Key = Literal["instruction", "address", "opcode", "block"]
"""Built-in keys that counts can be grouped by."""


class KernelCounts(Struct, frozen=True, eq=False, dict=True):
    """Executions of each instruction of a kernel, over all launches."""

    counters: KernelCounters
    executions: NDArray[np.int64]
    """[n] times a wave ran it, by instruction index of the lifted kernel; 0 where `counted` is not set."""
    counted: NDArray[np.bool_]
    """[n] whether that was counted: in functions where something per wave was asked for."""
    active_lanes: NDArray[np.int64]
    """[n] sum of the lanes that were active then; 0 where `lanes_counted` is not set."""
    lanes_counted: NDArray[np.bool_]
    """[n] whether that was counted: in functions where something per lane was asked for."""
    edges: tuple[EdgeRow, ...] = ()
    """Edges between blocks of functions where counts per wave were asked for. There are none of functions in which
    blocks are counted each by itself: those that share code, or jump to unknown places."""
    waves: WaveCounts | None = None
    """Counts of each wave, where they were asked for."""

    def labels(self, key: Key) -> NDArray[Any]:
        """Return [n] the label of each instruction: its own index, its virtual address, its mnemonic, or its block."""
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
        """Return the counts grouped by what instructions belong to.

        Args:
            key: a `Key`, or a label for each instruction (a source line, say), None where it belongs to nothing.

        Returns:
            [labels] records with the fields `label`, `instructions` (how many were counted), `executions` (of all of
            them by waves) and `active_lanes` (the sum of lanes); in the order in which labels first come.

        Raises:
            PatchError: not so many labels as instructions.
        """
        labels: list[Any] = self.labels(cast(Key, key)).tolist() if isinstance(key, str) else list(key)
        if len(labels) != len(self.executions):
            message = f"{len(labels)} labels for {len(self.executions)} instructions"
            raise PatchError(message, kernel=self.counters.kernel)
        numbers: dict[Any, int] = {}
        known = (self.counted | self.lanes_counted) & (self.counters.block_of >= 0)
        chosen = [index for index in np.flatnonzero(known).tolist() if labels[index] is not None]
        where = np.array([numbers.setdefault(labels[index], len(numbers)) for index in chosen], np.int64)
        found = np.zeros(len(numbers), GROUP)
        found["label"] = np.fromiter(numbers, object, len(numbers))
        for name, column in (("executions", self.executions), ("active_lanes", self.active_lanes)):
            np.add.at(found[name], where, column[chosen])
        np.add.at(found["instructions"], where, 1)
        return found

    def to_arrow(self, key: Key | Sequence[Any] = "address") -> Any:
        """Return the result of `by` as a ``pyarrow.Table``."""
        import pyarrow  # takes 0.2 s

        found = self.by(key)
        return pyarrow.table({name: pyarrow.array(found[name].tolist()) for name in GROUP.names or ()})

    def total(self, request: CountRequest) -> int:
        """Return the sum that was asked for.

        Raises:
            PatchError: it was not counted here.
        """
        column, known = (
            (self.executions, self.counted) if request.per == "wave" else (self.active_lanes, self.lanes_counted)
        )
        if not all(known[index] for index, _ in request.sites):
            raise PatchError("this was not counted here", kernel=self.counters.kernel)
        return sum(weight * int(column[index]) for index, weight in request.sites)

    @cached_property
    def opcodes(self) -> dict[str, int]:
        """Return the executions of each mnemonic by waves, most frequent first."""
        return self._by_opcode(self.executions)

    @cached_property
    def opcode_lanes(self) -> dict[str, int]:
        """Return the active lanes of each mnemonic, added up over its executions, most frequent first."""
        return self._by_opcode(self.active_lanes)

    def block_rows(self) -> list[BlockRow]:
        """Return the blocks of the functions in which counts per wave were asked for, in address order."""
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
    """The cells of one kernel as if they were a variable of a tool's module, for who places such.

    Args:
        name: of the module: another one for each kernel of each object.
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
        """Raise an error, since nothing was compiled.

        Raises:
            ToolError: always.
        """
        raise ToolError("cells of counters have no code", object=self.name, target=str(target))
