"""Words that LLVM does not know in code for hardware that has more instructions than LLVM: carried along unread.

How long such an instruction is, is not known either, and what follows it may be read from a wrong place. So all
readings are followed, one for each length that an instruction can have, until they meet: from there on the code is
certain again. What lies before is kept as single words with opcode -1, which may read and write every register. Where
the readings do not meet soon, or one of them passes control elsewhere, the first word stays what control must not
reach.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from luthier.isa import NO_TARGET, InstructionArray, Isa

_LENGTHS = (4, 8, 12, 16)
"""Bytes of instructions (RDNA4 ISA, "Instruction Formats"; two VOP3P encodings make one instruction of gfx1250)."""
_REACH = 512
"""Bytes after which readings are no longer followed."""

Goes = Callable[[int], bool]


def with_unknown_words(
    isa: Isa, data: bytes, address: int, decoded: InstructionArray, goes_on: Goes
) -> tuple[list[InstructionArray], list[NDArray[np.bool_]]]:
    """`decoded`, which is `data` at `address`, as consecutive pieces in which every stretch that is not certain is
    single words; and for each piece which of its instructions are such words.

    Args:
        goes_on: whether control goes from an instruction with this opcode to the next one only.
    """
    pieces: list[InstructionArray] = []
    unknown: list[NDArray[np.bool_]] = []

    def add(piece: InstructionArray, words: bool) -> None:
        if len(piece):
            pieces.append(piece)
            unknown.append(np.full(len(piece), words))

    rest = decoded
    while True:
        strange = np.flatnonzero(rest.opcode < 0)
        if not len(strange):
            break
        first = int(strange[0])
        begin = int(rest.addresses[first])
        end = _meeting(isa, data, address, begin, goes_on)
        if end is None:
            break
        add(part_of(rest, 0, first), False)
        add(_words(data[begin - address : end - address], begin), True)
        at = int(np.searchsorted(rest.addresses, end))
        if at < len(rest) and int(rest.addresses[at]) == end:
            rest = part_of(rest, at, len(rest))
        else:
            rest = isa.decode(data[end - address :], end)
    add(rest, False)
    return pieces, unknown


def _meeting(isa: Isa, data: bytes, address: int, begin: int, goes_on: Goes) -> int | None:
    """Where all readings from the unknown word at `begin` on have an instruction; None if that is not known."""
    open_readings = {begin + length for length in _LENGTHS}
    while open_readings:
        place = min(open_readings)
        open_readings.discard(place)
        offset = place - address
        if not open_readings:
            return place if offset < len(data) else None
        if offset >= len(data) or place - begin > _REACH:
            return None
        one = isa.decode(data[offset : offset + max(_LENGTHS) + 4], place)
        opcode = int(one.opcode[0])
        if opcode >= 0 and not goes_on(opcode):
            return None
        open_readings.update(place + length for length in (_LENGTHS if opcode < 0 else (int(one.size[0]),)))
    return None


def _words(data: bytes, address: int) -> InstructionArray:
    count = len(data) // 4
    return InstructionArray(
        address,
        data,
        np.arange(count, dtype=np.int64) * 4,
        np.full(count, 4, np.int32),
        np.full(count, -1, np.int32),
        np.zeros(count, np.uint32),
        np.full(count, NO_TARGET, np.int64),
        np.zeros(count + 1, np.int32),
        np.zeros(0, np.uint8),
        np.zeros(0, np.int64),
    )


def part_of(code: InstructionArray, first: int, end: int) -> InstructionArray:
    """Instructions `first` up to, not including, `end`."""
    begin = int(code.offset[first]) if first < len(code) else len(code.code)
    stop = int(code.offset[end]) if end < len(code) else len(code.code)
    operands = slice(int(code.operand_start[first]), int(code.operand_start[end]))
    return InstructionArray(
        code.address + begin,
        code.code[begin:stop],
        code.offset[first:end] - begin,
        code.size[first:end],
        code.opcode[first:end],
        code.flags[first:end],
        code.target[first:end],
        code.operand_start[first : end + 1] - code.operand_start[first],
        code.operand_kind[operands],
        code.operand_value[operands],
    )
