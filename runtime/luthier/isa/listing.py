"""Instructions as rows of text, and the registers that they name, for commands that only print them.

This module does not import NumPy, which would take longer than the work.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

from luthier import _mc
from luthier.errors import DecodeError
from luthier.isa.native import data_text, native_isa
from luthier.isa.targets import TargetId


class ListingRow(NamedTuple):
    """One instruction."""

    address: int
    encoding: bytes
    text: str
    """Text as LLVM prints it; ``.long`` or ``.byte`` for undecodable bytes."""
    target: int | None
    """Target address of a branch or call, if it is encoded."""


def instruction_rows(target: TargetId, wave_size: int, code: bytes, address: int) -> list[ListingRow]:
    """Decode all of `code`, whose first byte is at `address`, like `Isa.decode` and `Isa.texts`.

    Raises:
        TargetError: there is no such target, or it does not have the wave size.
        DecodeError: LLVM cannot print an instruction that it decoded.
    """
    try:
        listing = _isa(target, wave_size).listing(code, address)
    except _mc.McError as problem:
        raise DecodeError(problem.args[0], target=str(target)) from None
    rows = []
    for offset, size, text, destination in listing:
        encoding = code[offset : offset + size]
        rows.append(ListingRow(address + offset, encoding, data_text(encoding) if text is None else text, destination))
    return rows


def named_registers(target: TargetId, wave_size: int, code: bytes, address: int) -> tuple[dict[str, int], bool, bool]:
    """Return the number of registers of each file, ``v``, ``a`` and ``s``, that the named registers require.

    Also return whether any instruction accesses LDS, and whether any accesses private memory by FLAT_SCRATCH. SGPRs
    that have other names on some targets do not count; upper bits of VGPR numbers are assumed to be 0.

    Raises:
        TargetError: there is no such target, or it does not have the wave size.
    """
    *counts, lds, scratch = _isa(target, wave_size).named_registers(code, address)
    return dict(zip("vas", counts, strict=True)), lds, scratch


@functools.cache
def _isa(target: TargetId, wave_size: int) -> _mc.Isa:
    return native_isa(target, wave_size)
