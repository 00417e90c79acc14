"""Captured launches in ranges of work-groups: what they leave together, and launches that cannot be split."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from luthier.capture import read_capture
from luthier.capture.form import COUNTS
from luthier.capture.split import LaunchPart, merged, part_of, ranges
from luthier.emulator.running.executor import FOOTPRINT
from luthier.errors import DeviceError

from .conftest import Luthier
from .test_replay import spoil


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", ["gfx90a", "gfx1030"])
@pytest.mark.parametrize("name", ["defects", "transpose"])
def test_parts_leave_what_the_whole_leaves(
    captured: Callable[..., list[Path]], luthier: Luthier, name: str, target: str
) -> None:
    files = captured(name, target)
    truth = json.loads(luthier("replay", "--json", *files).stdout)
    done = luthier("replay", "--json", "--split", "4", *files)
    rows = json.loads(done.stdout)
    assert (done.returncode, {row["what"] for row in rows}) == (0, {"equal"}), done
    for row, whole in zip(rows, truth, strict=True):
        assert row["instructions"] == whole["instructions"]
        assert row["parts"] == 4


@pytest.mark.thorough
def test_parts_on_a_cluster(captured: Callable[..., list[Path]], luthier: Luthier, temporary: Path) -> None:
    gather = captured("defects")[0]
    done = luthier("replay", "--json", "--split", "3", "--scheduler", "local", gather)
    (row,) = json.loads(done.stdout)
    assert (done.returncode, row["what"], row["parts"]) == (0, "equal", 3), done
    done = luthier("replay", "--split", "3", spoil(gather, temporary / "spoilt.lcap"))
    assert (done.returncode, "1 bytes differ" in done.stdout) == (1, True), done


def test_work_groups_that_share_memory(captured: Callable[..., list[Path]], luthier: Luthier) -> None:
    """Every work-group adds to the same bins."""
    done = luthier("replay", "--split", "4", captured("histogram")[0])
    assert (done.returncode, "cannot be split: work-groups 0 to 2 write the byte at 0x" in done.stdout) == (2, True)
    assert luthier("replay", "--split", "1", captured("histogram")[0]).returncode == 0
    done = luthier("replay", "--split", "4", captured("grid_barrier")[0])
    assert (done.returncode, "cooperative launch cannot be split" in done.stdout) == (2, True), done


def test_options(captured: Callable[..., list[Path]], luthier: Luthier) -> None:
    file = captured("histogram")[0]
    for words in (["-t", "instr_count"], ["--check", "race"], ["--with-object", file]):
        done = luthier("replay", "--split", "2", *words, file)
        assert (done.returncode, "--split runs the recorded code only" in done.stderr) == (1, True), done
    assert luthier("replay", "--split", "0", file).returncode == 1


def test_ranges_are_all_work_groups(captured: Callable[..., list[Path]]) -> None:
    manifest = read_capture(captured("defects")[0]).manifest
    for count in (1, 5, 96, 1000):
        parts = ranges(manifest, count)
        assert len(parts) == min(count, 96)
        groups = [group for of in parts for group in part_of(manifest, of).groups]
        assert groups == [(x, 0, 0) for x in range(96)]


@pytest.mark.parametrize(("read", "shared"), [(False, False), (True, True)])
def test_a_byte_that_another_part_reads(captured: Callable[..., list[Path]], read: bool, shared: bool) -> None:
    """Parts that use the same page are apart, unless one uses a byte that the other writes."""
    capture = read_capture(captured("defects")[0])
    address = int(capture.after["address"][0])
    begun = {int(row["address"]): capture.pages[row["page"]] for row in capture.before}
    parts = []
    for number in range(2):
        footprint = np.zeros(1, FOOTPRINT)
        footprint["address"] = address
        footprint["written"][0, number] = 0xFF
        if read and number:
            footprint["read"][0, 0] = 0x80
        page = begun.get(address, np.zeros(4096, np.uint8)).copy()
        page[8 * number : 8 * number + 8] = 7 + number
        addresses = np.array([address], np.uint64)
        parts.append(LaunchPart((number, number + 1), np.zeros(0, COUNTS), footprint, addresses, page[None]))
    parts = [LaunchPart.unpacked(part.packed()) for part in parts]
    if shared:
        with pytest.raises(DeviceError, match=f"write the byte at {address + 7:#x}, which work-groups 1 to 1 read"):
            merged(capture, parts, 0.0)
        return
    left = merged(capture, parts, 0.0).left[address]
    assert left[:16].tolist() == [7] * 8 + [8] * 8
    parts[1].pages[0, 16] ^= 1
    with pytest.raises(DeviceError, match=f"bytes at {address:#x} change without an observed write"):
        merged(capture, parts, 0.0)
