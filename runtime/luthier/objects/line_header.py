"""Check of the tables in a line program's header before they are used.

In DWARF 5 a header gives the number of entries of a table and the fields of an entry: with no fields, there may be any
number of entries.
"""

from __future__ import annotations

import struct

_STRING, _BLOCK, _NUMBER = 0x08, 0x09, 0x0F
_SIZES = {0x0B: 1, 0x05: 2, 0x06: 4, 0x07: 8, 0x1E: 16}
"""DW_FORM_data1, data2, data4, data8, data16 -> bytes."""
_OFFSETS = {0x0E, 0x1F, 0x17}
"""DW_FORM_strp, line_strp, sec_offset."""


def check_line_header(data: bytes, at: int) -> None:
    """Check the header of a line table.

    Args:
        data: the section ``.debug_line``.
        at: offset of the header.

    Raises:
        ValueError, struct.error, IndexError: it cannot be read.
    """
    (length,) = struct.unpack_from("<I", data, at)
    at += 4
    wide = length == 0xFFFFFFFF
    if wide:
        (length,) = struct.unpack_from("<Q", data, at)
        at += 8
    end = at + length
    if end > len(data):
        raise ValueError("the line table reaches past the end of its section")
    (version,) = struct.unpack_from("<H", data, at)
    if not 2 <= version <= 5:
        raise ValueError(f"line table of unknown version {version}")
    at += 2
    if version >= 5:
        if data[at : at + 2] != b"\x08\0":
            raise ValueError("line table with an unsupported address size")
        at += 2
    at += 8 if wide else 4
    at += 4 if version >= 4 else 3
    line_range, opcode_base = data[at], data[at + 1]
    operations = data[at - 3] if version >= 4 else 1
    if not line_range or not opcode_base or operations != 1:
        raise ValueError("line table with invalid opcodes")
    at += 2 + opcode_base - 1
    if version < 5:
        return
    for _ in range(2):  # folders, files
        forms = []
        count, at = data[at], at + 1
        for _ in range(count):
            _, at = _number(data, at)
            form, at = _number(data, at)
            forms.append(form)
        entries, at = _number(data, at)
        if entries and not forms:
            raise ValueError(f"{entries} empty entries in a line table")
        for _ in range(entries):
            for form in forms:
                at = _behind(data, at, form, wide)
            if at > end:
                raise ValueError("the entries of a line table reach past its end")


def _behind(data: bytes, at: int, form: int, wide: bool) -> int:
    if form in _OFFSETS:
        return at + (8 if wide else 4)
    if form in _SIZES:
        return at + _SIZES[form]
    if form == _STRING:
        if (zero := data.find(b"\0", at)) < 0:
            raise ValueError("a line table has an unterminated name")
        return zero + 1
    value, at = _number(data, at) if form in (_BLOCK, _NUMBER) else (0, 0)
    if not at:
        raise ValueError(f"a line table has entries of unknown form {form:#x}")
    return at + value if form == _BLOCK else at


def _number(data: bytes, at: int) -> tuple[int, int]:
    """Return a ULEB128 number, and the position after it."""
    value = shift = 0
    while shift < 70:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
    raise ValueError("a line table has a number without an end")
