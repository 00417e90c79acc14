"""Regions of code where nothing can be inserted, or where a mode alters the meaning of instructions.

A forward analysis of all blocks finds VGPR index mode (s_set_gpr_idx_on … off), vector skip mode (s_setvskip),
deallocated vector registers (s_sendmsg dealloc_vgprs), and the extents of s_clause.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable

from msgspec import Struct, field

from luthier.errors import LiftError
from luthier.isa import registers as r
from luthier.lifting.code.graph import Graph
from luthier.lifting.instructions.effects import Columns, EffectTable, IndexMode, SkipMode
from luthier.lifting.instructions.semantics import MODE_SWITCHES, Mark
from luthier.lifting.model import Clause, Restriction

_MODE_NUMBER = 1
"""Number of the hardware register MODE in s_setreg."""

# A state is a bit set of possibilities at a point: one for each value of M0[15:12] in VGPR index mode, and these.
_ANY_MASK = 1 << 16
"""VGPR index mode is on, and M0[15:12] is unknown."""
_INDEXED = (_ANY_MASK << 1) - 1
_NOT_INDEXED = 1 << 17
_NOT_SKIPPING = 1 << 18
_ANY_SKIP = 1 << 19
"""Vector skip mode may be on, and its source operands are unknown or overwritten."""
_RELEASED = 1 << 20
"""The wave has deallocated its vector registers."""
_FIRST_SOURCE = 21
"""First of the bits for each s_setvskip that may turn vector skip mode on: the mode is as it left it, and repeating it
restores the mode."""
_MODES_OFF = _NOT_INDEXED | _NOT_SKIPPING


class Regions(Struct):
    """Regions with a mode or a restriction, by instruction index."""

    indexed: dict[int, IndexMode] = field(default_factory=dict)
    skipped: dict[int, SkipMode] = field(default_factory=dict)
    restrictions: dict[int, Restriction] = field(default_factory=dict)
    releases: set[int] = field(default_factory=set)
    """Messages that deallocate the vector registers."""
    released: set[int] = field(default_factory=set)
    """Instructions that may run after such a message."""
    clauses: list[Clause] = field(default_factory=list)


def find_regions(
    graph: Graph,
    starts: Iterable[int],
    columns: Columns,
    table: EffectTable,
    fail: Callable[[str, int], LiftError],
) -> Regions:
    """Find all regions.

    Args:
        starts: addresses at which the hardware may start.
        fail: returns the error for a message and an address.

    Raises:
        LiftError: a call in VGPR index mode or vector skip mode, a vector instruction that sets scalar registers in
            vector skip mode, or a write of MODE bits that control these modes.
    """
    regions = Regions()
    interesting: dict[int, str] = {}
    for index in graph.marked(Mark.REGION, columns.code, table.isa):
        if graph.block_of(index) >= 0:
            interesting[index] = table.pseudos[columns.opcode[index]]
    _check_mode_writes(interesting, columns, table, fail)
    _clauses(interesting, columns, regions)
    if any(name in ("S_SET_GPR_IDX_ON", "S_SENDMSG", "S_SETVSKIP") for name in interesting.values()):
        _RegionFlow(interesting, columns, table, fail).run(graph, starts, regions)
    return regions


def _check_mode_writes(
    interesting: dict[int, str], columns: Columns, table: EffectTable, fail: Callable[[str, int], LiftError]
) -> None:
    switches = table.isa.target.target.mode_switches
    if not switches:
        return
    for index, name in interesting.items():
        if name.startswith("S_SETREG"):
            position = table.opcode(columns.opcode[index]).position("simm16")
            encoded = columns.values(index)[position]
            first = encoded >> 6 & 0x1F
            last = first + (encoded >> 11 & 0x1F)
            if encoded & 0x3F == _MODE_NUMBER and first < switches.stop and last >= switches.start:
                raise fail("s_setreg of the MODE bits for vector skip and index mode", columns.address[index])


def _clauses(interesting: dict[int, str], columns: Columns, regions: Regions) -> None:
    for index, name in interesting.items():
        if name == "S_CLAUSE":
            last = min(index + (columns.values(index)[0] & 0x3F) + 1, len(columns.address) - 1)
            regions.clauses.append(Clause(index, index + 1, last))
    regions.clauses.sort(key=lambda clause: clause.index)


class _RegionFlow:
    """Data flow of the states before instructions."""

    def __init__(
        self,
        interesting: dict[int, str],
        columns: Columns,
        table: EffectTable,
        fail: Callable[[str, int], LiftError],
    ) -> None:
        self.interesting = interesting
        self.columns = columns
        self.table = table
        self.fail = fail
        marks = MODE_SWITCHES | {"S_SENDMSG"}
        self._marks = sorted(index for index, name in interesting.items() if name in marks)
        self._dealloc_vgprs = table.isa.target.target.dealloc_vgprs_message
        self._sources: list[SkipMode] = []
        """Sources of vector skip mode, in the order of the bits from `_FIRST_SOURCE` on."""

    def run(self, graph: Graph, starts: Iterable[int], regions: Regions) -> None:
        """Visit blocks until nothing changes; the modes are off at function entries and `starts`."""
        before: dict[int, int] = {}
        everywhere = 0
        first = {graph.native.at(entry) for entry in {*graph.members, *starts}}
        if not any(name in MODE_SWITCHES for name in self.interesting.values()):
            # The modes are off in all blocks: only blocks with messages, and their successors, have further bits.
            everywhere = _MODES_OFF
            first = {graph.block_of(index) for index in self._marks} & set().union(*graph.members.values())
            before = dict.fromkeys(first, 0)
        work = [(number, _MODES_OFF) for number in first]
        while work:
            number, incoming = work.pop()
            known = before.get(number, everywhere)
            if known | incoming == known:
                continue
            before[number] = known | incoming
            after = self._block(graph, number, known | incoming)
            work += [(successor, after) for _, successor in graph.successors(number)]
        for number, state in before.items():
            self._note(graph, number, state, regions)

    def _is_plain(self, graph: Graph, number: int, state: int) -> bool:
        """Return whether all modes are off throughout a block."""
        if state != _MODES_OFF:
            return False
        at = bisect.bisect_left(self._marks, graph.first[number])
        return at == len(self._marks) or self._marks[at] > graph.last[number]

    def _block(self, graph: Graph, number: int, state: int) -> int:
        if self._is_plain(graph, number, state):
            return state
        for index in range(graph.first[number], graph.last[number] + 1):
            if index in self.interesting or state & _INDEXED or state >> _FIRST_SOURCE:
                state = self._after(index, state)
        return state

    def _after(self, index: int, state: int) -> int:
        name = self.interesting.get(index)
        if name == "S_SET_GPR_IDX_ON":
            return state & ~(_INDEXED | _NOT_INDEXED) | 1 << (self._immediate(index, 1) & 15)
        if name == "S_SET_GPR_IDX_OFF":
            return state & ~_INDEXED | _NOT_INDEXED
        if name == "S_SET_GPR_IDX_MODE":
            on = 1 << (self._immediate(index, 0) & 15) if state & _INDEXED else 0
            return state & ~_INDEXED | on
        if name == "S_SETVSKIP":
            return state & (_INDEXED | _NOT_INDEXED | _RELEASED) | self._skipping(index)
        if self._releases(index):
            return state | _RELEASED
        writes = self.table.of(self.columns, index).writes
        if state & _INDEXED and name != "S_SET_GPR_IDX_IDX" and writes >> r.M0 & 1:
            state = state & ~_INDEXED | _ANY_MASK
        for bit in self._bits(state):
            if writes & self._sources[bit].reads:
                state = state & ~(1 << _FIRST_SOURCE + bit) | _ANY_SKIP
        return state

    def _bits(self, state: int) -> list[int]:
        """Return the indices of the possible sources of vector skip mode in `_sources`."""
        return [bit for bit in range(len(self._sources)) if state >> _FIRST_SOURCE + bit & 1]

    def _skipping(self, index: int) -> int:
        """Return the state of vector skip mode after an s_setvskip."""
        if not self._may_skip(index):
            return _NOT_SKIPPING
        source = SkipMode(self.table.isa.text(self.columns.code, index), self.table.of(self.columns, index).reads)
        if source.reads & ~r.SGPR_MASK:  # hooks may change these before the mode is restored from them
            return _ANY_SKIP
        if source not in self._sources:
            self._sources.append(source)
        return 1 << _FIRST_SOURCE + self._sources.index(source)

    def _skip_mode(self, state: int) -> SkipMode | None:
        """Return how vector skip mode is restored; None if it is off."""
        bits = self._bits(state)
        if not bits and not state & _ANY_SKIP:
            return None
        certain = len(bits) == 1 and not state & (_ANY_SKIP | _NOT_SKIPPING | _INDEXED)
        return self._sources[bits[0]] if certain else SkipMode(None, 0)

    def _releases(self, index: int) -> bool:
        return self.interesting.get(index) == "S_SENDMSG" and self._immediate(index, 0) & 0xFF == self._dealloc_vgprs

    def _immediate(self, index: int, operand: int) -> int:
        return self.columns.values(index)[operand]

    def _may_skip(self, index: int) -> bool:
        """Return whether s_setvskip may turn the mode on. It sets the mode to bit S1[4:0] of S0."""
        (bits, which), registers = self.columns.values(index)[:2], self.columns.registers(index)
        if registers[0]:
            return True
        return bits != 0 if registers[1] else bool(bits >> (which & 31) & 1)

    def _note(self, graph: Graph, number: int, state: int, regions: Regions) -> None:
        """Record the modes and restrictions in a block."""
        if self._is_plain(graph, number, state):
            return
        last = graph.last[number]
        for index in range(graph.first[number], last + 1):
            on = state & _INDEXED
            if on:
                masks = [mask for mask in range(16) if on >> mask & 1] if not on & _ANY_MASK else list(range(16))
                known = masks[0] if len(masks) == 1 and not state & _NOT_INDEXED else None
                may = 0
                for mask in masks:
                    may |= mask
                regions.indexed[index] = IndexMode(may, known)
                if known is None:
                    regions.restrictions[index] = "in VGPR index mode"
            skipping = self._skip_mode(state)
            if skipping is not None:
                regions.skipped[index] = skipping
                if skipping.again is None:
                    regions.restrictions[index] = "in vector skip mode"
                self._check_skipped(index)
            if state & _RELEASED:
                regions.released.add(index)
            if index in self.interesting or on or state >> _FIRST_SOURCE:
                state = self._after(index, state)
            if index in self.interesting and self._releases(index):
                regions.releases.add(index)
        if graph.exits[number] in ("call", "tail", "return", "unknown"):
            modes = (state & _INDEXED, "VGPR index mode"), (self._skip_mode(state) is not None, "vector skip mode")
            for on, mode in modes:
                if on:
                    raise self.fail(f"a call or return in {mode}", self.columns.address[last])

    def _check_skipped(self, index: int) -> None:
        """Raise an error if an instruction in vector skip mode writes masks, or stores scalars in lanes.

        The analyses of these assume that the instruction executes.
        """
        pseudo = self.table.opcode(self.columns.opcode[index]).opcode.pseudo
        scalar = pseudo.startswith("S_") or not self.table.of(self.columns, index).writes & r.SCALAR_MASK
        if not scalar or pseudo == "V_WRITELANE_B32":
            raise self.fail(
                f"{pseudo.lower()} in vector skip mode: whether it sets its result is not known",
                self.columns.address[index],
            )
