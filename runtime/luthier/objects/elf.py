"""ELF64 records, each declared once for reading and writing, and a reader that checks everything.

The reader and `ObjectEditor` share these records. pyelftools is their oracle in tests: it cannot write, and takes about
twenty times as long for headers and symbols.

Source: System V ABI, ELF-64; LLVM AMDGPUUsage "ELF Code Object".
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Any, Generic, NamedTuple, NoReturn, TypeVar

from luthier.errors import LuthierError, ObjectError, TargetError

ELF_MAGIC = b"\x7fELF"
SPIRV_MAGIC = b"\x03\x02\x23\x07"
EM_AMDGPU = 224
ELFOSABI_AMDGPU_HSA = 64
ET_REL, ET_EXEC, ET_DYN = 1, 2, 3

PT_LOAD, PT_DYNAMIC, PT_INTERP, PT_NOTE, PT_PHDR, PT_GNU_RELRO = 1, 2, 3, 4, 6, 0x6474E552
PF_X, PF_W, PF_R = 1, 2, 4

SHT_PROGBITS, SHT_SYMTAB, SHT_STRTAB, SHT_RELA, SHT_HASH, SHT_DYNAMIC, SHT_NOTE, SHT_NOBITS, SHT_DYNSYM = (
    1, 2, 3, 4, 5, 6, 7, 8, 11,
)  # fmt: skip
SHT_GNU_HASH = 0x6FFFFFF6
OTHER_RELOCATIONS = {
    9: "REL", 19: "RELR", 0x60000001: "ANDROID_REL", 0x60000002: "ANDROID_RELA", 0x6FFFFF00: "ANDROID_RELR",
}  # fmt: skip
"""Types of sections with dynamic relocations that are packed or lack addends."""
SHF_WRITE, SHF_ALLOC, SHF_EXECINSTR = 1, 2, 4
SHN_UNDEF, SHN_LORESERVE, SHN_ABS, SHN_XINDEX = 0, 0xFF00, 0xFFF1, 0xFFFF

STB_LOCAL = 0
SYMBOL_TYPES = {0: "notype", 1: "object", 2: "func", 3: "section", 4: "file", 5: "common", 6: "tls", 10: "kernel"}
SYMBOL_BINDINGS = {0: "local", 1: "global", 2: "weak"}
SYMBOL_VISIBILITIES = {0: "default", 1: "internal", 2: "hidden", 3: "protected"}

DT_NULL, DT_HASH, DT_STRTAB, DT_SYMTAB, DT_RELA, DT_RELASZ, DT_RELAENT = 0, 4, 5, 6, 7, 8, 9
DT_STRSZ, DT_SYMENT, DT_SONAME, DT_RELACOUNT, DT_GNU_HASH = 10, 11, 14, 0x6FFFFFF9, 0x6FFFFEF5

R_AMDGPU_NONE, R_AMDGPU_ABS32_LO, R_AMDGPU_ABS32_HI, R_AMDGPU_ABS64, R_AMDGPU_RELATIVE64 = 0, 1, 2, 3, 13

_MOST_RECORDS = 1 << 20
"""Maximum number of headers, symbols or relocations in a table; each takes some hundred bytes in memory."""
_LARGEST_STRINGS = 1 << 28
"""Maximum bytes of a string table, which is copied."""
_LONGEST_NAME = 1 << 20
"""Maximum bytes of a symbol name, so that a table without terminators takes no quadratic time."""


class FileHeader(NamedTuple):
    """Elf64_Ehdr."""

    ident: bytes
    type: int
    machine: int
    version: int
    entry: int
    segments_offset: int
    sections_offset: int
    flags: int
    header_size: int
    segment_entry_size: int
    segment_count: int
    section_entry_size: int
    section_count: int
    names_index: int

    @property
    def osabi(self) -> int:
        """Return EI_OSABI: the ABI of the file (ELF specification, "ELF Identification")."""
        return self.ident[7]

    @property
    def abi_version(self) -> int:
        """Return EI_ABIVERSION: the code object version (AMDGPUUsage, "Header")."""
        return self.ident[8]


class SegmentHeader(NamedTuple):
    """Elf64_Phdr."""

    type: int
    flags: int
    offset: int
    vaddr: int
    paddr: int
    filesz: int
    memsz: int
    align: int


class SectionHeader(NamedTuple):
    """Elf64_Shdr."""

    name: int
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    align: int
    entry_size: int


class SymbolRecord(NamedTuple):
    """Elf64_Sym."""

    name: int
    info: int
    other: int
    section: int
    value: int
    size: int


class RelocationRecord(NamedTuple):
    """Elf64_Rela."""

    offset: int
    info: int
    addend: int

    @property
    def type(self) -> int:
        """Return ELF64_R_TYPE."""
        return self.info & 0xFFFFFFFF

    @property
    def symbol(self) -> int:
        """Return ELF64_R_SYM: the index in the symbol table."""
        return self.info >> 32


class Note(NamedTuple):
    """One note; `start` and `offset` are the file offsets of the note and its description."""

    owner: str
    type: int
    description: memoryview
    start: int
    offset: int


class DynamicRecord(NamedTuple):
    """Elf64_Dyn."""

    tag: int
    value: int


Record = TypeVar("Record", bound=tuple[Any, ...])


class RecordLayout(Generic[Record]):
    """Layout of a kind of record in the file: little-endian, no padding except its own."""

    def __init__(self, record: type[Record], layout: str) -> None:
        self.record = record
        self.struct = struct.Struct("<" + layout)
        self.size = self.struct.size

    def unpack(self, data: bytes | memoryview, offset: int = 0) -> Record:
        """Return the record at a byte offset."""
        return self.record(*self.struct.unpack_from(data, offset))

    def rows(self, data: bytes | memoryview) -> Iterator[tuple[Any, ...]]:
        """Yield the fields of every whole record in `data`; ignore a rest, as linkers do."""
        return self.struct.iter_unpack(data[: len(data) - len(data) % self.size])

    def unpack_all(self, data: bytes | memoryview) -> list[Record]:
        """Return every whole record in `data`."""
        return [self.record(*row) for row in self.rows(data)]

    def pack(self, record: Record) -> bytes:
        """Return the record's bytes."""
        return self.struct.pack(*record)

    def pack_all(self, records: list[Record]) -> bytes:
        """Return the bytes of records, one after the other."""
        return b"".join(map(self.pack, records))


FILE_HEADER = RecordLayout(FileHeader, "16sHHIQQQIHHHHHH")
SEGMENT_HEADER = RecordLayout(SegmentHeader, "IIQQQQQQ")
SECTION_HEADER = RecordLayout(SectionHeader, "IIQQQQIIQQ")
SYMBOL = RecordLayout(SymbolRecord, "IBBHQQ")
RELOCATION = RecordLayout(RelocationRecord, "QQq")
DYNAMIC = RecordLayout(DynamicRecord, "qQ")


class StringTable:
    """Zero-terminated names, each decoded once."""

    def __init__(self, data: bytes, what: str, elf: ElfFile) -> None:
        self._data = data
        self._what = what
        self._elf = elf
        self._seen: dict[int, str] = {}
        self._left = 16 * len(data) + _LONGEST_NAME  # overlapping names are legal, a quadratic number of bytes is not

    def names(self, offsets: Iterable[int]) -> list[str]:
        """Return the names at these offsets."""
        seen = self._seen
        return [seen[offset] if offset in seen else self._name(offset) for offset in offsets]

    def _name(self, offset: int) -> str:
        end = self._data.find(b"\0", offset, offset + _LONGEST_NAME) if offset < len(self._data) else -1
        self._left -= end - offset
        if end < 0 or self._left < 0:
            self._elf.fail(f"no valid name at {offset:#x} of {self._what}")
        try:
            name = self._seen[offset] = self._data[offset:end].decode()
        except UnicodeDecodeError:
            self._elf.fail(f"name at {offset:#x} of {self._what} is not UTF-8")
        return name


def read_header(data: memoryview, name: str) -> FileHeader:
    """Return the file header.

    Raises:
        ObjectError: it is not a 64-bit little-endian ELF file.
        TargetError: it is SPIR-V.
    """
    if data[:4] == SPIRV_MAGIC:
        raise TargetError("this is SPIR-V, which HIP compiles for the device at load time", object=name)
    if data[:4] != ELF_MAGIC:
        raise ObjectError("not an ELF file", object=name, offset=0)
    if len(data) < FILE_HEADER.size:
        raise ObjectError(f"ELF header is truncated to {len(data)} bytes", object=name, offset=0)
    if data[4] != 2 or data[5] != 1:
        raise ObjectError("only 64-bit little-endian ELF files can contain AMD GPU code", object=name, offset=4)
    return FILE_HEADER.unpack(data)


def used_size(data: memoryview) -> int:
    """Return the size of an ELF file up to the end of everything that its headers describe; padding may follow.

    If the headers are damaged, return the total size.
    """
    try:
        elf = ElfFile(data, "")
    except LuthierError:
        return len(data)
    header = elf.header
    ends = [FILE_HEADER.size]
    ends += [header.segments_offset + len(elf.segments) * SEGMENT_HEADER.size] if elf.segments else []
    ends += [header.sections_offset + len(elf.sections) * SECTION_HEADER.size] if elf.sections else []
    ends += [one.offset + one.filesz for one in elf.segments]
    ends += [one.offset + one.size for one in elf.sections if one.type not in (0, SHT_NOBITS)]
    return min(max(ends), len(data))


class ElfFile:
    """Headers of a 64-bit little-endian ELF file, with every range checked against the file's size.

    Raises:
        ObjectError: it is not such a file, or a header points outside it, with the file offset.
    """

    def __init__(self, data: memoryview, name: str) -> None:
        self.data = data
        self.name = name
        self.header = header = read_header(data, name)
        self.segments = self._headers(
            SEGMENT_HEADER, "program header", header.segments_offset, header.segment_count, header.segment_entry_size
        )
        count = header.section_count
        names_index = header.names_index
        if header.sections_offset and count == 0:  # more than 0xff00 sections: the numbers are in section 0
            (first,) = self._headers(
                SECTION_HEADER, "section header", header.sections_offset, 1, header.section_entry_size
            )
            count = first.size
            names_index = first.link if names_index == SHN_XINDEX else names_index
        self.sections = self._headers(
            SECTION_HEADER, "section header", header.sections_offset, count, header.section_entry_size
        )
        for segment in self.segments:
            if segment.type == PT_LOAD:
                self._check_segment(segment)
        self.names_index = names_index
        """Index of the section with the names of sections."""
        self.section_names = self._section_names(names_index)

    def fail(self, message: str, offset: int | None = None) -> NoReturn:
        """Raise an error for a malformed file.

        Args:
            offset: offset in the file.

        Raises:
            ObjectError: always.
        """
        raise ObjectError(message, object=self.name, offset=offset)

    def view_at(self, offset: int, size: int, what: str) -> memoryview:
        """Return `size` bytes of the file from `offset`; `what` names them in the error if some are missing."""
        if offset + size > len(self.data):
            self.fail(f"{what} of {size:#x} bytes reaches past the end of the file ({len(self.data):#x} bytes)", offset)
        return self.data[offset : offset + size]

    def section_view(self, section: SectionHeader, what: str) -> memoryview:
        """Return a section's contents; `what` names them in errors."""
        return memoryview(b"") if section.type == SHT_NOBITS else self.view_at(section.offset, section.size, what)

    def string_table(self, index: int, what: str) -> StringTable:
        """Return the section with this index as a string table; `what` names it in errors."""
        if index >= len(self.sections):
            self.fail(f"{what} is in section {index}, but there are {len(self.sections)}")
        data = self.section_view(self.sections[index], what)
        if len(data) > _LARGEST_STRINGS:
            self.fail(f"{what} of {len(data):#x} bytes is too large", self.sections[index].offset)
        return StringTable(bytes(data), what, self)

    def records(self, layout: RecordLayout[Record], section: SectionHeader, what: str) -> memoryview:
        """Return a section that is a table of records, to be read with `layout`.

        Raises:
            ObjectError: the table is too large, or incomplete.
        """
        if section.size // layout.size > _MOST_RECORDS:
            self.fail(f"{what} of {section.size // layout.size} entries is too large", section.offset)
        return self.section_view(section, what)

    def notes(self) -> Iterator[Note]:
        """Yield every note: of note segments or, without them, of note sections."""
        ranges = [(s.offset, s.filesz, s.align) for s in self.segments if s.type == PT_NOTE]
        if not ranges:
            ranges = [(s.offset, s.size, s.align) for s in self.sections if s.type == SHT_NOTE]
        if sum(size for _, size, _ in ranges) > len(self.data):
            self.fail("note segments overlap", ranges[-1][0])
        for start, size, align in ranges:
            data = self.view_at(start, size, "note segment")
            align = 8 if align == 8 else 4
            at = 0
            while at + 12 <= len(data):
                name_size, size, kind = struct.unpack_from("<III", data, at)
                description = -(-(at + 12 + name_size) // align) * align
                end = description + size
                if end > len(data):
                    self.fail("note reaches past the end of its segment", start + at)
                owner = bytes(data[at + 12 : at + 12 + name_size]).rstrip(b"\0").decode(errors="replace")
                yield Note(owner, kind, data[description:end], start + at, start + description)
                at = -(-end // align) * align

    def _headers(self, layout: RecordLayout[Record], what: str, offset: int, count: int, stride: int) -> list[Record]:
        if offset == 0 or count == 0:
            return []
        if stride != layout.size:
            self.fail(f"{what}s are {stride} bytes long instead of {layout.size}", offset)
        if count > _MOST_RECORDS:
            self.fail(f"table of {count} {what}s is too large", offset)
        return layout.unpack_all(self.view_at(offset, count * stride, f"table of {count} {what}s"))

    def _check_segment(self, segment: SegmentHeader) -> None:
        if segment.filesz > segment.memsz or segment.vaddr + segment.memsz > 1 << 64:
            self.fail(f"malformed PT_LOAD segment at address {segment.vaddr:#x}", segment.offset)
        if segment.offset + segment.filesz > len(self.data):
            self.fail(f"segment at address {segment.vaddr:#x} reaches past the end of the file", segment.offset)

    def _section_names(self, index: int) -> list[str]:
        if not self.sections:
            return []
        return self.string_table(index, "section name table").names(section.name for section in self.sections)
