"""`CodeObject`: an immutable view of an AMDGPU ELF file and its kernels."""

from __future__ import annotations

import bisect
import functools
import itertools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from msgspec import Struct

from luthier import _mc
from luthier.errors import LuthierError, ObjectError
from luthier.isa.targets import TargetId, target_of_mach
from luthier.objects import elf as E
from luthier.objects.descriptor import DESCRIPTOR_SIZE, KernelDescriptor
from luthier.objects.metadata import (
    KERNELS,
    NOTE_OWNER,
    NT_AMDGPU_METADATA,
    SAME_IN_BOTH,
    KernelArgument,
    Metadata,
    are_sizes,
    check_shapes,
    decode_kernels,
    decode_metadata,
    entry,
    numbers,
)
from luthier.objects.occupancy import LARGEST_WORKGROUP, Occupancy, occupancy_of
from luthier.support.wording import counted

if TYPE_CHECKING:
    from luthier.objects.source import SourceMap
    from luthier.objects.variables import VariableMap

ABSOLUTE = "*ABS*"
"""`Symbol.section` of symbols whose address the loader does not change."""
ABI_OF_ELF_VERSION = {1: 3, 2: 4, 3: 5, 4: 6}
"""EI_ABIVERSION -> code object version (ELFABIVERSION_AMDGPU_HSA_V3 to V6)."""


class Segment(Struct, frozen=True):
    """One PT_LOAD segment. Addresses and sizes in bytes; flags are PF_X 1, PF_W 2, PF_R 4."""

    vaddr: int
    offset: int
    filesz: int
    memsz: int
    flags: int


class Section(Struct, frozen=True):
    """One section. `type` and `flags` are ELF's SHT_… and SHF_… numbers."""

    name: str
    type: int
    flags: int
    address: int
    offset: int
    size: int


class Symbol(NamedTuple):
    """One symbol; `section` is "" if it is undefined and ``*ABS*`` if it is absolute."""

    name: str
    address: int
    size: int
    type: str
    binding: str
    visibility: str
    section: str
    dynamic: bool
    """Whether it is in .dynsym, which the loader searches."""

    @property
    def defined(self) -> bool:
        """Return whether the object defines the symbol."""
        return self.section != ""


_SHIFT_OF_HALF = {E.R_AMDGPU_ABS32_LO: 0, E.R_AMDGPU_ABS32_HI: 32}


class Relocation(Struct, frozen=True):
    """A relocation that the loader applies: at virtual address `offset`, of type R_AMDGPU_… `type`."""

    offset: int
    type: int
    symbol: str
    """Name of its symbol; "" if it has none, or the symbol has no name."""
    addend: int
    definition: Symbol | None
    """The symbol, if the object defines it; other symbols may have the same name."""

    @property
    def points_to(self) -> int | None:
        """Return the virtual address in the object to which it resolves; None if it is absolute or outside."""
        if self.type == E.R_AMDGPU_RELATIVE64:
            return self.addend
        if self.definition is None or self.definition.section == ABSOLUTE:
            return None
        return self.definition.address + self.addend


class Kernel(Struct, frozen=True):
    """One kernel of a code object. Register counts of the hardware allocation are in `descriptor`."""

    name: str
    symbol: str
    """Name of the descriptor's symbol, ``<name>.kd``."""
    descriptor: KernelDescriptor
    descriptor_address: int
    code_size: int
    """Bytes from `entry`, from the function's symbol; 0 if unknown."""
    metadata: Metadata
    """Its map in ``amdhsa.kernels``; empty if the object has no metadata for it. Must not be changed; kernels may share
    a list of arguments."""
    arguments: tuple[KernelArgument, ...]
    kernarg_size: int
    """Bytes, including hidden arguments: from the descriptor, or from metadata if the descriptor has 0; at least the
    size of explicit `arguments`."""
    kernarg_align: int
    group_segment_fixed_size: int
    """Bytes of static LDS."""
    private_segment_fixed_size: int
    """Bytes of scratch per work-item."""
    wave_size: int
    vgpr_count: int
    """Vector registers according to the compiler, including AGPRs in a unified file; otherwise allocated ones. This and
    the other counts are for display: they may be wrong, and nothing depends on them."""
    agpr_count: int
    """Number of AGPRs according to the compiler."""
    sgpr_count: int
    """Number of SGPRs according to the compiler, including VCC and other special ones on GFX9."""
    max_flat_workgroup_size: int
    """Work-items according to metadata; 0 if unknown."""

    def has_room_for(self, argument: KernelArgument) -> bool:
        """Return whether an argument lies within the argument size of descriptor or metadata, if any."""
        size = self.descriptor.kernarg_size or self.metadata.get(".kernarg_segment_size", 0)
        return argument.offset + argument.size <= (size or self.kernarg_size)

    @property
    def largest_workgroup(self) -> int:
        """Return the maximum number of work-items of a work-group."""
        allowed = self.max_flat_workgroup_size or LARGEST_WORKGROUP
        return min(max(allowed, math.prod(self.required_workgroup or (0,))), LARGEST_WORKGROUP)

    @property
    def most_waves(self) -> int:
        """Return the maximum number of waves of a work-group."""
        return -(-self.largest_workgroup // self.wave_size)

    @property
    def required_workgroup(self) -> tuple[int, int, int] | None:
        """Return the required work-items of a work-group in x, y and z; None if metadata lacks them or has impossible
        ones.
        """
        sizes: list[int] = self.metadata.get(".reqd_workgroup_size", [])
        if not are_sizes(sizes) or not 1 <= math.prod(sizes) <= LARGEST_WORKGROUP:
            return None
        x, y, z = sizes
        return x, y, z

    @property
    def entry(self) -> int:
        """Return the virtual address of the first instruction."""
        return self.descriptor_address + self.descriptor.kernel_code_entry_byte_offset

    @property
    def allocated_vgprs(self) -> int:
        """Return the VGPRs that a wave occupies in the register file, including AGPRs if it is unified."""
        granule = self.descriptor.target.vgpr_allocation_granule(self.wave_size)
        return -(-self.descriptor.vgprs // granule) * granule

    def occupancy(self, descriptor: KernelDescriptor | None = None) -> Occupancy:
        """Return how many waves of this kernel fit on a SIMD, optionally with another descriptor."""
        items = math.prod(self.required_workgroup or (0,))
        return occupancy_of(descriptor or self.descriptor, self.largest_workgroup, items)

    @property
    def uses_dynamic_stack(self) -> bool:
        """Return whether a lane may need more private memory than the descriptor gives, according to descriptor or
        metadata.
        """
        return bool(self.descriptor.uses_dynamic_stack or self.metadata.get(".uses_dynamic_stack"))


class CodeObject:
    """One AMDGPU code object (an ``hsaco`` file), versions 3 to 6.

    Everything is parsed and checked at construction, so a `CodeObject` is always well-formed.

    Args:
        data: the ELF file. A view is used in place, and must not change.
        name: name in errors and reports: a path, or ``path[gfx942]`` for one of several.
        bundle: the offload bundle that contained it (`luthier.objects.container.DeviceImage`).

    Raises:
        ObjectError: it is not such an object, or malformed, with the offset.
        TargetError: the processor is unknown.
    """

    def __init__(self, data: bytes | bytearray | memoryview, name: str = "<memory>", bundle: str = "") -> None:
        self._view = memoryview(bytes(data) if isinstance(data, bytearray) else data).toreadonly()
        self.name = name
        self.bundle = bundle
        self.elf = elf = E.ElfFile(self._view, name)
        header = elf.header
        self.target = read_target(header, name)
        self.abi = ABI_OF_ELF_VERSION[header.abi_version]
        if header.type != E.ET_DYN:
            elf.fail("not a linked code object (ELF type is not ET_DYN); link relocatable objects first", 16)
        self.segments = tuple(
            Segment(s.vaddr, s.offset, s.filesz, s.memsz, s.flags) for s in elf.segments if s.type == E.PT_LOAD
        )
        self.sections = tuple(
            Section(n, s.type, s.flags, s.address, s.offset, s.size)
            for n, s in zip(elf.section_names, elf.sections, strict=True)
        )
        for section in self.sections:
            if section.type not in (0, E.SHT_NOBITS) and section.offset + section.size > len(self._view):
                elf.fail(f"section {section.name} reaches past the end of the file", section.offset)
        dynamic = self._read_symbols(E.SHT_DYNSYM, dynamic=True)
        static = self._read_symbols(E.SHT_SYMTAB, dynamic=False)
        self.symbols = self._merge(static, dynamic)
        self.relocations = self._read_relocations(dynamic)
        self._notes = [
            (note.description, note.offset)
            for note in elf.notes()
            if note.owner == NOTE_OWNER and note.type == NT_AMDGPU_METADATA
        ]
        self._by_name: dict[str, Symbol] = {}
        for symbol in self.symbols:  # a definition wins over an import, a global over a local
            other = self._by_name.get(symbol.name)
            if other is None or (symbol.defined, symbol.binding != "local") > (other.defined, other.binding != "local"):
                self._by_name[symbol.name] = symbol
        self.kernels = self._read_kernels()

    def __repr__(self) -> str:
        return f"<CodeObject {self.name}: {self.target}, v{self.abi}, {counted(len(self.kernels), 'kernel')}>"

    @functools.cached_property
    def data(self) -> bytes:
        """Return the ELF file."""
        owner = self._view.obj
        return owner if isinstance(owner, bytes) and len(owner) == len(self._view) else bytes(self._view)

    @property
    def view(self) -> memoryview:
        """Return the ELF file in place. A mapped file may be mostly padding, which `data` copies."""
        return self._view

    @property
    def size(self) -> int:
        """Return the size of the ELF file in bytes."""
        return len(self._view)

    def read(self, address: int, size: int) -> bytes:
        """Return `size` bytes at virtual `address`; memory that is not in the file reads as zero.

        Raises:
            ObjectError: no segment contains all of them.
        """
        for segment in self.segments:
            start = address - segment.vaddr
            if start >= 0 and start + size <= segment.memsz:
                backed = bytes(self._view[segment.offset + start : segment.offset + min(start + size, segment.filesz)])
                return backed + bytes(size - len(backed))
        raise ObjectError(f"no segment contains {size:#x} bytes at this address", object=self.name, offset=address)

    @functools.cached_property
    def metadata(self) -> Metadata:
        """Return the contents of the metadata notes as one map.

        LLVM writes one note for all kernels, GCC one for each.
        """
        metadata: Metadata = {}
        for data, offset in self._notes:
            decoded = decode_metadata(data, object=self.name, offset=offset)
            kernels = [*metadata.get(KERNELS, ()), *decoded.get(KERNELS, ())]
            metadata = {**decoded, **metadata, **({KERNELS: kernels} if KERNELS in decoded else {})}
        return metadata

    def symbol(self, name: str) -> Symbol | None:
        """Return the symbol named exactly `name`: defined before undefined, global before local."""
        return self._by_name.get(name)

    def variable(self, name: str) -> Symbol | None:
        """Return the variable `name`, by its symbol or its name in the source (``counters::total``).

        None if there is no such variable with storage.
        """
        symbol = self.symbol(name)
        if symbol is None and "::" in name:
            symbol = next((one for one in self.symbols if one.name and _mc.demangle(one.name) == name), None)
        return symbol if symbol is not None and symbol.defined and symbol.size else None

    def section_data(self, name: str) -> bytes | None:
        """Return the contents of the first section named `name`, e.g. ``.llvmbc``; None if there is none."""
        for section in self.sections:
            if section.name == name:
                size = 0 if section.type == E.SHT_NOBITS else section.size
                return bytes(self._view[section.offset : section.offset + size])
        return None

    @functools.cached_property
    def variables(self) -> VariableMap:
        """Return the variables of its functions, from debug information."""
        from luthier.objects.variables import VariableMap  # imports pyelftools

        return VariableMap(self.elf)

    @functools.cached_property
    def source(self) -> SourceMap:
        """Return the source lines of its code, from debug information.

        Its `problems` tell what is missing or damaged.
        """
        from luthier.objects.source import SourceMap  # needs NumPy

        functions = [(one.name, one.address, one.size) for one in self.symbols if one.type == "func" and one.defined]
        return SourceMap(self.elf, self.text_ranges, functions)

    @functools.cached_property
    def text_ranges(self) -> tuple[tuple[int, int], ...]:
        """Return (address, size) of all executable sections, or of segments if there are no sections.

        Overlapping ones are merged, and empty ones left out: no segment need contain their addresses.
        """
        executable = [
            (s.address, s.size)
            for s in self.sections
            if s.flags & E.SHF_EXECINSTR and s.flags & E.SHF_ALLOC and s.type == E.SHT_PROGBITS
        ]
        ranges: list[tuple[int, int]] = []
        for address, size in sorted(executable or [(s.vaddr, s.filesz) for s in self.segments if s.flags & E.PF_X]):
            if ranges and address < sum(ranges[-1]):
                address, size = ranges[-1][0], max(sum(ranges.pop()), address + size)
                size -= address
            ranges.append((address, size))
        return tuple((address, size) for address, size in ranges if size)

    @functools.cached_property
    def text_relocations(self) -> tuple[Relocation, ...]:
        """Return the relocations of its code, which only patched kernels have."""
        return tuple(relocation for relocation in self.relocations if self._is_code(relocation.offset))

    def text_as_loaded(self, address_of: Callable[[str], int | None]) -> list[tuple[int, bytes]]:
        """Return virtual address and bytes of each of `text_ranges`, with relocations applied.

        Args:
            address_of: returns the address in memory of a symbol.

        Raises:
            ObjectError: a relocation is not for half of an address, or its symbol is unknown.
        """
        ranges = [(start, bytearray(self.read(start, size))) for start, size in self.text_ranges]
        for relocation in self.text_relocations:
            named = self.symbol(relocation.symbol)
            is_that = relocation.definition == (named if named is not None and named.defined else None)
            symbol = address_of(relocation.symbol) if is_that else None
            if relocation.type not in _SHIFT_OF_HALF or symbol is None:
                raise ObjectError(
                    f"unsupported relocation of code: type {relocation.type}, symbol {relocation.symbol or '(none)'}",
                    object=self.name,
                    offset=relocation.offset,
                )
            half = symbol + relocation.addend >> _SHIFT_OF_HALF[relocation.type] & 0xFFFFFFFF
            for start, data in ranges:
                at = relocation.offset - start
                if 0 <= at <= len(data) - 4:
                    data[at : at + 4] = half.to_bytes(4, "little")
        return [(start, bytes(data)) for start, data in ranges]

    @functools.cached_property
    def _code_ends(self) -> list[int]:
        """Return the maximum end of the first, the first two, … `text_ranges`."""
        return list(itertools.accumulate((address + size for address, size in self.text_ranges), max))

    def _is_code(self, address: int) -> bool:
        before = bisect.bisect_right(self.text_ranges, address, key=lambda part: part[0])
        return before > 0 and address < self._code_ends[before - 1]

    def _read_symbols(self, section_type: int, *, dynamic: bool) -> list[Symbol]:
        elf = self.elf
        tables = [section for section in elf.sections if section.type == section_type]
        what = "dynamic symbol table" if dynamic else "symbol table"
        if not tables:
            return []
        if len(tables) > 1:
            elf.fail(f"there are several {what}s", tables[1].offset)
        rows = list(E.SYMBOL.rows(elf.records(E.SYMBOL, tables[0], what)))
        names = elf.string_table(tables[0].link, f"string table of the {what}").names(row[0] for row in rows)
        kinds: dict[tuple[int, int, int], tuple[str, str, str, str]] = {}
        symbols = []
        for name, (_, info, other, section, value, size) in zip(names, rows, strict=True):
            kind = kinds.get((info, other, section))
            if kind is None:
                kind = kinds[info, other, section] = (
                    E.SYMBOL_TYPES.get(info & 15, str(info & 15)),
                    E.SYMBOL_BINDINGS.get(info >> 4, str(info >> 4)),
                    E.SYMBOL_VISIBILITIES[other & 3],
                    self._section_of(section),
                )
            symbols.append(Symbol(name, value, size, *kind, dynamic))
        return symbols

    def _section_of(self, index: int) -> str:
        if index == E.SHN_UNDEF:
            return ""
        if index == E.SHN_XINDEX:
            self.elf.fail("a symbol has its section index in an extended table, which is not supported")
        if index >= E.SHN_LORESERVE:
            return ABSOLUTE
        if index >= len(self.elf.sections):
            self.elf.fail(f"a symbol is in section {index}, but there are {len(self.elf.sections)}")
        return self.elf.section_names[index]

    @staticmethod
    def _merge(static: list[Symbol], dynamic: list[Symbol]) -> tuple[Symbol, ...]:
        """Return every symbol once, without section and file symbols."""
        merged = {(s.name, s.address, s.section): s for s in static}
        merged.update({(s.name, s.address, s.section): s for s in dynamic})
        return tuple(s for s in merged.values() if s.name and s.type not in ("section", "file"))

    def _read_relocations(self, dynamic: list[Symbol]) -> tuple[Relocation, ...]:
        out = []
        loaded = [s for s in self.elf.sections if s.flags & E.SHF_ALLOC]
        for section in loaded:
            if section.type in E.OTHER_RELOCATIONS and section.size:
                kind = E.OTHER_RELOCATIONS[section.type]
                self.elf.fail(f"relocations in a section of type {kind} are not supported", section.offset)
        tables = [s for s in loaded if s.type == E.SHT_RELA]
        if sum(section.size for section in tables) > self.size:
            self.elf.fail("relocation tables overlap", tables[-1].offset)
        for section in tables:
            for record in E.RELOCATION.unpack_all(self.elf.records(E.RELOCATION, section, "relocation table")):
                if record.symbol >= max(len(dynamic), 1):
                    self.elf.fail(f"relocation of symbol {record.symbol}: there are {len(dynamic)}", section.offset)
                symbol = dynamic[record.symbol] if record.symbol else None
                definition = symbol if symbol is not None and symbol.defined else None
                name = "" if symbol is None else symbol.name
                out.append(Relocation(record.offset, record.type, name, record.addend, definition))
        return tuple(out)

    def _read_kernels(self) -> dict[str, Kernel]:
        functions = {s.address: s.size for s in self.symbols if s.type == "func" and s.section}
        described_kernels = [
            one for data, offset in self._notes for one in decode_kernels(data, object=self.name, offset=offset)
        ]
        kernels: dict[str, Kernel] = {}
        described = set()
        for row, arguments in described_kernels:
            name = entry(row, ".name", str, "", object=self.name)
            symbol = entry(row, ".symbol", str, name + ".kd", object=self.name)
            if name in kernels:
                raise ObjectError("the kernel is listed twice in the metadata", object=self.name, kernel=name)
            kernels[name] = self._read_kernel(name, symbol, row, arguments, functions)
            described.add(symbol)
        for candidate in self.symbols:  # objects without metadata: hand-written assembly
            is_descriptor = (
                candidate.size == DESCRIPTOR_SIZE and candidate.type == "object" and candidate.name.endswith(".kd")
            )
            if is_descriptor and candidate.name not in described and candidate.defined:
                name = candidate.name.removesuffix(".kd")
                kernels.setdefault(name, self._read_kernel(name, candidate.name, {}, (), functions))
        return kernels

    def _read_kernel(
        self,
        name: str,
        symbol_name: str,
        row: Metadata,
        arguments: tuple[KernelArgument, ...],
        functions: dict[int, int],
    ) -> Kernel:
        symbol = self.symbol(symbol_name)
        if symbol is None or not symbol.defined:
            raise ObjectError(f"no symbol {symbol_name!r} for the kernel descriptor", object=self.name, kernel=name)
        try:
            descriptor = KernelDescriptor.decode(self.read(symbol.address, DESCRIPTOR_SIZE), self.target.target)
        except ObjectError as problem:
            raise ObjectError(
                f"the kernel descriptor is not in the object: {problem.message}",
                object=self.name,
                kernel=name,
                offset=symbol.address,
            ) from None
        defaults = {
            ".kernarg_segment_size": descriptor.kernarg_size,
            ".kernarg_segment_align": 16,
            ".vgpr_count": descriptor.vgprs,
            ".agpr_count": descriptor.agprs,
            ".sgpr_count": descriptor.sgprs,
            ".max_flat_workgroup_size": 0,
            **{key: getattr(descriptor, field) for key, field in SAME_IN_BOTH.items()},
        }
        kernarg_size, kernarg_align, vgprs, agprs, sgprs, largest, *_ = numbers(
            row, defaults, object=self.name, kernel=name
        )
        check_shapes(row, object=self.name, kernel=name)
        explicit_end = max([one.offset + one.size for one in arguments if not one.hidden], default=0)
        kernel = Kernel(
            name=name,
            symbol=symbol_name,
            descriptor=descriptor,
            descriptor_address=symbol.address,
            code_size=functions.get(symbol.address + descriptor.kernel_code_entry_byte_offset, 0),
            metadata=row,
            arguments=arguments,
            kernarg_size=max(descriptor.kernarg_size or kernarg_size, explicit_end),
            kernarg_align=kernarg_align,
            group_segment_fixed_size=descriptor.group_segment_fixed_size,
            private_segment_fixed_size=descriptor.private_segment_fixed_size,
            wave_size=descriptor.wave_size,
            vgpr_count=vgprs,
            agpr_count=agprs,
            sgpr_count=sgprs,
            max_flat_workgroup_size=largest,
        )
        if not self._is_code(kernel.entry):
            raise ObjectError(
                "the kernel's entry point is not in executable code", object=self.name, kernel=name, offset=kernel.entry
            )
        return kernel


def read_target(header: E.FileHeader, name: str) -> TargetId:
    """Return the target of a code object's header.

    Raises:
        ObjectError: it is not a code object of a known version, or its features contradict the processor.
        TargetError: the processor is unknown.
    """

    def fail(message: str, offset: int) -> NoReturn:
        raise ObjectError(message, object=name, offset=offset)

    if header.machine != E.EM_AMDGPU:
        fail(f"ELF machine {header.machine} is not AMDGPU", 18)
    if header.osabi != E.ELFOSABI_AMDGPU_HSA:
        fail(f"ELF OS ABI {header.osabi} is not AMDGPU_HSA", 7)
    if header.abi_version not in ABI_OF_ELF_VERSION:
        fail(f"ELF ABI version {header.abi_version} is not of code object version 3 to 6", 8)
    flags = header.flags
    try:
        target = target_of_mach(flags & 0xFF)
    except LuthierError as problem:
        problem.object, problem.offset = name, 48
        raise
    if ABI_OF_ELF_VERSION[header.abi_version] == 3:  # one bit each: on or off
        return TargetId(
            target,
            bool(flags & 0x200) if target.supports_sramecc else None,
            bool(flags & 0x100) if target.supports_xnack else None,
        )
    settings = (None, None, False, True)  # unsupported, any, off, on
    xnack, sramecc = settings[flags >> 8 & 3], settings[flags >> 10 & 3]
    if (xnack is not None and not target.supports_xnack) or (sramecc is not None and not target.supports_sramecc):
        fail(f"ELF flags {flags:#x} set a feature that {target.name} lacks", 48)
    return TargetId(target, sramecc, xnack)
