"""Instructions as rows of text, for commands that only show them: without NumPy, whose import takes longer than the
work."""

from __future__ import annotations

import functools
from typing import NamedTuple

from luthier import _mc
from luthier.errors import DecodeError
from luthier.isa.native import data_text, native_isa
from luthier.isa.targets import TargetId


class Row(NamedTuple):
    """One instruction."""

    address: int
    encoding: bytes
    text: str
    """Text as LLVM prints it; ``.long`` or ``.byte`` where the bytes are no instruction."""
    target: int | None
    """The address it branches to or calls, where it names one."""


def instruction_rows(target: TargetId, wave_size: int, code: bytes, address: int) -> list[Row]:
    """Return all of `code`, whose first byte is at `address`, as `Isa.decode` and `Isa.texts` decode it.

    Raises:
        TargetError: there is no such target, or it does not have the wave size.
        DecodeError: LLVM cannot print an instruction that it decoded.
    """
    try:
        found = _isa(target, wave_size).listing(code, address)
    except _mc.McError as problem:
        raise DecodeError(problem.args[0], target=str(target)) from None
    rows = []
    for offset, size, text, destination in found:
        encoding = code[offset : offset + size]
        rows.append(Row(address + offset, encoding, data_text(encoding) if text is None else text, destination))
    return rows


@functools.cache
def _isa(target: TargetId, wave_size: int) -> _mc.Isa:
    return native_isa(target, wave_size)
