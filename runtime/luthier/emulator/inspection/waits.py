"""The check of waits while a kernel runs: ``check="waits"``.

An operation is done only when a wait on its counters guarantees it (`luthier.hazards.wait_counters.model`). Until then
the registers that it writes hold a pattern, and each use of them is a finding. The native executor checks every
instruction (`runtime/native/executor/watch.h`). This module gives it facts about instructions and describes what it
found.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from luthier.cache.memory import BoundedCache
from luthier.emulator import layout
from luthier.emulator.binding.program import DecodedCode, Zeros, own_zeros
from luthier.emulator.inspection.decoded import decoded
from luthier.errors import EmulationError
from luthier.findings.collector import PairSighting
from luthier.findings.kinds import FindingKind
from luthier.hazards.wait_counters.model import WaitModel, wait_model
from luthier.hazards.wait_counters.steps import HALVES, MOST_KNOWN, WaitStep, fills_half, step_of
from luthier.isa import Isa
from luthier.isa import registers as r
from luthier.lifting.instructions.effects import Columns

MISSING_WAIT = FindingKind.MISSING_WAIT.label
POISON = 0x7FF7A5A5
"""Content of an outstanding register: a NaN as a float of 32 or 64 bits, and of 16 in its upper half."""
MOST = 1024
"""The most findings that are kept of a launch."""

_FACT = layout.FACT.dtype(streams=("u1", 2), limits=("u1", 8), spans=("<u4", layout.FACT_SPANS))
_FOUND = layout.FOUND.dtype()
_NOTHING = np.zeros((), _FACT)
_ANY_LANE = (*("V_READLANE", "V_READFIRSTLANE", "V_WRITELANE"), "V_MFMA", "V_SMFMAC", "V_WMMA", "V_SWMMAC")


class WaitFacts:
    """Facts about instructions of one code for the native executor; filled in when a record is bound.

    Args:
        code: the code; instructions that are bound later are added.
        zeros: allocates the arrays that native code reads.
        more: number of records that other objects may add.
    """

    def __init__(self, code: DecodedCode, zeros: Zeros = own_zeros, more: int = 0) -> None:
        self.model: WaitModel = wait_model(code.isa.target.target)
        self.facts: NDArray[np.void] = zeros(code.count + 1 + more, _FACT)
        self.streams: NDArray[np.void] = zeros(len(self.model.streams), layout.STREAM.dtype())
        for number, (stream, beside_streams) in enumerate(zip(self.model.streams, self.model.beside, strict=True)):
            most, beside = self.model.counters[stream.counter].most, sum(1 << other for other in beside_streams)
            self.streams[number] = (stream.counter, most, stream.ordered, stream.locks, beside)
        self._decoded = decoded(code)
        self._filled = np.zeros(len(self.facts), np.bool_)
        self._flags: dict[int, int] = {}
        """`FACT.flags` by opcode number."""
        self._known = _known_facts(code.isa)

    def fill(self, records: Iterable[int]) -> None:
        """Add the facts of these records."""
        for record in records:
            if self._filled[record]:
                continue
            self._filled[record] = True
            place = self._decoded.place(record)
            if place is not None:
                columns, native, index = place
                alike = columns.alike(index)
                fact = self._known.get(alike)
                if fact is None:
                    step = step_of(self._decoded.table, native, columns, index, self.model)
                    fact = self._known.put(alike, self._fact(columns, index, step))
                self.facts[record] = fact

    def forget(self, records: Iterable[int]) -> None:
        """Forget these records after their instructions were replaced."""
        for record in records:
            self._filled[record] = False
            self.facts[record] = _NOTHING

    @property
    def fields(self) -> dict[str, int]:
        """Return fields of `layout.WATCH`."""
        return {
            "facts": self.facts.ctypes.data,
            "streams": self.streams.ctypes.data,
            "stream_count": len(self.model.streams),
            "poison": POISON,
        }

    def _fact(self, columns: Columns, index: int, step: WaitStep) -> NDArray[np.void]:
        opcode = columns.opcode[index]
        entry = self._decoded.table.opcode(opcode)
        pseudo = entry.opcode.pseudo
        results = locked = 0
        for stream, units in step.issues:
            if self.model.streams[stream].locks:
                locked |= units
            else:
                results |= units
        reads, writes = step.touches & ~step.writes, step.writes & ~step.both
        if self.model.halves:
            parts = [_half_spans(units) for units in (reads, step.both, writes, results, locked)]
        else:
            half = layout.HALF_HIGH if "_D16_HI" in pseudo else layout.HALF_LOW if fills_half(pseudo) else 0
            parts = [*map(_spans, (reads, step.both, writes)), _spans(results, half), _spans(locked)]
        spans = [span for part in parts for span in part]
        if len(spans) > layout.FACT_SPANS:
            raise EmulationError(
                f"{pseudo} uses {len(spans)} spans of registers; the check of waits handles at most {layout.FACT_SPANS}"
            )
        streams, limits = [0] * 2, [0] * layout.FACT.fields["limits"].size
        for position, (stream, _) in enumerate(step.issues):
            streams[position] = stream + 1
        for counter, value in step.limits:
            limits[counter] = value + 1
        flags = self._flags.get(opcode)
        if flags is None:
            any_lane = entry.cross_lane or entry.ignores_exec or pseudo.startswith(_ANY_LANE)
            flags = layout.FACT_ENDS * pseudo.startswith("S_ENDPGM") | layout.FACT_ANY_LANE * any_lane
            self._flags[opcode] = flags
        fact = {
            **dict(zip(("reads", "both", "writes", "results", "locked"), map(len, parts), strict=True)),
            "streams": streams,
            "flags": flags,
            "released": 0 if step.released is None else step.released + 1,
            "limits": limits,
            "replaced": sum(1 << stream for stream in step.replaced),
            "spans": spans + [0] * (layout.FACT_SPANS - len(spans)),
        }
        return np.array(tuple([fact[name] for name in layout.FACT.fields]), _FACT)


@functools.lru_cache(maxsize=64)
def _known_facts(isa: Isa) -> BoundedCache[tuple[int, ...], NDArray[np.void]]:
    """Return the facts of a processor's instructions for all codes, by `Columns.alike`."""
    return BoundedCache(MOST_KNOWN)


def wait_watch(code: DecodedCode) -> WaitWatch:
    """Return the watch of a launch of a kernel in this code."""
    return WaitWatch(code.watcher(WaitFacts, lambda: WaitFacts(code)), code)


@functools.lru_cache(1 << 14)
def _spans(units: int, half: int = 0) -> tuple[int, ...]:
    """Return a set of units as `layout.SPAN`s."""
    spans, first = [], 0
    while units:
        skip = (units & -units).bit_length() - 1
        units >>= skip
        first += skip
        count = min(255, (~units & (units + 1)).bit_length() - 1)
        spans.append(first | count << 16 | half << 24)
        units >>= count
        first += count
    return tuple(spans)


def _half_spans(units: int) -> tuple[int, ...]:
    """Return a set of units and halves of units as `layout.SPAN`s."""
    low, high = units & (1 << HALVES) - 1, units >> HALVES
    return _spans(low & high) + _spans(low & ~high, layout.HALF_LOW) + _spans(high & ~low, layout.HALF_HIGH)


class WaitWatch:
    """Watches the waits of one launch."""

    def __init__(self, facts: WaitFacts, code: DecodedCode) -> None:
        self._facts, self._code = facts, code
        self._found = np.zeros(MOST, _FOUND)
        self.fields = {**facts.fields, "found": self._found.ctypes.data, "capacity": MOST}
        """Fields of `layout.WATCH`."""

    def sightings(self, read: Callable[[str], int]) -> list[PairSighting]:
        """Return the missing waits, by instruction; one for each operation and register.

        Args:
            read: returns a field of `layout.WATCH`.
        """
        return missing_waits(self._found[: min(read("count"), MOST)], self._facts)


def missing_waits(rows: NDArray[np.void], facts: WaitFacts) -> list[PairSighting]:
    """Return the missing waits in `layout.FOUND`s, by instruction.

    Each operation and register comes once, from the first work-group that needs the smallest count.
    """
    known: dict[tuple[int, ...], np.void] = {}
    for row in rows[np.argsort(rows["group"], kind="stable")]:
        key = tuple(int(row[name]) for name in ("consumer", "producer", "unit", "writes", "stream"))
        if key not in known or row["position"] < known[key]["position"]:
            known[key] = row
    return [_sighting(known[key], facts.model) for key in sorted(known)]


def _sighting(row: np.void, model: WaitModel) -> PairSighting:
    stream, lane = model.streams[int(row["stream"])], int(row["lane"])
    access = "overwrites a source of" if stream.locks else "overwrites" if row["writes"] else "reads"
    rule = f"{access} {r.unit_name(int(row['unit']))}"
    return PairSighting(
        MISSING_WAIT,
        int(row["consumer"]),
        int(row["producer"]),
        rule,
        f"{rule}; {model.counters[stream.counter].name}({int(row['position'])}) before it is enough",
        -1 if lane == layout.ABSENT else lane,
        int(row["wave"]),
        int(row["group"]),
    )
