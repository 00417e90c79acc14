"""Typed buffer access (MTBUF, and MUBUF with FORMAT in its name): conversion between memory and registers.

Sources: ISA documents, "Buffer data", "Range checking", "D16 instructions". The format is the instruction's (MTBUF) or
the descriptor's; an element is in bounds as a whole or not at all. Only the rules of graphics interfaces specify
hardware's rounding; here, values are rounded to nearest even.
"""

from __future__ import annotations

import functools
import operator

from luthier.emulator.ir.declare import OperationTable
from luthier.emulator.ir.memory_code import fault_if_any, gather, scatter, scatter_small
from luthier.emulator.ir.values import TypedValue
from luthier.emulator.ir.wave import OperandSlot, WaveBuilder
from luthier.emulator.layout import FAULT_ELEMENT, FAULT_SELECT
from luthier.emulator.operations.buffer import PLACE, STATIC, BufferAccess, buffer_access, data_format, no_failure
from luthier.emulator.operations.buffer_formats import DataFormat
from luthier.emulator.operations.flat import to_lds

operations = OperationTable()


def _descriptor_format(w: WaveBuilder, srsrc: OperandSlot) -> TypedValue:
    """Return the format number in a descriptor, where GFX9's numeric format is below its data format."""
    word = srsrc.scalars()[3]
    form = data_format(w, word)
    return form | ((word >> 12 & 7) << 4) if w.major == 9 else form


def selections(srsrc: OperandSlot) -> list[TypedValue]:
    """Return the fields of DST_SEL: 0 and 1 are constants, 4 to 7 components."""
    word = srsrc.scalars()[3]
    return [word >> 3 * component & 7 for component in range(4)]


def _element(access: BufferAccess, form: DataFormat) -> tuple[TypedValue, TypedValue]:
    """Return the host addresses of the elements, and the mask of lanes that the descriptor allows."""
    w = access.w
    good = access.in_bounds(0, form.bytes.to("u64"))
    align = w.select(form.bytes > 4, w.number(4), form.bytes) - 1
    addresses = access.place + w.splat(access.base)
    odd = (addresses & w.splat(align.to("u64"))) != 0
    fault_if_any(w, odd & good, addresses, form.bytes, FAULT_ELEMENT)
    return access.hosts(0, form.bytes, good), good


def _part(w: WaveBuilder, mask: TypedValue, condition: TypedValue) -> TypedValue:
    """Return the lanes of a mask if a scalar condition holds."""
    return mask & w.wrap(w.splat(condition).llvm, "mask")


def read_words(w: WaveBuilder, hosts: TypedValue, good: TypedValue, form: DataFormat) -> list[TypedValue]:
    """Return the element's dwords; access only its own bytes."""
    aligned = hosts & 0xFFFFFFFFFFFFFFFC
    shift = ((hosts & 3) << 3).to("u32")
    words = [gather(w, aligned, 0, good) >> shift]
    return words + [gather(w, aligned, 4 * i, _part(w, good, form.bytes > 4 * i)) for i in range(1, 4)]


def write_words(w: WaveBuilder, hosts: TypedValue, good: TypedValue, form: DataFormat, words: list[TypedValue]) -> None:
    """Store the element's dwords; access only its own bytes."""
    for size in (1, 2):
        with w.ir.if_then((form.bytes == size).llvm):
            scatter_small(w, hosts, words[0], 8 * size, good)
    for index, word in enumerate(words):
        scatter(w, hosts, word, 4 * index, _part(w, good, form.bytes > max(4 * index, 2)))


def selected(form: DataFormat, components: list[TypedValue], selection: TypedValue, half: bool) -> TypedValue:
    """Return the component that DST_SEL selects; a component that the format lacks stops the wave."""
    w = form.w
    chosen = w.select(selection == 1, w.splat(form.one(half)), w.const("u32", 0))
    undefined = (selection == 2) | (selection == 3)
    for index, component in enumerate(components):
        matches = selection == 4 + index
        undefined = undefined | (matches & (form.width(index) == 0))
        chosen = w.select(matches, component, chosen)
    form.refuse(undefined, FAULT_SELECT)
    return chosen


def _declare_load(names: str, count: int, typed: bool, half: str) -> None:
    """Declare loads.

    `half`: ``""`` a register per component, ``pairs`` two in a register, ``hi`` the upper half of a register.
    """
    registers = (count + 1) // 2 if half else count

    @operations.wave(names, f"{PLACE} {'#format ' if typed else ''}-> vdata:u32x{registers}", exact=False, **STATIC)
    def load(
        w: WaveBuilder,
        result: OperandSlot,
        vaddr: OperandSlot,
        srsrc: OperandSlot,
        soffset: OperandSlot,
        offset: OperandSlot,
        number: OperandSlot | None = None,
    ) -> None:
        """D = components of an element of the buffer."""
        form = DataFormat.of(w, number.scalar() if number is not None else _descriptor_format(w, srsrc))
        if half:
            form.refuse_narrowing()
        access = buffer_access(w, vaddr, srsrc, soffset, offset, formatted=True)
        hosts, good = _element(access, form)
        words = read_words(w, hosts, good, form)
        values = [form.read(words, component, bool(half)) for component in range(4)]
        # Out of bounds, only the constants are not 0.
        values = [w.select(good, value, 0) for value in values]
        if number is None:
            values = [selected(form, values, selection, bool(half)) for selection in selections(srsrc)[:count]]
        if not result.present:
            to_lds(w, offset, values[:1])
            return
        for index, row in enumerate(result_rows(w, result, values[:count], half)):
            result.store_row(index, row, access.lanes)
        no_failure(w, result, registers)


def result_rows(w: WaveBuilder, result: OperandSlot, values: list[TypedValue], half: str) -> list[TypedValue]:
    """Return the registers of a load.

    A half of a register without a component is kept, or cleared under SRAMECC.
    """
    if not half:
        return values
    kept = result.row(len(values) // 2 if len(values) % 2 else 0)
    if w.modifiers.get("sramecc"):
        kept = w.const("u32", 0)
    if half == "hi":
        return [(kept & 0xFFFF) | (values[0] << 16)]
    low, high = values[0::2], values[1::2]
    rows = [first | (second << 16) for first, second in zip(low, high, strict=False)]
    return rows + [(kept & 0xFFFF0000) | value for value in low[len(high) :]]


def _stored(w: WaveBuilder, form: DataFormat, data: OperandSlot, count: int, half: str) -> list[TypedValue]:
    """Return the 32 bits of each of the four components of a store."""
    if half == "hi":
        values = [form.widen(data.row(0) >> 16)]
    elif half:
        values = [form.widen(data.row(index // 2) >> 16 * (index % 2)) for index in range(count)]
    else:
        values = [data.row(index) for index in range(count)]
    # LLVM's features default-component-zero and default-component-broadcast.
    missing = values[0] if w.major >= 12 else w.const("u32", 0)
    return values + [missing] * (4 - count)


def arranged(form: DataFormat, values: list[TypedValue], selections: list[TypedValue]) -> list[TypedValue]:
    """Return a store's components, arranged by DST_SEL.

    Only exchanges are defined, for which the direction of the mapping does not matter.
    """
    w = form.w
    components = []
    undefined = []
    for component in range(4):
        present = form.width(component) != 0
        good = present & (selections[component] == 4 + component)
        value = values[component]
        for other in range(4):
            if other != component:
                exchanged = (selections[component] == 4 + other) & (selections[other] == 4 + component)
                value = w.select(exchanged, values[other], value)
                good = good | (exchanged & (form.width(other) != 0))
        components.append(value)
        undefined.append(present & ~good)
    form.refuse(functools.reduce(operator.or_, undefined), FAULT_SELECT)
    return components


def _declare_store(names: str, count: int, typed: bool, half: str) -> None:
    registers = (count + 1) // 2 if half else count

    @operations.wave(names, f"{PLACE} vdata:u32x{registers} {'#format ' if typed else ''}->", exact=False, **STATIC)
    def store(
        w: WaveBuilder,
        vaddr: OperandSlot,
        srsrc: OperandSlot,
        soffset: OperandSlot,
        offset: OperandSlot,
        data: OperandSlot,
        number: OperandSlot | None = None,
    ) -> None:
        """An element of the buffer = the components in D."""
        form = DataFormat.of(w, number.scalar() if number is not None else _descriptor_format(w, srsrc))
        form.refuse_scaled()
        values = _stored(w, form, data, count, half)
        if number is None:
            values = arranged(form, values, selections(srsrc))
        access = buffer_access(w, vaddr, srsrc, soffset, offset, formatted=True)
        hosts, good = _element(access, form)
        write_words(w, hosts, good, form, form.write(values))


for _typed in (False, True):
    _prefix = "tbuffer" if _typed else "buffer"
    for _count, _letters in enumerate(("x", "xy", "xyz", "xyzw"), 1):
        for _half, _spellings in (
            ("", "format"),
            ("pairs", "format_d16 d16_format"),
            ("hi", "format_d16_hi d16_hi_format"),
        ):
            if _half == "hi" and (_typed or _count > 1):
                continue
            _loads, _stores = (
                " ".join(f"{_prefix}_{_verb}_{_spelling}_{_letters}" for _spelling in _spellings.split())
                for _verb in ("load", "store")
            )
            _declare_load(_loads, _count, _typed, _half)
            _declare_store(_stores, _count, _typed, _half)
