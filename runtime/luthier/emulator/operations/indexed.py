"""Registers chosen by M0: V_MOVREL*, S_MOVREL*, V_SWAPREL."""

from __future__ import annotations

from typing import Any

from luthier.emulator import layout
from luthier.emulator.ir.declare import OperationTable, Unsupported
from luthier.emulator.ir.dpp import apply_dpp
from luthier.emulator.ir.exact import I64
from luthier.emulator.ir.memory_code import fault
from luthier.emulator.ir.values import TypedValue
from luthier.emulator.ir.wave import OperandSlot, WaveBuilder
from luthier.isa.registers import VCC_HI

operations = OperationTable()


def _row(w: WaveBuilder, slot: OperandSlot, index: TypedValue, *, write: bool) -> Any:
    """Return the address of the VGPR `index` registers after the slot's."""
    if not slot.is_vector:
        raise Unsupported(f"{w.variant.operation} of an operand that is not a VGPR")
    if slot.access.bank:
        raise Unsupported(f"{w.variant.operation} beyond v255: no source says how it counts there")
    if w.modifiers.get("banks"):
        with w.when(w.slot_value(slot.position) + index * (4 * w.wave_size) >= layout.agprs(w.wave_size)):
            fault(w, index, w.number(0), 0, layout.FAULT_BANK)
    return w.relative_rows(w.slot_value(slot.position), index, write=write)


def _load(w: WaveBuilder, place: Any) -> TypedValue:
    return w.wrap(w.ir.load(place, typ=w.row_type, align=4 * w.wave_size), "u32")


def _store(w: WaveBuilder, place: Any, value: TypedValue) -> None:
    """Write active lanes; with DPP, the permuted value in the lanes that it enables.

    DPP permutes the register that M0 names, not the instruction's (AMD's rocjitsu, gen_vector_movrel).
    """
    enabled = w.exec
    if w.variant.dpp is not None:
        (value,), enabled = apply_dpp(w, [value], w.variant.dpp, enabled)
    merged = w.select(enabled, value, _load(w, place))
    w.ir.store(merged.llvm, place, align=4 * w.wave_size)


@operations.wave("v_movreld_b32", "src0:u32 -> vdst:u32", since=(10,))
def v_movreld(w: WaveBuilder, result: OperandSlot, source: OperandSlot) -> None:
    """VGPR[D + M0] = S0."""
    _store(w, _row(w, result, w.m0, write=True), source.row(0))


@operations.wave("v_movrels_b32", "src0:u32 -> vdst:u32", since=(10,))
def v_movrels(w: WaveBuilder, result: OperandSlot, source: OperandSlot) -> None:
    """D = VGPR[S0 + M0]."""
    _store(w, result.base(), _load(w, _row(w, source, w.m0, write=False)))


@operations.wave("v_movrelsd_b32", "src0:u32 -> vdst:u32", since=(10,))
def v_movrelsd(w: WaveBuilder, result: OperandSlot, source: OperandSlot) -> None:
    """VGPR[D + M0] = VGPR[S0 + M0]."""
    value = _load(w, _row(w, source, w.m0, write=False))
    _store(w, _row(w, result, w.m0, write=True), value)


@operations.wave("v_movrelsd_2_b32", "src0:u32 -> vdst:u32", since=(10,))
def v_movrelsd_2(w: WaveBuilder, result: OperandSlot, source: OperandSlot) -> None:
    """VGPR[D + M0[25:16]] = VGPR[S0 + M0[9:0]]."""
    value = _load(w, _row(w, source, w.m0 & 0x3FF, write=False))
    _store(w, _row(w, result, w.m0 >> 16 & 0x3FF, write=True), value)


@operations.wave("v_swaprel_b32", "src0:u32 -> vdst:u32", since=(10,))
def v_swaprel(w: WaveBuilder, result: OperandSlot, source: OperandSlot) -> None:
    """Exchange VGPR[S0 + M0[9:0]] and VGPR[D + M0[25:16]]."""
    low, high = w.m0 & 0x3FF, w.m0 >> 16 & 0x3FF
    first = _load(w, _row(w, source, low, write=False))
    second = _load(w, _row(w, result, high, write=False))
    _store(w, _row(w, source, low, write=True), second)
    _store(w, _row(w, result, high, write=True), first)


def _scalar(w: WaveBuilder, slot: OperandSlot, index: TypedValue, bits: int, *, write: bool) -> Any:
    """Return the address of the SGPR `index` registers after the slot's; beyond the last SGPR, reads give 0 and writes
    have no effect."""
    moved = w.slot_value(slot.position) + index * 4
    inside = moved < 4 * (VCC_HI + 1 - bits // 32 + 1)
    outside = layout.WAVE["sink"] if write else layout.WAVE["zero"]
    place = w.select(inside, moved, outside)
    return w.address(w.wave, w.ir.zext(place.llvm, I64))


def _declare_scalar(bits: int) -> None:
    kind = f"u{bits}"

    @operations.wave(f"s_movrels_b{bits}", f"src0:{kind} -> sdst:{kind}")
    def s_movrels(w: WaveBuilder, result: OperandSlot, source: OperandSlot) -> None:
        """D = SGPR[S0 + M0]."""
        result.write_scalar(w.load(_scalar(w, source, w.m0, bits, write=False), kind, align=4))

    @operations.wave(f"s_movreld_b{bits}", f"src0:{kind} -> sdst:{kind}")
    def s_movreld(w: WaveBuilder, result: OperandSlot, source: OperandSlot) -> None:
        """SGPR[D + M0] = S0."""
        value = source.scalar()
        w.store(value, _scalar(w, result, w.m0, bits, write=True), align=4)


_declare_scalar(32)
_declare_scalar(64)


@operations.wave("s_movrelsd_2_b32", "src0:u32 -> sdst:u32", since=(10,))
def s_movrelsd_2(w: WaveBuilder, result: OperandSlot, source: OperandSlot) -> None:
    """SGPR[D + M0[25:16]] = SGPR[S0 + M0[9:0]]."""
    value = w.load(_scalar(w, source, w.m0 & 0x3FF, 32, write=False), "u32")
    w.store(value, _scalar(w, result, w.m0 >> 16 & 0x3FF, 32, write=True))
