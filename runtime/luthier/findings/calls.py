"""Calls of runtimes in executables and libraries of the host, with their source."""

from __future__ import annotations

import functools
import itertools
import mmap
import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from luthier.errors import LuthierError
from luthier.objects import elf as E
from luthier.objects.source import SourceFrame, SourceMap

_FUNCTION = 2  # STT_FUNC
_DYNAMIC = 11  # SHT_DYNSYM
_SYMBOL = np.dtype(
    [("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<u8"), ("size", "<u8")]
)
"""Elf64_Sym."""
_HEADERS = "/include/hip/"
"""Folder of HIP's headers, whose templates call HIP functions for the program …"""
_TEMPLATE = re.compile(r"hip\w+<")
"""… and match this pattern."""


class HostSite(NamedTuple):
    """A call in a file, or a Python function at a line."""

    offset: int
    """Address relative to where the file is loaded; or the line."""
    symbol: str
    """The function; "" if unknown."""
    file: str
    is_python: bool = False

    @property
    def frames(self) -> tuple[SourceFrame, ...]:
        """Return the source frames, innermost first; empty if unknown."""
        if self.is_python:
            return (SourceFrame(self.symbol, self.file, self.offset, 0),)
        return frames_of_host(self.file, self.offset, self.symbol)


Sites = Sequence[HostSite]
"""Calls, innermost first. Empty if unknown."""


class AllocationSites(Struct, frozen=True):
    """An allocation's name, and the calls that allocated and freed it."""

    name: str = ""
    """Of a part, as the program gave it; "" if it has none."""
    allocated: Sites = ()
    freed: Sites = ()


class ApiCallSite(Struct, frozen=True):
    """A call in an executable or library, or in a Python function."""

    object: str
    """Path of the file."""
    offset: int
    """Address relative to where the file is loaded; for Python the line."""
    frames: tuple[SourceFrame, ...] = ()
    """Source frames, innermost first; empty if unknown."""
    stack: tuple[SourceFrame, ...] = ()
    """These and the frames of the calls that lead to it, innermost first; file and line 0 if only they are known."""
    is_python: bool = False

    @property
    def place(self) -> str:
        """Return its source line and function, or else the offset and file, as text."""
        if not self.frames:
            return f"{self.offset:#x} of {self.object}"
        frame = self.frames[0]
        return f"{frame.place if frame.line else f'{self.offset:#x} of {self.object}'} ({frame.name})"

    @property
    def callers(self) -> tuple[SourceFrame, ...]:
        """Return the frames of `stack` that are not in `frames`."""
        return self.stack[len(self.frames) :]


def first_call(sites: Sites) -> ApiCallSite | None:
    """Return the innermost call that is not in HIP's headers; None if there are no calls.

    If it has no source line, a Python function that called it takes its place.
    """
    first = None
    for at, site in enumerate(sites):
        frames = site.frames
        own = tuple(each for each in frames if _HEADERS not in each.file and not _TEMPLATE.match(each.name))
        if own or not frames:
            first = at, own
            break
        first = first or (at, frames)
    if first is None:
        return None
    at, own = first
    if not any(frame.line for frame in own):
        for outer in range(at + 1, len(sites)):
            if sites[outer].is_python:
                at, own = outer, sites[outer].frames
                break
    site = sites[at]
    rest = (each.frames or (SourceFrame("", each.file, 0, 0),) for each in sites[at + 1 :])
    return ApiCallSite(
        site.file, site.offset, own, (*own, *itertools.chain.from_iterable(rest)), is_python=site.is_python
    )


def frames_of_host(file: str, offset: int, symbol: str) -> tuple[SourceFrame, ...]:
    """Return the source frames of an offset in an executable or library, innermost first; empty if unknown.

    Args:
        offset: relative to where the file is loaded: the virtual address, except in executables at fixed addresses.
        symbol: the function that contains it, according to the dynamic linker; "" if unknown.
    """
    elf, map, base = _map(file)
    location = None if map is None else map.at(base + offset)
    if location is not None:
        return location.frames
    name = symbol or ("" if elf is None else _functions(file).at(base + offset))
    return (SourceFrame(name, file, 0, 0),) if name else ()


@functools.lru_cache(maxsize=64)
def _map(file: str) -> tuple[E.ElfFile | None, SourceMap | None, int]:
    """Return a file, its source lines and its lowest virtual address; None if it cannot be read."""
    try:
        with open(file, "rb") as opened:
            elf = E.ElfFile(memoryview(mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)), file)
    except (OSError, ValueError, LuthierError):
        return None, None, 0
    code = E.SHF_EXECINSTR | E.SHF_ALLOC
    sections = [one for one in elf.sections if one.flags & code == code and one.type == E.SHT_PROGBITS]
    text = sorted((one.address, one.size) for one in sections)
    base = min((one.vaddr for one in elf.segments if one.type == E.PT_LOAD), default=0)
    return elf, SourceMap(elf, text, ()), base & ~0xFFF


@functools.lru_cache(maxsize=64)
def _functions(file: str) -> _Functions:
    """Return the functions of a file, from its symbol table and that of the dynamic linker."""
    elf, _, _ = _map(file)
    return _Functions([]) if elf is None else _Functions(_symbols(elf))


def _symbols(elf: E.ElfFile) -> list[tuple[NDArray[np.void], E.StringTable]]:
    tables = []
    try:
        for section in elf.sections:
            if section.type in (E.SHT_SYMTAB, _DYNAMIC):
                symbols = np.frombuffer(elf.records(E.SYMBOL, section, "symbol table"), _SYMBOL)
                symbols = symbols[(symbols["info"] & 0xF == _FUNCTION) & (symbols["section"] != 0)]
                tables.append((symbols, elf.string_table(section.link, "symbol names")))
    except (LuthierError, ValueError):
        pass  # a malformed symbol table: no more is known
    return tables


class _Functions:
    """Functions of a file by address."""

    def __init__(self, tables: Sequence[tuple[NDArray[np.void], E.StringTable]]) -> None:
        self._tables = [(symbols[np.argsort(symbols["value"], kind="stable")], names) for symbols, names in tables]

    def at(self, address: int) -> str:
        """Return the symbol of the function at an address; "" if there is none."""
        for symbols, names in self._tables:
            at = int(np.searchsorted(symbols["value"], np.uint64(address), side="right")) - 1
            if at >= 0 and address - int(symbols[at]["value"]) < int(symbols[at]["size"]):
                try:
                    return names.names([int(symbols[at]["name"])])[0]
                except LuthierError:
                    continue
        return ""
