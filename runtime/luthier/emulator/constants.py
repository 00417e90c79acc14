"""Inline constants: the numbers that instructions encode without a literal. Every wave holds them like SGPRs.

Source: ISA documents, "Scalar source operands", encodings 128 to 208 and 240 to 248.
"""

from __future__ import annotations

import struct

import numpy as np
from numpy.typing import NDArray

from luthier.emulator import layout

HALF, BFLOAT, OPEN = 16, 17, 31
"""Roles of 32-bit operands besides 32: those with 16-bit floats, and those whose float format is not known."""
_FLOATS = (0.5, -0.5, 1.0, -1.0, 2.0, -2.0, 4.0, -4.0, 0.15915494309189532)
_INV_2PI = {"<e": 0x3118, "<f": 0x3E22F983, "<d": 0x3FC45F306DC9C882}


def _patterns(code: str) -> list[int]:
    """Return `_FLOATS` in a format of `struct`."""
    exact = [int.from_bytes(struct.pack(code, number), "little") for number in _FLOATS[:-1]]
    return [*exact, _INV_2PI[code]]


def _table() -> dict[int, int]:
    """Return the offset in a wave of the entry of each 64-bit pattern."""
    patterns = [number & 0xFFFFFFFFFFFFFFFF for number in range(-16, 65)]
    for code in ("<f", "<d", "<e"):
        patterns += _patterns(code)
    return {pattern: layout.CONSTANTS + 8 * index for index, pattern in enumerate(dict.fromkeys(patterns))}


INLINE: dict[int, int] = _table()


def inline_offset(value: int, bits: int) -> int | None:
    """Return the offset in a wave of the constant whose low `bits` bits are those of `value`.

    None: it is not an inline constant.
    """
    offset = INLINE.get(value & 0xFFFFFFFFFFFFFFFF)
    if offset is None and bits <= 32:
        offset = INLINE.get(value & 0xFFFFFFFF)
        if offset is None and value & 0x80000000:
            offset = INLINE.get(value & 0xFFFFFFFF | 0xFFFFFFFF00000000)
    return offset


_PATTERNS = np.array(sorted(INLINE), np.uint64)
_OFFSETS = np.array([INLINE[pattern] for pattern in sorted(INLINE)], np.uint32)


def _look_up(values: NDArray[np.uint64]) -> NDArray[np.uint32]:
    at = np.minimum(np.searchsorted(_PATTERNS, values), len(_PATTERNS) - 1)
    return np.where(_PATTERNS[at] == values, _OFFSETS[at], np.uint32(0))


def inline_offsets(values: NDArray[np.int64], bits: int) -> NDArray[np.uint32]:
    """Return `inline_offset` of many values; 0 where it is None."""
    whole = values.view(np.uint64)
    offsets = _look_up(whole)
    if bits <= 32:
        low = whole & np.uint64(0xFFFFFFFF)
        offsets = np.where(offsets == 0, _look_up(low), offsets)
        extended = np.where(low & np.uint64(0x80000000), low | np.uint64(0xFFFFFFFF00000000), low)
        offsets = np.where(offsets == 0, _look_up(extended), offsets)
    return offsets


SINGLES = frozenset(_patterns("<f"))
"""Floats of 32 bits."""
_WIDER = {
    32: dict(zip(_patterns("<d"), _patterns("<f"), strict=True)),
    HALF: dict(zip(_patterns("<f") + _patterns("<d"), 2 * _patterns("<e"), strict=True)),
    BFLOAT: {wide: single >> 16 for wide, single in zip(_patterns("<d"), _patterns("<f"), strict=True)},
}


def own_float(value: int, role: int) -> int:
    """Return the value in an operand's own format of an inline constant that LLVM gives as a wider float.

    Args:
        role: 32, `HALF` or `BFLOAT`; other roles leave the value unchanged.
    """
    return _WIDER.get(role, {}).get(value & 0xFFFFFFFFFFFFFFFF, value)


def inline_bytes() -> bytes:
    """Return the table as laid out in a wave."""
    return b"".join(struct.pack("<Q", pattern) for pattern in INLINE)
