"""Decoded code of a loaded code object, and its record tables."""

from __future__ import annotations

import functools
import itertools
import mmap
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from luthier.emulator import layout
from luthier.emulator.binding.records import NO_BRANCH, RecordBinder, RecordMode
from luthier.emulator.ir.variant import FloatMode, OperandAccess, Variant
from luthier.emulator.native.machine import machine_code
from luthier.errors import DeviceError
from luthier.isa import InstructionArray, Isa
from luthier.isa.instructions import NO_TARGET, InstructionFlag, OperandKind
from luthier.isa.registers import FLAT_SCRATCH_SGPR
from luthier.objects.origins import Teller

RECORD_TYPE = np.dtype(
    [("function", "<u8"), ("count", "<u8"), ("lanes", "<u8"), ("slots", "<u4", (layout.RECORD_SLOTS,))]
)
NO_RECORD = 0xFFFFFFFF
_ENDS = int(InstructionFlag.BARRIER)
_ENDS_OR_CALLS = int(InstructionFlag.BARRIER | InstructionFlag.CALL)


def float_mode(key: int) -> FloatMode:
    """Return the mode of a record table's key: MODE's low bits, and above them the relative operands."""
    return FloatMode(
        *(key & 3, key >> 2 & 3, key >> 4 & 3, key >> 6 & 3),
        *(bool(key >> 8 & 1), bool(key >> 9 & 1), key >> 10 & 15, bool(key >> layout.OVERFLOW_KEY_SHIFT & 1)),
    )


def _ends(part: InstructionArray) -> NDArray[np.bool_]:
    """Return for each instruction whether control never continues with the next one."""
    ends: NDArray[np.bool_] = (part.flags & _ENDS_OR_CALLS == _ENDS) | (part.opcode < 0)
    return ends


def _stops(part: InstructionArray) -> NDArray[np.bool_]:
    """Return for each instruction whether control may continue elsewhere than with the next one."""
    stops: NDArray[np.bool_] = (part.target != NO_TARGET) | _ends(part)
    return stops


Zeros = Callable[[int, Any], NDArray[Any]]
"""Makes a zeroed array, given the number and the type of its elements."""


def own_zeros(count: int, dtype: Any) -> NDArray[Any]:
    """Return a zeroed array in this process's memory; pages that are not touched cost nothing."""
    size = count * np.dtype(dtype).itemsize
    return np.frombuffer(mmap.mmap(-1, size), dtype) if size > 1 << 16 else np.zeros(count, dtype)


_NUMBERS = itertools.count()


class RecordTable:
    """Master copy of a program's records for one value of MODE; threads run on copies."""

    def __init__(self, size: int, empty: int, zeros: Zeros = own_zeros) -> None:
        self.records = zeros(size, RECORD_TYPE)
        self.records["function"] = empty
        self.bound = np.zeros(size, np.bool_)
        self.version = 0
        self.runs: NDArray[np.uint64] | None = None
        """By record: the address of a function for the run that begins there; 0 if there is none."""
        self.run_lengths: dict[int, int] = {}
        """Number of records of these runs, by the first record."""
        self._outgrown: list[NDArray[Any]] = []

    def grow(self, size: int, empty: int, zeros: Zeros) -> None:
        """Make room for more records. The old arrays live as long as this table: threads may still read them."""
        self._outgrown += [one for one in (self.records, self.runs) if one is not None]
        records, bound = zeros(size, RECORD_TYPE), np.zeros(size, np.bool_)
        records["function"] = empty
        records[: len(self.records)], bound[: len(self.bound)] = self.records, self.bound
        self.records, self.bound = records, bound
        if self.runs is not None:
            self.runs, old = zeros(size, np.uint64), self.runs
            self.runs[: len(old)] = old

    def end_runs(self, records: range) -> None:
        """Drop the functions of runs that contain one of these records; their instructions execute one by one again."""
        for first, length in list(self.run_lengths.items()):
            if self.runs is not None and first < records.stop and records.start < first + length:
                self.runs[first] = 0
                del self.run_lengths[first]


class BoundInstruction(NamedTuple):
    """Operation of a record, with its operands."""

    variant: Variant | None
    """None for a branch."""
    function: int
    slots: tuple[int, ...]


class RefusedInstruction(Struct, frozen=True):
    """Reason why an instruction cannot be executed."""

    index: int
    reason: str


class Forgetful(Protocol):
    """Cache of facts about instructions (`inspection.hazards.HazardAutomaton`)."""

    def forget(self, records: Iterable[int]) -> None:
        """Forget these records, whose instructions have been replaced."""


class Watcher(Forgetful, Protocol):
    """Cache that is filled before instructions are executed (`inspection.waits.WaitFacts`)."""

    def fill(self, records: Iterable[int]) -> None:
        """Compute the facts about records that have been bound."""


_Watching = TypeVar("_Watching", bound=Watcher)


class DecodedCode:
    """Decoded code of one object for one wave size.

    Instructions are bound to operations only when control can reach them: from a kernel's entry, then from the targets
    of indirect jumps.

    Args:
        ranges: addresses and bytes.
        zeros: makes the arrays that native code reads: the index of records by address, the records, their addresses.
    """

    def __init__(self, isa: Isa, ranges: list[tuple[int, bytes]], zeros: Zeros = own_zeros) -> None:
        self.isa = isa
        self.number = next(_NUMBERS)
        """Number of this code, unique in the process."""
        self.masters = zeros(layout.TABLES * layout.MASTER.size // 8, np.uint64).reshape(layout.TABLES, -1)
        """A row of `layout.MASTER` for each table key."""
        self._binder = RecordBinder.of(isa)
        self.parts: list[InstructionArray] = [isa.decode(data, address) for address, data in ranges]
        self.base = min((part.address for part in self.parts), default=0)
        end = max((part.address + len(part.code) for part in self.parts), default=0)
        self.size = end - self.base
        self._zeros = zeros
        # Inverted, so that untouched pages mean NO_RECORD: ranges may be far apart.
        self.index = zeros((self.size + 3) // 4 + 1, np.uint32)
        self._near = len(self.parts)
        """Number of `parts` that `index` covers; the later ones belong to other objects."""
        self._starts: list[int] = []
        count = 0
        for part in self.parts:
            self._starts.append(count)
            self._put_index(part, count)
            count += len(part) + 1  # one more record for running off the end
        self.count = count
        self._stops, self._falls_through, self._leads_to = self._find_stops()
        self._lock = threading.RLock()
        self._tables: dict[int, RecordTable] = {}
        self.refusals: dict[int, RefusedInstruction] = {}
        self.vgprs = np.zeros(count, np.int32)
        """By record: number of VGPRs up to the last one that the instruction names; 0 if it is not bound."""
        self.agprs = np.zeros(count, np.int32)
        self._unbound, self._unsupported = (
            machine_code().address(Variant(name, isa.wave_size, isa.target.target.emulated_major))
            for name in ("luthier_unbound", "luthier_unsupported")
        )
        self.target = isa.target
        """Target of the object; it differs from the device's target if it is generic."""
        self.origin: Teller = lambda address, scalar_pair: ""
        """Describes the origin of the code at an address."""
        self.floats = 0
        """Kinds of exceptional floats that tables with `layout.WATCHED_VALUES` report."""
        self.undefined = 0
        """Sources of undefined values that code in tables with `layout.WATCHED_VALUES` tracks, as bits."""
        self.watchers: list[Watcher] = []
        self.decoded: Forgetful | None = None
        """Its instructions in the form that checks use (`inspection.decoded`)."""
        self.hazards: Forgetful | None = None
        """Cached facts about its hazards (`inspection.hazards`)."""
        self.begin = self.count
        """The record where stepped waves start."""

    def extend(self, ranges: list[tuple[int, bytes]]) -> None:
        """Add code of another object, which control reaches through a pointer.

        Only `record_at` finds it. Launches may run meanwhile.

        Args:
            ranges: addresses, at the same distance from this code's addresses as in memory, and bytes.
        """
        with self._lock:
            self.count = max(self.count, self.begin + 1)
            for address, data in ranges:
                self.parts.append(self.isa.decode(data, address))
                self._starts.append(self.count)
                self.count += len(self.parts[-1]) + 1
            self._stops, self._falls_through, self._leads_to = self._find_stops()
            self.vgprs, self.agprs = (
                np.concatenate([old, np.zeros(self.count - len(old), np.int32)]) for old in (self.vgprs, self.agprs)
            )
            self.__dict__.pop("sgprs", None)
            for key, table in self._tables.items():
                table.grow(self.count + 1, self._unbound, self._zeros)
                if table.version:
                    self._tell(key, table)

    def _tell(self, key: int, table: RecordTable) -> None:
        """Publish a new version of a table to native code."""
        table.version += 1
        # A concurrent reader must not see a version whose records do not exist yet.
        self.masters[key, layout.MASTER["records"] // 8] = table.records.ctypes.data
        self.masters[key, layout.MASTER["runs"] // 8] = 0 if table.runs is None else table.runs.ctypes.data
        self.masters[key, layout.MASTER["version"] // 8] = table.version

    @functools.cached_property
    def sgprs(self) -> NDArray[np.int32]:
        """Return by record the number of SGPRs up to the last one that the instruction names.

        VCC and other special registers are not counted.
        """
        result = np.zeros(self.count, np.int32)
        for start, part in zip(self._starts, self.parts, strict=True):
            result[start : start + len(part)] = self._sgprs_of(part)
        return result

    def _sgprs_of(self, part: InstructionArray) -> NDArray[np.int32]:
        registers = np.where(part.operand_kind == int(OperandKind.REGISTER), part.operand_value, 0)
        numbers, which = np.unique(registers, return_inverse=True)
        places = [self.isa.register(int(number)) if number else None for number in numbers]
        ends = [
            place.first_unit + place.unit_count if place and 0 <= place.first_unit < FLAT_SCRATCH_SGPR else 0
            for place in places
        ]
        owners = np.repeat(np.arange(len(part)), np.diff(part.operand_start))
        counts = np.zeros(len(part), np.int32)
        np.maximum.at(counts, owners, np.array([0, *ends], np.int32)[1 + which])
        return counts

    # Places ---------------------------------------------------------------------------------------------------------

    def _put_index(self, part: InstructionArray, first: int) -> None:
        """Enter instructions into the index of records by address; their records begin with `first`."""
        places = (part.addresses - self.base) // 4
        aligned = part.addresses % 4 == 0
        self.index[places[aligned]] = ~(np.arange(len(part), dtype=np.uint32)[aligned] + np.uint32(first))

    def locate(self, record: int) -> tuple[InstructionArray, int] | None:
        """Return the decoded array and the position of a record; None past the end of a range."""
        place = self.place_of(record)
        return None if place is None else (self.parts[place[0]], place[1])

    def place_of(self, record: int) -> tuple[int, int] | None:
        """Return the index in `parts` and the position of a record; None past the end of a range."""
        for number in range(len(self.parts) - 1, -1, -1):
            if record >= self._starts[number]:
                position = record - self._starts[number]
                return (number, position) if position < len(self.parts[number]) else None
        return None

    def goes_on(self, record: int) -> bool:
        """Return whether an instruction always continues with the next record."""
        return bool(self._stops[self._stops.searchsorted(record)] != record)

    def record_at(self, address: int) -> int | None:
        """Return the record of the instruction at a virtual address; None if there is none."""
        if not 0 <= address < 1 << 63:
            return None
        record = int(self._records_at(np.array([address], np.int64))[0])
        return None if record == NO_RECORD else record

    def address_of(self, record: int) -> int:
        """Return the virtual address of a record's instruction."""
        place = self.locate(record)
        if place is None:
            part, position = self.locate(record - 1) or (self.parts[0], 0)
            return part.address + int(part.offset[position]) + int(part.size[position])
        part, position = place
        return part.address + int(part.offset[position])

    def addresses(self) -> NDArray[np.int64]:
        """Return the virtual address of every record; -1 for records that mark the end of a range."""
        result = np.full(self.count, -1, np.int64)
        for start, part in zip(self._starts, self.parts, strict=True):
            result[start : start + len(part)] = part.addresses
        return result

    def opcodes(self) -> NDArray[np.int32]:
        """Return the LLVM opcode of every record; -1 for records that mark the end of a range."""
        result = np.full(self.count, -1, np.int32)
        for start, part in zip(self._starts, self.parts, strict=True):
            result[start : start + len(part)] = part.opcode
        return result

    def text(self, record: int) -> str:
        """Return the assembly text of a record's instruction."""
        place = self.locate(record)
        return "the end of the code" if place is None else self.isa.text(*place)

    # Binding --------------------------------------------------------------------------------------------------------

    def watcher(self, kind: type[_Watching], make: Callable[[], _Watching]) -> _Watching:
        """Return the watcher of a class; it has the facts about all bound records. The first call makes it."""
        with self._lock:
            watcher = next((one for one in self.watchers if isinstance(one, kind)), None)
            if watcher is None:
                watcher = make()
                watcher.fill(self.bound().tolist())
                self.watchers.append(watcher)
            return watcher

    def table(self, key: int) -> RecordTable:
        """Return the master table for a table key."""
        with self._lock:
            table = self._tables.get(key)
            if table is None:
                table = self._tables[key] = RecordTable(self.count + 1, self._unbound, self._zeros)
            return table

    def bound(self) -> NDArray[np.intp]:
        """Return the records that are bound in any table."""
        with self._lock:
            tables = [table.bound[: self.count] for table in self._tables.values()]
        return np.flatnonzero(np.logical_or.reduce(tables)) if tables else np.zeros(0, np.intp)

    def start_at(self, key: int, entry: int) -> None:
        """Make the begin record of a table lead to `entry`."""
        records = self.table(key).records
        variant = Variant("luthier_begin", self.isa.wave_size, 9, sources=(OperandAccess("i"),))
        records["function"][self.begin] = machine_code().address(variant)
        records["slots"][self.begin, 0] = (entry - self.begin) * layout.RECORD.size & 0xFFFFFFFF

    def ensure(self, key: int, *records: int) -> None:
        """Bind, in the table `key`, all records that control can reach from `records` without an indirect jump."""
        table = self.table(key)
        with self._lock:
            if table.bound[list(records)].all():
                return
            reached = self._reach(records, table.bound)
            mode = self._mode(key)
            for watcher in self.watchers:  # before other threads can reach the records
                watcher.fill(reached.tolist())
            for start, part in zip(self._starts, self.parts, strict=True):
                within = reached[(reached >= start) & (reached <= start + len(part))]
                self._bind(table.records, start, part, within, mode)
            table.bound[reached] = True
            self._tell(key, table)

    def _mode(self, key: int) -> RecordMode:
        return RecordMode(
            float_mode(key),
            stepping=bool(key & layout.STEPPING),
            skipping=bool(key & layout.SKIPPING),
            observed=bool(key & layout.OBSERVED),
            floats=self.floats if key & layout.WATCHED_VALUES else 0,
            undefined=self.undefined if key & layout.WATCHED_VALUES else 0,
            all_defined=bool(key & layout.ALL_DEFINED),
        )

    # Runs -----------------------------------------------------------------------------------------------------------

    def tables_with_runs(self) -> dict[int, RecordTable]:
        """Return, by key, the tables in which instructions may be executed by runs: no wave is stepped or skipping."""
        with self._lock:
            return {key: table for key, table in self._tables.items() if not key & (layout.STEPPING | layout.SKIPPING)}

    def straight(self, records: NDArray[np.bool_]) -> list[range]:
        """Return the runs of the given records that control enters only at their first record, as far as known.

        Inside a run, control always continues with the next record.
        """
        with self._lock:
            count, stops, leads_to = self.count, self._stops, self._leads_to
        begins = np.zeros(count + 1, np.bool_)
        begins[0] = True
        begins[stops + 1] = True
        begins[leads_to[leads_to != NO_RECORD]] = True
        inside = np.zeros(count, np.bool_)
        inside[: len(records)] = records[:count]
        inside[stops[stops < count]] = False
        starts = np.flatnonzero(inside & (begins[:-1] | ~np.concatenate([[False], inside[:-1]])))
        ends = np.flatnonzero(inside & (begins[1:] | ~np.concatenate([inside[1:], [False]])))
        return [range(first, last + 1) for first, last in zip(starts.tolist(), ends.tolist(), strict=True)]

    def instructions(self, key: int, records: range) -> list[BoundInstruction]:
        """Return the instructions of a run; none if a record is refused or not bound."""
        table, mode = self.table(key), self._mode(key)
        with self._lock:
            place = self.place_of(records.start)
            bound = table.bound[records.start : records.stop].all()
            if place is None or not bound or not self.refusals.keys().isdisjoint(records):
                return []
            part, first = self.parts[place[0]], place[1]
            variants = self._binder.variants(part, range(first, first + len(records)), mode)
            rows = table.records[records.start : records.stop]
            functions, slots = rows["function"].tolist(), map(tuple, rows["slots"].tolist())
        return list(map(BoundInstruction, variants, functions, slots))

    def run_at(self, key: int, records: range, function: int, instructions: Sequence[BoundInstruction]) -> None:
        """Make a function execute a run, unless its instructions have been replaced meanwhile."""
        table = self.table(key)
        with self._lock:
            now = table.records[records.start : records.stop]
            same = all(
                (one.function, one.slots) == (int(row["function"]), tuple(row["slots"].tolist()))
                for one, row in zip(instructions, now, strict=True)
            )
            if not same or not table.bound[records.start : records.stop].all():
                return
            if table.runs is None:
                table.runs = self._zeros(len(table.records), np.uint64)
            table.end_runs(records)
            table.runs[records.start] = function
            table.run_lengths[records.start] = len(records)
            self._tell(key, table)

    def rewrite(self, address: int, data: bytes) -> None:
        """Replace instructions by as many others of the same sizes. No launch may run meanwhile.

        Raises:
            DeviceError: number or sizes differ, or an old or new instruction may branch or end the program.
        """
        record = self.record_at(address)
        place = None if record is None else self.place_of(record)
        if record is None or place is None or not data:
            raise DeviceError(f"no instructions to rewrite at {address:#x}", target=str(self.isa.target))
        number, first = place
        part, replacement = self.parts[number], self.isa.decode(data, address)
        try:
            now = part.replaced(replacement)
        except ValueError as problem:
            raise DeviceError(str(problem), target=str(self.isa.target)) from problem
        for code, begin in ((part, first), (replacement, 0)):
            if _stops(code)[begin : begin + len(replacement)].any():
                raise DeviceError(f"cannot rewrite {address:#x}: code may branch or end", target=str(self.isa.target))
        records = range(record, record + len(replacement))
        with self._lock:
            old = part.addresses[first : first + len(replacement)]
            self.index[(old[old % 4 == 0] - self.base) // 4] = 0
            self.parts[number] = now
            self._put_index(replacement, record)
            if "sgprs" in self.__dict__:
                self.sgprs[records.start : records.stop] = self._sgprs_of(replacement)
            for index in records:
                self.refusals.pop(index, None)
            for known in (self.decoded, *self.watchers, self.hazards):
                if known is not None:
                    known.forget(records)
            for key, table in self._tables.items():
                bound = [one for one in records if table.bound[one]]
                table.bound[bound] = False
                table.end_runs(records)
                if bound:
                    self.ensure(key, *bound)

    def _bind(
        self,
        records: NDArray[np.void],
        start: int,
        part: InstructionArray,
        reached: NDArray[np.intp],
        mode: RecordMode,
    ) -> None:
        """Fill in the records of one range."""
        positions = reached - start
        inside = positions < len(part)
        for record in reached[~inside].tolist():
            self._refuse(records, record, "control runs off the end of the code")
        reached, positions = reached[inside], positions[inside]
        addresses = part.target[positions]
        branches = addresses != NO_TARGET
        destinations = self._records_at(addresses)
        astray = branches & (destinations == NO_RECORD)
        undecodable = part.opcode[positions] < 0
        for row in np.flatnonzero(astray | undecodable).tolist():
            astray_reason = f"the branch target {int(addresses[row]):#x} is outside the code or inside an instruction"
            self._refuse(records, int(reached[row]), "undecodable bytes" if undecodable[row] else astray_reason)
        targets = np.where(branches, destinations.astype(np.int64) - reached, NO_BRANCH)
        good = ~(astray | undecodable)
        reached, positions, targets = reached[good], positions[good], targets[good]
        if not len(reached):
            return
        following = part.address + part.offset[positions] + part.size[positions] - self.base
        bound = self._binder.bind(part, positions, targets, following, mode)
        records["slots"][reached] = bound.slots
        records["function"][reached] = bound.functions
        self.vgprs[reached], self.agprs[reached] = bound.vgprs, bound.agprs
        for row, reason in bound.refusals.items():
            self._refuse(records, int(reached[row]), reason)

    def _refuse(self, records: NDArray[np.void], record: int, reason: str) -> None:
        self.refusals[record] = RefusedInstruction(record, reason)
        records["function"][record] = self._unsupported

    def reach(self, *records: int) -> NDArray[np.intp]:
        """Return all records that control can reach from `records` without an indirect jump."""
        return self._reach(records, np.zeros(self.count, np.bool_))

    def spans(self, records: NDArray[np.intp]) -> list[tuple[int, int]]:
        """Return, for each range with any of `records`, the first address and the end of the last record."""
        spans = []
        for start, part in zip(self._starts, self.parts, strict=True):
            positions = records[(records >= start) & (records < start + len(part))] - start
            if positions.size:
                last = int(positions.max())
                begin, end = int(part.offset[positions.min()]), int(part.offset[last]) + int(part.size[last])
                spans.append((part.address + begin, part.address + end))
        return spans

    def _reach(self, starts: Iterable[int], bound: NDArray[np.bool_]) -> NDArray[np.intp]:
        """Return the records reachable from `starts` without passing through records in `bound`."""
        reached = np.zeros(self.count, np.bool_)
        work = list(starts)
        while work:
            index = work.pop()
            if reached[index] or bound[index]:
                continue
            # Everything up to the next stop is reached, too.
            at = int(np.searchsorted(self._stops, index))
            last = int(self._stops[at])
            reached[index : last + 1] = True
            if self._falls_through[at]:
                work.append(last + 1)
            if self._leads_to[at] != NO_RECORD:
                work.append(int(self._leads_to[at]))
        return np.flatnonzero(reached & ~bound[: self.count])

    def _find_stops(self) -> tuple[NDArray[np.intp], NDArray[np.bool_], NDArray[np.uint32]]:
        """Return the records where control may leave, whether it may also continue there, and the branch targets."""
        stops, falls, leads = [np.zeros(0, np.intp)], [np.zeros(0, np.bool_)], [np.zeros(0, np.uint32)]
        for start, part in zip(self._starts, self.parts, strict=True):
            ends = _ends(part)
            places = np.flatnonzero(_stops(part))
            stops += [places + start, np.array([start + len(part)])]
            falls += [~ends[places], np.zeros(1, np.bool_)]
            leads += [self._records_at(part.target[places]), np.array([NO_RECORD], np.uint32)]
        return np.concatenate(stops), np.concatenate(falls), np.concatenate(leads)

    def _records_at(self, addresses: NDArray[np.int64]) -> NDArray[np.uint32]:
        """Return the record of the instruction at each virtual address; NO_RECORD if there is none."""
        # Subtracting from NO_TARGET would overflow.
        inside = (addresses >= self.base) & (addresses < self.base + self.size) & (addresses % 4 == 0)
        records = np.where(inside, ~self.index[np.where(inside, addresses - self.base, 0) // 4], np.uint32(NO_RECORD))
        for start, part in list(zip(self._starts, self.parts, strict=True))[self._near :]:
            places = part.addresses
            at = np.searchsorted(places, addresses)
            matches = (at < len(part)) & (places[np.minimum(at, len(part) - 1)] == addresses) if len(part) else at < 0
            records = np.where(matches, (at + start).astype(np.uint32), records)
        return records
