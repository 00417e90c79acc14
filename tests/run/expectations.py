"""Expected results of shipped tools, from the counts of the virtual device in a run without tools.

A virtual device counts executions and active lanes of each instruction by address. Functions that several kernels call
are counted once there, so all is compared by address, added up over kernels; addresses of several code objects may be
the same ones, and are then added up on both sides.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from luthier import CodeObject, Instruction, lift

Row = dict[str, Any]
Tables = Sequence[Mapping[str, Any]]
Expectation = Callable[[Tables, "Truth"], None]


@dataclass(frozen=True)
class Truth:
    """The device's counts of the launched kernels."""

    launches: int
    kernels: Counter[str]
    """Names, with the instructions that control reaches in each."""
    wave_sizes: frozenset[int]
    code: Mapping[int, Sequence[tuple[Instruction, int, int]]]
    """By address: instructions there, executions, active lanes."""
    entries: Counter[int]
    """By address of the first instruction of a block: how often it was entered, added up over objects."""

    def lanes(self, *spaces: str) -> Counter[int]:
        """By address of an instruction that accesses memory: the lanes, for each of its addresses."""
        lanes_by_address: Counter[int] = Counter()
        for instruction, _, lanes in self.all():
            if instruction.memory is not None and instruction.memory.space in spaces:
                lanes_by_address[instruction.address] += lanes * instruction.memory.count
        return lanes_by_address

    def all(self) -> Iterable[tuple[Instruction, int, int]]:
        """Every instruction with its counts."""
        for ones in self.code.values():
            yield from ones


def truth(
    counted: Sequence[tuple[bytes, Mapping[int, tuple[int, int]]]], own: Mapping[str, Mapping[str, Any]]
) -> Truth:
    """Return the truth from the counts of all code objects and the report of `luthier run` on the program's kernels."""
    code: defaultdict[int, list[tuple[Instruction, int, int]]] = defaultdict(list)
    entries: Counter[int] = Counter()
    kernels: Counter[str] = Counter()
    sizes = set()
    for data, counts in counted:
        object = CodeObject(data)
        seen: set[int] = set()
        for name in object.kernels.keys() & own.keys():
            lifted = lift(object, name)
            sizes.add(lifted.wave_size)
            reached = [one for one in lifted.instructions if one.block >= 0]
            kernels[name] += len(reached)
            firsts = {block.first for block in lifted.blocks}
            for instruction in reached:
                if instruction.address in seen:
                    continue
                seen.add(instruction.address)
                times, lanes = counts.get(instruction.address, (0, 0))
                code[instruction.address].append((instruction, times, lanes))
                if instruction.index in firsts:
                    entries[instruction.address] += times
    return Truth(sum(one["launches"] for one in own.values()), kernels, frozenset(sizes), code, entries)


def rows(tables: Tables, *columns: str) -> list[Row]:
    """The rows of all tables that have these columns."""
    return [
        dict(zip(table["columns"], row, strict=True))
        for table in tables
        if set(columns) <= set(table["columns"])
        for row in table["rows"]
    ]


def by_address(table_rows: Iterable[Row], column: str) -> Counter[int]:
    """A column added up by address; what is 0 left out."""
    sums: Counter[int] = Counter()
    for row in table_rows:
        if row["address"] is not None:
            sums[int(row["address"], 16)] += row[column]
    return +sums


def _without(wanted: Counter[int], tables: Tables) -> Counter[int]:
    """Without the places that the tool says it has not measured."""
    left_out = {int(row["address"], 16) for row in rows(tables, "address", "reason")}
    return Counter({address: count for address, count in wanted.items() if count and address not in left_out})


EXPECTED: dict[str, Expectation] = {}
"""Tool -> what it must find."""


def expectation(function: Expectation) -> Expectation:
    """Declare what the tool must find that is called as the function is."""
    EXPECTED[function.__name__] = function
    return function


def well_formed(tables: Tables, truth: Truth) -> None:
    """Check tools without an expectation here: there are tables, and their rows have all columns."""
    assert tables
    assert all(len(row) == len(table["columns"]) for table in tables for row in table["rows"])


@expectation
def instr_count(tables: Tables, truth: Truth) -> None:
    """Vector instructions by lane, others by wave; in total and by block."""
    wanted = sum(lanes if one.is_vector else times for one, times, lanes in truth.all())
    (counter,) = rows(tables, "variable", "value")
    assert counter == {"variable": "counter", "value": wanted}
    assert by_address(rows(tables, "entered"), "entered") == +truth.entries
    assert sum(row["instructions"] for row in rows(tables, "entered")) == wanted


@expectation
def opcode_histogram(tables: Tables, truth: Truth) -> None:
    """Executions by opcode."""
    wanted: Counter[str] = Counter()
    for instruction, times, _ in truth.all():
        wanted[instruction.mnemonic] += times
    counted: Counter[str] = Counter()
    for row in rows(tables, "opcode"):
        counted[row["opcode"]] += row["executed"]
    assert counted.pop("all", 0) == sum(wanted.values())
    assert counted == +wanted


@expectation
def block_profile(tables: Tables, truth: Truth) -> None:
    """Executions of each block."""
    assert by_address(rows(tables, "entered"), "entered") == +truth.entries


@expectation
def block_timing(tables: Tables, truth: Truth) -> None:
    """Each block is timed as often as it runs."""
    assert by_address(rows(tables, "clock"), "times") == _without(truth.entries, tables)
    assert all(row["note"] == "" and row["time"] > 0 for row in rows(tables, "clock"))


@expectation
def instruction_mix(tables: Tables, truth: Truth) -> None:
    """All instructions, LDS and matrix instructions, and scalar loads."""
    classes: Counter[str] = Counter()
    for row in rows(tables, "class"):
        classes[row["class"]] += row["executed"]
    spaces: Counter[str] = Counter()
    for instruction, times, _ in truth.all():
        if instruction.memory is not None:
            spaces[instruction.memory.space] += times
    assert classes["all"] == sum(times for _, times, _ in truth.all())
    assert classes["LDS"] == sum(times for one, times, _ in truth.all() if one.mnemonic.startswith("ds_"))
    assert classes["wait"] >= sum(times for one, times, _ in truth.all() if one.mnemonic == "s_waitcnt")
    assert classes["scalar memory"] >= spaces["scalar"] + spaces["scalar buffer"]
    assert classes["vector memory"] >= sum(spaces[name] for name in ("global", "flat", "buffer", "scratch"))


@expectation
def divergence(tables: Tables, truth: Truth) -> None:
    """Executions and lanes of vector instructions in each block, their histogram, and executions of branches."""
    vectors = [(one, times, lanes) for one, times, lanes in truth.all() if one.is_vector]
    totals = [row for row in rows(tables, "block", "vector instructions") if row["address"] == "all"]
    assert sum(row["vector instructions"] for row in totals) == sum(times for _, times, _ in vectors)
    assert sum(row["lanes"] for row in totals) == sum(lanes for _, _, lanes in vectors)
    histogram = [row for row in rows(tables, "lanes", "vector instructions", "%") if "block" not in row]
    assert sum(row["vector instructions"] for row in histogram) == sum(times for _, times, _ in vectors)
    branches: Counter[int] = Counter()
    for instruction, times, _ in truth.all():
        if instruction.is_conditional:
            branches[instruction.address] += times
    assert by_address(rows(tables, "branch", "taken"), "waves") == _without(branches, tables)
    assert all(row["taken"] + row["not taken"] == row["waves"] for row in rows(tables, "branch", "taken"))


@expectation
def coalescing(tables: Tables, truth: Truth) -> None:
    """Lanes of each memory instruction; lines as the bounds are."""
    accesses = rows(tables, "address", "requests", "lines")
    assert by_address(accesses, "lanes") == _without(truth.lanes("global", "flat", "buffer"), tables)
    assert all(row["requests"] <= row["lines"] <= 2 * row["lanes"] for row in accesses)


@expectation
def lds_bank_conflicts(tables: Tables, truth: Truth) -> None:
    """Lanes of each LDS instruction, for each of its addresses."""
    accesses = rows(tables, "address", "accesses", "conflicts")
    assert by_address(accesses, "lanes") == _without(truth.lanes("lds"), tables)
    assert all(row["accesses"] <= row["cycles needed"] <= row["cycles"] for row in accesses)


@expectation
def lds_race(tables: Tables, truth: Truth) -> None:
    """The programs have no races; LDS is watched where there is any."""
    (table,) = (one for one in tables if "LDS" in one["columns"])
    assert table["title"] == "races", table["rows"]
    waves = sum(row["count"] for row in rows(tables, "what", "count") if row["what"].startswith("waves"))
    if +truth.lanes("lds") and not rows(tables, "kernel", "reason"):
        assert waves > 0


@expectation
def memcheck(tables: Tables, truth: Truth) -> None:
    """The programs access nothing but what they have."""
    (table,) = (one for one in tables if "distance" in one["columns"])
    assert table["title"] == "bad accesses", table["rows"]
    numbers = {row["what"]: row["count"] for row in rows(tables, "what", "count")}
    assert numbers["launches"] == truth.launches
    assert numbers["allocations"] > 0
    assert not any("lanes" in what or "ran uninstrumented" in what for what in numbers)


@expectation
def address_heatmap(tables: Tables, truth: Truth) -> None:
    """Accesses of all lanes, on all pages together."""
    pages = rows(tables, "page", "loads", "stores", "atomics")
    accesses = sum(row["loads"] + row["stores"] + row["atomics"] for row in pages)
    if not rows(tables, "kernel", "reason", "instructions"):
        assert accesses == sum(truth.lanes("global", "flat", "buffer").values())
    assert not rows(tables, "accesses")


@expectation
def mem_trace(tables: Tables, truth: Truth) -> None:
    """Every access of a lane is recorded, in at most one record for each."""
    channels = rows(tables, "accesses", "records", "dropped", "lost")
    assert all(row["records"] <= row["accesses"] for row in channels)
    assert all(row["dropped"] == row["lost"] == 0 for row in channels)
    if not any(row["not traced"] for row in rows(tables, "traced", "not traced")):
        assert sum(row["accesses"] for row in channels) == sum(truth.lanes("global", "flat", "buffer").values())


@expectation
def launch_log(tables: Tables, truth: Truth) -> None:
    """Every launch, with its arguments; those of the runtime's own kernels besides."""
    launches = [row for row in rows(tables, "work-items", "arguments") if row["kernel"] in truth.kernels]
    assert len(launches) == truth.launches
    assert not any(row["arguments"].startswith("unknown") for row in launches)


@expectation
def lift_dump(tables: Tables, truth: Truth) -> None:
    """A file for each kernel but the runtime's own, with every instruction that control reaches."""
    files = [row for row in rows(tables, "kernel", "file") if row["kernel"] in truth.kernels]
    assert {row["kernel"] for row in files} == truth.kernels.keys()
    assert not any(row["reason"] for row in files)
    dumps = {row["file"]: Path(row["file"]).read_text() for row in files}
    texts = {text.strip() for one in dumps.values() for text in one.splitlines()}
    assert all(any(hex(one.address)[2:] in text for text in texts) for one, _, _ in list(truth.all())[:20])


@expectation
def wait_check(tables: Tables, truth: Truth) -> None:
    """All kernels checked but the runtime's own, and what a compiler made has no findings."""
    assert [one["title"] for one in tables if "finding" in one["columns"]] == ["findings"]
    checked: Counter[str] = Counter()
    for row in rows(tables, "instructions", "findings"):
        checked[row["kernel"]] += row["instructions"]
    assert checked == truth.kernels
    left_out = [row for one in tables if one["title"] == "not checked" for row in one["rows"]]
    assert not [row for row in left_out if row[0] in truth.kernels]


@expectation
def value_log(tables: Tables, truth: Truth) -> None:
    """Records of 32 bits: each lane's value at stores, and EXEC there and at ends with active lanes.

    EXEC has 64 bits, also where a wave has 32 lanes.
    """
    (wave_size,) = truth.wave_sizes
    stored, fewest, most = 0, 0, 0
    for instruction, times, lanes in truth.all():
        store = instruction.mnemonic.startswith("global_store_")
        if store and instruction.memory is not None:
            stored += lanes * max(1, (instruction.memory.size or 0) // 4)
        if store or instruction.mnemonic == "s_endpgm":
            fewest += -(-lanes // wave_size) * 2
            most += times * 2
    channels = rows(tables, "records", "dropped", "lost")
    assert all(row["dropped"] == row["lost"] == 0 for row in channels)
    records = sum(row["records"] for row in channels)
    assert stored + fewest <= records <= stored + most, (stored, fewest, records, most)


def _edited(tables: Tables, truth: Truth) -> None:
    """Only known instructions are listed, each of them once."""
    places = [int(row["address"], 16) for row in rows(tables, "kernel", "address", "instruction")]
    assert all(address in truth.code for address in places)


EXPECTED |= {"instruction_replace": _edited, "register_write": _edited}
