"""DPP: source 0 of a vector operation comes from other lanes (ISA documents, "DPP")."""

from __future__ import annotations

from typing import TYPE_CHECKING

from luthier.emulator.ir.values import TypedValue
from luthier.emulator.ir.variant import Dpp

if TYPE_CHECKING:
    from luthier.emulator.ir.wave import WaveBuilder


def source_lanes(dpp: Dpp, lanes: int) -> list[int | None]:
    """Return for each lane the lane that it reads; None if that is outside its row or wave.

    Raises:
        ValueError: the control is reserved.
    """
    return [_source(dpp, lane, lanes) for lane in range(lanes)]


def _source(dpp: Dpp, lane: int, lanes: int) -> int | None:
    if dpp.control < 0:
        return (lane & ~7) | ((dpp.lanes >> (3 * (lane & 7))) & 7)
    control, row, place = dpp.control, lane & ~15, lane & 15
    amount = control & 15
    if control <= 0xFF:
        return (lane & ~3) | ((control >> (2 * (lane & 3))) & 3)
    if 0x101 <= control <= 0x10F:  # row_shl: towards lane 0
        return row + place + amount if place + amount < 16 else None
    if 0x111 <= control <= 0x11F:  # row_shr
        return row + place - amount if place >= amount else None
    if 0x121 <= control <= 0x12F:  # row_ror
        return row + ((place - amount) & 15)
    if control == 0x130:  # wave_shl
        return lane + 1 if lane + 1 < lanes else None
    if control == 0x134:  # wave_rol
        return (lane + 1) % lanes
    if control == 0x138:  # wave_shr
        return lane - 1 if lane else None
    if control == 0x13C:  # wave_ror
        return (lane - 1) % lanes
    if control == 0x140:  # row_mirror
        return row + 15 - place
    if control == 0x141:  # row_half_mirror
        return (lane & ~7) + 7 - (lane & 7)
    if control == 0x142:  # row_bcast15: the last lane of each row to the next row
        return row - 1 if row else None
    if control == 0x143:  # row_bcast31: lane 31 to rows 2 and 3
        return 31 if lane >= 32 else None
    if 0x150 <= control <= 0x15F:  # row_share (gfx90a: row_newbcast)
        return row + amount
    if 0x160 <= control <= 0x16F:  # row_xmask
        return row + (place ^ amount)
    raise ValueError(f"reserved DPP control {control:#x}")


def apply_dpp(
    w: WaveBuilder, rows: list[TypedValue], dpp: Dpp, enabled: TypedValue
) -> tuple[list[TypedValue], TypedValue]:
    """Return source rows after the permutation, and the lanes that may be written.

    A lane whose source is outside or inactive reads 0 with bound_ctrl, and is not written without it. row_mask and
    bank_mask disable lanes.
    """
    lanes = w.wave_size
    sources = source_lanes(dpp, lanes)
    indices = [lane if source is None else source for lane, source in enumerate(sources)]
    inside = w.constant_mask([source is not None for source in sources])
    active = enabled
    valid = inside if dpp.fetch_inactive else inside & w.shuffle(active, indices)
    moved = [w.shuffle(row, indices) for row in rows]
    if dpp.bound_control:
        moved = [w.select(valid, row, 0) for row in moved]
    else:
        # A broadcast or a shift does not write lanes without a source.
        enabled = enabled & valid
    if dpp.control >= 0 and (dpp.row_mask != 15 or dpp.bank_mask != 15):
        allowed = [
            bool(dpp.row_mask >> (lane // 16) & 1 and dpp.bank_mask >> (lane % 16 // 4) & 1) for lane in range(lanes)
        ]
        enabled = enabled & w.constant_mask(allowed)
    return moved, enabled
