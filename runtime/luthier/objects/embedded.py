"""Code objects that lie unbundled in a host program's data.

GCC's offload compiler (mkoffload) produces them: an array in ``.data`` or ``.rodata`` for each, without a table of
them in the file. So data is searched for the first bytes of such ELF files. A match counts if its headers are
consistent and everything that they describe lies in the same section.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator

from luthier.objects import elf as E
from luthier.objects.place import FileSlice

_IDENT = E.ELF_MAGIC + bytes([2, 1, 1, E.ELFOSABI_AMDGPU_HSA])
"""64-bit, little-endian, version 1, AMDGPU_HSA."""
_MOST_TABLES = 1 << 24
"""Bytes of header tables, beyond the size of the data, after which the file counts as malicious."""


def embedded_images(place: FileSlice, elf: E.ElfFile, known: list[FileSlice]) -> Iterator[FileSlice]:
    """Yield the code objects in the data of a host ELF file.

    Args:
        elf: the headers of `place`.
        known: disjoint parts, in order, that are skipped.
    """
    for label, base, data in _data(place, elf, known):
        at = 0
        left = data.size + _MOST_TABLES
        while (at := data.find([_IDENT], at)) >= 0:
            rest = data.cut(at, data.size - at, label)
            header = E.FILE_HEADER.unpack(rest.peek(0, E.FILE_HEADER.size).ljust(E.FILE_HEADER.size, b"\0"))
            left -= header.segment_count * E.SEGMENT_HEADER.size + header.section_count * E.SECTION_HEADER.size
            if left < 0:
                place.fail(f"{label} contains too many broken code objects", rest.start - place.start)
            size = _size(rest, header)
            if size:
                yield rest.cut(0, size, label).inner(f"{label}+{rest.start - base:#x}")
            at += size or len(_IDENT)


def _data(place: FileSlice, elf: E.ElfFile, known: list[FileSlice]) -> Iterator[tuple[str, int, FileSlice]]:
    """Yield the parts of a host file with data: name, start, and range to search.

    They are sections, or segments if there are none. Ranges exclude `known` and do not overlap.
    """
    if elf.sections:
        ranges = [
            (section.offset, section.size, name)
            for name, section in zip(elf.section_names, elf.sections, strict=True)
            if section.type == E.SHT_PROGBITS and section.flags & (E.SHF_ALLOC | E.SHF_EXECINSTR) == E.SHF_ALLOC
        ]
    else:
        ranges = [
            (segment.offset, segment.filesz, f"segment {number}")
            for number, segment in enumerate(elf.segments)
            if segment.type == E.PT_LOAD and not segment.flags & E.PF_X
        ]
    searched = 0
    for offset, size, name in sorted(ranges):
        whole = place.cut(offset, size, f"section {name}")
        start, end = max(whole.start, searched), max(whole.end, searched)
        searched = end
        for part in known[bisect.bisect_left(known, start, key=lambda part: part.end) :]:
            if part.start >= end:
                break
            if start < part.start:
                yield name, whole.start, whole._replace(start=start, end=part.start)
            start = max(start, part.end)
        if start < end:
            yield name, whole.start, whole._replace(start=start, end=end)


def _size(place: FileSlice, header: E.FileHeader) -> int:
    """Return the size of the code object at the beginning of `place`; 0 if there is none."""
    tables = (
        (header.segments_offset, header.segment_count, header.segment_entry_size, E.SEGMENT_HEADER),
        (header.sections_offset, header.section_count, header.section_entry_size, E.SECTION_HEADER),
    )
    linked = (header.type, header.machine, header.version, header.header_size) == (E.ET_DYN, E.EM_AMDGPU, 1, 64)
    if not linked or not header.segment_count:
        return 0
    size = E.FILE_HEADER.size
    for offset, count, entry_size, layout in tables:
        end = offset + count * layout.size
        if not count:
            continue
        if offset < E.FILE_HEADER.size or entry_size != layout.size or end > place.size:
            return 0
        size = max(size, end)
        for row in layout.unpack_all(place.cut(offset, end - offset, "headers").view):
            if isinstance(row, E.SegmentHeader):
                size = max(size, row.offset + row.filesz)
            elif row.type not in (0, E.SHT_NOBITS):
                size = max(size, row.offset + row.size)
    return size if size <= place.size else 0
