"""Functions that pointers may lead to: those whose address is in an object's data, or is computed by its code."""

from __future__ import annotations

import weakref
from collections.abc import Iterator

import numpy as np

from luthier.errors import LuthierError
from luthier.isa import registers as r
from luthier.lifting.addresses.slots import pointer_of
from luthier.lifting.code.text import Text, TextRun
from luthier.objects import CodeObject

_MASK32, _MASK64 = (1 << 32) - 1, (1 << 64) - 1
MOST_POINTED = 256
"""Maximum functions of an object that pointers may lead to. If there are more, none is followed, since each kernel that
calls by pointer gets a copy of all of them."""
_NEAR = 16
"""Number of instructions after an s_getpc_b64 among which both halves of the offset must be added."""
_FAR = 4096
"""Number of instructions after that which are searched for uses of the address."""
_KEPT_BY_CALLS = 30
"""First SGPR that functions preserve (AMDGPUUsage, "Non-Kernel Functions")."""
_STORES = ("S_STORE", "S_BUFFER_STORE", "S_SCRATCH_STORE", "S_CMP", "S_BITCMP")
"""Scalar operations that read their first operand."""
_DESTINATION = 0x7F0000
"""Destination field of an SOP1 instruction."""

_found: weakref.WeakKeyDictionary[Text, frozenset[int]] = weakref.WeakKeyDictionary()


def pointed_functions(object: CodeObject, text: Text) -> frozenset[int]:
    """Return the addresses of the functions that a pointer in memory or registers may lead to.

    Kernels are left out. The result may contain too many functions, but not too few. It does not contain functions
    whose address is computed, called, and, according to the order of the code, not used otherwise.
    """
    functions = _found.get(text)
    if functions is None:
        kernels = {kernel.entry for kernel in object.kernels.values()}
        pointed = {*(to for _, to in pointers_in_data(object)), *_in_code(text)}
        functions = _found[text] = frozenset(pointed & text.functions.keys() - kernels)
    return functions


def pointers_in_data(object: CodeObject) -> Iterator[tuple[int, int]]:
    """Yield (location, address) for each address that the loader writes into memory."""
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
    """Yield the addresses computed by an s_getpc_b64 and the additions of two literals that follow it closely."""
    isa, columns = text.isa, piece.columns
    names = {number: isa.opcode(number).pseudo for number in columns.opcodes if number >= 0}
    first_unit = isa.register_first_unit

    def literal(index: int, unit: int) -> int | None:
        """Return the constant that an instruction adds to register `unit`; None if it does something else."""
        registers, values = columns.registers(index), columns.values(index)
        if int(first_unit[registers[0]]) != unit:
            return None
        for base, addend in ((1, 2), (2, 1)):
            if registers[base] and int(first_unit[registers[base]]) == unit and not registers[addend]:
                return values[addend] & _MASK32
        return None

    for index, opcode in enumerate(columns.opcode):
        if names.get(opcode) != "S_GETPC_B64":
            continue
        unit = int(first_unit[columns.registers(index)[0]])
        if unit < 0 or unit >= r.VGPR_FIRST:
            continue
        low = high = None
        for following in range(index + 1, min(index + 1 + _NEAR, len(columns.opcode))):
            name = names.get(columns.opcode[following])
            if name == "S_ADD_U32" and low is None:
                low = literal(following, unit)
            elif name == "S_ADDC_U32" and high is None:
                high = literal(following, unit + 1)
            elif name == "S_GETPC_B64" and int(first_unit[columns.registers(following)[0]]) == unit:
                break
            if low is not None and high is not None:
                if _is_value(text, piece, names, following + 1, {unit, unit + 1}):
                    yield columns.address[index] + columns.size[index] + (high << 32 | low) & _MASK64
                break


def _is_value(text: Text, piece: TextRun, names: dict[int, str], first: int, held: set[int]) -> bool:
    """Return whether an address is used for more than a call.

    Args:
        first: the first instruction at which it is in the units `held`.
    """
    isa, columns = text.isa, piece.columns
    first_unit, unit_count = isa.register_first_unit, isa.register_unit_count
    called = False
    for index in range(first, min(first + _FAR, len(columns.opcode))):
        name = names.get(columns.opcode[index], "")
        units = [
            set(range(int(first_unit[register]), int(first_unit[register] + unit_count[register])))
            if register
            else set()
            for register in columns.registers(index)
        ]
        if name == "S_SETPC_B64" and units[0] & held:
            return False
        if name in ("S_SWAPPC_B64", "S_CALL_B64"):
            called |= name == "S_SWAPPC_B64" and bool(units[1] & held)
            held = {unit for unit in held if unit >= _KEPT_BY_CALLS}
        elif name in ("S_MOV_B32", "S_MOV_B64"):
            held = held | units[0] if units[1] and units[1] <= held else held - units[0]
        elif any(source & held for source in units[1:]) or (name.startswith(_STORES) and units and units[0] & held):
            return True
        elif units:
            held = held - units[0]
        if not held:
            return not called
    return not called
