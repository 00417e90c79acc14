"""ObjectEditor: LLVM reads its output without warnings, and the output follows the rules of ROCr's loader."""

from __future__ import annotations

import copy
import io
import itertools
import json
import re
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from luthier.errors import ObjectError
from luthier.objects import CodeObject, KernelDescriptor, ObjectEditor, load_object
from luthier.objects import elf as E
from luthier.objects.elf import SYMBOL, ElfFile
from luthier.objects.symbol_tables import Strings, SymbolTable
from msgspec.structs import replace

Compile = Callable[..., Path]
Tool = Callable[..., str]

TARGETS = pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1201"])
RELATIVE64, ABS64 = 13, 3


@pytest.fixture
def check(tool: Tool, tmp_path: Path) -> Callable[[bytes], CodeObject]:
    """Read an edited object with everything there is to read it with; none may complain."""

    def check(data: bytes) -> CodeObject:
        path = tmp_path / "edited.co"
        path.write_bytes(data)
        tool("llvm-readelf-22", "--all", path)
        tool("llvm-objdump-22", "--all-headers", "-d", "-T", "-s", path)
        tool("llvm-nm-22", path)
        rules_of_the_loader(data)
        hash_tables_find_every_symbol(data)
        return load_object(path)

    return check


def rules_of_the_loader(data: bytes) -> None:
    """Check the conditions of ROCr's loader on a code object."""
    elf = ElfFile(memoryview(data), "edited")
    sections = elf.sections
    # The file's size, as the loader computes it from the section headers alone, must be its size.
    end = start = elf.header.sections_offset
    end += 64 * len(sections)
    for section in sections:
        if section.offset > start:
            start, end = section.offset, section.offset + (0 if section.type == 8 else section.size)
    assert end == len(data)
    # One allocation from the first to the last PT_LOAD; each is copied to its place in it.
    loads = [segment for segment in elf.segments if segment.type == 1]
    assert loads == sorted(loads, key=lambda segment: segment.vaddr)
    for before, after in itertools.pairwise(loads):
        assert before.vaddr + before.memsz <= after.vaddr
    for segment in loads:
        assert segment.vaddr % segment.align == segment.offset % segment.align
        assert segment.vaddr == segment.paddr
    for section in sections:
        if section.flags & 2 and section.type != 8 and section.size:  # loaded: in a segment, at the same distance
            (home,) = [
                s for s in loads if s.vaddr <= section.address and section.address + section.size <= s.vaddr + s.filesz
            ]
            assert section.offset - home.offset == section.address - home.vaddr
        assert (
            section.align in (0, 1) or (section.address if section.flags & 2 else section.offset) % section.align == 0
        )
    for kind, header in ((6, 2), (7, 4)):  # .dynamic and notes are at the addresses in program headers
        described = [(s.offset, s.vaddr, s.filesz) for s in elf.segments if s.type == header]
        for section in (section for section in sections if section.type == kind):
            assert any(
                section.offset - offset == section.address - vaddr
                and 0 <= section.offset - offset <= size - section.size
                for offset, vaddr, size in described
            )
    # It takes the only .symtab, and reads descriptors through the section of their symbol.
    (symtab,) = [section for section in sections if section.type == 2]
    symbols = SYMBOL.unpack_all(elf.section_view(symtab, "symbols"))
    names = elf.string_table(symtab.link, "names").names(symbol.name for symbol in symbols)
    for symbol, name in zip(symbols, names, strict=True):
        if symbol.section not in (0, 0xFFF1) and symbol.section < 0xFF00:
            home = sections[symbol.section]
            assert home.address <= symbol.value <= home.address + home.size, name
    # Dynamic relocations have no target section, and symbols of .dynsym.
    for section in sections:
        if section.type == 4 and section.flags & 2:
            assert (section.info, sections[section.link].type) == (0, 11)


def hash_tables_find_every_symbol(data: bytes) -> None:
    """pyelftools looks each dynamic symbol up by both tables."""
    elf = ELFFile(io.BytesIO(data))
    dynsym = elf.get_section_by_name(".dynsym")
    for symbol in dynsym.iter_symbols():
        if symbol.name:
            match = elf.get_section_by_name(".hash").get_symbol(symbol.name)
            assert match is not None
            assert match.entry == symbol.entry
            if symbol["st_shndx"] != "SHN_UNDEF":
                match = elf.get_section_by_name(".gnu.hash").get_symbol(symbol.name)
                assert match is not None
                assert match.entry == symbol.entry
    assert elf.get_section_by_name(".hash").get_symbol("no such symbol") is None
    assert elf.get_section_by_name(".gnu.hash").get_symbol("no such symbol") is None


def same_memory(before: CodeObject, after: CodeObject) -> None:
    """All sections that the program sees are where they were."""
    for section in before.sections:
        if section.flags & 2 and section.name in (".text", ".rodata", ".data", ".bss"):
            assert after.read(section.address, section.size) == before.read(section.address, section.size), section.name


@TARGETS
def test_nothing_changed(target: str, code_object: Compile, check: Callable[[bytes], CodeObject]) -> None:
    before = load_object(code_object(target))
    after = check(ObjectEditor(before).finish())
    assert after.symbols == before.symbols
    assert after.kernels == before.kernels
    assert after.segments == before.segments
    assert after.relocations == before.relocations
    same_memory(before, after)


@TARGETS
def test_everything_at_once(target: str, code_object: Compile, check: Callable[[bytes], CodeObject]) -> None:
    """The edits of a patch: code, a descriptor and data, symbols, relocations, metadata."""
    before = load_object(code_object(target))
    editor = ObjectEditor(before)
    code = struct.pack("<I", 0xBFB00000 if before.target.target.major >= 11 else 0xBF810000) * 64  # s_endpgm
    text = editor.reserve(len(code), flags="rx", align=256, name=".luthier.text")
    rodata = editor.reserve(64, flags="r", name=".luthier.rodata")
    data = editor.reserve(5000, flags="rw", align=0x4000, name=".luthier.data")
    assert text % 0x1000 == rodata % 0x1000 == data % 0x4000 == 0
    editor.write(text, code)
    kernel = before.kernels["reverse"]
    descriptor = replace(kernel.descriptor, kernel_code_entry_byte_offset=text - rodata, private_segment_fixed_size=64)
    editor.write(rodata, descriptor.encode())
    editor.move_symbol("reverse.kd", rodata)
    editor.move_symbol("reverse", text, len(code))
    editor.define_symbol("luthier_counter", data, 8)
    editor.define_symbol("luthier_weak", data + 16, 8, binding="weak", visibility="default")
    editor.define_symbol("luthier_hidden", data + 24, 8, visibility="hidden")
    editor.define_symbol("luthier_local", text + 16, 8, type="func", binding="local", visibility="default")
    editor.import_symbol("luthier_external")
    editor.add_relocation(data + 32, RELATIVE64, text)
    editor.add_relocation(data + 40, ABS64, 4, "luthier_external")
    editor.add_relocation(data + 48, ABS64, 0, "luthier_counter")
    metadata = copy.deepcopy(before.metadata)
    metadata["amdhsa.kernels"][1][".private_segment_fixed_size"] = 64
    metadata["amdhsa.kernels"][1][".luthier"] = "x" * 5000
    editor.set_metadata(metadata)
    after = check(editor.finish())

    same_memory(before, after)
    assert after.metadata == metadata
    assert [*after.metadata["amdhsa.kernels"][1]] == [*metadata["amdhsa.kernels"][1]]
    moved = after.kernels["reverse"]
    assert (moved.entry, moved.code_size, moved.descriptor, moved.descriptor_address) == (text, 256, descriptor, rodata)
    assert moved.private_segment_fixed_size == 64
    for name in ("vector_add", "scratch"):
        assert after.kernels[name] == before.kernels[name]
    assert after.read(text, len(code)) == code
    assert after.read(data, 5000) == bytes(5000)
    assert after.text_ranges == (*before.text_ranges, (text, len(code)))

    def properties(name: str) -> tuple[int, int, str, str, str, str, bool]:
        s = after.symbol(name)
        assert s is not None
        return s.address, s.size, s.type, s.binding, s.visibility, s.section, s.dynamic

    home = ".luthier.data"
    assert properties("luthier_counter") == (data, 8, "object", "global", "protected", home, True)
    assert properties("luthier_weak") == (data + 16, 8, "object", "weak", "default", home, True)
    assert properties("luthier_hidden") == (data + 24, 8, "object", "global", "hidden", home, False)
    assert properties("luthier_local") == (text + 16, 8, "func", "local", "default", ".luthier.text", False)
    assert properties("luthier_external") == (0, 0, "notype", "global", "default", "", True)
    assert {s.name for s in after.symbols} - {s.name for s in before.symbols} == {
        "luthier_counter", "luthier_weak", "luthier_hidden", "luthier_local", "luthier_external",
    }  # fmt: skip
    expected = [(r.offset, r.type, r.symbol, r.addend) for r in before.relocations]
    expected += [
        (data + 32, RELATIVE64, "", text),
        (data + 40, ABS64, "luthier_external", 4),
        (data + 48, ABS64, "luthier_counter", 0),
    ]
    assert [(r.offset, r.type, r.symbol, r.addend) for r in after.relocations] == expected
    flags = {segment.vaddr: segment.flags for segment in after.segments}
    assert (flags[text], flags[rodata], flags[data]) == (5, 4, 6)


@pytest.mark.rows(1)
@TARGETS
def test_edits_can_be_edited(target: str, code_object: Compile, check: Callable[[bytes], CodeObject]) -> None:
    """Each round moves the tables again; nothing is lost."""
    object = load_object(code_object(target))
    for number in range(4):
        editor = ObjectEditor(object)
        address = editor.reserve(16, flags="rw", name=f".round{number}")
        editor.define_symbol(f"variable_of_round_{number}", address, 16)
        editor.add_relocation(address, ABS64, number, "table")
        metadata = copy.deepcopy(object.metadata)
        metadata[f"round.{number}"] = [number]
        editor.set_metadata(metadata)
        object = check(editor.finish())
    homes = {s.name[-1]: s.section for s in object.symbols if s.name.startswith("variable_of_round_")}
    assert homes == {str(number): f".round{number}" for number in range(4)}
    assert [r.addend for r in object.relocations if r.type == ABS64] == [0, 1, 2, 3]
    assert {r.symbol for r in object.relocations if r.type == ABS64} == {"table"}
    assert object.metadata["round.3"] == [3]
    assert len(object.kernels) == 3


def test_writing_in_place_changes_nothing_else(code_object: Compile, check: Callable[[bytes], CodeObject]) -> None:
    before = load_object(code_object("gfx942"))
    kernel = before.kernels["scratch"]
    descriptor = kernel.descriptor.with_registers(vgprs=64)
    editor = ObjectEditor(before)
    editor.write(kernel.descriptor_address, descriptor.encode())
    after = check(editor.finish())
    assert after.kernels["scratch"].descriptor == descriptor
    differing = [i for i, (a, b) in enumerate(zip(before.data, after.data, strict=False)) if a != b]
    assert all(kernel.descriptor_address <= i < kernel.descriptor_address + 64 for i in differing)


def test_defining_an_import(code_object: Compile, check: Callable[[bytes], CodeObject]) -> None:
    editor = ObjectEditor(load_object(code_object("gfx1100")))
    editor.import_symbol("later")
    editor.import_symbol("table")  # defined: stays as it is
    editor.add_relocation(editor.reserve(8, flags="rw", name=".got"), ABS64, 0, "later")
    object = check(editor.finish())
    table = object.symbol("table")
    assert table is not None
    assert table.defined
    editor = ObjectEditor(object)
    editor.define_symbol("later", table.address, 4)
    object = check(editor.finish())
    later = object.symbol("later")
    assert later is not None
    assert (later.address, later.section) == (table.address, ".data")
    assert [s.name for s in object.symbols].count("later") == 1
    assert [r.symbol for r in object.relocations] == ["", "later"]


ASSEMBLY = """
.text
.globl bare
.p2align 8
.type bare,@function
bare: s_endpgm
.size bare, .-bare
.rodata
.p2align 6
.amdhsa_kernel bare
.amdhsa_next_free_vgpr 1
.amdhsa_next_free_sgpr 1
.end_amdhsa_kernel
"""


def test_object_without_relocations_or_metadata(
    tmp_path: Path, tool: Tool, check: Callable[[bytes], CodeObject]
) -> None:
    """The object gets a .rela.dyn, a longer .dynamic, a note and its program header."""
    source, path = tmp_path / "bare.s", tmp_path / "bare.co"
    source.write_text(ASSEMBLY)
    tool("clang-22", "--target=amdgcn-amd-amdhsa", "-mcpu=gfx1100", source, "-o", path)
    before = load_object(path)
    assert before.relocations == ()
    editor = ObjectEditor(before)
    data = editor.reserve(8, flags="rw", name=".data")
    editor.add_relocation(data, RELATIVE64, before.kernels["bare"].entry)
    metadata = {"amdhsa.version": [1, 2], "amdhsa.kernels": [{".name": "bare", ".symbol": "bare.kd", ".args": []}]}
    editor.set_metadata(metadata)
    after = check(editor.finish())
    assert after.metadata == metadata
    assert after.kernels["bare"].metadata == metadata["amdhsa.kernels"][0]  # type: ignore[index]
    assert [(r.offset, r.type, r.addend) for r in after.relocations] == [
        (data, RELATIVE64, before.kernels["bare"].entry)
    ]
    text = tool("llvm-readelf-22", "-d", "-n", tmp_path / "edited.co")
    assert re.search(r"\(RELACOUNT\) +1\n", text)
    assert "amdhsa.version" in text


def test_note_that_shares_its_segment(code_object: Compile, tool: Tool, check: Callable[[bytes], CodeObject]) -> None:
    before = load_object(code_object("gfx942", 6, "-Xoffload-linker", "--build-id"))
    assert len([s for s in before.sections if s.type == 7]) == 2
    editor = ObjectEditor(before)
    metadata = {**before.metadata, "extra": "value"}
    editor.set_metadata(metadata)
    after = check(editor.finish())
    assert after.metadata == metadata
    path = Path(after.name)
    assert tool("llvm-readelf-22", "-n", path).count("NT_AMDGPU_METADATA") == 1
    assert "NT_GNU_BUILD_ID" in tool("llvm-readelf-22", "-n", path)


NOTE_NAME = b"AMDGPU\0"


@pytest.mark.parametrize("behind", [False, True])
@pytest.mark.parametrize("align", [4, 8])
def test_notes_elsewhere(align: int, behind: bool, code_object: Compile) -> None:
    """The metadata note in a segment of either alignment, which is loaded or, behind everything, not."""
    before = load_object(code_object("gfx942"))
    (old,) = (bytes(one.description) for one in before.elf.notes())
    start = -(-(12 + len(NOTE_NAME)) // align) * align
    note = (struct.pack("<III", len(NOTE_NAME), len(old), 32) + NOTE_NAME).ljust(start, b"\0") + old
    note += bytes(-len(note) % align)
    editor = ObjectEditor(before)
    place = editor.reserve(len(note), flags="r", name=".others")
    editor.write(place, note)
    data = bytearray(editor.finish())
    elf = ElfFile(memoryview(bytes(data)), "notes")
    number = next(at for at, one in enumerate(elf.segments) if one.type == E.PT_NOTE)
    load = next(one for one in elf.segments if one.type == E.PT_LOAD and one.vaddr == place)
    offset = len(data) if behind else load.offset
    segment = elf.segments[number]._replace(
        offset=offset, vaddr=place, paddr=place, filesz=len(note), memsz=len(note), align=align
    )
    at = elf.header.segments_offset + number * E.SEGMENT_HEADER.size
    data[at : at + E.SEGMENT_HEADER.size] = E.SEGMENT_HEADER.pack(segment)
    moved = CodeObject(bytes(data + note if behind else data), "notes")
    assert moved.metadata == before.metadata
    if behind:
        with pytest.raises(ObjectError, match="a segment of type 4 lies after everything that is loaded"):
            ObjectEditor(moved)
        return
    editor = ObjectEditor(moved)
    metadata = {**before.metadata, "extra": "value"}
    editor.set_metadata(metadata)
    edited = CodeObject(editor.finish())
    assert edited.metadata == metadata
    assert [one.owner for one in edited.elf.notes() if one.type == 32] == ["AMDGPU"]


@pytest.mark.parametrize("flags", [E.SHF_ALLOC, E.SHF_ALLOC | E.SHF_WRITE])
def test_sections_in_no_segment(flags: int, code_object: Compile, tool: Tool, tmp_path: Path) -> None:
    """They are marked as loaded, as by objcopy, and keep their contents."""
    path, contents = tmp_path / "sections.co", tmp_path / "contents"
    contents.write_bytes(b"precious contents")
    setting = "alloc" + ("" if flags & E.SHF_WRITE else ",readonly")
    added = [f"--add-section=.mine={contents}", f"--set-section-flags=.mine={setting}"]
    tool("llvm-objcopy-22", *added, code_object("gfx942"), path)
    before = load_object(path)
    assert next(one.flags for one in before.sections if one.name == ".mine") == flags
    editor = ObjectEditor(before)
    place = editor.reserve(8, flags="rw", name=".added")
    editor.define_symbol("added", place, 8)
    after = CodeObject(editor.finish())
    assert after.section_data(".mine") == b"precious contents"
    assert after.symbol("added").section == ".added"


def test_tables_in_no_segment(code_object: Compile) -> None:
    before = load_object(code_object("gfx942"))
    for kind in (E.SHT_DYNSYM, E.SHT_RELA, E.SHT_GNU_HASH, E.SHT_HASH, E.SHT_DYNAMIC):
        data = bytearray(before.data)
        number = next(at for at, one in enumerate(before.elf.sections) if one.type == kind)
        at = before.elf.header.sections_offset + number * E.SECTION_HEADER.size
        section = before.elf.sections[number]
        data[at : at + E.SECTION_HEADER.size] = E.SECTION_HEADER.pack(section._replace(address=1 << 40))
        with pytest.raises(ObjectError, match="the loader needs is in no segment"):
            ObjectEditor(CodeObject(bytes(data)))


def numbered_in_a_section(object: CodeObject) -> bytes:
    """The object with its counts in section 0, as it is where the header has no room for them."""
    data, header = bytearray(object.data), object.elf.header
    first = object.elf.sections[0]._replace(size=header.section_count, link=header.names_index)
    at = header.sections_offset
    data[at : at + E.SECTION_HEADER.size] = E.SECTION_HEADER.pack(first)
    data[: E.FILE_HEADER.size] = E.FILE_HEADER.pack(header._replace(section_count=0, names_index=E.SHN_XINDEX))
    return bytes(data)


def test_counts_in_a_section(
    code_object: Compile, monkeypatch: pytest.MonkeyPatch, check: Callable[[bytes], CodeObject]
) -> None:
    """Counts return to the header, and counts that do not fit are refused."""
    plain = load_object(code_object("gfx942"))
    edited = []
    for object in (plain, CodeObject(numbered_in_a_section(plain), plain.name)):
        editor = ObjectEditor(object)
        editor.define_symbol("added", editor.reserve(8, flags="rw", name=".added"), 8)
        edited.append(check(editor.finish()).data)
    assert edited[0] == edited[1]
    editor = ObjectEditor(plain)
    monkeypatch.setattr(E, "SHN_LORESERVE", len(plain.sections))
    with pytest.raises(ObjectError, match=f"{len(plain.sections)} sections exceed the limit"):
        editor.finish()


def test_stripped_object_gets_a_symbol_table(
    code_object: Compile, tool: Tool, tmp_path: Path, check: Callable[[bytes], CodeObject]
) -> None:
    stripped = tmp_path / "stripped.co"
    tool("llvm-strip-22", code_object("gfx942"), "-o", stripped)
    editor = ObjectEditor(load_object(stripped))
    editor.define_symbol("added", editor.reserve(8, flags="rw", name=".added"), 8)
    after = check(editor.finish())
    names = tool("llvm-nm-22", "--format=just-symbols", tmp_path / "edited.co").split()
    assert {"added", "vector_add", "vector_add.kd", "table"} <= set(names)
    assert len(after.kernels) == 3


def test_static_relocations_follow_their_symbols(
    code_object: Compile, tool: Tool, check: Callable[[bytes], CodeObject]
) -> None:
    path = code_object("gfx942", 6, "-Xoffload-linker", "--emit-relocs")

    def relocations(path: str | Path) -> list[tuple[str, str, str]]:
        text = tool("llvm-readelf-22", "-rW", path)
        return re.findall(r"^([0-9a-f]+) +[0-9a-f]+ (R_AMDGPU_\w+) +[0-9a-f]+ (.*)$", text, re.M)

    expected = relocations(path)
    assert len(expected) > 3
    editor = ObjectEditor(load_object(path))
    address = editor.reserve(8, flags="rw", name=".added")
    editor.define_symbol("local_variable", address, 8, binding="local")
    editor.move_symbol("reverse", load_object(path).kernels["reverse"].entry, 8)
    assert relocations(check(editor.finish()).name) == expected


@TARGETS
def test_hash_tables_are_those_of_the_linker(target: str, code_object: Compile) -> None:
    object = load_object(code_object(target))
    contents = {section.name: object.section_data(section.name) or b"" for section in object.sections}
    table = SymbolTable(contents[".dynsym"], Strings(contents[".dynstr"]))
    table.sort(hashed=True)
    assert table.order == list(range(len(table.records)))
    assert table.gnu_hash_table() == contents[".gnu.hash"]
    assert table.sysv_hash_table() == contents[".hash"]


def test_many_symbols_in_the_hash_tables(code_object: Compile, check: Callable[[bytes], CodeObject]) -> None:
    editor = ObjectEditor(load_object(code_object("gfx942")))
    data = editor.reserve(8000, flags="rw", name=".many")
    for number in range(1000):
        editor.define_symbol(f"symbol_{number}", data + 8 * number, 8)
    object = check(editor.finish())
    assert all(object.symbol(f"symbol_{n}").address == data + 8 * n for n in range(1000))  # type: ignore[union-attr]


def test_refused_edits(code_object: Compile) -> None:
    original = load_object(code_object("gfx942"))
    editor = ObjectEditor(original)
    bss, table = original.symbol("uninitialized"), original.symbol("table")
    assert bss is not None
    assert table is not None
    nowhere = 1 << 40
    refused: list[tuple[str, Callable[[], object]]] = [
        ("cannot reserve", lambda: editor.reserve(0, flags="r", name="x")),
        ("cannot reserve", lambda: editor.reserve(1, flags="rwx", name="x")),
        ("cannot reserve", lambda: editor.reserve(1, flags="r", align=3, name="x")),
        ("cannot reserve", lambda: editor.reserve(1 << 60, flags="r", name="x")),
        ("segment of the file contains", lambda: editor.write(nowhere, b"x")),
        ("segment of the file contains", lambda: editor.write(bss.address, b"x")),
        ("already defined", lambda: editor.define_symbol("table", table.address, 4)),
        ("no section contains", lambda: editor.define_symbol("new", nowhere, 4)),
        ("or visibility 'strong'", lambda: editor.define_symbol("new", table.address, 4, binding="strong")),
        ("no symbol 'new'", lambda: editor.move_symbol("new", table.address)),
        ("no section contains", lambda: editor.move_symbol("table", nowhere)),
        ("no dynamic symbol 'twice'", lambda: editor.add_relocation(table.address, ABS64, 0, "twice")),
        ("no segment has memory", lambda: editor.add_relocation(nowhere, ABS64, 0)),
        ("cannot be encoded", lambda: editor.set_metadata({"x": object()})),
    ]
    for match, edit in refused:
        with pytest.raises(ObjectError, match=match):
            edit()
    assert CodeObject(editor.finish()).symbols == original.symbols  # the failed edits had no effect


def test_a_descriptor_that_points_nowhere_is_noticed(code_object: Compile) -> None:
    object = load_object(code_object("gfx942"))
    kernel = object.kernels["reverse"]
    editor = ObjectEditor(object)
    editor.write(kernel.descriptor_address, replace(kernel.descriptor, kernel_code_entry_byte_offset=0).encode())
    with pytest.raises(ObjectError, match=r"cannot be read.*reverse"):
        editor.finish()


def test_object_without_section_headers_is_refused() -> None:
    ident = b"\x7fELF\2\1\1\x40\4" + bytes(7)
    header = struct.pack("<16sHHIQQQIHHHHHH", ident, 3, 224, 1, 0, 0, 0, 0x54C, 64, 56, 0, 64, 0, 0)
    with pytest.raises(ObjectError, match="without section headers"):
        ObjectEditor(CodeObject(header))


def test_json_of_readelf_agrees(code_object: Compile, tool: Tool, check: Callable[[bytes], CodeObject]) -> None:
    """Our reading of an edited object is llvm-readelf's."""
    editor = ObjectEditor(load_object(code_object("gfx1201")))
    address = editor.reserve(64, flags="rw", name=".luthier.data")
    editor.define_symbol("added", address, 64)
    object = check(editor.finish())
    rows = json.loads(tool("llvm-readelf-22", "--elf-output-style=JSON", "--symbols", object.name))[0]["Symbols"]
    theirs = {(r["Symbol"]["Name"]["Name"], r["Symbol"]["Value"], r["Symbol"]["Size"]) for r in rows}
    assert {(s.name, s.address, s.size) for s in object.symbols} | {("", 0, 0)} == theirs
    assert KernelDescriptor.decode(object.read(object.kernels["scratch"].descriptor_address, 64), object.target.target)
