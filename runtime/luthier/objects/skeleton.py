"""An object with only the tables that `ObjectEditor` needs, as the start of a new one."""

from __future__ import annotations

from luthier.isa.targets import Target
from luthier.objects import elf as E
from luthier.objects.code_object import CodeObject

_NAMES = b"\0.dynsym\0.dynstr\0.symtab\0.strtab\0.shstrtab\0"


def header_for(target: Target) -> E.FileHeader:
    """Return the file header of a code object of version 4 for a target, with any feature settings.

    See AMDGPUUsage, "ELF Code Object".
    """
    ident = E.ELF_MAGIC + bytes([2, 1, 1, E.ELFOSABI_AMDGPU_HSA, 2]) + bytes(7)
    flags = target.mach | target.supports_xnack << 8 | target.supports_sramecc << 10
    return E.FileHeader(ident, 3, E.EM_AMDGPU, 1, 0, 0, 0, flags, E.FILE_HEADER.size, 0, 0, 0, 0, 0)


def empty_object(like: E.FileHeader, name: str) -> CodeObject:
    """Return a code object without kernels, code or data, for the target and version of a file header.

    One loaded segment holds the headers and the dynamic symbol table, which is empty.
    """
    symbol = bytes(E.SYMBOL.size)
    header_size = E.FILE_HEADER.size + E.SEGMENT_HEADER.size
    dynsym = header_size
    dynstr = dynsym + len(symbol)
    loaded = dynstr + 1
    symtab = -(-loaded // 8) * 8
    strtab = symtab + len(symbol)
    names = strtab + 1
    headers = -(-(names + len(_NAMES)) // 8) * 8

    def section(
        label: str, type: int, offset: int, size: int, link: int = 0, info: int = 0, align: int = 1, entry: int = 0
    ) -> E.SectionHeader:
        flags = E.SHF_ALLOC if offset < loaded else 0
        name_offset = _NAMES.index(b"\0" + label.encode() + b"\0") + 1
        address = offset if flags else 0
        return E.SectionHeader(name_offset, type, flags, address, offset, size, link, info, align, entry)

    sections = [
        E.SectionHeader(*[0] * 10),
        section(".dynsym", E.SHT_DYNSYM, dynsym, len(symbol), 2, 1, 8, E.SYMBOL.size),
        section(".dynstr", E.SHT_STRTAB, dynstr, 1),
        section(".symtab", E.SHT_SYMTAB, symtab, len(symbol), 4, 1, 8, E.SYMBOL.size),
        section(".strtab", E.SHT_STRTAB, strtab, 1),
        section(".shstrtab", E.SHT_STRTAB, names, len(_NAMES)),
    ]
    header = like._replace(
        entry=0,
        segments_offset=E.FILE_HEADER.size,
        sections_offset=headers,
        segment_count=1,
        segment_entry_size=E.SEGMENT_HEADER.size,
        section_count=len(sections),
        section_entry_size=E.SECTION_HEADER.size,
        names_index=len(sections) - 1,
    )
    data = bytearray(headers)
    data[: E.FILE_HEADER.size] = E.FILE_HEADER.pack(header)
    data[E.FILE_HEADER.size : header_size] = E.SEGMENT_HEADER.pack(
        E.SegmentHeader(E.PT_LOAD, E.PF_R, 0, 0, 0, loaded, loaded, 0x1000)
    )
    data[names : names + len(_NAMES)] = _NAMES
    return CodeObject(bytes(data) + E.SECTION_HEADER.pack_all(sections), name)
