"""Damaged input either parses or is refused by a LuthierError: no other exception, no hang, no huge allocation.

LUTHIER_FUZZ=n tries n times as many mutations.
"""

from __future__ import annotations

import copy
import cProfile
import json
import os
import random
import resource
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from effort import EVERYTHING, FUZZ, sample
from luthier.cli.objects import describe, table
from luthier.errors import LuthierError
from luthier.objects import CodeObject, ObjectEditor, load_objects

Compile = Callable[..., Path]

WORDS = [b"\xff" * 8, bytes(8), b"\xff" * 7 + b"\x7f", b"\x01" + bytes(7), bytes(7) + b"\x80", b"\xf0\xff\xff\xff" * 2]

MOST_CALLS = 100_000
"""Calls of functions, whatever the machine does beside: intact objects take some thousands."""


@pytest.fixture(autouse=True)
def little_memory() -> Iterator[None]:
    """Let a huge allocation fail: at most 1 GiB more than now."""
    with open("/proc/self/statm") as statm:
        used = int(statm.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    old = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 30), old[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, old)


def mutations(data: bytes, count: int, seed: int) -> Iterator[bytes]:
    """Yield `count` damaged copies: truncated, bits flipped, bytes and 8-byte words replaced, ranges overwritten."""
    rng = random.Random(seed)
    for _ in range(count * FUZZ):
        damaged = bytearray(data)
        kind = rng.random()
        if kind < 0.1:
            del damaged[rng.randrange(len(damaged)) :]
        elif kind < 0.6:
            for _ in range(rng.choice((1, 1, 2, 8))):
                damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
        elif kind < 0.75:
            at = rng.randrange(len(damaged) // 8) * 8
            damaged[at : at + 8] = rng.choice(
                [*WORDS, rng.randbytes(8), rng.randrange(len(data)).to_bytes(8, "little")]
            )
        elif kind < 0.9:  # headers, where damage has most effect
            damaged[rng.randrange(min(1024, len(damaged)))] = rng.randrange(256)
        else:
            size = rng.randrange(1, 64)
            source, target = rng.randrange(len(data) - size), rng.randrange(len(data) - size)
            damaged[target : target + size] = data[source : source + size]
        yield bytes(damaged)


def survives(data: bytes) -> bool:
    """Do with it all that `luthier objects` does; whether it parsed."""
    profile = cProfile.Profile(subcalls=False)
    try:
        profile.enable()
        for object in load_objects(data, name="damaged"):
            kernels = list(object.kernels.values())
            json.dumps(describe(object, kernels))
            table(object, kernels)
        outcome = None
    except LuthierError as problem:
        outcome = str(problem)
    finally:
        profile.disable()
    assert outcome is None or "damaged" in outcome, outcome  # the message says which file
    calls = sum(entry.callcount for entry in profile.getstats())
    assert calls < MOST_CALLS, calls
    return outcome is None


@pytest.mark.rows(1)
@pytest.mark.parametrize(("target", "abi", "seed"), [("gfx90a", 4, 1), ("gfx942", 6, 2), ("gfx1100", 5, 3)])
def test_damaged_code_objects(target: str, abi: int, seed: int, code_object: Compile) -> None:
    data = code_object(target, abi).read_bytes()
    assert survives(data)
    outcomes = [survives(damaged) for damaged in mutations(data, 4000 if EVERYTHING else 1500, seed)]
    assert 0.05 < sum(outcomes) / len(outcomes) < 0.95  # both ways are taken


def test_every_byte_before_the_code(code_object: Compile) -> None:
    """Each byte of the headers, the metadata, the symbols and the descriptors in turn; `make test` takes a third."""
    data = code_object("gfx942").read_bytes()
    text = next(section for section in CodeObject(data).sections if section.name == ".text")
    for at in sample(range(text.offset), 3):
        for value in (data[at] ^ 0x80, 0xFF):
            survives(data[:at] + bytes([value]) + data[at + 1 :])


@pytest.mark.rows(1)
@pytest.mark.parametrize(
    "options",
    [
        ("--offload-device-only",),
        ("--offload-device-only", "--offload-compress"),
        ("-c",),
        ("-c", "--offload-compress"),
    ],
    ids=["bundle", "compressed", "host", "host-compressed"],
)
def test_damaged_containers(options: tuple[str, ...], compile_hip: Compile) -> None:
    data = compile_hip("--offload-arch=gfx942", "--offload-arch=gfx1100", *options).read_bytes()
    assert survives(data)
    outcomes = {survives(damaged) for damaged in mutations(data, 800, len(data))}
    assert outcomes == {True, False}
    for size in range(min(len(data), 600)):
        assert not survives(data[:size])


def test_damaged_archives(code_object: Compile, compile_hip: Compile) -> None:
    data = b"!<arch>\n"
    for name, member in (("one.o/", code_object("gfx1201")), ("two.o/", compile_hip("-c", "--offload-arch=gfx942"))):
        contents = member.read_bytes()
        data += b"%-16s%-12d%-6d%-6d%-8o%-10d`\n" % (name.encode(), 0, 0, 0, 0o644, len(contents)) + contents
        data += b"\n" * (len(data) % 2)
    assert survives(data)
    assert {survives(damaged) for damaged in mutations(data, 800, 5)} == {True, False}


def test_random_bytes() -> None:
    rng = random.Random(9)
    starts = [
        b"\x7fELF\2\1\1\x40\4",
        b"__CLANG_OFFLOAD_BUNDLE__",
        b"CCOB\3\0\1\0",
        b"\x10\xff\x10\xad\1\0\0\0",
        b"!<arch>\n",
        b"",
    ]
    for _ in range(1000 * FUZZ):
        assert not survives(rng.choice(starts) + rng.randbytes(rng.choice((1, 20, 64, 300))))


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", ["gfx942", "gfx1100"])
def test_editing_damaged_objects(target: str, code_object: Compile) -> None:
    """Objects that still parse can be edited or are refused; the output parses and has the edits."""
    written = 0
    for damaged in mutations(code_object(target).read_bytes(), 1500, 11):
        try:
            object = CodeObject(damaged)
        except LuthierError:
            continue
        try:
            editor = ObjectEditor(object)
            address = editor.reserve(32, flags="rw", name=".added")
            editor.define_symbol("added", address, 8)
            editor.add_relocation(address, 13, address)
            editor.set_metadata({**copy.deepcopy(object.metadata), "added": "x" * 100})
            data = editor.finish()
        except LuthierError:
            continue
        after = CodeObject(data)
        symbol = after.symbol("added")
        assert symbol is not None
        assert symbol.address == address
        assert after.metadata["added"] == "x" * 100
        assert [*after.kernels] == [*object.kernels]
        written += 1
    assert written > 300 * FUZZ
