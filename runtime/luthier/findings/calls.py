"""Calls of runtimes in executables and libraries of the host, with their source."""

from __future__ import annotations

import functools
import mmap
import re
from collections.abc import Sequence

from msgspec import Struct

from luthier.errors import LuthierError
from luthier.objects import elf as E
from luthier.objects.source import SourceFrame, SourceMap

_FUNCTION = 2  # STT_FUNC
_HEADERS = "/include/hip/"
"""Folder of HIP's headers, whose templates call HIP functions for the program …"""
_TEMPLATE = re.compile(r"hip\w+<")
"""… and match this pattern."""


Sites = Sequence[tuple[int, str, str]]
"""Offset, symbol and file of each call, innermost first, as for `frames_of_host`. Empty if unknown."""


class ApiCallSite(Struct, frozen=True):
    """A call in an executable or library."""

    object: str
    """Path of the file."""
    offset: int
    """Address relative to where the file is loaded."""
    frames: tuple[SourceFrame, ...] = ()
    """Source frames, innermost first; empty if unknown."""

    @property
    def place(self) -> str:
        """Return its source line and function, or else the offset and file, as text."""
        if not self.frames:
            return f"{self.offset:#x} of {self.object}"
        frame = self.frames[0]
        return f"{frame.place if frame.line else f'{self.offset:#x} of {self.object}'} ({frame.name})"


def first_call(sites: Sites) -> ApiCallSite | None:
    """Return the innermost call that is not in HIP's headers; None if there are no calls."""
    first = None
    for offset, symbol, file in sites:
        frames = frames_of_host(file, offset, symbol)
        own = tuple(each for each in frames if _HEADERS not in each.file and not _TEMPLATE.match(each.name))
        if own or not frames:
            return ApiCallSite(file, offset, own)
        first = first or ApiCallSite(file, offset, frames)
    return first


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
    name = symbol or (_function_at(elf, base + offset) if elf is not None else "")
    return (SourceFrame(name, file, 0, 0),) if name else ()


@functools.lru_cache(maxsize=16)
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


def _function_at(elf: E.ElfFile, address: int) -> str:
    """Return the symbol of the function at an address, from the symbol table; "" if there is none."""
    try:
        for section in elf.sections:
            if section.type != E.SHT_SYMTAB:
                continue
            for symbol in E.SYMBOL.unpack_all(elf.records(E.SYMBOL, section, "symbol table")):
                if symbol.info & 0xF == _FUNCTION and 0 <= address - symbol.value < symbol.size:
                    return elf.string_table(section.link, "symbol names").names([symbol.name])[0]
    except LuthierError:
        pass  # a malformed symbol table: nothing is known
    return ""
