"""Large files are mapped and listed as they are read; malformed ones cost neither time nor memory."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from luthier.errors import LuthierError
from luthier.objects import CodeObject, find_images, load_objects

Compile = Callable[..., Path]

MEASURED = """
import resource, sys
from luthier.cli.main import main
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
code = main(sys.argv[1:])
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024, file=sys.stderr)
sys.exit(code)
"""


def bundle_of(images: list[bytes]) -> bytes:
    """A bundle of images for gfx942."""
    label = b"hipv4-amdgcn-amd-amdhsa--gfx942"
    at = 24 + 8 + len(images) * (24 + len(label))
    table = struct.pack("<Q", len(images))
    for image in images:
        table += struct.pack("<QQQ", at, len(image), len(label)) + label
        at += len(image)
    return b"__CLANG_OFFLOAD_BUNDLE__" + table + b"".join(images)


def compressed(data: bytes, claimed: int | None = None) -> bytes:
    packed = zstandard.compress(data)
    size = len(data) if claimed is None else claimed
    return struct.pack("<4sHHQQQ", b"CCOB", 3, 1, len(packed) + 32, size, 0) + packed


@pytest.mark.rows(1)
@pytest.mark.parametrize("options", [(), ("--json",)], ids=["table", "json"])
def test_memory_does_not_grow_with_the_file(options: tuple[str, ...], code_object: Compile, tmp_path: Path) -> None:
    """200 images of 4 MiB, listed in a process that grows by less than a tenth."""
    image = code_object("gfx942").read_bytes()
    image += bytes((4 << 20) - len(image))
    path = tmp_path / "large"
    with path.open("wb") as file:
        for _ in range(200):
            file.write(bundle_of([image]))
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, "objects", *options, path], check=True, capture_output=True, text=True
    )
    assert int(done.stderr) < 80
    if options:
        assert len(json.loads(done.stdout)) == 200
    else:
        assert done.stdout.count(", gfx942, code object v6, 4,194,304 bytes, 3 kernels\n") == 200


def test_first_lines_come_first(code_object: Compile, tmp_path: Path) -> None:
    """Results are printed before later files are read; later errors are still reported."""
    good = code_object("gfx942").read_bytes()
    path = tmp_path / "half"
    path.write_bytes(bundle_of([good, good[:2000]]))
    done = subprocess.run([sys.executable, "-c", MEASURED, "objects", path], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stdout.count("code object v6") == 1
    assert "luthier objects: error:" in done.stderr


def test_objects_are_independent_of_their_file(code_object: Compile, tmp_path: Path) -> None:
    path = tmp_path / "object"
    data = code_object("gfx942").read_bytes()
    path.write_bytes(data)
    (object,) = load_objects(path)
    os.truncate(path, 0)
    assert object.data == data
    assert object.metadata


def test_pipe(code_object: Compile) -> None:
    command = f"cat {code_object('gfx942')} | {sys.executable} -c '{MEASURED}' objects /dev/stdin"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True)
    assert "gfx942, code object v6" in done.stdout


def refused(data: bytes, match: str) -> None:
    """Quickly, too."""
    started = time.process_time()
    with pytest.raises(LuthierError, match=match):
        load_objects(data, name="bad")
    assert time.process_time() - started < 3


def test_bombs(code_object: Compile) -> None:
    image = code_object("gfx942").read_bytes()
    zeros = zstandard.compress(bytes(1 << 28))
    refused(struct.pack("<4sHHQQQ", b"CCOB", 3, 1, len(zeros) + 32, 1 << 28, 0) + zeros, "claims to hold 0x10000000")
    # One that claims less than it holds is not unpacked further than that.
    refused(struct.pack("<4sHHQQQ", b"CCOB", 3, 1, len(zeros) + 32, 1 << 12, 0) + zeros, "instead of 0x1000")
    packed = zlib.compress(bytes(1 << 28))
    refused(struct.pack("<4sHHIQ", b"CCOB", 1, 0, 1 << 28, 0) + packed, "claims to hold")
    refused(compressed(bundle_of([compressed(bundle_of([image]))])), "inside another one")


def test_overlapping_parts(code_object: Compile) -> None:
    """Entries that all hold the same entries: 1,000 to the power of 8 images from 300 KB."""
    label = b"hipv4-amdgcn-amd-amdhsa--gfx942"
    data = code_object("gfx942").read_bytes()
    for _ in range(8):
        start = 24 + 8 + 1000 * (24 + len(label))
        entry = struct.pack("<QQQ", start, len(data), len(label)) + label
        data = b"__CLANG_OFFLOAD_BUNDLE__" + struct.pack("<Q", 1000) + entry * 1000 + data
    refused(data, "overlaps the one before it")


def test_overlapping_sections(compile_hip: Compile) -> None:
    """A host object whose sections are all the same fat binary."""
    data = bytearray(compile_hip("-c", "--offload-arch=gfx942").read_bytes())
    table, count = struct.unpack_from("<Q", data, 40)[0], struct.unpack_from("<H", data, 60)[0]
    rows = [data[table + 64 * n : table + 64 * (n + 1)] for n in range(count)]
    (image,) = find_images(bytes(data))
    bundle = bytes(data).index(b"__CLANG_OFFLOAD_BUNDLE__")
    fat = next(row for row in rows if struct.unpack_from("<Q", row, 24)[0] == bundle)
    many = rows + [fat] * 60000
    data[40:48] = struct.pack("<Q", len(data))
    data[60:62] = struct.pack("<H", len(many))
    refused(bytes(data) + b"".join(many), "overlap")
    assert CodeObject(image.data).kernels


def test_several_symbol_tables(code_object: Compile) -> None:
    """Thousands of headers for the same table would be read thousands of times."""
    data = bytearray(code_object("gfx942").read_bytes())
    table, count = struct.unpack_from("<Q", data, 40)[0], struct.unpack_from("<H", data, 60)[0]
    rows = [bytes(data[table + 64 * n : table + 64 * (n + 1)]) for n in range(count)]
    symtab = next(row for row in rows if struct.unpack_from("<I", row, 4)[0] == 2)
    many = rows + [symtab] * 60000
    data[40:48] = struct.pack("<Q", len(data))
    data[60:62] = struct.pack("<H", len(many))
    refused(bytes(data) + b"".join(many), "several symbol tables")


def test_notes_again_and_again(code_object: Compile) -> None:
    """The same note segment 60,000 times."""
    data = bytearray(code_object("gfx942").read_bytes())
    table, count = struct.unpack_from("<Q", data, 32)[0], struct.unpack_from("<H", data, 56)[0]
    rows = [bytes(data[table + 56 * n : table + 56 * (n + 1)]) for n in range(count)]
    note = next(row for row in rows if struct.unpack_from("<I", row)[0] == 4)
    data[32:40] = struct.pack("<Q", len(data))
    data[56:58] = struct.pack("<H", count + 60000)
    refused(bytes(data) + b"".join(rows + [note] * 60000), "note")
