"""`CodeObject`: an immutable view of one AMDGPU ELF file, and the kernels in it."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from luthier.errors import LuthierError, ObjectError
from luthier.objects import elf as E
from luthier.objects.descriptor import DESCRIPTOR_SIZE, KernelDescriptor
from luthier.objects.metadata import (
    NOTE_OWNER,
    NT_AMDGPU_METADATA,
    KernelArgument,
    Metadata,
    arguments_of,
    decode_metadata,
    entry,
    maps,
)
from luthier.targets import TargetId, target_of_mach

ABI_OF_ELF_VERSION = {1: 3, 2: 4, 3: 5, 4: 6}
"""EI_ABIVERSION -> code object version (ELFABIVERSION_AMDGPU_HSA_V3 to V6)."""


@dataclass(frozen=True)
class Segment:
    """One PT_LOAD segment. Addresses and sizes in bytes; flags are PF_X 1, PF_W 2, PF_R 4."""

    vaddr: int
    offset: int
    filesz: int
    memsz: int
    flags: int


@dataclass(frozen=True)
class Section:
    """One section. `type` and `flags` are ELF's SHT_… and SHF_… numbers."""

    name: str
    type: int
    flags: int
    address: int
    offset: int
    size: int


@dataclass(frozen=True)
class Symbol:
    """One symbol; `section` is "" where it is undefined and ``*ABS*`` where it is absolute."""

    name: str
    address: int
    size: int
    type: str
    binding: str
    visibility: str
    section: str
    dynamic: bool
    """It is in .dynsym, where the loader looks."""

    @property
    def defined(self) -> bool:
        return self.section != ""


@dataclass(frozen=True)
class Relocation:
    """One relocation the loader applies: at virtual address `offset`, of type R_AMDGPU_… `type`."""

    offset: int
    type: int
    symbol: str
    addend: int


@dataclass(frozen=True)
class Kernel:
    """One kernel of a code object. Register counts of the hardware allocation are in `descriptor`."""

    name: str
    symbol: str
    """Name of the descriptor's symbol, ``<name>.kd``."""
    descriptor: KernelDescriptor
    descriptor_address: int
    code_size: int
    """Bytes from `entry`, from the function's symbol; 0 if unknown."""
    metadata: Metadata
    """Its map in ``amdhsa.kernels``; empty if the object has no metadata for it. Not to be changed."""
    arguments: tuple[KernelArgument, ...]
    kernarg_size: int
    """Bytes, hidden arguments included."""
    kernarg_align: int
    group_segment_fixed_size: int
    """Bytes of static LDS."""
    private_segment_fixed_size: int
    """Bytes of scratch per work-item."""
    wave_size: int
    vgpr_count: int
    """Vector registers the compiler says it uses, in a unified file with AGPRs; allocated ones if it says nothing."""
    agpr_count: int
    sgpr_count: int
    """As the compiler reports it: with VCC and other specials on GFX9."""
    max_flat_workgroup_size: int
    """Work-items; 0 if unknown."""

    @property
    def entry(self) -> int:
        """Virtual address of the first instruction."""
        return self.descriptor_address + self.descriptor.kernel_code_entry_byte_offset

    @property
    def allocated_vgprs(self) -> int:
        """VGPRs a wave occupies in the register file, AGPRs included where it is unified."""
        granule = self.descriptor.target.vgpr_allocation_granule(self.wave_size)
        return -(-self.descriptor.vgprs // granule) * granule

    @property
    def uses_dynamic_stack(self) -> bool:
        return bool(self.descriptor.uses_dynamic_stack)


class CodeObject:
    """One AMDGPU code object (an ``hsaco`` file), versions 3 to 6.

    Everything is parsed and checked when it is made, so a `CodeObject` that exists is well-formed.

    Args:
        data: the ELF file.
        name: how errors and reports call it: a path, or ``path[gfx942]`` for one of several.

    Raises:
        ObjectError: not such an object, or malformed, with the offset.
        TargetError: the processor is not known.
    """

    def __init__(self, data: bytes, name: str = "<memory>") -> None:
        self.data = bytes(data)
        self.name = name
        self.elf = elf = E.ElfFile(self.data, name)
        header = elf.header
        if header.machine != E.EM_AMDGPU:
            elf.fail(f"ELF machine {header.machine} is not AMDGPU", 18)
        if header.osabi != E.ELFOSABI_AMDGPU_HSA:
            elf.fail(f"ELF OS ABI {header.osabi} is not AMDGPU_HSA", 7)
        if header.abi_version not in ABI_OF_ELF_VERSION:
            elf.fail(f"ELF ABI version {header.abi_version} is not of code object version 3 to 6", 8)
        if header.type != E.ET_DYN:
            elf.fail("not a linked code object (ELF type is not ET_DYN); link relocatable objects first", 16)
        self.abi = ABI_OF_ELF_VERSION[header.abi_version]
        try:
            self.target = self._read_target(header.flags)
        except LuthierError as problem:
            problem.object, problem.offset = name, 48
            raise
        self.segments = tuple(
            Segment(s.vaddr, s.offset, s.filesz, s.memsz, s.flags) for s in elf.segments if s.type == E.PT_LOAD
        )
        self.sections = tuple(
            Section(n, s.type, s.flags, s.address, s.offset, s.size)
            for n, s in zip(elf.section_names, elf.sections, strict=True)
        )
        for section in self.sections:
            if section.type not in (0, E.SHT_NOBITS) and section.offset + section.size > len(self.data):
                elf.fail(f"section {section.name} reaches past the end of the file", section.offset)
        dynamic = self._read_symbols(E.SHT_DYNSYM, dynamic=True)
        static = self._read_symbols(E.SHT_SYMTAB, dynamic=False)
        self.symbols = self._merge(static, dynamic)
        self.relocations = self._read_relocations(dynamic)
        self.metadata = self._read_metadata()
        self._by_name: dict[str, Symbol] = {}
        for symbol in self.symbols:  # a definition wins over an import, a global over a local
            other = self._by_name.get(symbol.name)
            if other is None or (symbol.defined, symbol.binding != "local") > (other.defined, other.binding != "local"):
                self._by_name[symbol.name] = symbol
        self.kernels = self._read_kernels()

    def __repr__(self) -> str:
        return f"<CodeObject {self.name}: {self.target}, v{self.abi}, {len(self.kernels)} kernels>"

    def read(self, address: int, size: int) -> bytes:
        """`size` bytes at virtual `address`; memory the file does not back reads as zero.

        Raises:
            ObjectError: no one segment holds them all.
        """
        for segment in self.segments:
            start = address - segment.vaddr
            if start >= 0 and start + size <= segment.memsz:
                backed = self.data[segment.offset + start : segment.offset + min(start + size, segment.filesz)]
                return backed + bytes(size - len(backed))
        raise ObjectError(f"no segment holds {size:#x} bytes at this address", object=self.name, offset=address)

    def symbol(self, name: str) -> Symbol | None:
        """The symbol called exactly `name`: a defined one before an undefined, a global before a local."""
        return self._by_name.get(name)

    def section_data(self, name: str) -> bytes | None:
        """Contents of the first section called `name`, e.g. ``.llvmbc``; None if there is none."""
        for section in self.sections:
            if section.name == name:
                size = 0 if section.type == E.SHT_NOBITS else section.size
                return self.data[section.offset : section.offset + size]
        return None

    @functools.cached_property
    def text_ranges(self) -> tuple[tuple[int, int], ...]:
        """(address, size) of every executable section, or segment where there are no sections."""
        found = [
            (s.address, s.size)
            for s in self.sections
            if s.flags & E.SHF_EXECINSTR and s.flags & E.SHF_ALLOC and s.type == E.SHT_PROGBITS
        ]
        return tuple(sorted(found or [(s.vaddr, s.filesz) for s in self.segments if s.flags & E.PF_X]))

    def _read_target(self, flags: int) -> TargetId:
        target = target_of_mach(flags & 0xFF)
        if self.abi == 3:  # one bit each: on or off
            xnack = bool(flags & 0x100) if target.supports_xnack else None
            sramecc = bool(flags & 0x200) if target.supports_sramecc else None
            return TargetId(target, sramecc, xnack)
        settings = (None, None, False, True)  # unsupported, any, off, on
        xnack, sramecc = settings[flags >> 8 & 3], settings[flags >> 10 & 3]
        if (xnack is not None and not target.supports_xnack) or (sramecc is not None and not target.supports_sramecc):
            raise ObjectError(f"ELF flags {flags:#x} set a feature that {target.name} lacks")
        return TargetId(target, sramecc, xnack)

    def _read_symbols(self, kind: int, *, dynamic: bool) -> list[Symbol]:
        elf = self.elf
        out: list[Symbol] = []
        for section in elf.sections:
            if section.type != kind:
                continue
            what = "dynamic symbol table" if dynamic else "symbol table"
            names = elf.string_table(section.link, f"string table of the {what}")
            for record in E.SYMBOL.unpack_all(elf.section_bytes(section, what)):
                out.append(
                    Symbol(
                        names[record.name],
                        record.value,
                        record.size,
                        E.SYMBOL_TYPES.get(record.info & 15, str(record.info & 15)),
                        E.SYMBOL_BINDINGS.get(record.info >> 4, str(record.info >> 4)),
                        E.SYMBOL_VISIBILITIES[record.other & 3],
                        self._section_of(record.section),
                        dynamic,
                    )
                )
        return out

    def _section_of(self, index: int) -> str:
        if index == E.SHN_UNDEF:
            return ""
        if index >= E.SHN_LORESERVE:
            return "*ABS*"
        if index >= len(self.elf.sections):
            self.elf.fail(f"symbol in section {index} of {len(self.elf.sections)}")
        return self.elf.section_names[index]

    @staticmethod
    def _merge(static: list[Symbol], dynamic: list[Symbol]) -> tuple[Symbol, ...]:
        """Every symbol once; section and file symbols, which name nothing, are left out."""
        merged = {(s.name, s.address, s.section): s for s in static}
        merged.update({(s.name, s.address, s.section): s for s in dynamic})
        return tuple(s for s in merged.values() if s.name and s.type not in ("section", "file"))

    def _read_relocations(self, dynamic: list[Symbol]) -> tuple[Relocation, ...]:
        out = []
        for section in self.elf.sections:
            if section.type == E.SHT_RELA and section.flags & E.SHF_ALLOC:
                for record in E.RELOCATION.unpack_all(self.elf.section_bytes(section, "relocation table")):
                    if record.symbol >= max(len(dynamic), 1):
                        self.elf.fail(f"relocation names symbol {record.symbol} of {len(dynamic)}", section.offset)
                    name = dynamic[record.symbol].name if record.symbol else ""
                    out.append(Relocation(record.offset, record.type, name, record.addend))
        return tuple(out)

    def _read_metadata(self) -> Metadata:
        for owner, kind, description, offset in self.elf.notes():
            if owner == NOTE_OWNER and kind == NT_AMDGPU_METADATA:
                return decode_metadata(description, object=self.name, offset=offset)
        return {}

    def _read_kernels(self) -> dict[str, Kernel]:
        functions = {s.address: s.size for s in self.symbols if s.type == "func" and s.defined}
        kernels: dict[str, Kernel] = {}
        for row in maps(self.metadata, "amdhsa.kernels", object=self.name):
            name = entry(row, ".name", str, "", object=self.name)
            kernel = self._read_kernel(name, entry(row, ".symbol", str, name + ".kd", object=self.name), row, functions)
            if kernel.name in kernels:
                raise ObjectError("kernel is listed twice in the metadata", object=self.name, kernel=name)
            kernels[kernel.name] = kernel
        described = {kernel.symbol for kernel in kernels.values()}
        for symbol in self.symbols:  # objects without metadata: hand-written assembly
            is_descriptor = symbol.type == "object" and symbol.size == DESCRIPTOR_SIZE and symbol.name.endswith(".kd")
            if is_descriptor and symbol.defined and symbol.name not in described:
                name = symbol.name.removesuffix(".kd")
                kernels.setdefault(name, self._read_kernel(name, symbol.name, {}, functions))
        return kernels

    def _read_kernel(self, name: str, symbol_name: str, row: Metadata, functions: dict[int, int]) -> Kernel:
        symbol = self.symbol(symbol_name)
        if symbol is None or not symbol.defined:
            raise ObjectError(f"no symbol {symbol_name!r} for a kernel's descriptor", object=self.name, kernel=name)
        try:
            descriptor = KernelDescriptor.decode(self.read(symbol.address, DESCRIPTOR_SIZE), self.target.target)
        except ObjectError as problem:
            raise ObjectError(
                f"descriptor is not in the object: {problem.message}",
                object=self.name,
                kernel=name,
                offset=symbol.address,
            ) from None

        def number(key: str, default: int) -> int:
            return entry(row, key, int, default, object=self.name, kernel=name)

        kernel = Kernel(
            name=name,
            symbol=symbol_name,
            descriptor=descriptor,
            descriptor_address=symbol.address,
            code_size=functions.get(symbol.address + descriptor.kernel_code_entry_byte_offset, 0),
            metadata=row,
            arguments=arguments_of(row, object=self.name, name=name),
            kernarg_size=number(".kernarg_segment_size", descriptor.kernarg_size),
            kernarg_align=number(".kernarg_segment_align", 16),
            group_segment_fixed_size=descriptor.group_segment_fixed_size,
            private_segment_fixed_size=descriptor.private_segment_fixed_size,
            wave_size=descriptor.wave_size,
            vgpr_count=number(".vgpr_count", descriptor.vgprs),
            agpr_count=number(".agpr_count", descriptor.agprs if not row else 0),
            sgpr_count=number(".sgpr_count", descriptor.sgprs),
            max_flat_workgroup_size=number(".max_flat_workgroup_size", 0),
        )
        if not any(address <= kernel.entry < address + size for address, size in self.text_ranges):
            raise ObjectError(
                "kernel's entry point is not in executable code", object=self.name, kernel=name, offset=kernel.entry
            )
        return kernel
