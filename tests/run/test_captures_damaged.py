"""Captures that are damaged or hostile: an error of ours, in bounded time and memory, and never a wrong capture."""

from __future__ import annotations

import io
import json
import random
import resource
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard
from effort import EVERYTHING
from luthier.capture import Capture, read_capture
from luthier.capture.against import expecting, of_capture
from luthier.capture.export import export_hip
from luthier.capture.pages import without
from luthier.capture.replay import PreparedLaunch
from luthier.errors import LuthierError

from .conftest import Luthier

Captured = Callable[..., list[Path]]
Members = dict[str, bytes]
FILES = 3000 if EVERYTHING else 1000
"""Mutants of a file's bytes."""
MEANINGS = 1500 if EVERYTHING else 500
"""Mutants of what is in it."""
SECONDS = 90
"""For all mutants of one kind: hundreds of times what one takes."""
ODD: tuple[Any, ...] = (0, -1, 1, 4095, *(1 << bit for bit in (31, 32, 47, 63, 64, 200)), 1.5, "", "x", None, [], {})


def members(file: Path) -> Members:
    """Return the members of a capture, decompressed."""
    with zipfile.ZipFile(file) as archive:
        return {name: zstandard.ZstdDecompressor().decompress(archive.read(name)) for name in archive.namelist()}


def write(file: Path, parts: Members) -> None:
    """Write a capture that is well-formed as far as ZIP and Zstandard go."""
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_STORED) as archive:
        for name, data in parts.items():
            archive.writestr(name, zstandard.ZstdCompressor(level=1).compress(data))
    file.write_bytes(held.getvalue())


def mutated(data: bytes, choose: random.Random) -> bytes:
    """Return bytes of which some are changed, missing, repeated or inserted."""
    made = bytearray(data)
    for _ in range(choose.choice((1, 1, 2, 8))):
        at, size = choose.randrange(len(made) + 1), choose.choice((1, 4, 8, 64, 4096))
        what = choose.randrange(5)
        if what == 0 and at < len(made):
            made[at] ^= 1 << choose.randrange(8)
        elif what == 1:
            made[at : at + size] = choose.randbytes(size)
        elif what == 2:
            del made[at : at + size]
        elif what == 3:
            made[at:at] = made[at : at + size]
        else:
            made[at : at + 8] = choose.choice((0, 1 << 31, (1 << 64) - 1, 1 << 47)).to_bytes(8, "little")
    return bytes(made[: choose.choice((len(made), len(made), choose.randrange(len(made) + 1)))])


def odd_manifests(manifest: dict[str, Any], choose: random.Random) -> Iterator[dict[str, Any]]:
    """Manifests with odd values, for ever."""
    names = [*manifest, "left_out", "groups", "unknown"]
    while True:
        made = json.loads(json.dumps(manifest))
        for _ in range(choose.choice((1, 2))):
            name = choose.choice(names)
            value = made.get(name)
            if isinstance(value, list) and value and choose.random() < 0.8:
                at = choose.randrange(len(value))
                if isinstance(value[at], list) and value[at]:
                    value[at][choose.randrange(len(value[at]))] = choose.choice(ODD)
                elif isinstance(value[at], dict):
                    value[at][choose.choice(sorted(value[at]))] = choose.choice(ODD)
                else:
                    value[at] = choose.choice(ODD)
            elif choose.random() < 0.1:
                made.pop(name, None)
            else:
                pair = [choose.choice(ODD), choose.choice(ODD)]
                made[name] = choose.choice((choose.choice(ODD), [pair, pair], [[0, 0, 0], [1 << 20, 0, 0]]))
        yield made


def odd_table(data: bytes, choose: random.Random) -> bytes:
    """A table with an odd number in it."""
    made = bytearray(data)
    for _ in range(choose.choice((1, 3))):
        if len(made) >= 8:
            at = choose.randrange(len(made) // 8) * 8
            made[at : at + 8] = choose.choice((0, 4096, 4097, (1 << 64) - 1, 1 << 47, 1 << 46)).to_bytes(8, "little")
    return bytes(made)


def use(capture: Capture, whole: Capture, folder: Path) -> None:
    """Do with a capture all that does not run it."""
    list(without(capture.manifest.ranges, capture.manifest.left_out))
    launch = PreparedLaunch(capture, capture.manifest.target)
    list(launch.parts())
    expecting(whole, of_capture(whole, capture))
    expecting(capture, of_capture(capture, whole))
    export_hip(capture, folder, relocate=True)


@pytest.fixture
def bounded(captured: Captured) -> Iterator[None]:
    """Limit memory to 4 GiB more than this process uses, so that an archive bomb is an error."""
    captured("histogram")  # which other processes make, that inherit limits
    before = resource.getrlimit(resource.RLIMIT_AS)
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + (4 << 30), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


def test_damaged_files(captured: Captured, temporary: Path, bounded: None) -> None:
    whole = captured("histogram")[1].read_bytes()
    choose, file, refused = random.Random(71), temporary / "mutant.lcap", 0
    expected = read_capture(captured("histogram")[1]).pages.tobytes()
    began = time.monotonic()
    for _ in range(FILES):
        file.write_bytes(mutated(whole, choose))
        try:
            assert read_capture(file).pages.tobytes() == expected  # checksums: what is read is what was written
        except LuthierError:
            refused += 1
    assert refused > FILES // 2
    assert time.monotonic() - began < SECONDS


def test_hostile_contents(captured: Captured, temporary: Path, bounded: None) -> None:
    source = captured("histogram")[1]
    parts, whole = members(source), read_capture(source)
    choose, file = random.Random(72), temporary / "mutant.lcap"
    manifests = odd_manifests(json.loads(parts["manifest.json"]), choose)
    accepted = 0
    began = time.monotonic()
    for number in range(MEANINGS):
        made = dict(parts)
        if number % 3 == 0:
            made["manifest.json"] = json.dumps(next(manifests)).encode()
        elif number % 3 == 1:
            name = choose.choice(("before", "after", "counts"))
            made[name] = odd_table(parts[name], choose)
        else:
            name = choose.choice(sorted(parts))
            made[name] = mutated(parts[name], choose)
        write(file, made)
        try:
            capture = read_capture(file)
            accepted += 1
            use(capture, whole, temporary / f"program{number}")
        except LuthierError:
            continue
    assert 0 < accepted < MEANINGS
    assert time.monotonic() - began < SECONDS


def test_bombs_and_odd_archives(captured: Captured, temporary: Path, bounded: None) -> None:
    source = captured("histogram")[1]
    parts, file = members(source), temporary / "odd.lcap"

    def refused(*texts: str) -> None:
        began = time.monotonic()
        with pytest.raises(LuthierError) as error:
            read_capture(file)
        assert any(text in str(error.value) for text in texts), error.value
        assert time.monotonic() - began < 5

    def archive(raw: dict[str, bytes], kind: int = zipfile.ZIP_STORED) -> None:
        with zipfile.ZipFile(file, "w", kind) as made:
            for name, data in raw.items():
                made.writestr(name, data)

    compress = zstandard.ZstdCompressor().compress
    good = {name: compress(data) for name, data in parts.items()}
    archive(good, zipfile.ZIP_DEFLATED)
    refused("members of captures are stored")
    # A frame with its size, consisting only of the header, and a frame without its size.
    header = bytes.fromhex("28b52ffd") + b"\xe0" + (1 << 45).to_bytes(8, "little")
    archive(good | {"pages": header + bytes(8)})
    refused("are allowed")
    stream = zstandard.ZstdCompressor().compressobj()
    archive(good | {"pages": stream.compress(bytes(1 << 20)) + stream.flush()})
    refused("declares")
    archive(good | {"manifest.json": compress(b"[" * 100_000)})
    refused("manifest", "not a capture", "damaged")
    archive(good | {"manifest.json": compress(bytes((1 << 24) + 1))})
    refused("are allowed")
    # One page that is at very many addresses: little to read, much to hold.
    places = np.zeros(1 << 24, [("address", "<u8"), ("page", "<u8")])
    places["address"] = np.arange(1, len(places) + 1, dtype=np.uint64) * 4096
    archive(good | {"before": compress(places.tobytes())})
    refused("bytes are available", "outside")
    for name in parts:
        archive({one: data for one, data in good.items() if one != name})
        refused(name)
    # Names are looked up, and nothing is ever unpacked to a file.
    archive(good | {"../../escaped": b"", "/tmp/escaped": b""})
    assert read_capture(file).manifest == read_capture(source).manifest
    assert not (temporary.parent / "escaped").exists()
    for path in (temporary, temporary / "missing", Path("/dev/zero")):
        with pytest.raises(LuthierError):
            read_capture(path)


def test_overlapping_memory(captured: Captured, temporary: Path) -> None:
    source = captured("histogram")[1]
    parts, file = members(source), temporary / "odd.lcap"
    manifest = json.loads(parts["manifest.json"])
    address, size = manifest["ranges"][0]
    for name, value in (
        ("ranges", [[address, size], [address + size - 1, 4096]]),
        ("ranges", [[address, size], [address - 4096, 4096]]),
        ("ranges", [[0, 1 << 20]]),
        ("ranges", [[(1 << 47) - 4096, 8192]]),
        ("ranges", [[1 << 20, 1 << 46]]),
        ("left_out", [[address, 4096], [address, 4096]]),
        ("left_out", [[address + 1, 4096]]),
        ("groups", [[1, 0, 0], [0, 0, 0]]),
        ("groups", [[0, 0, 1]]),
        ("groups", [[-1, 0, 0]]),
        ("grid", [0, 1, 1]),
        ("arguments", [{**manifest["arguments"][0], "value": "0x"}]),
        ("arguments", [{**manifest["arguments"][0], "offset": -8}]),
    ):
        write(file, parts | {"manifest.json": json.dumps(manifest | {name: value}).encode()})
        with pytest.raises(LuthierError):
            read_capture(file)
    before = np.frombuffer(parts["before"], "<u8").reshape(-1, 2)
    for changed in (before[::-1], np.concatenate([before[:1], before]), before + np.array([1, 0], "<u8")):
        write(file, parts | {"before": changed.tobytes()})
        with pytest.raises(LuthierError):
            read_capture(file)


@pytest.mark.thorough
def test_replays_of_hostile_captures_end(captured: Captured, luthier: Luthier, temporary: Path) -> None:
    parts = members(captured("defects")[0])
    manifest = json.loads(parts["manifest.json"])
    many = [[(1 << 30) + 8192 * number, 4096] for number in range(100_000)]
    files = []
    for number, change in enumerate(
        (
            {"grid": [manifest["grid"][0], (1 << 32) - 1, (1 << 32) - 1]},  # would take years
            {"ranges": [[1 << 20, 1 << 42]]},
            {"ranges": sorted([*manifest["ranges"], *many])},
            {"load_address": 0},
            {"kernarg": 4096},
            {"private_segment": (1 << 32) - 1},
            {"group_segment": (1 << 32) - 1},
            {"block": [1024, 1024, 1]},
            {"cooperative": True, "grid": [1 << 24, 1, 1], "block": [1, 1, 1]},
            {"kernel": "none"},
            {"target": "gfx1030"},
        )
    ):
        files.append(temporary / f"hostile{number}.lcap")
        write(files[-1], parts | {"manifest.json": json.dumps(manifest | change).encode()})
    began = time.monotonic()
    done = luthier("replay", "--json", "--time-limit", "5", *files)
    rows = json.loads(done.stdout)
    assert done.returncode == 2
    assert not any("process" in row["what"] for row in rows), rows  # which would have failed
    assert [row["status"] for row in rows[5:]] == [2] * 6, rows
    assert "did not end within 5 seconds" in rows[0]["what"]
    assert time.monotonic() - began < 120


def test_what_is_left_out_is_not_there(captured: Captured) -> None:
    capture = read_capture(captured("defects")[0])
    assert capture.manifest.left_out
    kept = {*capture.before["address"].tolist(), *capture.after["address"].tolist()}
    for address, size in capture.manifest.left_out:
        assert kept.isdisjoint(range(address, address + size, 4096))
    whole, left = (sum(size for _, size in ranges) for ranges in (capture.manifest.ranges, capture.manifest.left_out))
    accessible = list(without(capture.manifest.ranges, capture.manifest.left_out))
    assert sum(size for _, size in accessible) == whole - left
    assert list(without([(0, 100), (200, 100)], [(50, 200), (260, 10)])) == [(0, 50), (250, 10), (270, 30)]
