"""`ElfImage`: the layout of an ELF file that is rewritten; `ObjectEditor` handles the contents of its sections.

Loaded bytes keep their virtual addresses. A loaded section that outgrows its place, and a program header table that
grows, go to one new segment above all others. What is not loaded (.symtab, .comment, DWARF) is laid out again after the
segments, followed by the section headers.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import NoReturn

from msgspec import Struct

from luthier.errors import ObjectError
from luthier.objects import elf as E

PAGE = 0x1000
_PENDING = -1
"""File offset of data that has an address but no place in the file yet."""
_LARGEST_ALIGNMENT = 1 << 16
_LARGEST, _LARGEST_GAP = 1 << 30, 1 << 26
"""Maximum bytes of a file that are copied to memory, and of unused bytes between them."""
_HIGHEST_ADDRESS = 1 << 47
_TABLES = {E.SHT_DYNSYM, E.SHT_RELA, E.SHT_HASH, E.SHT_GNU_HASH, E.SHT_DYNAMIC, E.SHT_STRTAB}
_DESCRIBED_BY = {E.SHT_NOTE: E.PT_NOTE, E.SHT_DYNAMIC: E.PT_DYNAMIC}


class NewSegment(Struct):
    """A PT_LOAD segment being added."""

    address: int
    flags: int
    align: int
    data: bytearray

    @property
    def end(self) -> int:
        """Return the first address after it."""
        return self.address + len(self.data)


class ElfImage:
    """A mutable copy of `elf`."""

    def __init__(self, elf: E.ElfFile) -> None:
        self.name = elf.name
        loads = [segment for segment in elf.segments if segment.type == E.PT_LOAD]
        self._loaded_end = max((segment.offset + segment.filesz for segment in loads), default=0)
        self._check(elf, loads)
        self._original = elf.data
        self.data = bytearray(elf.data[: self._loaded_end])
        """Loaded bytes, and the bytes between them."""
        self.header = elf.header
        self.headers = list(elf.segments)
        self.sections = list(elf.sections)
        # It contained counts that exceed the header's fields.
        self.sections[0] = self.sections[0]._replace(size=0, link=0)
        self._names_index = elf.names_index
        self._apart = {i for i, s in enumerate(elf.sections) if s.flags & E.SHF_ALLOC and not _has_place(s, loads)}
        """Sections marked as loaded whose contents are in no segment; they stay in the file only."""
        for index in self._apart:
            if elf.sections[index].type in _TABLES:
                self.fail("a section that the loader needs is in no segment", elf.sections[index].offset)
        self.section_names = list(elf.section_names)
        self.new_segments: list[NewSegment] = []
        self._next_address = loads[-1].vaddr + loads[-1].memsz if loads else 0
        if self._next_address > _HIGHEST_ADDRESS:
            self.fail("no address space is left above the segments", self._next_address)
        self._contents: dict[int, bytes] = {}
        """Section index -> new contents, whose place is determined at the end."""
        self._names = bytearray(self.contents(self._names_index))

    def _check(self, elf: E.ElfFile, loads: Sequence[E.SegmentHeader]) -> None:
        """Raise an error for an object that cannot be edited.

        Args:
            loads: the loaded segments.
        """
        if not elf.sections:
            self.fail("an object without section headers cannot be edited")
        for section in elf.sections:
            if section.align & section.align - 1 or section.align > _LARGEST_ALIGNMENT:
                self.fail(f"a section has the unsupported alignment {section.align:#x}", section.offset)
        if any(low.vaddr + low.memsz > high.vaddr for low, high in itertools.pairwise(loads)):
            self.fail("segments overlap or are not in order of their addresses")
        behind = (section.size for section in elf.sections if _is_behind(section, self._loaded_end))
        carried = sum(segment.filesz for segment in loads) + sum(behind)
        if carried > _LARGEST or self._loaded_end > carried + _LARGEST_GAP:
            self.fail(f"{carried:#x} bytes up to {self._loaded_end:#x} in the file are too many to edit")
        for header in elf.segments:
            if header.type != E.PT_LOAD and header.filesz and header.offset + header.filesz > self._loaded_end:
                self.fail(f"a segment of type {header.type} lies after everything that is loaded", header.offset)

    def fail(self, message: str, offset: int | None = None) -> NoReturn:
        """Raise an error for an object that cannot be changed.

        Raises:
            ObjectError: always.
        """
        raise ObjectError(message, object=self.name, offset=offset)

    def is_loaded(self, index: int) -> bool:
        """Return whether a section is part of a segment."""
        return bool(self.sections[index].flags & E.SHF_ALLOC) and index not in self._apart

    def contents(self, index: int) -> bytes:
        """Return the current bytes of a section."""
        section = self.sections[index]
        if index in self._contents:
            return self._contents[index]
        if section.type == E.SHT_NOBITS:
            return b""
        for new in self.new_segments:
            if self.is_loaded(index) and new.address <= section.address < new.end:
                return bytes(new.data[section.address - new.address :][: section.size])
        data = self._original if _is_behind(section, self._loaded_end) else self.data
        return bytes(data[section.offset : section.offset + section.size])

    def clear(self, offset: int, size: int) -> None:
        """Clear bytes at an offset of the original file."""
        if offset + size <= self._loaded_end:
            self.data[offset : offset + size] = bytes(size)
            return
        for index, section in enumerate(self.sections):
            if _is_behind(section, self._loaded_end) and 0 <= offset - section.offset <= section.size - size:
                data = bytearray(self.contents(index))
                data[offset - section.offset : offset - section.offset + size] = bytes(size)
                self._contents[index] = bytes(data)

    def find(self, kind: int, *, allocated: bool) -> int | None:
        """Return the index of the only section of a type that is loaded, or not; None if there is none.

        Raises:
            ObjectError: there are several.
        """
        indices = [i for i, s in enumerate(self.sections) if s.type == kind and self.is_loaded(i) == allocated]
        if len(indices) > 1:
            self.fail(f"several sections of type {kind}", self.sections[indices[1]].offset)
        return indices[0] if indices else None

    def section_at(self, address: int) -> int:
        """Return the index of the loaded section that contains `address`, or ends there."""
        loaded = [(i, s) for i, s in enumerate(self.sections) if self.is_loaded(i) and s.type != 0]
        for slack in (0, 1):
            for index, section in loaded:
                if section.address <= address < section.address + section.size + slack:
                    return index
        self.fail("no section contains this address", address)

    def add_section(self, name: str, template: E.SectionHeader) -> int:
        """Append a section header with a name; `template` has the other fields."""
        self.sections.append(template._replace(name=len(self._names)))
        self.section_names.append(name)
        self._names += name.encode() + b"\0"
        return len(self.sections) - 1

    def add_segment(self, size: int, flags: int, align: int = PAGE) -> NewSegment:
        """Add a zero-filled PT_LOAD segment above all others."""
        segment = NewSegment(round_up(self._next_address, align), flags, align, bytearray(size))
        self._next_address = segment.end
        self.new_segments.append(segment)
        return segment

    def write(self, address: int, data: bytes) -> None:
        """Replace bytes at a virtual address that is in the file."""
        for new in self.new_segments:
            if new.address <= address and address + len(data) <= new.end:
                new.data[address - new.address : address - new.address + len(data)] = data
                return
        for old in self.headers:
            if old.type == E.PT_LOAD and old.vaddr <= address and address + len(data) <= old.vaddr + old.filesz:
                start = old.offset + address - old.vaddr
                self.data[start : start + len(data)] = data
                return
        self.fail(f"no segment of the file contains {len(data):#x} bytes at this address", address)

    def in_memory(self, address: int, size: int) -> bool:
        """Return whether one segment contains all these bytes, in the file or not."""
        ranges = [(s.vaddr, s.vaddr + s.memsz) for s in self.headers if s.type == E.PT_LOAD]
        ranges += [(new.address, new.end) for new in self.new_segments]
        return any(low <= address and address + size <= high for low, high in ranges)

    def replace(self, index: int, data: bytes) -> None:
        """Replace the contents of a section; a loaded one keeps its place only if the size is unchanged."""
        section = self.sections[index]
        if self.is_loaded(index) and len(data) == section.size:
            self.write(section.address, data)
        else:
            self._contents[index] = data
            self.sections[index] = section._replace(size=len(data))

    def place_loaded(self, flags: int) -> None:
        """Assign addresses to replaced loaded sections, and to the program headers if there are more of them.

        This adds the last segment, with `flags`. Program headers that describe a section move with it.
        """
        moving = [i for i in self._contents if self.is_loaded(i)]
        if not moving and not self.new_segments and len(self.headers) == self.header.segment_count:
            return
        table_size = (len(self.headers) + len(self.new_segments) + 1) * E.SEGMENT_HEADER.size
        offsets, size = {}, table_size
        for index in moving:
            size = round_up(size, max(self.sections[index].align, 8))
            offsets[index] = size
            size += len(self._contents[index])
        segment = self.add_segment(size, flags)
        for index, offset in offsets.items():
            old = self.sections[index]
            self.sections[index] = old._replace(address=segment.address + offset)
            data = self._contents.pop(index)
            segment.data[offset : offset + len(data)] = data
            for i, h in enumerate(self.headers):
                if _DESCRIBED_BY.get(old.type) == h.type and h.vaddr == old.address:
                    self.headers[i] = _moved(h, segment.address + offset, len(data))
        for i, h in enumerate(self.headers):
            if h.type == E.PT_PHDR:
                self.headers[i] = _moved(h, segment.address, table_size)

    def finish(self) -> bytes:
        """Return the file, after `place_loaded`."""
        if len(self.sections) >= E.SHN_LORESERVE:
            self.fail(f"{len(self.sections)} sections exceed the limit of {E.SHN_LORESERVE - 1}")
        if len(self._names) != self.sections[self._names_index].size:
            self.replace(self._names_index, bytes(self._names))
        out = self.data[: self._loaded_end]
        segments_offset, headers = self._write_segments(out)
        for index, section in enumerate(self.sections):
            self.sections[index] = self._write_section(index, section, out, headers)
        out += bytes(-len(out) % 8)
        header = self.header._replace(
            segments_offset=segments_offset,
            segment_count=len(headers),
            sections_offset=len(out),
            section_count=len(self.sections),
            names_index=self._names_index,
        )
        out += E.SECTION_HEADER.pack_all(self.sections)
        if segments_offset == self.header.segments_offset:
            out[segments_offset : segments_offset + len(headers) * E.SEGMENT_HEADER.size] = E.SEGMENT_HEADER.pack_all(
                headers
            )
        out[: E.FILE_HEADER.size] = E.FILE_HEADER.pack(header)
        return bytes(out)

    def _write_segments(self, out: bytearray) -> tuple[int, list[E.SegmentHeader]]:
        """Append the new segments; return the program headers and their file offset."""
        if not self.new_segments:
            return self.header.segments_offset, self.headers
        loads = []
        for new in self.new_segments:
            out += bytes(-len(out) % PAGE)  # addresses are page-aligned, so offsets are congruent to them
            size = len(new.data)
            loads.append(
                E.SegmentHeader(E.PT_LOAD, new.flags, len(out), new.address, new.address, size, size, new.align)
            )
            out += new.data
        last_load = max((i for i, h in enumerate(self.headers) if h.type == E.PT_LOAD), default=-1)
        headers = [*self.headers[: last_load + 1], *loads, *self.headers[last_load + 1 :]]
        for i, h in enumerate(headers):
            if h.offset == _PENDING:
                headers[i] = h._replace(offset=_file_offset(h.vaddr, headers, 0))
        table = loads[-1].offset
        out[table : table + len(headers) * E.SEGMENT_HEADER.size] = E.SEGMENT_HEADER.pack_all(headers)
        return table, headers

    def _write_section(
        self, index: int, section: E.SectionHeader, out: bytearray, headers: list[E.SegmentHeader]
    ) -> E.SectionHeader:
        """Append a section that is not loaded, if it was after the segments or is new; return its header."""
        if section.type == 0:
            return section
        if self.is_loaded(index):
            return section._replace(offset=_file_offset(section.address, headers, section.offset))
        if index not in self._contents and section.offset + section.size <= self._loaded_end:
            return section
        data = self.contents(index)
        out += bytes(-len(out) % max(section.align, 1))
        offset = len(out)
        out += data
        return section._replace(offset=offset, size=section.size if section.type == E.SHT_NOBITS else len(data))


def _is_behind(section: E.SectionHeader, end: int) -> bool:
    """Return whether a section has contents in the file that extend beyond `end`."""
    return section.type not in (0, E.SHT_NOBITS) and section.offset + section.size > end


def _has_place(section: E.SectionHeader, loads: Iterable[E.SegmentHeader]) -> bool:
    """Return whether a segment puts a section's contents at its address."""
    if section.type in (0, E.SHT_NOBITS) or not section.size:
        return True
    return any(
        0 <= section.address - load.vaddr == section.offset - load.offset <= load.filesz - section.size
        for load in loads
    )


def round_up(value: int, align: int) -> int:
    """Return the next multiple of `align`."""
    return -(-value // align) * align


def _moved(header: E.SegmentHeader, address: int, size: int) -> E.SegmentHeader:
    return header._replace(offset=_PENDING, vaddr=address, paddr=address, filesz=size, memsz=size)


def _file_offset(address: int, headers: list[E.SegmentHeader], otherwise: int) -> int:
    """Return the file offset of the byte at a virtual address; `otherwise` if it is not in the file (.bss)."""
    for h in headers:
        if h.type == E.PT_LOAD and h.vaddr <= address < h.vaddr + h.filesz:
            return h.offset + address - h.vaddr
    return otherwise
