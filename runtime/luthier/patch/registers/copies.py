"""Parallel copies between registers: all sources are read before any destination is written.

A copy is emitted when the old value of its destination is dead. In a cycle of copies, vector registers are swapped, and
one scalar is saved in a spare SGPR. Copies of vector registers come first, so that they use the old EXEC and no scalar
source is overwritten. Only the copy to SCC changes SCC.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from luthier.errors import PatchError
from luthier.isa.registers import AGPRS, EXEC, M0, MODE, SCC, SGPRS, TTMPS, UNIT_LIMIT, VCC, VGPRS, mask_of, unit_name

LANES = range(2 * UNIT_LIMIT, 2 * UNIT_LIMIT + 64 * len(VGPRS))
"""Pseudo units for lanes of VGPRs that hold scalar inputs of payloads."""
PRIVATE = range(LANES.stop, LANES.stop + (1 << 20))
"""Pseudo units for 4-byte locations in a lane's private memory, by byte offset."""
_MOVABLE = frozenset((*SGPRS, *VCC, *TTMPS, M0, *EXEC, *VGPRS, *AGPRS))


def unit_text(unit: int) -> str:
    """Return the assembly name of a register unit as an operand of moves.

    Raises:
        PatchError: the register cannot be an operand of moves.
    """
    if unit not in _MOVABLE:
        raise PatchError(f"register unit {unit} cannot be copied")
    return unit_name(unit)


def lane_unit(vgpr: int, lane: int) -> int:
    """Return the unit of `LANES` for a lane of a VGPR, given as a register unit."""
    return LANES.start + 64 * (vgpr - VGPRS.start) + lane


def lane_text(unit: int) -> tuple[str, int]:
    """Return the assembly name of the VGPR, and the lane, of a unit of `LANES`."""
    vgpr, lane = divmod(unit - LANES.start, 64)
    return unit_text(VGPRS.start + vgpr), lane


def private_unit(offset: int) -> int:
    """Return the unit of `PRIVATE` for a byte offset in a lane's private memory."""
    return PRIVATE.start + offset // 4


def private_offset(unit: int) -> int:
    """Return the byte offset in a lane's private memory of a unit of `PRIVATE`."""
    return 4 * (unit - PRIVATE.start)


def holders(units: Iterable[int]) -> int:
    """Return the bit set of the register units that hold values: the VGPR for a unit of `LANES`, none for one of
    `PRIVATE`."""
    held = (VGPRS.start + (unit - LANES.start) // 64 if unit in LANES else unit for unit in units)
    return mask_of(unit for unit in held if unit not in PRIVATE)


_HWREG_MODE = 1
"""Hardware register number of MODE on every target."""
_NAMED = 256
"""Number of VGPRs that instructions can name without ``s_set_vgpr_msb``, which is 0 in payloads."""


def vector_text(mnemonic: str, destination: int, source: int) -> str:
    """Return the assembly of a vector instruction with one source.

    For a VGPR with a higher number, its upper bits are set before the instruction (bits 1:0 of the source, 7:6 of the
    result) and cleared after it.
    """
    bits, names = 0, []
    for unit, place in ((destination, 6), (source, 0)):
        number = unit - VGPRS.start if unit in VGPRS else 0
        bits |= number // _NAMED << place
        names.append(unit_text(unit - number // _NAMED * _NAMED))
    text = f"{mnemonic} {names[0]}, {names[1]}"
    return f"s_set_vgpr_msb {bits:#x}\n{text}\ns_set_vgpr_msb 0" if bits else text


def copy_text(destination: int, source: int) -> str:
    """Return assembly that copies one register unit to another and changes nothing else.

    Writing SCC changes only SCC.
    """
    if destination == SCC:
        return f"s_cmp_lg_u32 {unit_text(source)}, 0"
    if source == SCC:
        return f"s_cselect_b32 {unit_text(destination)}, 1, 0"
    if source == MODE:  # two wait states are needed after a write by the application (Vega ISA 4.5)
        return f"s_nop 1\ns_getreg_b32 {unit_text(destination)}, hwreg({_HWREG_MODE})"
    if source in LANES:
        vgpr, lane = lane_text(source)
        return f"v_readlane_b32 {unit_text(destination)}, {vgpr}, {lane}"
    to, from_ = unit_text(destination), unit_text(source)
    if destination in AGPRS:
        return f"v_accvgpr_write_b32 {to}, {from_}"
    if source in AGPRS:
        return f"v_accvgpr_read_b32 {to}, {from_}"
    if destination in VGPRS:
        return vector_text("v_mov_b32_e32", destination, source)
    if source in VGPRS:
        raise PatchError(f"a vector register ({from_}) has no single value for {to}")
    return f"s_mov_b32 {to}, {from_}"


def needs_spare(copies: Mapping[int, int]) -> bool:
    """Return whether copies of scalar registers form a cycle, so that `parallel_copy` needs a spare SGPR."""
    copies = {to: from_ for to, from_ in copies.items() if to < VGPRS.start and to != from_}
    for start in copies:
        unit: int | None = copies[start]
        seen = {start}
        while unit is not None and unit not in seen:
            seen.add(unit)
            unit = copies.get(unit)
        if unit == start:
            return True
    return False


def parallel_copy(copies: Mapping[int, int], spare: int | None = None) -> list[str]:
    """Return assembly that gives every destination the value of its source before the first copy.

    Args:
        copies: destination unit -> source unit. SCC and AGPRs may only be destinations.
        spare: an SGPR unit that is in none of the copies, where `needs_spare`.
    """
    vectors = {to: from_ for to, from_ in copies.items() if to >= VGPRS.start}
    scalars = {to: from_ for to, from_ in copies.items() if to < VGPRS.start}
    return _in_order(vectors, None) + _in_order(scalars, spare)


def _in_order(copies: Mapping[int, int], spare: int | None) -> list[str]:
    pending = {to: from_ for to, from_ in copies.items() if to != from_}
    readers = Counter(from_ for from_ in pending.values() if from_ in pending)
    ready = [to for to in reversed(pending) if not readers[to]]
    lines = []
    while pending:
        if ready:
            to = ready.pop()
            from_ = pending.pop(to)
            lines.append(copy_text(to, from_))
            if from_ in pending:
                readers[from_] -= 1
                if not readers[from_]:
                    ready.append(from_)
            continue
        # Only cycles are left: each destination is the source of exactly one other copy.
        to, from_ = next(iter(pending.items()))
        reader = next(other for other, source in pending.items() if source == to)
        if to in VGPRS:
            lines.append(vector_text("v_swap_b32", to, from_))
            del pending[to]
            pending[reader] = from_
            if reader == from_:
                del pending[reader]
        else:
            if spare is None:
                raise PatchError(f"no spare register to save {unit_text(to)}")
            lines.append(copy_text(spare, to))
            pending[reader] = spare
            readers[to] = 0
            ready.append(to)
    return lines
