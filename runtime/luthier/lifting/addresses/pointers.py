"""Functions that pointers may lead to: those whose address is in the data of an object, or is made by its code."""

from __future__ import annotations

import weakref
from collections.abc import Iterator

import numpy as np

from luthier.errors import LuthierError
from luthier.isa import registers as r
from luthier.lifting.addresses.slots import pointer_of
from luthier.lifting.addresses.values import MASK32, MASK64
from luthier.lifting.code.text import Text, TextRun
from luthier.objects import CodeObject

MOST_POINTED = 256
"""Functions of an object that pointers may lead to; if there are more, none is followed: each kernel that calls by
pointer gets a copy of all of them."""
_NEAR = 16
"""Instructions behind an s_getpc_b64 among which both halves of the distance are added."""
_FAR = 4096
"""Instructions behind that which may still use the address."""
_KEPT_BY_CALLS = 30
"""First SGPR that functions put back (AMDGPUUsage, "Non-Kernel Functions")."""
_STORES = ("S_STORE", "S_BUFFER_STORE", "S_SCRATCH_STORE", "S_CMP", "S_BITCMP")
"""Scalar operations whose first operand is none that they write."""
_DESTINATION = 0x7F0000
"""Bits of an SOP1 instruction that name its destination."""

_found: weakref.WeakKeyDictionary[Text, tuple[int, ...]] = weakref.WeakKeyDictionary()


def pointed_functions(object: CodeObject, text: Text) -> tuple[int, ...]:
    """Return the addresses of the functions that a pointer in memory or in registers may lead to, ascending.

    Kernels are left out. There may be too many, but not too few. Not among them are functions whose address is made on
    the spot, called, and, as far as the order of the code shows, used for nothing else.
    """
    found = _found.get(text)
    if found is None:
        kernels = {kernel.entry for kernel in object.kernels.values()}
        pointed = {*(to for _, to in pointers_in_data(object)), *_in_code(text)}
        found = _found[text] = tuple(sorted(pointed & text.functions.keys() - kernels))
    return found


def pointers_in_data(object: CodeObject) -> Iterator[tuple[int, int]]:
    """Yield the addresses that the loader writes into memory: where each goes, and which it is."""
    for relocation in object.relocations:
        address = pointer_of(relocation)
        if address is not None:
            yield relocation.offset, address


def _in_code(text: Text) -> Iterator[int]:
    (getpc,) = np.frombuffer(text.isa.assemble("s_getpc_b64 s[0:1]").instructions.code, "<u4")
    for start in text.starts:
        try:
            piece = text.piece(start)
        except LuthierError:
            continue
        words = np.frombuffer(piece.code.code[: len(piece.code.code) // 4 * 4], "<u4")
        if not ((words & ~np.uint32(_DESTINATION)) == (getpc & ~np.uint32(_DESTINATION))).any():
            continue
        yield from _made_in(text, piece)


def _made_in(text: Text, piece: TextRun) -> Iterator[int]:
    """Yield the addresses made by an s_getpc_b64 and the additions of two literals that follow it closely."""
    isa, columns = text.isa, piece.columns
    names = {number: isa.opcode(number).pseudo for number in columns.opcodes if number >= 0}
    first_unit = isa.register_first_unit

    def literal(index: int, unit: int) -> int | None:
        """Return what an addition to register `unit` adds, if it is one and adds a constant."""
        registers, values = columns.registers(index), columns.values(index)
        if int(first_unit[registers[0]]) != unit:
            return None
        for one, other in ((1, 2), (2, 1)):
            if registers[one] and int(first_unit[registers[one]]) == unit and not registers[other]:
                return values[other] & MASK32
        return None

    for index, opcode in enumerate(columns.opcode):
        if names.get(opcode) != "S_GETPC_B64":
            continue
        unit = int(first_unit[columns.registers(index)[0]])
        if unit < 0 or unit >= r.VGPR_FIRST:
            continue
        low = high = None
        for place in range(index + 1, min(index + 1 + _NEAR, len(columns.opcode))):
            name = names.get(columns.opcode[place])
            if name == "S_ADD_U32" and low is None:
                low = literal(place, unit)
            elif name == "S_ADDC_U32" and high is None:
                high = literal(place, unit + 1)
            elif name == "S_GETPC_B64" and int(first_unit[columns.registers(place)[0]]) == unit:
                break
            if low is not None and high is not None:
                if _is_value(text, piece, names, place + 1, {unit, unit + 1}):
                    yield columns.address[index] + columns.size[index] + (high << 32 | low) & MASK64
                break


def _is_value(text: Text, piece: TextRun, names: dict[int, str], first: int, held: set[int]) -> bool:
    """Return whether an address is used for more than a call.

    Args:
        first: the instruction from which on it is in the units `held`.
    """
    isa, columns = text.isa, piece.columns
    called = False
    for index in range(first, min(first + _FAR, len(columns.opcode))):
        name = names.get(columns.opcode[index], "")
        units = [
            set(
                range(
                    int(isa.register_first_unit[one]), int(isa.register_first_unit[one] + isa.register_unit_count[one])
                )
            )
            if one
            else set()
            for one in columns.registers(index)
        ]
        if name == "S_SETPC_B64" and units[0] & held:
            return False
        if name in ("S_SWAPPC_B64", "S_CALL_B64"):
            called |= name == "S_SWAPPC_B64" and bool(units[1] & held)
            held = {unit for unit in held if unit >= _KEPT_BY_CALLS}
        elif name in ("S_MOV_B32", "S_MOV_B64"):
            held = held | units[0] if units[1] and units[1] <= held else held - units[0]
        elif any(one & held for one in units[1:]) or (name.startswith(_STORES) and units and units[0] & held):
            return True
        elif units:
            held = held - units[0]
        if not held:
            return not called
    return not called
