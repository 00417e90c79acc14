"""Symbols, segments, notes and kernels of compiled objects against llvm-readelf."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from assembly import assembled, function, kernel_text
from luthier.emulator.running.loader import LoadedImage
from luthier.emulator.running.memory import AllocationTable
from luthier.errors import ObjectError, TargetError
from luthier.lifting.addresses.pointers import pointers_in_data
from luthier.objects import CodeObject, load_object
from luthier.objects import elf as E

Compile = Callable[..., Path]
Tool = Callable[..., str]

TARGETS = ["gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1201"]
CASES = [(target, abi) for target in TARGETS for abi in (4, 5, 6)]


def readelf(tool: Tool, path: Path, *what: str) -> Any:
    return json.loads(tool("llvm-readelf-22", "--elf-output-style=JSON", *what, path))[0]


@pytest.mark.rows(3)
@pytest.mark.parametrize(("target", "abi"), CASES)
def test_metadata_and_kernels(target: str, abi: int, code_object: Compile, tool: Tool) -> None:
    path = code_object(target, abi)
    object = load_object(path)
    assert (object.name, str(object.target), object.abi) == (str(path), target, abi)
    text = tool("llvm-readelf-22", "--notes", path)
    metadata = yaml.safe_load(text[text.index("---") : text.index("...")])
    assert object.metadata == metadata
    assert [*object.metadata] == [*metadata]
    assert [*object.kernels] == ["vector_add", "reverse", "scratch"]
    symbols = {row["Symbol"]["Name"]["Name"]: row["Symbol"] for row in readelf(tool, path, "--symbols")["Symbols"]}
    for row in metadata["amdhsa.kernels"]:
        kernel = object.kernels[row[".name"]]
        assert kernel.metadata == row
        assert kernel.symbol == row[".symbol"]
        assert kernel.descriptor_address == symbols[kernel.symbol]["Value"]
        assert kernel.entry == symbols[kernel.name]["Value"]
        assert kernel.code_size == symbols[kernel.name]["Size"]
        assert kernel.kernarg_size == row[".kernarg_segment_size"] == kernel.descriptor.kernarg_size
        assert kernel.kernarg_align == row[".kernarg_segment_align"]
        assert kernel.group_segment_fixed_size == row[".group_segment_fixed_size"]
        assert kernel.private_segment_fixed_size == row[".private_segment_fixed_size"]
        assert kernel.wave_size == row[".wavefront_size"] == kernel.descriptor.wave_size
        assert kernel.max_flat_workgroup_size == row[".max_flat_workgroup_size"]
        assert kernel.vgpr_count == row[".vgpr_count"] <= kernel.descriptor.vgprs <= kernel.allocated_vgprs
        assert kernel.sgpr_count == row[".sgpr_count"] <= kernel.descriptor.sgprs
        assert kernel.agpr_count == row.get(".agpr_count", 0)
        assert [(a.offset, a.size, a.value_kind) for a in kernel.arguments] == [
            (a[".offset"], a[".size"], a[".value_kind"]) for a in row[".args"]
        ]
        assert [a.hidden for a in kernel.arguments] == [a[".value_kind"].startswith("hidden") for a in row[".args"]]
    assert object.kernels["reverse"].group_segment_fixed_size == 256
    assert object.kernels["reverse"].max_flat_workgroup_size == 64
    assert object.kernels["scratch"].private_segment_fixed_size > 0
    assert any(argument.hidden for argument in object.kernels["vector_add"].arguments) == (abi >= 5)


@pytest.mark.parametrize("target", TARGETS)
def test_symbols_segments_relocations(target: str, code_object: Compile, tool: Tool) -> None:
    path = code_object(target)
    object = load_object(path)
    rows = readelf(tool, path, "--symbols", "--dyn-symbols", "--program-headers", "--relocations", "--sections")
    tables: dict[str, set[tuple[str, int, int]]] = {}
    for table in ("Symbols", "DynamicSymbols"):
        symbols = [row["Symbol"] for row in rows[table]]
        tables[table] = {(s["Name"]["Name"], s["Value"], s["Size"]) for s in symbols if s["Name"]["Name"]}
    assert {(s.name, s.address, s.size) for s in object.symbols} == tables["Symbols"] | tables["DynamicSymbols"]
    assert {(s.name, s.address, s.size) for s in object.symbols if s.dynamic} == tables["DynamicSymbols"]
    loads = [h["ProgramHeader"] for h in rows["ProgramHeaders"] if h["ProgramHeader"]["Type"]["Name"] == "PT_LOAD"]
    assert [(s.vaddr, s.offset, s.filesz, s.memsz, s.flags) for s in object.segments] == [
        (h["VirtualAddress"], h["Offset"], h["FileSize"], h["MemSize"], h["Flags"]["Value"]) for h in loads
    ]
    headers = [s["Section"] for s in rows["Sections"]]
    assert [(s.name, s.address, s.offset, s.size) for s in object.sections] == [
        (s["Name"]["Name"], s["Address"], s["Offset"], s["Size"]) for s in headers
    ]
    text = next(s for s in headers if s["Name"]["Name"] == ".text")
    assert object.text_ranges == ((text["Address"], text["Size"]),)
    pointer, table = object.symbol("pointer"), object.symbol("table")
    assert pointer is not None
    assert table is not None
    relative, *more = [r for r in object.relocations if r.offset == pointer.address]
    assert (relative.type, relative.addend, relative.symbol, more) == (13, table.address + 8, "", [])
    assert object.symbol("twice") is not None
    assert object.symbol("no such symbol") is None


def test_symbol_properties(code_object: Compile) -> None:
    object = load_object(code_object("gfx942"))
    table = object.symbol("table")
    assert table is not None
    assert (table.type, table.binding, table.visibility, table.section) == ("object", "global", "protected", ".data")
    assert table.dynamic
    assert table.defined
    twice = object.symbol("twice")
    assert twice is not None
    assert (twice.type, twice.binding, twice.section, twice.dynamic) == ("func", "local", ".text", False)


def test_reading_memory(code_object: Compile) -> None:
    object = load_object(code_object("gfx942"))
    symbols = {symbol.name: symbol for symbol in object.symbols}
    assert object.read(symbols["table"].address, 16) == bytes([1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 5, 0, 0, 0])
    assert object.read(symbols["uninitialized"].address, 4000) == bytes(4000)
    assert object.read(0, 4) == b"\x7fELF"
    last = object.segments[-1]
    assert object.read(last.vaddr + last.filesz - 2, 4)[2:] == b"\0\0"  # over the end of what the file backs
    for address, size in ((last.vaddr + last.memsz, 1), (last.vaddr, last.memsz + 1), (1 << 63, 4), (-4, 4)):
        with pytest.raises(ObjectError) as caught:
            object.read(address, size)
        assert caught.value.offset == address
    assert object.section_data(".comment") is not None
    assert object.section_data(".bss") == b""
    assert object.section_data(".llvmbc") is None


@pytest.mark.rows(2)
@pytest.mark.parametrize("arch", ["gfx942:sramecc+:xnack-", "gfx90a:xnack+", "gfx90a:sramecc-", "gfx942"])
def test_target_features(arch: str, code_object: Compile) -> None:
    for abi in (4, 5, 6):
        assert str(load_object(code_object(arch, abi)).target) == arch


@pytest.mark.parametrize(
    "arch", ["gfx9-generic", "gfx9-4-generic", "gfx10-3-generic", "gfx11-generic", "gfx12-generic"]
)
def test_generic_targets(arch: str, code_object: Compile) -> None:
    assert str(load_object(code_object(arch)).target) == arch


def test_version_3(code_object: Compile) -> None:
    """Version 3 differs from 4 in the header's version and feature flags."""
    data = bytearray(code_object("gfx90a", 4).read_bytes())
    data[8] = 1
    data[48:52] = (0x3F | 0x100).to_bytes(4, "little")
    object = CodeObject(bytes(data))
    assert (object.abi, str(object.target)) == (3, "gfx90a:sramecc-:xnack+")
    assert len(object.kernels) == 3


@pytest.mark.skipif(shutil.which("clang-15") is None, reason="only compilers up to 15 make version 3")
def test_version_3_of_an_old_compiler(tool: Tool, tmp_path: Path) -> None:
    path = tmp_path / "old.co"
    options = ["--cuda-device-only", "--no-gpu-bundle-output", "-nogpuinc", "-nogpulib", "-mcode-object-version=3"]
    source = Path(__file__).parent / "inputs" / "kernels.hip"
    tool("clang-15", "-x", "hip", "--offload-arch=gfx90a", *options, "-O2", source, "-o", path)
    object = load_object(path)
    assert (object.abi, str(object.target), len(object.kernels)) == (3, "gfx90a:sramecc+:xnack+", 3)
    assert all(kernel.code_size and kernel.arguments for kernel in object.kernels.values())


def test_stripped(code_object: Compile, tool: Tool, tmp_path: Path) -> None:
    """Without .symtab: kernels are there, only local functions are not."""
    path = code_object("gfx1100")
    stripped = tmp_path / "stripped"
    tool("llvm-strip-22", path, "-o", stripped)
    before, after = load_object(path), load_object(stripped)
    assert [*after.kernels.values()] == [*before.kernels.values()]
    assert after.symbol("twice") is None
    assert after.relocations == before.relocations


ASSEMBLY = """
.amdgcn_target "amdgcn-amd-amdhsa--gfx942"
.amdhsa_code_object_version 6
.text
.globl bare
.p2align 8
.type bare,@function
bare: s_endpgm
.size bare, .-bare
.rodata
.p2align 6
.amdhsa_kernel bare
.amdhsa_next_free_vgpr 130
.amdhsa_next_free_sgpr 20
.amdhsa_accum_offset 128
.end_amdhsa_kernel
"""


def test_assembly_without_metadata(tmp_path: Path, tool: Tool) -> None:
    source, path = tmp_path / "bare.s", tmp_path / "bare.co"
    source.write_text(ASSEMBLY)
    tool("clang-22", "--target=amdgcn-amd-amdhsa", "-mcpu=gfx942", source, "-o", path)
    object = load_object(path)
    kernel = object.kernels["bare"]
    assert object.metadata == {}
    assert (kernel.metadata, kernel.arguments, kernel.code_size) == ({}, (), 4)
    assert (kernel.vgpr_count, kernel.agpr_count, kernel.wave_size) == (136, 8, 64)
    assert (kernel.descriptor.architected_vgprs, kernel.max_flat_workgroup_size) == (128, 0)


def test_no_section_headers(code_object: Compile) -> None:
    """A tool that removes section headers leaves segments and the note, but no symbol for descriptors."""
    data = bytearray(code_object("gfx942").read_bytes())
    data[40:48] = bytes(8)
    data[60:64] = bytes(4)
    with pytest.raises(ObjectError, match=r"no symbol 'vector_add\.kd'") as caught:
        CodeObject(bytes(data), "x")
    assert (caught.value.object, caught.value.kernel) == ("x", "vector_add")


@pytest.mark.parametrize(
    ("at", "value", "error", "match"),
    [
        (0, b"MZ", ObjectError, "not an ELF"),
        (4, b"\1", ObjectError, "64-bit"),
        (7, b"\0", ObjectError, "OS ABI"),
        (8, b"\0", ObjectError, "version 3 to 6"),
        (16, b"\1", ObjectError, "relocatable"),
        (18, b"\x3e\0", ObjectError, "machine 62"),
        (48, b"\x29", TargetError, "EF_AMDGPU_MACH 0x29"),
        (48, b"\x41\x02", ObjectError, "gfx1100 lacks"),
        (54, b"\x30", ObjectError, "program headers are 48 bytes"),
        (40, b"\xff\xff\xff\xff\xff\xff\xff\xff", ObjectError, "past the end"),
        (62, b"\xff", ObjectError, "section name table"),
    ],
)
def test_bad_headers(at: int, value: bytes, error: type[Exception], match: str, code_object: Compile) -> None:
    data = bytearray(code_object("gfx942").read_bytes())
    data[at : at + len(value)] = value
    with pytest.raises(error, match=match) as caught:
        CodeObject(bytes(data), "bad.co")
    assert "bad.co" in str(caught.value)
    assert "offset" in str(caught.value) or at == 62


def test_large_object_is_parsed_fast(tmp_path: Path, tool: Tool) -> None:
    """400 kernels in well under a second."""
    source, path = tmp_path / "many.hip", tmp_path / "many.co"
    source.write_text(
        "".join(
            f'extern "C" __attribute__((global)) void k{n}(float* a, int n) {{ a[n] += {n}; }}\n' for n in range(400)
        )
    )
    options = ["-nogpuinc", "-nogpulib", "-O1", "--offload-device-only", "--no-gpu-bundle-output"]
    tool("clang-22", "-x", "hip", "--offload-arch=gfx942", *options, source, "-o", path)
    data = path.read_bytes()
    start = time.perf_counter()
    object = CodeObject(data)
    seconds = time.perf_counter() - start
    assert len(object.kernels) == 400
    assert seconds < 0.5
    assert object.kernels["k399"].entry == object.symbol("k399").address


NAMED = """
.data
.p2align 3
near: .quad 1
.globl outer
outer: .quad 2
.globl far_
far_: .quad 3
.globl fixed
.set fixed, 0x77
.globl words
.type words,@object
words:
.quad outer+5
.quad far_+5
.quad fixed+5
.size words, 24
.text
"""
"""Words that the loader makes, each of a symbol."""


def same_names(name: str) -> tuple[CodeObject, dict[str, int]]:
    """An object that imports `name`, or whose words are of a symbol without a name; and the addresses of symbols."""
    original = assembled(kernel_text(NAMED + function("k", ["s_endpgm"]), "gfx90a"), "gfx90a")
    addresses = {one.name: one.address for one in original.symbols}
    data = bytearray(original.data)
    for table in (one for one in original.elf.sections if one.type in (E.SHT_DYNSYM, E.SHT_SYMTAB)):
        for at in range(table.offset, table.offset + table.size, E.SYMBOL.size):
            record = E.SYMBOL.unpack(data, at)
            if record.value == addresses["outer"]:
                changes = {"section": E.SHN_UNDEF, "value": 0} if name else {"name": 0, "info": 3}
                data[at : at + E.SYMBOL.size] = E.SYMBOL.pack(record._replace(**changes))
    renamed = bytes(data).replace(b"\0outer\0", b"\0" + name.encode().ljust(5, b"\0") + b"\0")
    return CodeObject(renamed), addresses


@pytest.mark.parametrize("name", ["outer", "near", "far_", "k", ""])
def test_relocations_are_of_symbols_and_not_of_names(name: str) -> None:
    """A symbol from outside may be called as a local one is, or a defined one have no name."""
    object, addresses = same_names(name)
    asked: list[str] = []

    def resolve(wanted: str) -> int:
        asked.append(wanted)
        return 0x1234_5678_0000

    image = LoadedImage(object, AllocationTable(), resolve)
    place = image.host(addresses["words"])
    holder = next(one for one in image.allocations if one.address <= place < one.end)
    words = holder.view()[place - holder.address :][:24].view("<u8").tolist()
    first = 0x1234_5678_0000 if name else image.host(addresses["outer"])
    assert words == [first + 5, image.host(addresses["far_"]) + 5, 0x77 + 5]
    assert asked == [name] * bool(name)
    made = {addresses["words"] + 8: addresses["far_"] + 5}
    made |= {} if name else {addresses["words"]: addresses["outer"] + 5}
    assert dict(pointers_in_data(object)) == made
    image.unload()


@pytest.mark.parametrize("kind", sorted(E.OTHER_RELOCATIONS))
def test_other_relocations_are_refused(kind: int, code_object: Compile) -> None:
    """Relocations of unknown types are refused, because their addresses would be missed."""
    data = bytearray(load_object(code_object("gfx90a")).data)
    header = E.read_header(memoryview(data), "")
    for at in range(header.sections_offset, len(data), E.SECTION_HEADER.size):
        section = E.SECTION_HEADER.unpack(data, at)
        if section.type == E.SHT_RELA:
            data[at : at + E.SECTION_HEADER.size] = E.SECTION_HEADER.pack(section._replace(type=kind))
    with pytest.raises(ObjectError, match=f"of type {E.OTHER_RELOCATIONS[kind]} are"):
        CodeObject(bytes(data))


@pytest.mark.parametrize(("address", "loads"), [("q", True), ("0", True), ("0x7000000", False), ("1 << 62", False)])
def test_pointers_of_managed_variables_are_in_memory(address: str, loads: bool) -> None:
    place = "q: .quad 0" if address == "q" else f".set q, {address}"
    managed = f".data\n.globl q\n.globl q.managed\n.size q, 8\n.size q.managed, 4\n{place}\nq.managed: .long 7\n.text\n"
    object = assembled(kernel_text(managed + function("k", ["s_endpgm"]), "gfx90a"), "gfx90a")
    if not loads:
        with pytest.raises(ObjectError, match="the pointer q is outside the loaded segments"):
            LoadedImage(object, AllocationTable(), lambda name: None)
        return
    image = LoadedImage(object, AllocationTable(), lambda name: None)
    assert bytes(image.managed["q"].view()) == b"\x07\0\0\0"
    image.unload()


NOTES = "".join(
    f'.section .note.{at},"a",@note\n.p2align {align}\n.long {len(name) + 1}, {size}, 5\n.asciz "{name}"\n'
    f".p2align {align}\n.fill {size}, 1, {at}\n.p2align {align}\n"
    for at, (align, name, size) in enumerate([(3, "GNU", 16), (3, "GNU", 4), (3, "Vendor", 12), (2, "Vendor", 3)], 1)
)


def test_notes_of_both_alignments(tool: Tool) -> None:
    """Names and descriptions begin where llvm-readelf finds them."""
    object = assembled(kernel_text(NOTES + ".text\n" + function("k", ["s_endpgm"]), "gfx90a"), "gfx90a")
    notes = [(one.owner, one.type, bytes(one.description)) for one in object.elf.notes() if one.type == 5]
    assert sorted(notes, key=lambda note: note[2][0]) == [
        ("GNU", 5, b"\x01" * 16),
        ("GNU", 5, b"\x02" * 4),
        ("Vendor", 5, b"\x03" * 12),
        ("Vendor", 5, b"\x04" * 3),
    ]
    listed = tool("llvm-readelf-22", "--notes", object.name)
    assert "warning" not in listed
    assert listed.count("Vendor ") == 2
    assert list(object.kernels) == ["k"]


def test_symbols_in_sections_of_large_numbers() -> None:
    """Their numbers are in a table that is not read: they were taken for absolute."""
    object = assembled(kernel_text(function("k", ["s_endpgm"]), "gfx90a"), "gfx90a")
    for table in (one for one in object.elf.sections if one.type in (E.SHT_DYNSYM, E.SHT_SYMTAB)):
        for at in range(table.offset + E.SYMBOL.size, table.offset + table.size, E.SYMBOL.size):
            data = bytearray(object.data)
            record = E.SYMBOL.unpack(data, at)._replace(section=E.SHN_XINDEX)
            data[at : at + E.SYMBOL.size] = E.SYMBOL.pack(record)
            with pytest.raises(ObjectError, match="section index in an extended table"):
                CodeObject(bytes(data))
