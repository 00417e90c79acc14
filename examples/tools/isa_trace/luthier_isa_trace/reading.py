"""Restores the instruction stream of each wave from the trace of a run.

Hooks do not run where no lane is active. Segments that a wave passes then are restored from the control flow: the
shortest way from one recorded segment to the next. `InstructionTrace.differences` compares the sums with exact counts.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from luthier.errors import LuthierError
from luthier.run.folder import RunFolder
from luthier.support.extras import extra
from luthier.support.private_folder import private_folder
from msgspec import Struct
from numpy.typing import NDArray

MEMORY = 256
"""MiB for sorting records by wave, beyond which they go to a temporary folder."""
ADDRESS_COLUMNS = ("pc", "address", "distance", "lanes", "kind", "space", "size", "parts")
"""Columns of the table of addresses, besides those that name the wave."""
_ORDER = ("process", "device", "kernel", "z", "y", "x", "wave")
_ANYWHERE = frozenset(("call", "tail", "return", "unknown"))
"""Exits of blocks from which control may continue in any function."""


class TracedKernel(Struct):
    """A kernel of a trace, with its code by index of the instruction."""

    name: str
    number: int
    target: str
    wave_size: int
    pc: NDArray[np.uint64]
    """Virtual addresses, ascending."""
    text: list[str]
    block: NDArray[np.int64]
    successors: dict[int, tuple[int, ...]]
    """By block."""
    ends: dict[int, str]
    """How control leaves each block."""
    first: dict[int, int]
    """Index of each block's first instruction."""
    executions: NDArray[np.int64]
    """Exact executions of each instruction by waves, of the whole run."""


class TracedAccess(Struct):
    """Addresses of a wave's memory instruction."""

    at: int
    """Index in the wave's stream."""
    kind: int
    space: int
    size: int
    """Bytes at each address; 0 if unknown."""
    addresses: list[dict[int, int]]
    """Address by lane, one or two of them; by 0 of an access of the wave, once."""


class TracedWave(Struct):
    """The stream of one wave."""

    kernel: TracedKernel
    process: int
    device: int
    launch: int
    """Number of the kernel's launch on the device, from 0."""
    workgroup: tuple[int, int, int]
    number: int
    """Number of the wave in its work-group."""
    instructions: NDArray[np.int64]
    """Index in the kernel's code of each executed instruction, in order."""
    exec: NDArray[np.uint64]
    """EXEC at each."""
    accesses: list[TracedAccess] = []
    """Those of instructions whose addresses were traced, in order."""


class InstructionTrace:
    """The trace of a run.

    Args:
        folder: the run's folder, of ``luthier run -t isa_trace -o``.

    Raises:
        LuthierError: the folder is damaged, or has no such trace.
    """

    def __init__(self, folder: str | Path) -> None:
        self.run = RunFolder(folder)
        if "trace-steps" not in self.run.names:
            raise LuthierError(f"{folder} has no trace of instructions: run with -t isa_trace -o")
        self.restored: Counter[str] = Counter()
        """Segments without active lanes that were restored so far, by kernel."""
        self._sums: dict[str, NDArray[np.int64]] = {}

    @cached_property
    def kernels(self) -> dict[int, TracedKernel]:
        """Return the kernels by number.

        Raises:
            LuthierError: the folder is damaged, has two kernels of one name, or a launch with work-groups in a third
                dimension in which the trace does not tell them apart.
        """
        names = [row for table in self._tool_tables("kernels") for row in table.rows]
        targets: dict[str, str] = {}
        for row in self.run.rows("kernels", ["kernel", "target"]):
            if row["kernel"] in targets:
                raise LuthierError(f"{self.run.path} has two kernels {row['kernel']}, whose code cannot be told apart")
            targets[row["kernel"]] = row["target"]
        flat = {str(row[1]) for row in names if not row[3]}
        for row in self.run.rows("launches", ["kernel", "grid_z", "block_z"]):
            if row["kernel"] in flat and (row["grid_z"] or 1) > (row["block_z"] or 1):
                raise LuthierError(
                    f"{row['kernel']}: the trace does not tell work-groups of the third dimension apart, since the"
                    " kernel does not receive their number"
                )
        code: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
        for row in self.run.rows("listings", ["kernel", "address", "text", "block"]):
            code[row["kernel"]].append(row)
        counts: defaultdict[str, dict[int, int]] = defaultdict(dict)
        for row in self.run.rows("counts", ["kernel", "address", "executions"]):
            counts[row["kernel"]][row["address"]] = counts[row["kernel"]].get(row["address"], 0) + (
                row["executions"] or 0
            )
        blocks: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
        for row in self.run.rows("blocks", ["kernel", "block", "address", "exit", "successors"]):
            blocks[row["kernel"]].append(row)
        kernels = {}
        for number, name, width, *_ in names:
            if name not in targets:
                raise LuthierError(f"{self.run.path} has a trace of {name}, but no such kernel")
            rows = sorted(code[str(name)], key=lambda row: row["address"])
            pc = np.array([row["address"] for row in rows], np.uint64)
            kernels[int(number)] = TracedKernel(
                str(name),
                int(number),
                targets[str(name)],
                int(width),
                pc,
                [row["text"] for row in rows],
                np.array([row["block"] for row in rows], np.int64),
                {row["block"]: tuple(row["successors"]) for row in blocks[str(name)]},
                {row["block"]: row["exit"] for row in blocks[str(name)]},
                {row["block"]: int(np.searchsorted(pc, row["address"])) for row in blocks[str(name)]},
                np.array([counts[str(name)].get(row["address"], 0) for row in rows], np.int64),
            )
        return kernels

    def _tool_tables(self, title: str) -> Iterator[Any]:
        for tool in self.run.summary.tools:
            if tool.tool.partition(":")[0] == "isa_trace":
                yield from (table for table in tool.tables if table.title == title)

    def waves(self) -> Iterator[TracedWave]:
        """Yield the waves, sorted by process, device, kernel, work-group, number and launch.

        Raises:
            LuthierError: a record does not follow from the one before: waves of one number ran at the same time (two
                launches of one kernel), or records were lost.
        """
        rest = self._grouped("trace-addresses", ADDRESS_COLUMNS) if "trace-addresses" in self.run.names else iter(())
        upcoming = next(rest, None)
        for key, rows in self._grouped("trace-steps", ("pc", "exec", "instructions", "starts")):
            kernel = self.kernels[key["kernel"]]
            queues: dict[int, deque[tuple[int, ...]]] = {}
            if upcoming is not None and upcoming[0] == key:
                for row in zip(*(upcoming[1][name].tolist() for name in ADDRESS_COLUMNS), strict=True):
                    queues.setdefault(row[0], deque()).append(row)
                upcoming = next(rest, None)
            starts = np.flatnonzero(rows["starts"])
            if not len(starts) or starts[0]:
                raise LuthierError(f"{kernel.name}: a wave's first record is missing: records were lost")
            for launch, (begin, end) in enumerate(zip(starts, [*starts[1:], len(rows["pc"])], strict=True)):
                wave = self._wave(kernel, key, launch, {name: column[begin:end] for name, column in rows.items()})
                wave.accesses = _accesses(wave, queues)
                yield wave
            if any(queues.values()):
                raise LuthierError(
                    f"{kernel.name}: addresses of an instruction that was not executed: records were lost"
                )

    def _wave(self, kernel: TracedKernel, key: dict[str, int], launch: int, rows: dict[str, Any]) -> TracedWave:
        segments: list[tuple[int, int, int]] = []
        """First instruction, the one after the last, EXEC."""
        for pc, mask, count in zip(
            rows["pc"].tolist(), rows["exec"].tolist(), rows["instructions"].tolist(), strict=True
        ):
            if count:
                first = int(np.searchsorted(kernel.pc, np.uint64(pc)))
                segments += self._passed(kernel, segments[-1][1] - 1 if segments else None, first)
                segments.append((first, first + count, mask))
        if segments:
            segments += self._passed(kernel, segments[-1][1] - 1, None)
        instructions = np.concatenate([np.arange(first, after) for first, after, _ in segments] or [np.empty(0, int)])
        masks = np.repeat(
            np.array([mask for *_, mask in segments], np.uint64),
            np.array([after - first for first, after, _ in segments], np.int64),
        )
        sums = self._sums.setdefault(kernel.name, np.zeros(len(kernel.pc), np.int64))
        np.add.at(sums, instructions, 1)
        group = (key["x"], key["y"], key["z"])
        return TracedWave(kernel, key["process"], key["device"], launch, group, key["wave"], instructions, masks)

    def _passed(self, kernel: TracedKernel, last: int | None, to: int | None) -> list[tuple[int, int, int]]:
        """Return the segments without active lanes between two instructions.

        Args:
            last: the last instruction so far; None: the wave starts.
            to: the next recorded one; None: the wave ends.

        Raises:
            LuthierError: there is no way.
        """
        ways = _ways(kernel, last, to)
        if ways is None:
            at = "its end" if to is None else f"{int(kernel.pc[to]):#x}"
            begin = "its start" if last is None else f"{int(kernel.pc[last]):#x}"
            raise LuthierError(
                f"{kernel.name}: no way leads from {begin} to {at}: two launches of the kernel ran at the same time,"
                " or records were lost"
            )
        if ways:
            self.restored[kernel.name] += len(ways)
        return [(first, after, 0) for first, after in ways]

    def differences(self) -> dict[str, tuple[int, int]]:
        """Return instructions of the stream and exact ones of each kernel that has a difference, after `waves`."""
        pairs = {
            kernel.name: (self._sums.get(kernel.name, np.zeros(len(kernel.pc), np.int64)), kernel.executions)
            for kernel in self.kernels.values()
        }
        return {
            name: (int(traced.sum()), int(exact.sum()))
            for name, (traced, exact) in pairs.items()
            if not np.array_equal(traced, exact)
        }

    def _grouped(self, table: str, columns: tuple[str, ...]) -> Iterator[tuple[dict[str, int], dict[str, Any]]]:
        """Yield the rows of each wave in their order, as arrays by column."""
        duckdb, pa = extra("duckdb"), extra("pyarrow")
        with self.run.table(table) as reader, private_folder() as folder:
            recorded = [row for part in self._tool_tables("records") for row in part.rows if f"trace-{row[0]}" == table]
            taken, lost = sum(int(row[3]) for row in recorded), sum(int(row[4]) + int(row[5]) for row in recorded)
            if taken != reader.rows or lost:
                raise LuthierError(
                    f"{self.run.path}: {table} has {reader.rows} records of {taken}, and {lost} were lost in the run"
                )
            names = [*_ORDER, *columns]
            schema = pa.schema([*(reader.arrow.field(name) for name in names), pa.field("row", pa.int64())])
            settings = {"memory_limit": f"{MEMORY}MiB", "temp_directory": str(folder / "spilled"), "threads": 2}
            with duckdb.connect(":memory:", config=settings) as database:
                rows = pa.RecordBatchReader.from_batches(schema, _numbered(pa, schema, reader.batches(names)))
                database.register("rows", rows)
                query = f'SELECT {", ".join(names)} FROM rows ORDER BY {", ".join(_ORDER)}, "row"'
                yield from _groups(database.sql(query).to_arrow_reader(1 << 16), columns)


def _numbered(pa: Any, schema: Any, batches: Iterator[Any]) -> Iterator[Any]:
    begin = 0
    for batch in batches:
        numbers = pa.array(np.arange(begin, begin + batch.num_rows))
        begin += batch.num_rows
        yield pa.record_batch([*batch.columns, numbers], schema=schema)


def _groups(batches: Any, columns: tuple[str, ...]) -> Iterator[tuple[dict[str, int], dict[str, Any]]]:
    """Yield runs of rows with equal keys, which may go across batches."""
    pending: list[dict[str, Any]] = []
    previous: tuple[int, ...] | None = None

    def joined() -> tuple[dict[str, int], dict[str, Any]]:
        assert previous is not None
        rows = {name: np.concatenate([part[name] for part in pending]) for name in columns}
        return dict(zip(_ORDER, previous, strict=True)), rows

    for batch in batches:
        keys = np.stack([batch.column(name).to_numpy().astype(np.int64) for name in _ORDER], axis=1)
        values = {name: batch.column(name).to_numpy() for name in columns}
        changes = np.flatnonzero((keys[1:] != keys[:-1]).any(axis=1)) + 1
        for begin, end in zip([0, *changes], [*changes, len(keys)], strict=True):
            if begin == end:
                continue
            key = tuple(keys[begin].tolist())
            if previous is not None and key != previous:
                yield joined()
                pending.clear()
            previous = key
            pending.append({name: column[begin:end] for name, column in values.items()})
    if previous is not None:
        yield joined()


def _accesses(wave: TracedWave, queues: dict[int, deque[tuple[int, ...]]]) -> list[TracedAccess]:
    """Return the accesses of a wave; take them from the records of its number, by instruction.

    Raises:
        LuthierError: a record is missing.
    """
    accesses: list[TracedAccess] = []
    if not queues:
        return accesses
    places = wave.kernel.pc[wave.instructions]
    for at in np.flatnonzero(np.isin(places, np.array(list(queues), np.uint64))).tolist():
        pc, mask, queue = int(places[at]), int(wave.exec[at]), queues[int(places[at])]
        if not mask:
            continue  # hooks do not run
        parts: list[dict[int, int]] = []
        row: tuple[int, ...] = ()
        while not row or len(parts) < row[-1]:
            addresses: dict[int, int] = {}
            while not addresses or (row[3] and len(addresses) < mask.bit_count()):
                if not queue:
                    raise LuthierError(f"{wave.kernel.name}: the addresses of {pc:#x} are missing: records were lost")
                row = queue.popleft()
                _, base, distance, lanes, *_ = row
                addresses |= {lane: base + distance * lane for lane in range(64) if lanes >> lane & 1} or {0: base}
            parts.append(addresses)
        accesses.append(TracedAccess(at, row[4], row[5], row[6], parts))
    return accesses


def _ways(kernel: TracedKernel, last: int | None, to: int | None) -> list[tuple[int, int]] | None:
    """Return the instructions between two, as ranges: the shortest way through blocks; None if there is none."""
    if last is None:
        return [] if to is not None else None
    block = int(kernel.block[last])
    after = last + 1
    if to == after and (after == len(kernel.block) or kernel.block[after] == block):
        return []
    rest: list[tuple[int, int]] = []
    if after < len(kernel.block) and kernel.block[after] == block:  # it goes on without lanes
        stop = after
        while stop < len(kernel.block) and kernel.block[stop] == block and stop != to:
            stop += 1
        rest = [(after, stop)]
        if stop == to:
            return rest
    if to is None and kernel.ends[block] == "end":
        return rest
    target = None if to is None else int(kernel.block[to])
    before: dict[int, int] = {}
    queue = deque([block])
    while queue:
        current = queue.popleft()
        if to is not None and kernel.ends[current] in _ANYWHERE:
            return None if rest or current != block else rest if kernel.first[target or 0] == to else None
        for following in kernel.successors.get(current, ()):
            is_there = following == target if to is not None else kernel.ends[following] == "end"
            if following not in before:
                before[following] = current
                queue.append(following)
            if is_there:
                before[following] = current
                return rest + _blocks_between(kernel, before, block, following, to)
    return None


def _blocks_between(
    kernel: TracedKernel, before: dict[int, int], begin: int, end: int, to: int | None
) -> list[tuple[int, int]]:
    """Return the ranges of the blocks after `begin` on the way to `end`, and of `end` before `to`."""
    path = [end]
    while before[path[-1]] != begin:
        path.append(before[path[-1]])
    path.reverse()
    ranges = []
    for block in path:
        first = kernel.first[block]
        stop = first
        while stop < len(kernel.block) and kernel.block[stop] == block and (block != end or stop != to):
            stop += 1
        if stop > first:
            ranges.append((first, stop))
    return ranges
