"""Archives of device code next to libraries, as in ROCm 7.13 and later, made here by the documented format."""

from __future__ import annotations

import json
import random
import struct
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgpack
import pytest
import zstandard
from luthier.cli.main import main
from luthier.errors import LuthierError
from luthier.objects import find_images, load_object, load_objects
from luthier.objects.elf import ElfFile
from luthier.objects.kpack import REFERENCE, KernelArchive
from luthier.objects.place import FileSlice

Compile = Callable[..., Path]
Tool = Callable[..., str]
Images = Mapping[tuple[str, str], bytes]


def kpack(images: Images, scheme: str = "zstd-per-kernel", changed: Mapping[str, Any] | None = None) -> bytes:
    """An archive of images by host file and processor.

    Args:
        changed: other entries of its table of contents, or of all that describe an image.
    """
    changed = changed or {}
    toc: dict[str, dict[str, Any]] = {}
    blobs, places, at = [], [], 64
    for ordinal, ((binary, processor), data) in enumerate(images.items()):
        row = {"type": "hsaco", "ordinal": ordinal, "original_size": len(data)}
        toc.setdefault(binary, {})[processor] = row | {key: changed[key] for key in row.keys() & changed.keys()}
        blobs.append(data if scheme == "none" else zstandard.ZstdCompressor().compress(data))
        places.append({"offset": at, "size": len(blobs[-1])})
        at += len(blobs[-1])
    region = b"".join(blobs)
    if scheme == "none":
        more: dict[str, Any] = {"blobs": places}
    else:
        region = struct.pack("<I", len(blobs)) + b"".join(struct.pack("<I", len(blob)) + blob for blob in blobs)
        more = {"zstd_offset": 64, "zstd_size": len(region)}
    table = {
        "format_version": 1,
        "group_name": "test",
        "gfx_arches": sorted({processor for _, processor in images}),
        "compression_scheme": scheme,
        "toc": toc,
        **more,
        **{key: value for key, value in changed.items() if key not in ("ordinal", "original_size", "type")},
    }
    return struct.pack("<4sIQ", b"KPAK", 1, 64 + len(region)).ljust(64, b"\0") + region + msgpack.packb(table)


def library(tool: Tool, path: Path, paths: list[str], binary: str = "lib/libx.so", wrappers: int = 1) -> Path:
    """A library whose device code is in archives at these paths."""
    path.parent.mkdir(parents=True, exist_ok=True)
    marker, source = path.with_suffix(".marker"), path.with_suffix(".s")
    marker.write_bytes(msgpack.packb({"kernel_name": binary, "kpack_search_paths": paths}))
    source.write_text(
        f'.section .rocm_kpack_ref,"a"\nmarker: .incbin "{marker}"\n'
        '.section .hipFatBinSegment,"aw"\n'
        + "".join(f".long 0x4B504948, 1\n.quad marker, {number}\n" for number in range(wrappers))
        + '.section .hip_fatbin,"a"\n.ascii "__CLANG_OFFLOAD_BUNDLE__"\n.quad 5, 5, 5\n'  # left of what was there
    )
    tool("clang-22", "-shared", "-fuse-ld=lld-22", source, "-o", path)
    return path


@pytest.fixture
def images(code_object: Compile) -> dict[tuple[str, str], bytes]:
    named = {"gfx942": "lib/libx.so#0", "gfx1100": "lib/libx.so#0", "gfx90a": "lib/other.so#0"}
    return {(binary, target): code_object(target).read_bytes() for target, binary in named.items()}


@pytest.mark.parametrize("scheme", ["zstd-per-kernel", "none"])
def test_an_archive(scheme: str, images: Images, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its images are found, named, and patched; what is not patched stays."""
    path, out = tmp_path / "x.kpack", tmp_path / "patched.kpack"
    path.write_bytes(kpack(images, scheme))
    assert [bytes(image.data) for image in find_images(path)] == [*images.values()]
    assert load_object(path, "gfx90a").name == f"{path}[lib/other.so#0:gfx90a]"
    assert main(["objects", str(path)]) == main(["check", str(path), "--check", "memory"]) == 0
    assert f"{path}[lib/libx.so#0:gfx1100]: object 1, gfx1100" in capsys.readouterr().out
    assert main(["patch", str(path), "--target", "gfx942", "-t", "instr_count", "-o", str(out)]) == 0
    first, *rest = load_objects(out)
    assert first.section_data(".luthier.text")
    assert [one.data for one in rest] == [*images.values()][1:]


def test_a_library_that_names_archives(images: Images, tool: Tool, tmp_path: Path) -> None:
    """One for each processor that is installed; images of other libraries in them are not its own."""
    path = library(tool, tmp_path / "lib" / "libx.so", ["../.kpack/x_@GFXARCH@.kpack"])
    (tmp_path / ".kpack").mkdir()
    with pytest.raises(LuthierError, match="archives, but there are none"):
        load_objects(path)
    for processor in ("gfx942", "gfx1100"):
        own = {key: data for key, data in images.items() if key[1] in (processor, "gfx90a")}
        (tmp_path / ".kpack" / f"x_{processor}.kpack").write_bytes(kpack(own))
    assert [(one.name, one.data) for one in load_objects(path)] == [
        (f"{path}[../.kpack/x_{target}.kpack][lib/libx.so#0:{target}]", images["lib/libx.so#0", target])
        for target in ("gfx1100", "gfx942")
    ]
    with pytest.raises(LuthierError, match="needs a file on disk"):
        load_objects(path.read_bytes())


def loaded(path: Path, wrapper: int = 0) -> tuple[dict[str, Any], int]:
    """Return the map that the wrapper of a loaded library points to, and its number, as ROCm finds them."""
    code = f"""
import ctypes, json, msgpack
ctypes.CDLL({str(path)!r})
base = next(int(line.split("-")[0], 16) for line in open("/proc/self/maps") if line.rstrip().endswith({str(path)!r}))
from luthier.objects.elf import ElfFile
elf = ElfFile(memoryview(open({str(path)!r}, "rb").read()), "")
at = base + elf.sections[list(elf.section_names).index(".hipFatBinSegment")].address + 24 * {wrapper}
pointer, number = (ctypes.c_uint64 * 2).from_address(at + 8)
unpacker = msgpack.Unpacker()
unpacker.feed(ctypes.string_at(pointer, 100))  # its size is nowhere
print(json.dumps([unpacker.unpack(), number]))
"""
    metadata, number = json.loads(
        subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True).stdout
    )
    return metadata, number


@pytest.mark.parametrize("named", ["../.kpack/x_@GFXARCH@.kpack", "../.kpack/@GFXARCH@/x.kpack", "../.kpack/x.kpm"])
def test_a_patched_library_has_an_archive_of_its_own(named: str, images: Images, tool: Tool, tmp_path: Path) -> None:
    """The archive has all images, patched or not; the original library and its archives are unchanged."""
    path = library(tool, tmp_path / "lib" / "libx.so", [named], wrappers=2)
    files = {}
    for processor in ("gfx942", "gfx1100"):
        own = {key: data for key, data in images.items() if key[1] in (processor, "gfx90a")}
        file = tmp_path / "lib" / named.replace("@GFXARCH@", processor).replace(".kpm", f"_{processor}.kpack")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(kpack(own))
        files[processor] = {"file": file.name}
    if named.endswith(".kpm"):
        (tmp_path / ".kpack/x.kpm").write_bytes(msgpack.packb({"format_version": 1, "kpack_files": files}))
    before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    (tmp_path / "elsewhere").mkdir()
    out, link = tmp_path / "elsewhere/out.so", tmp_path / "link.so"
    link.symlink_to(out)
    assert main(["patch", str(path), "--target", "gfx942", "-t", "instr_count", "-o", str(link)]) == 0
    names = ["out.so.kpack", "out.so.kpm"][: 1 + named.endswith(".kpm")]
    assert sorted(file.name for file in out.parent.iterdir()) == ["out.so", *names]
    for number in (0, 1):
        assert loaded(out, number) == ({"kernel_name": "lib/libx.so", "kpack_search_paths": names}, number)
    elf = ElfFile(memoryview(out.read_bytes()), str(out))
    (section,) = (one for name, one in zip(elf.section_names, elf.sections, strict=True) if name == REFERENCE)
    assert msgpack.unpackb(elf.section_view(section, REFERENCE))["kpack_search_paths"] == names  # nothing after it
    archive = KernelArchive(FileSlice.of_file(out.parent / "out.so.kpack", "new"))
    assert {image.id for image in archive.images} == {"lib/libx.so#0:gfx1100", "lib/libx.so#0:gfx942"}
    left, patched = sorted(load_objects(out), key=lambda object: str(object.target))
    assert left.data == images["lib/libx.so#0", "gfx1100"]
    assert patched.section_data(".luthier.text")
    assert {file: file.read_bytes() for file in before} == before


def test_what_a_patched_library_cannot_replace(
    images: Images, tool: Tool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = library(tool, tmp_path / "libx.so", ["out.so.kpack"])
    (tmp_path / "out.so.kpack").write_bytes(kpack(images))
    for out, message in ((tmp_path / "out.so", "would be overwritten"), ("/dev/null", "is not a regular file")):
        assert main(["patch", str(path), "--target", "gfx942", "-t", "instr_count", "-o", str(out)]) == 1
        assert message in capsys.readouterr().err
    assert (tmp_path / "out.so.kpack").read_bytes() == kpack(images)
    assert not (tmp_path / "out.so").exists()


def test_the_environment_names_archives(
    images: Images, tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in ROCm's loader, other archives precede or replace the library's own; the first one for a target counts."""
    path = library(tool, tmp_path / "lib" / "libx.so", ["own.kpack", "gone.kpack"])
    (tmp_path / "lib/own.kpack").write_bytes(kpack(images))
    other = tmp_path / "other.kpack"
    other.write_bytes(kpack({("lib/libx.so#0", "gfx942"): images["lib/other.so#0", "gfx90a"]}))

    def targets() -> list[str]:
        return [str(one.target) for one in load_objects(path)]

    assert targets() == ["gfx942", "gfx1100"]
    monkeypatch.setenv("ROCM_KPACK_PATH_PREFIX", f"{tmp_path}/none.kpack::{other}:{other}")
    assert targets() == ["gfx90a", "gfx1100"]  # what is registered as gfx942 is another's
    monkeypatch.setenv("ROCM_KPACK_PATH", str(other))
    assert targets() == ["gfx90a"]
    monkeypatch.setenv("ROCM_KPACK_PATH", str(tmp_path / "none.kpack"))
    with pytest.raises(LuthierError, match="but there are none: ROCM_KPACK_PATH names"):
        targets()
    monkeypatch.setenv("ROCM_KPACK_DISABLE", "1")
    with pytest.raises(LuthierError, match="ROCM_KPACK_DISABLE=1 disables"):
        targets()


@pytest.mark.parametrize("rows", [None, [], {"gfx942": "x"}, {"gfx942": {"file": "../x.kpack"}}, {"a": {"file": ".."}}])
def test_malformed_manifests(rows: object, tool: Tool, tmp_path: Path) -> None:
    path = library(tool, tmp_path / "libx.so", ["x.kpm"])
    (tmp_path / "x.kpm").write_bytes(msgpack.packb({"kpack_files": rows}))
    with pytest.raises(LuthierError, match=r"manifest lists|none is there") as raised:
        load_objects(path)
    assert "x.kpm" in str(raised.value)


@pytest.mark.parametrize("archive", ["/etc/x.kpack", "../../x.kpack", "a/../../../x.kpack"])
def test_paths_that_leave_the_folder(archive: str, images: Images, tool: Tool, tmp_path: Path) -> None:
    path = library(tool, tmp_path / "root" / "lib" / "libx.so", [archive])
    (tmp_path / "x.kpack").write_bytes(kpack(images))
    with pytest.raises(LuthierError, match=r"outside of the folders of 'lib/libx\.so'"):
        load_objects(path)


MALFORMED: dict[str, tuple[dict[str, Any], str]] = {
    "bomb": ({"original_size": 1 << 40}, "claims to hold"),
    "size": ({"original_size": 5}, "instead of 0x5"),
    "ordinal": ({"ordinal": 7}, "or have none"),
    "shared": ({"ordinal": 0}, "share a blob"),
    "negative": ({"ordinal": -1}, "not a size"),
    "region": ({"zstd_size": 1 << 40}, "reaches past the end"),
    "before": ({"zstd_offset": 0}, "announces"),
    "compression": ({"compression_scheme": "lzma"}, "unknown compression 'lzma'"),
    "table": ({"toc": [1]}, "not a map"),
    "row": ({"toc": {"a": {"gfx942": 3}}}, "not a map"),
}


@pytest.mark.parametrize("how", MALFORMED)
def test_malformed(how: str, images: Images) -> None:
    changed, message = MALFORMED[how]
    with pytest.raises(LuthierError, match=message):
        load_objects(kpack(images, changed=changed))


def test_damaged(images: Images) -> None:
    """Cut, or with bits flipped: read or refused."""
    whole = kpack({key: data[:900] for key, data in images.items()})
    numbers = random.Random(3)
    for _ in range(300):
        data = bytearray(whole)
        if numbers.random() < 0.3:
            del data[numbers.randrange(len(data)) :]
        else:
            start, size = numbers.choice([(0, 16), (64, 64), (len(data) - 350, 350)])
            data[start + numbers.randrange(size)] ^= 1 << numbers.randrange(8)
        try:
            load_objects(bytes(data))
        except LuthierError:
            continue
