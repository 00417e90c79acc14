"""Files that ask for much memory or time: every command is done soon, or says why not."""

from __future__ import annotations

import os
import random
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from assembly import assembled, function, kernel_text
from effort import EVERYTHING
from limited import MB, command, survives
from luthier.lifting import lift
from luthier.objects import CodeObject
from luthier.objects import elf as E
from luthier.objects.parts import parts

LUTHIER = Path(sys.executable).with_name("luthier")
HUGE = 5 << 30
"""Bytes of a file."""


def small() -> CodeObject:
    return assembled(kernel_text(function("k", ["v_mov_b32 v0, 0", "s_nop 0", "s_endpgm"]), "gfx90a"), "gfx90a")


def padded(path: Path) -> Path:
    """A code object with zeros behind."""
    path.write_bytes(small().data)
    os.truncate(path, HUGE)
    return path


def with_hole(path: Path) -> Path:
    """A code object whose section headers are far behind the rest."""
    data = bytearray(small().data)
    (at,), (count,) = struct.unpack_from("<Q", data, 40), struct.unpack_from("<H", data, 60)
    struct.pack_into("<Q", data, 40, HUGE)
    with path.open("wb") as file:
        file.write(data[:at])
        file.seek(HUGE)
        file.write(data[at : at + 64 * count])
    return path


@pytest.mark.rows(2)
@pytest.mark.parametrize("make", [padded, with_hole])
@pytest.mark.parametrize(
    "arguments",
    [
        ["objects"],
        ["disasm"],
        ["lift"],
        ["check"],
        *([["cost", "-t", "opcode_histogram"], ["verify", "-t", "opcode_histogram"]] if EVERYTHING else []),
        ["patch", "-t", "opcode_histogram", "-o"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_padding_is_not_copied(make: Callable[[Path], Path], arguments: list[str], tmp_path: Path) -> None:
    file = make(tmp_path / "large.hsaco")
    name, *options = arguments
    output = [str(tmp_path / "patched.hsaco")] if name == "patch" else []
    ended = command([name, file, *options, *output], memory=HUGE + 2048 * MB)
    assert ended.code == 0, ended.error
    assert ended.peak < 200 * MB
    if output:
        assert os.path.getsize(output[0]) < MB


def test_a_device_is_not_read_to_its_end() -> None:
    ended = command(["objects", "/dev/zero"], memory=2048 * MB)
    assert ended.code == 1
    assert ended.error.startswith("luthier objects: error: longer than 268435456 bytes, but not a regular file")
    assert ended.peak < 512 * MB


def test_what_a_bundle_decompresses_to_is_limited(tmp_path: Path) -> None:
    image, name = small().data, b"hipv4-amdgcn-amd-amdhsa--gfx90a"
    whole = 1000 * MB
    head = b"__CLANG_OFFLOAD_BUNDLE__" + struct.pack("<QQQQ", 1, 4096, len(image), len(name)) + name
    packer = zstandard.ZstdCompressor(level=1).compressobj(size=whole)
    packed = packer.compress(head.ljust(4096, b"\0") + image)
    rest = whole - 4096 - len(image)
    block = random.Random(1).randbytes(20_000) + bytes(4 * MB)  # further apart than the packer looks
    while rest:
        piece = block[:rest]
        packed += packer.compress(piece)
        rest -= len(piece)
    packed += packer.flush()
    path = tmp_path / "bomb.hipfb"
    path.write_bytes(b"CCOB" + struct.pack("<HHQQQ", 3, 1, 32 + len(packed), whole, 0) + packed)
    assert 4 * MB < path.stat().st_size < 6 * MB
    for verb in ("objects", "lift"):
        ended = command([verb, path])
        assert (ended.code, "claims to hold" in ended.error) == (1, True), ended.error
        assert ended.peak < 200 * MB


def test_a_table_of_more_entries_than_fit_is_refused(tmp_path: Path) -> None:
    """Zeros are symbols and section headers, too."""
    data = bytearray(small().data)
    (at,) = struct.unpack_from("<Q", data, 40)
    path = tmp_path / "tables.hsaco"
    count = struct.unpack_from("<H", data, 60)[0]
    symbols = next(at + 64 * n for n in range(count) if struct.unpack_from("<I", data, at + 64 * n + 4)[0] == 2)
    struct.pack_into("<Q", data, symbols + 32, HUGE - 4096)
    path.write_bytes(data)
    os.truncate(path, HUGE)
    ended = command(["objects", path], memory=HUGE + 2048 * MB)
    assert (ended.code, "entries" in ended.error) == (1, True), ended.error
    struct.pack_into("<H", data, 60, 0)  # their number is in the first section then
    struct.pack_into("<Q", data, at + 32, HUGE // 64 - MB)
    path.write_bytes(data)
    os.truncate(path, HUGE)
    ended = command(["objects", path], memory=HUGE + 2048 * MB)
    assert (ended.code, "section headers" in ended.error) == (1, True), ended.error


@pytest.mark.rows(1)
@pytest.mark.parametrize("name", ["lift", "disasm", "check", "patch", "cost", "verify"])
def test_interrupted_at_once(name: str, tmp_path: Path) -> None:
    """Whatever it is about, and without a traceback."""
    tool = ["-t", "instr_count"] if name in ("patch", "cost", "verify") else []
    path = waiting(tmp_path / "long.hsaco", 1 << (18 if tool else 20))
    output = ["-o", str(tmp_path / "patched.hsaco")] if name == "patch" else []
    for after in (0.3, 1.0, 2.0):
        process = subprocess.Popen(
            [LUTHIER, name, path, *tool, *output],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        time.sleep(after)
        if process.poll() is not None:
            break
        process.send_signal(signal.SIGINT)
        began = time.monotonic()
        _, error = process.communicate(timeout=20)
        # Before Python has a handler, the signal itself ends the process.
        assert (process.returncode in (130, -signal.SIGINT), error) == (True, "")
        assert time.monotonic() - began < 3


def waiting(path: Path, count: int) -> Path:
    """A kernel of nothing but ``s_nop``."""
    text = f".globl k\n.p2align 8\n.type k,@function\nk:\n.fill {count}, 4, 0xbf800000\ns_endpgm\n.size k, .-k\n"
    path.write_bytes(assembled(kernel_text(text, "gfx90a"), "gfx90a").data)
    return path


def test_long_code_is_listed_piece_by_piece(tmp_path: Path) -> None:
    ended = command(["disasm", waiting(tmp_path / "long.hsaco", 1 << 18)])
    assert (ended.code, ended.output.count("s_nop 0")) == (0, 1 << 18)
    assert ended.peak < 85 * MB


def test_liveness_of_long_blocks_is_kept_at_few_points(tmp_path: Path) -> None:
    ended = command(["lift", waiting(tmp_path / "long.hsaco", 1 << 18)])
    assert ended.code == 0, ended.error
    assert ended.peak < 100 * MB


def test_waiting_code_is_checked_in_linear_time(tmp_path: Path) -> None:
    ended = command(["check", waiting(tmp_path / "long.hsaco", 1 << 17)], seconds=14)
    assert ended.code == 0, ended.error


def scattered(count: int) -> bytes:
    """Return an object with a number of functions, each in its own executable section."""
    lines = "".join(f".type f{at},@function\nf{at}: s_nop 0\n.size f{at}, 4\ns_nop 0\n" for at in range(count))
    object = assembled(kernel_text(lines + function("k", ["s_nop 0", "s_endpgm"]), "gfx90a"), "gfx90a")
    at = object.elf.section_names.index(".text")
    text, functions = object.elf.sections[at], [one for one in object.symbols if one.type == "func"]
    sections = list(object.elf.sections)
    for symbol in functions:
        offset = text.offset + symbol.address - text.address
        sections.append(text._replace(address=symbol.address, offset=offset, size=symbol.size))
    sections[at] = text._replace(size=4)
    data = object.data + bytes(-object.size % 8)
    header = object.elf.header._replace(sections_offset=len(data), section_count=len(sections))
    return E.FILE_HEADER.pack(header) + data[E.FILE_HEADER.size :] + E.SECTION_HEADER.pack_all(sections)


def test_functions_are_looked_up_among_many_sections() -> None:
    count = 16_000
    object = CodeObject(scattered(count))
    assert len(object.text_ranges) == count + 1

    def use() -> None:
        assert len(parts(object)) == count + 1
        lift(object, "k")
        assert object.source.problems

    assert survives(use, seconds=5)


def test_a_thread_that_cannot_begin() -> None:
    """Whichever of its memory is missing, an error is raised immediately; the caller does not wait."""
    code = """
import resource
from luthier.errors import UnfinishedError
from luthier.support.threads import Worker, are_running
worker = Worker(print, "at work")
worker.join()
print(worker.is_alive(), are_running())
with open("/proc/self/statm") as statm:
    resource.setrlimit(resource.RLIMIT_AS, (4096 * int(statm.read().split()[0]),) * 2)
try:
    Worker(print, "never")
except UnfinishedError as problem:
    print(problem)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done
    *before, message = done.stdout.splitlines()
    assert before == ["at work", "False False"]
    assert message.startswith("there is not enough memory for ")
    assert ": ulimit -v " in message
