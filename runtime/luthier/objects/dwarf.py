"""DWARF of the units of a code object: the line of each instruction, and inlined calls.

pyelftools reads the records and trusts them: the limits here prevent damaged sections from costing more time or memory
than intact ones, and any error inside becomes a `DwarfError`.

Source: DWARF Debugging Information Format, versions 4 and 5; System V ABI, "Compressed section".
"""

from __future__ import annotations

import io
import itertools
import posixpath
import re
import struct
import zlib
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import zstandard
from elftools.dwarf.compileunit import CompileUnit
from elftools.dwarf.die import DIE
from elftools.dwarf.dwarfinfo import DebugSectionDescriptor, DwarfConfig, DWARFInfo
from elftools.dwarf.ranges import BaseAddressEntry
from msgspec import Struct

from luthier.objects import elf as E
from luthier.objects.line_header import check_line_header

SHF_COMPRESSED = 0x800
_COMPRESSION = struct.Struct("<IxxxxQQ")
"""Elf64_Chdr: kind, size and alignment of the contents."""
_HARMLESS, _LARGEST_RATIO = 64 << 20, 256
"""A section that claims more than these bytes and this multiple of its size is a bomb."""
_DECOMPRESSORS: dict[int, Callable[[bytes, int], bytes]] = {
    1: lambda data, most: zlib.decompressobj().decompress(data, most),
    2: lambda data, most: zstandard.ZstdDecompressor().stream_reader(data).read(most),
}
"""ELFCOMPRESS_ZLIB, ELFCOMPRESS_ZSTD."""
_SECTIONS = (
    "info", "aranges", "abbrev", "frame", "str", "loc", "ranges", "line", "pubtypes", "pubnames", "addr", "str_offsets",
    "line_str", "loclists", "rnglists", "sup", "types",
)  # fmt: skip
_LONG_NUMBER = re.compile(rb"[\x80-\xff]{4096}")
"""No number has this many bytes, and reading it takes time quadratic in its length."""
_CODE_SCOPES = {"DW_TAG_subprogram", "DW_TAG_inlined_subroutine"}
_MOST_ORIGINS = 8
"""Maximum steps from a function to the entry that names it; real ones have two."""
_MOST_CHILDREN = 1 << 12
"""Number of entries of a function searched for parameters."""
_MODIFIERS = {
    "DW_TAG_pointer_type": "{}*",
    "DW_TAG_reference_type": "{}&",
    "DW_TAG_rvalue_reference_type": "{}&&",
    "DW_TAG_const_type": "{} const",
    "DW_TAG_volatile_type": "{} volatile",
    "DW_TAG_restrict_type": "{}",
    "DW_TAG_typedef": "{}",
}
"""Types derived from another one, as spelled by demanglers; aliases are resolved."""


class DwarfError(Exception):
    """Debug information that cannot be read; `str` says why."""


class LineRow(NamedTuple):
    """The line of instructions from `address`; none if `file` is None."""

    address: int
    file: str | None
    line: int
    column: int
    body: bool = False
    """Whether the function's frame is complete here."""
    discriminator: int = 0
    """Tells blocks on one line apart, if the compiler was asked to (``-fdebug-info-for-profiling``)."""


class Scope(Struct, frozen=True):
    """A function or an inlined call."""

    function: str
    """Its symbol, or its name if it has none."""
    ranges: tuple[tuple[int, int], ...]
    """Addresses [begin, end)."""
    parent: Scope | None
    """Scope into which it was inlined."""
    call: tuple[str, int, int]
    """File, line and column of the call; meaningless without `parent`."""
    declared: int = 0
    """Line of its declaration; 0 if unknown."""


@dataclass
class CompilationUnit:
    """One compilation unit."""

    ranges: tuple[tuple[int, int], ...]
    """Addresses [begin, end) of its code."""
    cu: CompileUnit = field(repr=False)
    _dwarf: Dwarf = field(repr=False)

    def sequences(self) -> list[list[LineRow]]:
        """Return the line table.

        The addresses of each sequence ascend, and its last row has no line.

        Raises:
            DwarfError: it cannot be read.
        """
        with readable("line table"):
            return list(self._dwarf.sequences(self.cu))

    def scopes(self) -> list[Scope]:
        """Return functions with code, inlined ones after their callers.

        Raises:
            DwarfError: they cannot be read.
        """
        with readable("functions"):
            return self._dwarf.scopes(self.cu)

    def parameters(self, entry: int) -> list[tuple[str, str]]:
        """Return name and type of each parameter of the function at an address; [] if it is not in this unit.

        Raises:
            DwarfError: they cannot be read.
        """
        with readable("parameters"):
            return self._dwarf.parameters(self.cu, entry)


@contextmanager
def readable(what: str) -> Iterator[None]:
    """Convert every error inside to a `DwarfError` that names what was read."""
    try:
        yield
    except DwarfError as problem:
        raise DwarfError(f"{what}: {problem}") from None
    except RecursionError:
        raise DwarfError(f"{what}: nested too deeply") from None
    except Exception as problem:  # pyelftools may raise anything for damaged bytes
        text = f"{type(problem).__name__}: {problem}" if str(problem) else type(problem).__name__
        raise DwarfError(f"{what}: {text.splitlines()[0]}") from problem


class _Metered(io.BytesIO):
    """A section with a limit on reads: intact ones are read about once."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self._left = (1 << 16) + 64 * len(data)

    def read(self, size: int | None = -1) -> bytes:
        self._left -= 1
        if self._left < 0:
            raise DwarfError("the sections refer to the same bytes too often")
        return super().read(size)


class Dwarf:
    """The debug sections of one object.

    Args:
        elf: the object.

    Raises:
        DwarfError: they cannot be read at all.
    """

    def __init__(self, elf: E.ElfFile) -> None:
        data = {
            name.removeprefix(".debug_"): _contents(elf, header)
            for name, header in zip(elf.section_names, elf.sections, strict=True)
            if name.startswith(".debug_") and name.removeprefix(".debug_") in _SECTIONS
        }
        self._line = data.get("line", b"")
        for name in ("info", "abbrev", "line", "rnglists", "loclists", "addr"):
            if _LONG_NUMBER.search(data.get(name, b"")):
                raise DwarfError(f"section .debug_{name} contains a number without an end")
        given = {
            f"debug_{name}_sec": DebugSectionDescriptor(_Metered(data[name]), f".debug_{name}", 0, len(data[name]), 0)
            if name in data
            else None
            for name in _SECTIONS
        }
        self.info = DWARFInfo(DwarfConfig(True, "AMDGPU", 8), eh_frame_sec=None, gnu_debugaltlink_sec=None, **given)
        self.split = ""
        """The file that contains functions and types instead (-gsplit-dwarf); it is not read."""

    def units(self) -> Iterator[CompilationUnit]:
        """Yield the compilation units.

        Raises:
            DwarfError: the next unit cannot be read.
        """
        if not self.info.has_debug_info:
            return
        with readable("units"):
            for cu in self.info.iter_CUs():
                top = cu.get_top_DIE()
                for name in ("DW_AT_dwo_name", "DW_AT_GNU_dwo_name"):
                    self.split = self.split or text_of(top, name)
                yield CompilationUnit(self.ranges(cu, top), cu, self)

    def sequences(self, cu: CompileUnit) -> Iterator[list[LineRow]]:
        """Yield the sequences of `CompilationUnit.sequences`."""
        top = cu.get_top_DIE()
        program = self._program(cu)
        if program is None:
            return
        files = _Files(program, text_of(top, "DW_AT_comp_dir"), text_of(top, "DW_AT_name"))
        rows: list[LineRow] = []
        for entry in program.get_entries():
            state = entry.state
            if state is None:
                continue
            if rows and state.address < rows[-1].address:
                raise DwarfError(f"addresses decrease from {rows[-1].address:#x} to {state.address:#x}")
            if state.address >> 64:
                raise DwarfError(f"address {state.address:#x} exceeds 64 bits")
            if state.end_sequence:
                rows.append(LineRow(state.address, None, 0, 0))
                yield rows
                rows = []
            else:
                place = files[state.file], state.line, state.column
                rows.append(
                    LineRow(state.address, *place, body=bool(state.prologue_end), discriminator=state.discriminator)
                )

    def scopes(self, cu: CompileUnit) -> list[Scope]:
        """Return the scopes of `CompilationUnit.scopes`."""
        program = self._program(cu)
        top = cu.get_top_DIE()
        files = _Files(program, text_of(top, "DW_AT_comp_dir"), text_of(top, "DW_AT_name")) if program else None
        known: dict[int, _Described] = {}
        scopes: list[Scope] = []
        around: list[Scope | None] = []
        for die in self.entries(cu):
            if die is None:
                if around:
                    around.pop()
                continue
            scope = around[-1] if around else None
            if die.tag in _CODE_SCOPES and (ranges := self.ranges(cu, die)):
                call = ("", 0, 0)
                if die.tag == "DW_TAG_inlined_subroutine" and files is not None:
                    file, line, column = (number_of(die, f"DW_AT_call_{what}") for what in ("file", "line", "column"))
                    call = (files[file] or "", line, column)
                parent = scope if die.tag == "DW_TAG_inlined_subroutine" else None
                function = _described(die, known)
                scope = Scope(function.symbol or function.name, ranges, parent, call, function.line)
                scopes.append(scope)
            if die.has_children:
                around.append(scope)
        return scopes

    def parameters(self, cu: CompileUnit, entry: int) -> list[tuple[str, str]]:
        """Return the parameters of `CompilationUnit.parameters`."""
        for die in self.entries(cu):
            if die is not None and die.tag == "DW_TAG_subprogram" and number_of(die, "DW_AT_low_pc") == entry:
                children = itertools.islice(die.iter_children(), _MOST_CHILDREN)
                own = [_origin(child) for child in children if child.tag == "DW_TAG_formal_parameter"]
                return [(text_of(one, "DW_AT_name"), _type(one)) for one in own]
        return []

    def _program(self, cu: CompileUnit) -> Any:
        top = cu.get_top_DIE()
        if "DW_AT_stmt_list" not in top.attributes:
            return None
        try:
            check_line_header(self._line, top.attributes["DW_AT_stmt_list"].value)
        except (ValueError, struct.error, IndexError) as problem:
            raise DwarfError(str(problem)) from None
        return self.info.line_program_for_CU(cu)

    def entries(self, cu: CompileUnit, leaves: Collection[str] = _CODE_SCOPES) -> Iterator[DIE | None]:
        """Yield in order the entries of a unit that can contain others, or are leaves with one of these tags; None ends
        the children of an entry.

        pyelftools' own traversal keeps all entries.
        """
        stream = cu.get_top_DIE().stream
        at, end = cu.cu_die_offset, cu.cu_offset + cu.size
        while at < end:
            die = DIE(cu, stream, at)
            at += die.size
            if die.is_null():
                yield None
            elif die.has_children or die.tag in leaves:
                yield die

    def ranges(self, cu: CompileUnit, die: DIE) -> tuple[tuple[int, int], ...]:
        """Return the address ranges of an entry with code."""
        low, high = die.attributes.get("DW_AT_low_pc"), die.attributes.get("DW_AT_high_pc")
        if low is not None and high is not None:
            end = high.value if high.form.startswith("DW_FORM_addr") else low.value + high.value
            return ((low.value, end),) if low.value < end else ()
        listed = die.attributes.get("DW_AT_ranges")
        if listed is None:
            return ()
        unit_low = cu.get_top_DIE().attributes.get("DW_AT_low_pc")
        base = unit_low.value if unit_low is not None else 0
        ranges = []
        lists = self.info.range_lists()
        if lists is None:
            raise DwarfError("the section of range lists is missing")
        for entry in lists.get_range_list_at_offset(listed.value, cu):
            if isinstance(entry, BaseAddressEntry):
                base = entry.base_address
            elif entry.begin_offset < entry.end_offset:
                start = 0 if entry.is_absolute else base
                ranges.append((start + entry.begin_offset, start + entry.end_offset))
        return tuple(ranges)


class _Files:
    """File number of a line table -> path, if the compiler recorded it."""

    def __init__(self, program: Any, folder: str, name: str) -> None:
        header = program.header
        self._from = 0 if header.version >= 5 else 1
        entries = header.file_entry
        folders = [one.decode(errors="replace") for one in header.include_directory]
        if header.version < 5:  # number 0 is the compiler's working folder
            folders = [folder, *folders]
        self._paths: list[str] = []
        for entry in entries:
            if entry.dir_index >= len(folders):
                raise DwarfError(f"a file is in folder {entry.dir_index}, but there are {len(folders)}")
            path = posixpath.join(folders[entry.dir_index], entry.name.decode(errors="replace"))
            self._paths.append(posixpath.join(folders[0], path) if entry.dir_index else path)
        self._own = posixpath.join(folder, name) if name else None

    def __getitem__(self, number: int) -> str | None:
        at = number - self._from
        if 0 <= at < len(self._paths):
            return self._paths[at]
        if number == 0:
            return self._own
        raise DwarfError(f"a line is in file {number}, but there are {len(self._paths)}")


def _contents(elf: E.ElfFile, header: E.SectionHeader) -> bytes:
    """Return the contents of a section, decompressed if necessary."""
    if header.type == E.SHT_NOBITS:
        return b""
    data = bytes(elf.data[header.offset : header.offset + header.size])
    if not header.flags & SHF_COMPRESSED:
        return data
    if len(data) < _COMPRESSION.size:
        raise DwarfError("a compressed section is truncated")
    kind, size, _ = _COMPRESSION.unpack_from(data)
    if kind not in _DECOMPRESSORS:
        raise DwarfError(f"a section has the unknown compression {kind}")
    if size > max(_HARMLESS, _LARGEST_RATIO * len(data)):
        raise DwarfError(f"a compressed section claims to contain {size:#x} bytes")
    try:
        out = _DECOMPRESSORS[kind](data[_COMPRESSION.size :], size + 1)
    except (zlib.error, zstandard.ZstdError) as problem:
        raise DwarfError(f"a section does not decompress: {problem}") from None
    if len(out) != size:
        raise DwarfError(f"a compressed section contains {len(out):#x} bytes instead of {size:#x}")
    return out


def text_of(die: DIE, attribute: str) -> str:
    """Return a text attribute, "" if there is none."""
    entry = die.attributes.get(attribute)
    return entry.value.decode(errors="replace") if entry is not None and isinstance(entry.value, bytes) else ""


def number_of(die: DIE, attribute: str) -> int:
    """Return a number attribute, 0 if there is none."""
    entry = die.attributes.get(attribute)
    return entry.value if entry is not None and isinstance(entry.value, int) else 0


def _origin(die: DIE) -> DIE:
    """Return the entry that describes a parameter."""
    for _ in range(_MOST_ORIGINS):
        if "DW_AT_abstract_origin" not in die.attributes:
            break
        die = die.get_DIE_from_attribute("DW_AT_abstract_origin")
    return die


def _type(die: DIE) -> str:
    """Return the C++ type of a parameter."""
    around = "{}"
    for _ in range(_MOST_ORIGINS):
        if "DW_AT_type" not in die.attributes:
            return around.format("void")
        die = die.get_DIE_from_attribute("DW_AT_type")
        if die.tag not in _MODIFIERS:
            name = text_of(die, "DW_AT_name")
            return around.format(name) if name else ""
        around = around.format(_MODIFIERS[die.tag])
    return ""


class _Described(NamedTuple):
    """Description of a function by its entry and its origins; "" and 0 if unknown."""

    symbol: str
    name: str
    line: int
    """Of its declaration."""


def _described(die: DIE, known: dict[int, _Described], most: int = _MOST_ORIGINS) -> _Described:
    """Return symbol, name and declaration of a function, from its entry or else from its origins."""
    if die.offset not in known:
        symbol = text_of(die, "DW_AT_linkage_name") or text_of(die, "DW_AT_MIPS_linkage_name")
        own = _Described(symbol, text_of(die, "DW_AT_name"), number_of(die, "DW_AT_decl_line"))
        origin = next((one for one in ("DW_AT_abstract_origin", "DW_AT_specification") if one in die.attributes), None)
        if origin is not None and most > 1 and not (own.symbol and own.line):
            further = _described(die.get_DIE_from_attribute(origin), known, most - 1)
            own = _Described(own.symbol or further.symbol, own.name or further.name, own.line or further.line)
        known[die.offset] = own
    return known[die.offset]
