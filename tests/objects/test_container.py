"""Code objects come out of every container as they went in."""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from luthier.errors import LuthierError, ObjectError, TargetError
from luthier.objects import elf as E
from luthier.objects import find_images, load_object, load_objects
from luthier.objects.host import WRAPPERS, HostFile

Compile = Callable[..., Path]
Tool = Callable[..., str]

ARCHS = ("--offload-arch=gfx942", "--offload-arch=gfx1100", "--offload-arch=gfx90a:xnack+")
TARGETS = ["gfx1100", "gfx90a:xnack+", "gfx942"]


def targets_of(path: Path) -> list[str]:
    return sorted(str(found.target) for found in load_objects(path))


def unbundled(tool: Tool, path: Path, target: str, folder: Path) -> bytes:
    """The oracle: one entry as clang-offload-bundler takes it out."""
    out = folder / "unbundled"
    tool(
        "clang-offload-bundler-22", "--unbundle", "--type=o", f"--input={path}", f"--output={out}",
        f"--targets=hipv4-amdgcn-amd-amdhsa--{target}",
    )  # fmt: skip
    return out.read_bytes()


@pytest.mark.rows(1)
@pytest.mark.parametrize("options", [(), ("--offload-compress",)], ids=["plain", "compressed"])
def test_bundle(options: tuple[str, ...], compile_hip: Compile, tool: Tool, tmp_path: Path) -> None:
    path = compile_hip("--offload-device-only", *ARCHS, *options)
    assert path.read_bytes().startswith(b"CCOB" if options else b"__CLANG_OFFLOAD_BUNDLE__")
    objects = load_objects(path)
    assert sorted(str(one.target) for one in objects) == TARGETS
    for object in objects:
        assert object.name == f"{path}[{object.target}]"
        assert object.data == unbundled(tool, path, str(object.target), tmp_path)
        assert load_object(path, str(object.target)).data == object.data


@pytest.mark.parametrize("version", ["2", "3"])
def test_compressed_versions(
    version: str, compile_hip: Compile, tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMPRESSED_BUNDLE_FORMAT_VERSION", version)
    path = tmp_path / "bundle"
    plain = {str(one.target): one.data for one in load_objects(compile_hip("--offload-device-only", *ARCHS))}
    inputs = []
    for number, (target, data) in enumerate(plain.items()):
        (tmp_path / str(number)).write_bytes(data)
        inputs.append((f"hipv4-amdgcn-amd-amdhsa--{target}", tmp_path / str(number)))
    tool(
        "clang-offload-bundler-22", "--type=o", "--compress", f"--output={path}",
        "--targets=host-x86_64-unknown-linux-gnu," + ",".join(target for target, _ in inputs),
        "--input=/dev/null", *(f"--input={file}" for _, file in inputs),
    )  # fmt: skip
    assert path.read_bytes()[4] == int(version)
    assert {str(one.target): one.data for one in load_objects(path)} == plain


HEADERS: dict[int, Callable[[int, int, int], bytes]] = {
    1: lambda method, whole, size: struct.pack("<4sHHIQ", b"CCOB", 1, method, size, 0),
    2: lambda method, whole, size: struct.pack("<4sHHIIQ", b"CCOB", 2, method, whole + 24, size, 0),
    3: lambda method, whole, size: struct.pack("<4sHHQQQ", b"CCOB", 3, method, whole + 32, size, 0),
}


def compressed(data: bytes, version: int, method: int) -> bytes:
    packed = zlib.compress(data) if method == 0 else zstandard.compress(data)
    return HEADERS[version](method, len(packed), len(data)) + packed


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("method", [0, 1], ids=["zlib", "zstd"])
def test_every_compression(version: int, method: int, compile_hip: Compile, tool: Tool, tmp_path: Path) -> None:
    path = tmp_path / "bundle"
    path.write_bytes(compressed(compile_hip("--offload-device-only", *ARCHS).read_bytes(), version, method))
    listed = tool("clang-offload-bundler-22", "--list", "--type=o", f"--input={path}")
    assert len(listed.split()) == 4
    assert targets_of(path) == TARGETS


def test_several_compressed_bundles_in_a_row(compile_hip: Compile, tmp_path: Path) -> None:
    """As linked into .hip_fatbin; also of version 1, which does not say how long it is."""
    bundle = compile_hip("--offload-device-only", *ARCHS).read_bytes()
    parts = [compressed(bundle, version, 1) for version in (1, 2, 3, 1)] + [bundle]
    path = tmp_path / "fatbin"
    path.write_bytes(b"".join(part + bytes(-len(part) % 4096) for part in parts))
    names = [found.name for found in load_objects(path)]
    assert len(names) == len(set(names)) == 15
    assert f"{path}[3:gfx942]" in names
    with pytest.raises(ObjectError, match="several code objects"):
        load_object(path, "gfx942")


@pytest.mark.rows(1)
@pytest.mark.parametrize(
    "options", [(), ("--offload-compress",), ("--offload-new-driver",)], ids=["plain", "zstd", "new"]
)
def test_host_objects_libraries_archives(
    options: tuple[str, ...], compile_hip: Compile, tool: Tool, tmp_path: Path
) -> None:
    single = compile_hip("-c", *ARCHS, *options)
    other = compile_hip("-c", "--offload-arch=gfx1201", "--offload-arch=gfx942", "-Dtwice=thrice", *options)
    assert targets_of(single) == TARGETS
    library = tmp_path / "library.so"
    objects = [tmp_path / "one.o", tmp_path / "a_member_with_a_name_that_is_long.o"]
    objects[0].write_bytes(single.read_bytes())
    objects[1].write_bytes(other.read_bytes())
    tool("clang-22", "-shared", "-fuse-ld=lld-22", "-Wl,-z,muldefs", *objects, "-o", library)
    loaded = load_objects(library)
    assert sorted(str(o.target) for o in loaded) == sorted([*TARGETS, "gfx1201", "gfx942"])
    assert len({o.name for o in loaded}) == 5
    by_symbol = [o for o in loaded if o.symbol("thrice")]
    assert sorted(str(o.target) for o in by_symbol) == ["gfx1201", "gfx942"]
    stripped = tmp_path / "stripped.so"
    tool("llvm-strip-22", library, "-o", stripped)
    assert [o.data for o in load_objects(stripped)] == [o.data for o in loaded]
    archive = tmp_path / "library.a"
    for flags, objdir in (("rcs", objects), ("rcs", [*objects, Path(__file__)])):
        archive.unlink(missing_ok=True)
        tool("llvm-ar-22", flags, archive, *objdir)
        members = load_objects(archive)
        assert sorted(o.data for o in members) == sorted(o.data for o in loaded)
        assert any(o.name.startswith(f"{archive}[a_member_with_a_name_that_is_long.o]") for o in members)
    bsd = tmp_path / "bsd.a"
    tool("llvm-ar-22", "--format=bsd", "rcs", bsd, *objects)
    assert sorted(o.data for o in load_objects(bsd)) == sorted(o.data for o in loaded)


CHANCE = [b"CCOB", b"CCOB\2\0\1\0" + b"\xff" * 16, b"CCOB\2\0\7\0" + bytes(64), b"\x10\xff\x10\xad", b"CCCOB"]
"""What begins as a bundle does and is none."""


@pytest.mark.parametrize("chance", [b"", *CHANCE], ids=str)
@pytest.mark.parametrize("options", [(), ("--offload-compress",), ("--offload-new-driver", "-foffload-lto")], ids=str)
def test_program_without_section_headers(
    options: tuple[str, ...], chance: bytes, compile_hip: Compile, tool: Tool, tmp_path: Path
) -> None:
    library, source = tmp_path / "library.so", tmp_path / "chance.s"
    data = f".byte {', '.join(map(str, chance))}\n" if chance else ""
    source.write_text("".join(f'.section .{name},"aw"\n{data}' for name in ("before", "zzz")))
    tool("clang-22", "-shared", "-fuse-ld=lld-22", "-Wl,-z,nosectionheader", source, "-x", "none",
         compile_hip("-c", *options, *ARCHS), "-o", library)  # fmt: skip
    assert targets_of(library) == TARGETS


def test_an_empty_section_at_the_end(tmp_path: Path) -> None:
    """An empty section at the end of a file of whole pages has no memory to release."""
    names = b"\0.hip_fatbin\0.shstrtab\0"
    sections = [
        E.SectionHeader(*[0] * 10),
        E.SectionHeader(1, E.SHT_PROGBITS, E.SHF_ALLOC, 0, 4096, 0, 0, 0, 1, 0),
        E.SectionHeader(13, E.SHT_STRTAB, 0, 0, 64, len(names), 0, 0, 1, 0),
    ]
    ident = E.ELF_MAGIC + b"\2\1\1" + bytes(9)
    header = E.FileHeader(ident, E.ET_REL, 62, 1, 0, 0, 512, 0, 64, 56, 0, 64, len(sections), 2)
    data = (E.FILE_HEADER.pack(header) + names).ljust(512, b"\0") + E.SECTION_HEADER.pack_all(sections)
    path = tmp_path / "empty.o"
    path.write_bytes(data.ljust(4096, b"\0"))
    with pytest.raises(ObjectError, match="contains no AMD GPU code object"):
        load_objects(path)


def test_wrappers_that_are_in_no_segment(compile_hip: Compile, tool: Tool, tmp_path: Path) -> None:
    library = tmp_path / "library.so"
    tool("clang-22", "-shared", "-fuse-ld=lld-22", "-x", "none", compile_hip("-c", *ARCHS), "-o", library)
    data = bytearray(library.read_bytes())
    elf = E.ElfFile(memoryview(bytes(data)), "library")
    number = elf.section_names.index(WRAPPERS)
    section, far = elf.sections[number], 1 << 40
    at = elf.header.sections_offset + number * E.SECTION_HEADER.size
    data[at : at + E.SECTION_HEADER.size] = E.SECTION_HEADER.pack(section._replace(address=section.address + far))
    for table in (one for one in elf.sections if one.type == E.SHT_RELA):
        for place in range(table.offset, table.offset + table.size, E.RELOCATION.size):
            record = E.RELOCATION.unpack(data, place)
            if 0 <= record.offset - section.address < section.size:
                moved = record._replace(offset=record.offset + far)
                data[place : place + E.RELOCATION.size] = E.RELOCATION.pack(moved)
    library.write_bytes(data)
    host = HostFile(str(library))
    with pytest.raises(ObjectError, match=r"pointer at .* is in no segment"):
        host.with_fat_binaries({0: b"new"})


def test_offload_binaries(code_object: Compile, tool: Tool, tmp_path: Path) -> None:
    """OpenMP's format, alone and wrapped into a host object."""
    packed, bitcode, wrapped = (tmp_path / name for name in ("packed", "wrapped.bc", "wrapped.o"))
    images = [
        f"--image=file={code_object(target)},triple=amdgcn-amd-amdhsa,arch={target},kind=openmp"
        for target in ("gfx942", "gfx1100")
    ]
    tool("clang-offload-packager-22", "-o", packed, *images)
    assert targets_of(packed) == ["gfx1100", "gfx942"]
    tool("llvm-offload-wrapper-22", "--kind=openmp", "--triple=x86_64-pc-linux-gnu", packed, "-o", bitcode)
    tool("clang-22", "--target=x86_64-pc-linux-gnu", "-c", bitcode, "-o", wrapped)
    assert targets_of(wrapped) == ["gfx1100", "gfx942"]
    assert load_object(wrapped, "gfx942").data == code_object("gfx942").read_bytes()


def test_bytes_and_names(code_object: Compile) -> None:
    path = code_object("gfx942")
    assert load_object(path.read_bytes()).name == "<memory>"
    assert load_object(path.read_bytes(), name="kept").name == "kept"
    assert load_object(bytearray(path.read_bytes())).data == path.read_bytes()  # type: ignore[arg-type]
    assert load_object(str(path)).name == str(path)
    (image,) = find_images(path)
    assert (image.name, image.id, image.data) == (str(path), "", path.read_bytes())


def test_choosing_a_target(compile_hip: Compile) -> None:
    path = compile_hip("--offload-device-only", *ARCHS)
    assert str(load_object(path, "gfx90a").target) == "gfx90a:xnack+"
    assert str(load_object(path, "amdgcn-amd-amdhsa--gfx90a:xnack+").target) == "gfx90a:xnack+"
    for wanted in ("gfx90a:xnack-", "gfx1201"):
        with pytest.raises(ObjectError, match=r"no code object for .*gfx942") as caught:
            load_object(path, wanted)
        assert caught.value.object == str(path)
    with pytest.raises(ObjectError, match="several code objects"):
        load_object(path)
    with pytest.raises(TargetError):
        load_object(path, "gfx1")


def test_unknown_processors_do_not_hide_the_others(compile_hip: Compile, code_object: Compile) -> None:
    path = compile_hip("--offload-device-only", "--offload-arch=gfx942", "--offload-arch=gfx803")
    assert [str(found.target) for found in load_objects(path)] == ["gfx942"]
    assert sorted(image.id[-6:] for image in find_images(path)) == ["gfx803", "gfx942"]
    with pytest.raises(TargetError, match="0x2a"):
        load_objects(code_object("gfx803"))


def test_spirv_does_not_hide_the_others(code_object: Compile, tool: Tool, tmp_path: Path) -> None:
    """SPIR-V is listed as unreadable."""
    spirv, path, alone = tmp_path / "spirv", tmp_path / "bundle", tmp_path / "alone"
    spirv.write_bytes(struct.pack("<5I", 0x07230203, 0x10600, 0, 1, 0))
    ids = ["host-x86_64-unknown-linux-gnu-", "hipv4-spirv64-amd-amdhsa--amdgcnspirv", "hipv4-amdgcn-amd-amdhsa--gfx942"]
    bundler = ["clang-offload-bundler-22", "--type=o", f"--input={os.devnull}", f"--input={spirv}"]
    tool(*bundler, f"--input={code_object('gfx942')}", f"--targets={','.join(ids)}", f"--output={path}")
    tool(*bundler, f"--targets={','.join(ids[:2])}", f"--output={alone}")
    assert [found.name for found in load_objects(path)] == [f"{path}[gfx942]"]
    assert [(image.name, image.id) for image in find_images(path)] == [
        (f"{path}[{label}]", id) for label, id in zip(("amdgcnspirv", "gfx942"), ids[1:], strict=True)
    ]
    for source in (alone, spirv):
        with pytest.raises(TargetError, match="SPIR-V, which HIP compiles"):
            load_objects(source)


def test_inputs_without_device_code(tmp_path: Path, tool: Tool) -> None:
    source = tmp_path / "host.c"
    source.write_text("int main(void) { return 0; }")
    for options, match in (
        (["-c"], "no AMD GPU code"),
        (["-c", "-emit-llvm"], "bitcode"),
        (["-S"], "not a code object"),
    ):
        out = tmp_path / "out"
        tool("clang-22", *options, source, "-o", out)
        with pytest.raises(ObjectError, match=match) as caught:
            load_objects(out)
        assert caught.value.object == str(out)
    thin = tmp_path / "thin.a"
    tool("llvm-ar-22", "--thin", "rcs", thin, source)
    for path, match in (
        (thin, "thin archive"),
        (tmp_path, "cannot read"),
        (tmp_path / "none", "No such file"),
        ("a\0b", "embedded null byte"),
    ):
        with pytest.raises(ObjectError, match=match):
            load_objects(path)
    with pytest.raises(ObjectError, match="empty"):
        load_objects(b"")


def test_device_relocatable_is_refused(tmp_path: Path, tool: Tool) -> None:
    out = tmp_path / "relocatable"
    tool("clang-22", "--target=amdgcn-amd-amdhsa", "-mcpu=gfx942", "-nogpulib", "-x", "c", "-c", os.devnull, "-o", out)
    with pytest.raises(ObjectError, match="link relocatable objects first"):
        load_objects(out)


def bad_bundles(bundle: bytes) -> dict[str, bytes]:
    entry = len(b"__CLANG_OFFLOAD_BUNDLE__") + 8

    def put(at: int, value: int, data: bytes = bundle) -> bytes:
        return data[:at] + struct.pack("<Q", value) + data[at + 8 :]

    packed = compressed(bundle, 3, 1)
    return {
        "announces": put(entry - 8, 1 << 60),
        "reaches past the end": put(entry, 1 << 62),
        "id.*reaches past the end": put(entry + 16, 1 << 40),
        "unknown version 9": packed[:4] + b"\x09" + packed[5:],
        "unknown compression method 7": packed[:6] + b"\x07" + packed[7:],
        "does not fit": put(8, 1 << 50, packed),
        "claims to hold 0x400": put(16, 1 << 62, packed),
        "does not decompress": packed[:40] + b"\xff" * 40 + packed[80:],
        "bytes instead of": compressed(bundle, 1, 1)[:-200],
        "nested": b"!<arch>\n" + deep_archive(bundle, 10),
    }


def deep_archive(data: bytes, depth: int) -> bytes:
    header = b"%-16s%-12d%-6d%-6d%-8o%-10d`\n"
    for _ in range(depth):  # each time a compressed bundle with the last one in it
        label = b"hipv4-amdgcn-amd-amdhsa--gfx942"
        start = 24 + 8 + 24 + len(label)
        entries = struct.pack("<Q", 1) + struct.pack("<QQQ", start, len(data), len(label)) + label
        data = b"__CLANG_OFFLOAD_BUNDLE__" + entries + data
    return header % (b"x/", 0, 0, 0, 0o644, len(data)) + data + b"\n" * (len(data) % 2)


def test_malformed_bundles(compile_hip: Compile) -> None:
    for match, data in bad_bundles(compile_hip("--offload-device-only", *ARCHS).read_bytes()).items():
        with pytest.raises(LuthierError, match=match) as caught:
            load_objects(data, name="bad.hipfb")
        assert "bad.hipfb" in str(caught.value)
        assert caught.value.offset is not None
