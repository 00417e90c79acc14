"""The row that a wave writes at its end: its work-group, its number, and its counters.

A wave takes a ticket, the number of its row, by an atomic addition, so rows are in the order in which waves end. Waves
without a row of their own all write the row after the last one, which is never read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from luthier.hazards.insertion import waits_around_outputs
from luthier.isa import Isa
from luthier.isa.registers import VCC
from luthier.isa.targets import Target
from luthier.patch.counters.code import CounterCode, Held
from luthier.patch.payloads.code import BoundPayload
from luthier.patch.registers.copies import LANES, copy_text, unit_text
from luthier.patch.registers.launch_state import Part
from luthier.patch.registers.wave_number import bit_field, wave_of_ttmp, wave_of_work_items
from luthier.tool.wave_counts import IDENTITY, TICKETS_BYTES, RowLayout, Word


def states_for_rows(target: Target) -> list[str]:
    """Return the launch state that identifies waves (`luthier.payload.launch_state.STATES`)."""
    groups = [f"workgroup_id_{axis}" for axis in "xyz"]
    if target.launch_ttmps is not None:
        return groups
    if target.packed_work_item_ids:
        return [*groups, "dispatch_ptr", "workitem_id"]
    return [*groups, "dispatch_ptr", *(f"workitem_id_{axis}" for axis in "xyz")]


class RowWrite(NamedTuple):
    """Words of a row that are written together, one by each lane."""

    first: int
    """Index of the first word in the row."""
    lanes: int
    scalars: tuple[int, ...]
    """SGPR units of the words, after those that identify the wave; empty if the words are in `vector`."""
    vector: int | None = None
    """VGPR unit whose lanes are the words."""


class RowPlan(NamedTuple):
    """Contents of rows."""

    pieces: tuple[RowWrite, ...]
    words: int
    word_of: Mapping[tuple[int, int | None], int]
    """(unit, lane if it is a VGPR) -> index of its word."""

    def word(self, held: Held, bit: int | None) -> Word:
        """Return the position of a counter in a row."""
        high = None if held.high is None or bit is not None else self.word_of[held.high, held.lane]
        return Word(self.word_of[held.low, held.lane], high, bit)


def plan_row(helds: Iterable[Held], wave_size: int) -> RowPlan:
    """Return the layout of a row.

    Args:
        helds: registers of the counters.
    """
    scalars: dict[int, None] = {}
    vectors: dict[int, int] = {}
    for held in helds:
        for unit in (held.low, held.high):
            if unit is None:
                continue
            if held.lane is None:
                scalars[unit] = None
            else:
                vectors[unit] = max(vectors.get(unit, 0), held.lane + 1)
    units = list(scalars)
    head = wave_size - len(IDENTITY)
    pieces = [RowWrite(0, len(IDENTITY) + len(units[:head]), tuple(units[:head]))]
    words = pieces[0].lanes
    for start in range(head, len(units), wave_size):
        some = tuple(units[start : start + wave_size])
        pieces.append(RowWrite(words, len(some), some))
        words += len(some)
    for unit, count in vectors.items():
        pieces.append(RowWrite(words, count, (), unit))
        words += count
    word_of: dict[tuple[int, int | None], int] = {}
    for piece in pieces:
        behind = piece.first + (0 if piece.first else len(IDENTITY))
        word_of |= {(unit, None): behind + number for number, unit in enumerate(piece.scalars)}
        if piece.vector is not None:
            word_of |= {(piece.vector, lane): piece.first + lane for lane in range(piece.lanes)}
    return RowPlan(tuple(pieces), words, word_of)


class RowCode:
    """Generator of the code that writes a wave's row. Only the end of the wave follows, so EXEC, SCC, VCC and all
    registers without counters or launch state are free.

    Args:
        places: places of launch state (`luthier.patch.registers.launch_state.StatePlan.places`).
        vectors: VGPR units: two adjacent pairs.
        scalars: first unit of two aligned SGPRs.
    """

    def __init__(
        self, isa: Isa, code: CounterCode, places: Mapping[Part, int], vectors: Sequence[int], scalars: int
    ) -> None:
        self._target, self._wave, self._code, self._places = isa.target.target, isa.wave_size, code, places
        self._low, self._high, self._at, _ = map(unit_text, vectors)
        self._data = f"v[{self._low[1:]}:{self._high[1:]}]"
        self._scalars = scalars
        self._first, self._second = unit_text(scalars), unit_text(scalars + 1)
        self._pair = f"s[{scalars}:{scalars + 1}]"
        self._row, self._spare = map(unit_text, VCC)
        self._exec = "exec" if isa.wave_size == 64 else "exec_lo"
        before, self._behind_vectors = waits_around_outputs(self._target)
        self._settle = before

    def write(self, plan: RowPlan, layout: RowLayout, symbol: str, waits: Sequence[str]) -> BoundPayload:
        """Return the code that writes a row.

        Args:
            symbol: symbol of the kernel's first cell.
            waits: assembly at the beginning.
        """
        lines = [*waits, *self._ticket(layout), self._lanes(self._wave), *self._identity()]
        lines += [f"v_mbcnt_lo_u32_b32 {self._high}, -1, 0"]
        lines += [f"v_mbcnt_hi_u32_b32 {self._high}, -1, {self._high}"] if self._wave > 32 else []
        lines += self._address(layout.offset + TICKETS_BYTES)
        lines += self._scalars_of(f"s_add_u32 {self._first}, {self._first}, {self._row}")
        lines += self._scalars_of(f"s_addc_u32 {self._second}, {self._second}, 0")
        store = "global_store_b32" if self._target.sized_memory_names else "global_store_dword"
        for piece in plan.pieces:
            lines.append(self._lanes(piece.lanes))
            if piece.first:
                lines += [] if self._target.replay_wait is None else [self._target.replay_wait]
                lines += [*self._settle, f"s_movk_i32 {self._spare}, {4 * piece.first}", *self._settle]
                lines += [f"v_lshl_add_u32 {self._at}, {self._high}, 2, {self._spare}"]
            else:
                lines += [f"v_lshlrev_b32 {self._at}, 2, {self._high}"]
            behind = 0 if piece.first else len(IDENTITY)
            for number, unit in enumerate(piece.scalars):
                lines.append(f"v_writelane_b32 {self._low}, {unit_text(unit)}, {behind + number}")
            data = self._low if piece.vector is None else unit_text(piece.vector)
            lines.append(f"{store} {self._at}, {data}, {self._pair}")
        return self._code.assemble(lines, {"luthier_cell": symbol})

    def _ticket(self, layout: RowLayout) -> list[str]:
        """Return assembly that sets `_row`: the byte offset of the wave's row from the first one."""
        move, atomic = "v_mov_b32", "global_atomic_add_x2"
        scope = " ".join(filter(None, (self._target.returning_atomic, self._target.device_scope)))
        return [
            self._lanes(1),
            *(f"{move} {self._at}, 0", f"{move} {self._low}, 1", f"{move} {self._high}, 0"),
            *self._address(layout.offset),
            f"{atomic} {self._data}, {self._at}, {self._data}, {self._pair} {scope}",
            self._target.wait_for_loads,
            *(f"v_readfirstlane_b32 {self._row}, {self._low}", f"v_readfirstlane_b32 {self._spare}, {self._high}"),
            *self._behind_vectors,
            *self._scalars_of(
                f"s_cmp_lg_u32 {self._spare}, 0",
                f"s_cselect_b32 {self._row}, -1, {self._row}",
                f"s_min_u32 {self._row}, {self._row}, {hex(layout.room)}",
                f"s_mul_i32 {self._row}, {self._row}, {hex(4 * layout.words)}",
            ),
        ]

    def _identity(self) -> list[str]:
        """Return assembly that moves the words of `IDENTITY` into lanes of `_low`."""
        lines: list[str] = []
        ttmps = self._target.launch_ttmps
        for lane, axis in enumerate("xyz"):
            place = self._places[f"workgroup_id_{axis}", 0]
            if ttmps is not None and axis != "x":
                taken = f"s_bfe_u32 {self._first}, {unit_text(place)}, {bit_field(16 * (axis == 'z'), 16)}"
                lines += [*self._settle, taken, *self._settle]
            else:
                lines += self._get(self._scalars, place)
            lines.append(f"v_writelane_b32 {self._low}, {self._first}, {lane}")
        lines += wave_of_ttmp(self._target, self._first) if ttmps is not None else self._wave_of_work_items()
        return [*lines, f"v_writelane_b32 {self._low}, {self._first}, {len(IDENTITY) - 1}"]

    def _wave_of_work_items(self) -> list[str]:
        """Return assembly that sets `_first`: the number of the wave in its work-group."""
        low, high = (self._places["dispatch_ptr", part] for part in range(2))
        packed = self._target.packed_work_item_ids

        def work_item(axis: str) -> str:
            return unit_text(self._places["workitem_id" if packed else f"workitem_id_{axis}", 0])

        scalars = self._first, self._second, self._spare
        lines = self._get(self._scalars, low) + self._get(self._scalars + 1, high)
        return lines + wave_of_work_items(self._target, self._wave, scalars, self._pair, work_item)

    def _get(self, to: int, place: int) -> list[str]:
        """Return assembly that copies a scalar from a place of launch state to SGPR unit `to`."""
        taken = copy_text(to, place)
        return [*self._settle, taken, *(self._behind_vectors if place in LANES else self._settle)]

    def _address(self, offset: int) -> list[str]:
        return self._code.address(self._scalars, offset)

    def _scalars_of(self, *lines: str) -> list[str]:
        """Return scalar instructions, each followed by the necessary wait."""
        return [piece for line in lines for piece in (line, *self._settle)]

    def _lanes(self, count: int) -> str:
        if count == self._wave:
            return f"s_mov_b{self._wave} {self._exec}, -1"
        return f"s_bfm_b{self._wave} {self._exec}, {count}, 0"
