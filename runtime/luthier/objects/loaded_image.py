"""Code objects without a file, from the memory of a loaded one.

Loaders map the segments, which contain the file's first bytes: header, notes and dynamic symbols. Section headers,
static symbols and debug information are not loaded.
"""

from __future__ import annotations

import struct

from luthier.errors import ObjectError
from luthier.objects import elf as E

_NAMES = b"\0.loaded\0"
_MOST_SECTIONS = 1 << 10


def file_of_image(image: bytes) -> bytes | None:
    """Return an ELF file from the memory of a loaded code object, beginning at its virtual address 0.

    Of segments that the program may write only the dynamic table is kept, so that the file is always the same. None if
    the memory does not begin with the headers of a code object.
    """
    if len(image) < E.FILE_HEADER.size or not image.startswith(E.ELF_MAGIC):
        return None
    try:
        return _file_of(memoryview(image))
    except (ObjectError, struct.error):
        return None


def _file_of(image: memoryview) -> bytes:
    header = E.FILE_HEADER.unpack(image)
    table = _part(image, header.segments_offset, header.segment_count * E.SEGMENT_HEADER.size)
    segments = E.SEGMENT_HEADER.unpack_all(table)
    loaded = [one for one in segments if one.type == E.PT_LOAD]
    data = bytearray(max((_end(one.offset, one.filesz, image) for one in loaded), default=0))
    for segment in loaded:
        if not segment.flags & E.PF_W:
            data[segment.offset : segment.offset + segment.filesz] = _part(image, segment.vaddr, segment.filesz)
    dynamic: dict[int, int] = {}
    for segment in segments:
        if segment.type == E.PT_DYNAMIC:
            entries = _part(image, segment.vaddr, segment.filesz)
            data[segment.offset : segment.offset + segment.filesz] = entries
            dynamic.update({entry.tag: entry.value for entry in E.DYNAMIC.unpack_all(entries)})
    sections = _sections(image, loaded, dynamic)
    names_offset = len(data)
    sections.append(E.SectionHeader(1, E.SHT_STRTAB, 0, 0, names_offset, len(_NAMES), 0, 0, 1, 0))
    headers = -(-(names_offset + len(_NAMES)) // 8) * 8
    data += _NAMES + bytes(headers - names_offset - len(_NAMES))
    header = header._replace(
        sections_offset=headers,
        section_entry_size=E.SECTION_HEADER.size,
        section_count=len(sections),
        names_index=len(sections) - 1,
    )
    data[: E.FILE_HEADER.size] = E.FILE_HEADER.pack(header)
    return bytes(data) + E.SECTION_HEADER.pack_all(sections)


def _sections(image: memoryview, loaded: list[E.SegmentHeader], dynamic: dict[int, int]) -> list[E.SectionHeader]:
    """Return headers of the sections that symbols name, with unknown contents, and of the dynamic symbols."""

    def offset_of(address: int) -> int:
        for segment in loaded:
            if segment.vaddr <= address < segment.vaddr + segment.filesz:
                return address - segment.vaddr + segment.offset
        raise ObjectError("a table of a loaded code object is in no segment", offset=address)

    symbols_at, strings_at = dynamic.get(E.DT_SYMTAB, 0), dynamic.get(E.DT_STRTAB, 0)
    # The second number of a hash table is the number of symbols.
    count = struct.unpack("<II", _part(image, dynamic.get(E.DT_HASH, len(image)), 8))[1]
    symbols = E.SYMBOL.unpack_all(_part(image, symbols_at, count * E.SYMBOL.size))
    used = max((one.section for one in symbols if one.section < E.SHN_LORESERVE), default=0) + 1
    if used > _MOST_SECTIONS:
        raise ObjectError("a loaded code object names too many sections")
    unknown = [E.SectionHeader(1 if index else 0, *[0] * 9) for index in range(used)]
    place, size = offset_of(symbols_at), count * E.SYMBOL.size
    symtab = E.SectionHeader(1, E.SHT_DYNSYM, E.SHF_ALLOC, symbols_at, place, size, used + 1, 1, 8, E.SYMBOL.size)
    place, size = offset_of(strings_at), dynamic.get(E.DT_STRSZ, 0)
    return [*unknown, symtab, E.SectionHeader(1, E.SHT_STRTAB, E.SHF_ALLOC, strings_at, place, size, 0, 0, 1, 0)]


def _end(start: int, size: int, image: memoryview) -> int:
    """Return the end of a part of the file, which must not exceed its memory."""
    if start + size > len(image) + (1 << 20):
        raise ObjectError("a segment of a loaded code object is larger than its memory", offset=start)
    return start + size


def _part(image: memoryview, start: int, size: int) -> memoryview:
    """Return bytes of the memory.

    Raises:
        ObjectError: they are out of range.
    """
    if start + size > len(image):
        raise ObjectError("a loaded code object reaches past the end of its memory", offset=start)
    return image[start : start + size]
