"""Conversion between registers and typed values: halves, modifiers, SDWA, denormals, clamp."""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir

from luthier.emulator.ir.builder import Builder
from luthier.emulator.ir.exact import I32
from luthier.emulator.ir.types import ScalarType
from luthier.emulator.ir.values import TypedValue
from luthier.emulator.ir.variant import FloatMode, OperandAccess

WORD_0, DWORD = 4, 6
SIGN, PRESERVE = 1, 2
"""SDWA dst_unused; 0 clears the bits that are not written."""


def read_typed(
    w: Builder, rows: list[TypedValue], kind: ScalarType, access: OperandAccess, *, flush: bool = True
) -> TypedValue | tuple[TypedValue, ...]:
    """Return rows of 32 bits as a value of type `kind` with modifiers applied; a tuple for several elements."""
    if kind.kind in ("mask", "scc"):
        return rows[0]
    if access.sdwa != DWORD or access.extend:
        rows = [_sdwa_select(rows[0], access)]
    if kind.count == 1:
        return _modified(w, _element(w, rows, 0, kind, access), access.neg, access.abs, flush)
    elements = []
    for index in range(kind.count):
        element = _element(w, rows, index, kind, access)
        negate = access.neg_high if index == 1 and kind.count == 2 else access.neg
        elements.append(_modified(w, element, negate, access.abs, flush))
    return tuple(elements)


def _element(w: Builder, rows: list[TypedValue], index: int, kind: ScalarType, access: OperandAccess) -> TypedValue:
    if kind.bits == 64:
        low, high = rows[2 * index], rows[2 * index + 1]
        return (low.to("u64") | (high.to("u64") << 32)).as_(kind.element)
    if kind.bits == 32:
        if kind.count == 2 and access.select != (False, True):
            index = int(access.select[index])
        return rows[index].as_(kind.element)
    per_row = 32 // kind.bits
    if kind.bits == 16 and kind.count == 2:
        index = int(access.select[index])
    elif kind.count == 1 and access.high:
        index = 16 // kind.bits
    row = rows[index // per_row]
    position = index % per_row
    if position:
        row = row >> (position * kind.bits)
    narrow = w.ir.trunc(row.llvm, w.shaped(ir.IntType(kind.bits), row.lanes))
    return w.wrap(narrow, f"u{kind.bits}").as_(kind.element)


def _sdwa_select(row: TypedValue, access: OperandAccess) -> TypedValue:
    if access.sdwa == DWORD:
        return row
    bits, position = (8, access.sdwa) if access.sdwa < WORD_0 else (16, access.sdwa - WORD_0)
    field = row.as_("i32" if access.extend else "u32").bits(bits * position, bits)
    return field.as_("u32")


def _modified(w: Builder, value: TypedValue, neg: bool, absolute: bool, flush: bool) -> TypedValue:
    if value.type.is_float and flush and value.type.kind == "f":
        value = flush_input(w, value)
    if absolute:
        value = _sign(value, clear=True)
    if neg:
        value = _sign(value, clear=False)
    return value


def _sign(value: TypedValue, *, clear: bool) -> TypedValue:
    bits = value.type.bits
    integer = value.as_(f"u{bits}")
    changed = integer & ((1 << (bits - 1)) - 1) if clear else integer ^ (1 << (bits - 1))
    return changed.as_(value.type)


def flush_denormal(w: Builder, value: TypedValue) -> TypedValue:
    """Return a value with denormals replaced by zeros of the same sign."""
    bits = value.type.bits
    fraction = {16: 10, 32: 23, 64: 52}[bits]
    integer = value.as_(f"u{bits}")
    exponent = ((1 << (bits - 1)) - 1) ^ ((1 << fraction) - 1)
    is_small = (integer & exponent) == 0
    return w.select(is_small, integer & (1 << (bits - 1)), integer).as_(value.type)


def flush_input(w: Builder, value: TypedValue) -> TypedValue:
    """Return a float source, flushed if the denormal mode says so."""
    if value.type.kind != "f" or w.mode.denormals(value.type.bits) & 1:
        return value
    return flush_denormal(w, value)


def finish_float(w: Builder, value: TypedValue, modifiers: dict[str, int], mode: FloatMode, flush: bool) -> TypedValue:
    """Return a float result with output modifiers: denormal flush, omod, clamp to [0, 1].

    OMOD and denormal results exclude each other: OMOD flushes its operand and its result, and makes zeros +0 (ISA
    documents, "Output Operand Modifiers"). `bind` drops OMOD where MODE disables it.
    """
    if value.type.kind != "f":
        return value
    if flush and not mode.denormals(value.type.bits) & 2:
        value = flush_denormal(w, value)
    omod = modifiers.get("omod", 0)
    if omod:
        value = flush_denormal(w, flush_denormal(w, value) * {1: 2.0, 2: 4.0, 3: 0.5}[omod])
        value = w.select(value == 0.0, w.like(0.0, value), value)
    if modifiers.get("clamp"):
        positive = value > 0.0
        # DX10_CLAMP clamps NaN to 0; without it, NaN is kept.
        low = w.select(positive, value, 0.0)
        if not mode.dx10_clamp:
            low = w.select(w.is_nan(value), value, low)
        value = w.select(low > 1.0, w.like(1.0, low), low)
    return value


def typed_rows(w: Builder, values: list[TypedValue], kind: ScalarType) -> list[TypedValue]:
    """Return rows of 32 bits that hold the elements."""
    rows: list[TypedValue] = []
    if (kind.bits == 16 and kind.count == 1) or (kind.bits == 8 and kind.count == 1):
        value = values[0].as_(f"u{kind.bits}")
        return [w.wrap(w.ir.zext(value.llvm, w.shaped(I32, value.lanes)), "u32")]
    if kind.bits in (8, 16):
        per_row = 32 // kind.bits
        for start in range(0, len(values), per_row):
            row = None
            for position, value in enumerate(values[start : start + per_row]):
                integer = value.as_(f"u{kind.bits}")
                wide = w.wrap(w.ir.zext(integer.llvm, w.shaped(I32, value.lanes)), "u32") << (position * kind.bits)
                row = wide if row is None else row | wide
            if row is not None:
                rows.append(row)
        return rows
    for value in values:
        if kind.bits == 64:
            whole = value.as_("u64")
            rows += [whole.to("u32"), (whole >> 32).to("u32")]
        else:
            rows.append(value.as_("u32"))
    return rows


def merged_rows(
    rows: list[TypedValue],
    old: Callable[[], TypedValue],
    kind: ScalarType,
    access: OperandAccess,
    modifiers: dict[str, int],
) -> list[TypedValue]:
    """Return the rows to write for a vector operation's result.

    Where the encoding names a part of the register, they include the part that is kept. `old` returns the first row.
    """
    if "dst_sel" in modifiers:
        return [_sdwa_merge(rows[0], old, modifiers)]
    if kind.bits == 16 and kind.count == 1 and not access.whole:
        kept = old()
        return [(kept & 0xFFFF) | (rows[0] << 16) if access.high else (kept & 0xFFFF0000) | rows[0]]
    return rows


def _sdwa_merge(row: TypedValue, old: Callable[[], TypedValue], modifiers: dict[str, int]) -> TypedValue:
    selection, unused = modifiers["dst_sel"], modifiers["dst_unused"]
    if selection == DWORD:
        return row
    bits, position = (8, selection) if selection < WORD_0 else (16, selection - WORD_0)
    low = bits * position
    field = ((1 << bits) - 1) << low
    value = (row << low) & field
    if unused == PRESERVE:
        return (old() & (0xFFFFFFFF ^ field)) | value
    if unused == SIGN:
        return row.as_("i32").bits(0, bits).as_("u32") << low
    return value
