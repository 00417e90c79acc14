"""Source of a call in a file of the host, as far as the file tells."""

from __future__ import annotations

import functools
import mmap

from luthier.errors import LuthierError
from luthier.objects import elf as E
from luthier.objects.source import SourceFrame, SourceMap


def frames_of_host(file: str, offset: int, symbol: str) -> tuple[SourceFrame, ...]:
    """Return the source of a place in an executable or library, innermost first; empty where nothing is known.

    Args:
        offset: from where the file is loaded on: the virtual address but in executables at fixed addresses.
        symbol: the function that it is in, as the dynamic linker knows it; empty if it does not.
    """
    map, base = _map(file)
    found = None if map is None else map.at(base + offset)
    if found is not None:
        return found.frames
    return (SourceFrame(symbol, file, 0, 0),) if symbol else ()


@functools.lru_cache(maxsize=16)
def _map(file: str) -> tuple[SourceMap | None, int]:
    """Return the source lines of a file and its lowest virtual address; None where it cannot be read."""
    try:
        with open(file, "rb") as opened:
            elf = E.ElfFile(memoryview(mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)), file)
    except (OSError, ValueError, LuthierError):
        return None, 0
    code = E.SHF_EXECINSTR | E.SHF_ALLOC
    sections = [one for one in elf.sections if one.flags & code == code and one.type == E.SHT_PROGBITS]
    text = sorted((one.address, one.size) for one in sections)
    base = min((one.vaddr for one in elf.segments if one.type == E.PT_LOAD), default=0)
    return SourceMap(elf, text, ()), base & ~0xFFF
