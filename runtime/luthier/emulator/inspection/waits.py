"""The check of waits while a kernel runs: ``check="waits"``.

An operation counts as done when its counters say so and not before (`luthier.isa.waits`): until then the registers that
it writes hold a pattern, and whatever uses them is found. The native executor does it for every instruction
(`runtime/native/executor/watch.h`); here it is told what instructions do, and what it found is put into words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from luthier import _mc
from luthier.emulator import layout
from luthier.emulator.binding.program import Code, own_zeros
from luthier.isa import registers as r
from luthier.isa.waits import WaitModel, wait_model
from luthier.lifting.instructions.effects import Columns, EffectTable
from luthier.lifting.waits.steps import HALVES, Step, fills_half, step_of
from luthier.objects.source import SourceLocation, in_source

WAITS = "waits"
POISON = 0x7FF7A5A5
"""What an outstanding register holds: no number as a float of 16, 32 or 64 bits."""
MOST = 1024
"""Findings that are kept of a launch."""

_FACT = np.dtype(
    {
        "names": list(layout.FACT.fields),
        "formats": ["u1", "u1", "u1", "u1", ("u1", 2), "u1", "u1", ("u1", 8), "<u4", ("<u4", layout.FACT_SPANS)],
        "offsets": [field.offset for field in layout.FACT.fields.values()],
        "itemsize": layout.FACT.size,
    }
)
_FOUND = np.dtype(
    {
        "names": list(layout.FOUND.fields),
        "formats": [f"<u{field.size}" for field in layout.FOUND.fields.values()],
        "offsets": [field.offset for field in layout.FOUND.fields.values()],
        "itemsize": layout.FOUND.size,
    }
)
_ANY_LANE = (*("V_READLANE", "V_READFIRSTLANE", "V_WRITELANE"), "V_MFMA", "V_SMFMAC", "V_WMMA", "V_SWMMAC")


@dataclass(frozen=True)
class WaitFinding:
    """A wave used a register of an operation that need not be done."""

    kernel: str
    access: str
    """``reads``, ``overwrites``, or ``overwrites a source of``."""
    address: int
    """Virtual address of the instruction."""
    text: str
    producer: int
    """Virtual address of the operation."""
    producer_text: str
    register: str
    counter: str
    """Which says when the operation is done."""
    enough: int
    """The largest value of that counter to wait for that would have been enough here."""
    workgroup: int
    wave: int
    lane: int | None
    """None of a scalar register."""
    check: str = WAITS
    source: SourceLocation | None = None
    """Of the instruction, if debug information says so."""

    def __str__(self) -> str:
        who = f"work-group {self.workgroup} wave {self.wave}" + ("" if self.lane is None else f" lane {self.lane}")
        return (
            f"missing wait in {self.kernel} at {self.address:#x} ({self.text}): {who} {self.access} {self.register} "
            f"before {self.producer:#x} ({self.producer_text}) need be done; {self.counter}({self.enough}) is enough"
            f"{in_source(self.source)}"
        )


class WaitFacts:
    """What instructions of one code do, as the native executor wants it; of a record when it is bound.

    Args:
        code: the code; instructions that are bound later are added.
    """

    def __init__(self, code: Code) -> None:
        self.model: WaitModel = wait_model(code.isa.target.target)
        self.facts: NDArray[np.void] = own_zeros(code.count + 1, _FACT)
        self.streams = np.zeros((len(self.model.streams), layout.STREAM.size), np.uint8)
        for row, stream in zip(self.streams, self.model.streams, strict=True):
            most = self.model.counters[stream.counter].most
            for name, value in zip(
                layout.STREAM.fields, (stream.counter, most, stream.ordered, stream.locks), strict=True
            ):
                row[layout.STREAM[name]] = value
        self._code = code
        self._table = EffectTable(code.isa, code.isa.wave_size, r.VGPR_MASK | r.AGPR_MASK)
        self._columns = [Columns(part) for part in code.parts]
        self._native: list[_mc.Code | None] = [None] * len(self._columns)
        self._filled = np.zeros(code.count + 1, np.bool_)

    def fill(self, records: Iterable[int]) -> None:
        """Add records."""
        for record in records:
            if self._filled[record]:
                continue
            self._filled[record] = True
            place = self._code.place_of(record)
            if place is None:
                continue
            number, index = place
            columns = self._columns[number]
            native = self._native[number]
            if native is None:
                native = self._native[number] = self._table.code(columns)
            self._put(record, columns, index, step_of(self._table, native, columns, index, self.model))

    def _put(self, record: int, columns: Columns, index: int, step: Step) -> None:
        opcode = columns.opcode[index]
        if opcode < 0:
            return
        entry = self._table.opcode(opcode)
        pseudo = entry.opcode.pseudo
        results = locked = 0
        for stream, units in step.issues:
            if self.model.streams[stream].locks:
                locked |= units
            else:
                results |= units
        if self.model.halves:
            parts = [_half_spans(units) for units in (step.touches & ~step.writes, step.writes, results, locked)]
        else:
            half = layout.HALF_HIGH if "_D16_HI" in pseudo else layout.HALF_LOW if fills_half(pseudo) else 0
            parts = [_spans(step.touches & ~step.writes), _spans(step.writes), _spans(results, half), _spans(locked)]
        fact = self.facts[record : record + 1]
        spans = [span for part in parts for span in part][: layout.FACT_SPANS]
        fact["reads"], fact["writes"], fact["results"], fact["locked"] = map(len, parts)
        fact["spans"][0, : len(spans)] = spans
        for position, (stream, _) in enumerate(step.issues):
            fact["streams"][0, position] = stream + 1
        for counter, value in step.limits:
            fact["limits"][0, counter] = value + 1
        if step.released is not None:
            fact["released"] = step.released + 1
        fact["replaced"] = sum(1 << stream for stream in step.replaced)
        ends = pseudo.startswith("S_ENDPGM")
        any_lane = entry.cross_lane or entry.ignores_exec or pseudo.startswith(_ANY_LANE)
        fact["flags"] = layout.FACT_ENDS * ends | layout.FACT_ANY_LANE * any_lane


def wait_watch(code: Code, kernel: str) -> WaitWatch:
    """What watches a launch of a kernel in this code."""
    facts = code.watcher
    if not isinstance(facts, WaitFacts):
        facts = code.watcher = WaitFacts(code)
        facts.fill(code.bound().tolist())
    return WaitWatch(facts, code, kernel)


def _spans(units: int, half: int = 0) -> list[int]:
    """A set of units as `layout.SPAN`s."""
    found = []
    while units:
        first = (units & -units).bit_length() - 1
        run = units >> first
        count = min(255, (~run & (run + 1)).bit_length() - 1)
        found.append(first | count << 16 | half << 24)
        units &= ~(((1 << count) - 1) << first)
    return found


def _half_spans(units: int) -> list[int]:
    """The same of a set that tells halves apart."""
    low, high = units & (1 << HALVES) - 1, units >> HALVES
    return _spans(low & high) + _spans(low & ~high, layout.HALF_LOW) + _spans(high & ~low, layout.HALF_HIGH)


class WaitWatch:
    """Watches one launch.

    Args:
        facts: of its code.
        kernel: its name, for findings.
    """

    def __init__(self, facts: WaitFacts, code: Code, kernel: str) -> None:
        self._facts, self._code, self._kernel = facts, code, kernel
        self._found = np.zeros(MOST, _FOUND)
        self.fields = {
            "facts": facts.facts.ctypes.data,
            "streams": facts.streams.ctypes.data,
            "stream_count": len(facts.model.streams),
            "poison": POISON,
            "found": self._found.ctypes.data,
            "capacity": MOST,
        }
        """Of `layout.WATCH`."""

    def findings(self, read: Callable[[str], int]) -> tuple[WaitFinding, ...]:
        """What was found, by instruction; of each operation and register once.

        Args:
            read: gives a field of `layout.WATCH`.
        """
        count = min(read("count"), MOST)
        known: dict[tuple[int, ...], WaitFinding] = {}
        for row in self._found[:count]:
            key = tuple(int(row[name]) for name in ("consumer", "producer", "unit", "writes", "stream"))
            finding = self._finding(row)
            other = known.get(key)
            if other is None or finding.enough < other.enough:
                known[key] = finding
        return tuple(known[key] for key in sorted(known))

    def _finding(self, row: np.void) -> WaitFinding:
        code, model = self._code, self._facts.model
        stream = model.streams[int(row["stream"])]
        consumer, producer = int(row["consumer"]), int(row["producer"])
        lane = int(row["lane"])
        return WaitFinding(
            self._kernel,
            "overwrites a source of" if stream.locks else "overwrites" if row["writes"] else "reads",
            code.address_of(consumer),
            code.text(consumer),
            code.address_of(producer),
            code.text(producer),
            r.unit_name(int(row["unit"])),
            model.counters[stream.counter].name,
            int(row["position"]),
            int(row["group"]),
            int(row["wave"]),
            None if lane == layout.ABSENT else lane,
        )
