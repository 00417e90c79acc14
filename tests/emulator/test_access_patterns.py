"""Loads and stores of all widths, wherever the lanes' addresses lie to each other, against NumPy.

Lanes in a row are accessed in another way than scattered ones; lanes that are off must not matter for which.
"""

from __future__ import annotations

import numpy as np
import pytest
from luthier.emulator.inspection.bench import run_assembly
from luthier.emulator.running.memory import AllocationTable
from luthier.errors import EmulationError

pytestmark = pytest.mark.rows()

ROOM = 4096
FULL = (1 << 64) - 1
MASKS = {"all": FULL, "some": 0x0FF0_1234_8000_0F0E, "last": 1 << 63, "first": 1, "none": 0}
WIDTHS = {1: "dword", 2: "dwordx2", 3: "dwordx3", 4: "dwordx4"}
LDS_NAMES = {1: "b32", 2: "b64", 3: "b96", 4: "b128"}


def patterns(size: int, active: np.ndarray) -> dict[str, np.ndarray]:
    """Byte offsets of the lanes in a buffer of ROOM bytes, multiples of 4."""
    random = np.random.default_rng(size)
    lanes = np.arange(64)
    row = lanes * size + 64
    one_off = row.copy()
    one_off[int(np.flatnonzero(active)[-1]) if active.any() else 0] -= 4
    garbage = np.where(active, row, 1 << 30)
    return {
        "row": row,
        "row up to the end": row - row[63] + ROOM - size,
        "others anywhere": garbage,
        "one off": one_off,
        "backwards": row[::-1].copy(),
        "same": np.full(64, 128),
        "overlapping": lanes * 4 + 32,
        "apart": lanes * (size + 4),
        "random": random.permutation(64) * 16 + 512,
    }


def cases() -> list[tuple[str, str]]:
    names = list(patterns(4, np.ones(64, bool)))
    return [(pattern, mask) for pattern in names for mask in MASKS]


def lanes_of(mask: int) -> np.ndarray:
    return np.array([mask >> lane & 1 for lane in range(64)], bool)


@pytest.mark.rows(9)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(("pattern", "mask"), cases())
def test_global(pattern: str, mask: str, width: int) -> None:
    active = lanes_of(MASKS[mask])
    offsets = patterns(4 * width, active)[pattern]
    memory = AllocationTable()
    source, target = memory.allocate(ROOM), memory.allocate(ROOM)
    words = np.random.default_rng(1).integers(0, 1 << 32, ROOM // 4, dtype=np.uint32)
    source.view()[:] = words.view(np.uint8)
    data = f"v[8:{7 + width}]" if width > 1 else "v8"
    other = f"v[16:{15 + width}]" if width > 1 else "v16"
    state = run_assembly(
        "gfx942",
        f"global_load_{WIDTHS[width]} {data}, v[0:1], off\nflat_load_{WIDTHS[width]} {other}, v[0:1]\n"
        f"global_store_{WIDTHS[width]} v[2:3], {data}, off",
        {
            0: (source.address + offsets).astype(np.uint64),
            2: (target.address + offsets).astype(np.uint64),
            **{8 + row: 7 for row in range(width)},
            **{16 + row: 7 for row in range(width)},
        },
        exec=MASKS[mask],
        memory=memory,
    )
    stored = np.zeros(ROOM // 4, np.uint32)
    for row in range(width):
        places = np.where(active, offsets // 4 + row, 0)
        expected = np.where(active, words[places], 7)
        np.testing.assert_array_equal(state.vgpr(8 + row), expected)
        np.testing.assert_array_equal(state.vgpr(16 + row), expected)
    for row in range(width):  # where lanes overlap they store the same
        stored[offsets[active] // 4 + row] = words[offsets[active] // 4 + row]
    np.testing.assert_array_equal(target.view().view(np.uint32), stored)


@pytest.mark.parametrize("width", LDS_NAMES)
@pytest.mark.parametrize(("pattern", "mask"), cases())
def test_lds(pattern: str, mask: str, width: int) -> None:
    active = lanes_of(MASKS[mask])
    offsets = patterns(4 * width, active)[pattern]
    if width > 2 and pattern in ("overlapping", "apart", "one off"):
        offsets = np.where(active, offsets // 16 * 16, offsets)  # LDS wants these aligned
    words = np.random.default_rng(2).integers(0, 1 << 32, ROOM // 4, dtype=np.uint32)
    data = f"v[8:{7 + width}]" if width > 1 else "v8"
    state = run_assembly(
        "gfx942",
        f"ds_read_{LDS_NAMES[width]} {data}, v0\nv_add_u32 v1, 0x1000, v0\nds_write_{LDS_NAMES[width]} v1, {data}",
        {0: offsets.astype(np.uint32), **{8 + row: 7 for row in range(width)}},
        exec=MASKS[mask],
        lds=words.tobytes() + bytes(ROOM),
    )
    stored = np.zeros(ROOM // 4, np.uint32)
    for row in range(width):
        places = np.where(active, offsets // 4 + row, 0)
        np.testing.assert_array_equal(state.vgpr(8 + row), np.where(active, words[places], 7))
        stored[offsets[active] // 4 + row] = words[offsets[active] // 4 + row]
    np.testing.assert_array_equal(state.lds[ROOM:].view(np.uint32), stored)


@pytest.mark.parametrize("width", WIDTHS)
def test_a_row_that_runs_over_the_end(width: int) -> None:
    """The fault names the first lane outside, and nothing is stored."""
    memory = AllocationTable()
    target = memory.allocate(ROOM)
    offsets = np.arange(64) * 4 * width + ROOM - 40 * 4 * width
    with pytest.raises(EmulationError) as caught:
        run_assembly(
            "gfx942",
            f"global_store_{WIDTHS[width]} v[2:3], v[8:{7 + width}], off".replace("v[8:8]", "v8"),
            {2: (target.address + offsets).astype(np.uint64), **{8 + row: 7 for row in range(width)}},
            memory=memory,
        )
    assert "lane 40" in str(caught.value)
    assert not target.view().any()


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize(("target", "wave_size"), [("gfx90a", 64), ("gfx1100", 32), ("gfx1100", 64), ("gfx1200", 32)])
def test_offsets_from_a_scalar(target: str, wave_size: int, mask: str, width: int) -> None:
    """Addresses are an SGPR pair and a register of 32 bits, in a row and one lane off."""
    active = lanes_of(MASKS[mask])[:wave_size]
    lanes = np.arange(wave_size)
    size = 4 * width
    memory = AllocationTable()
    source, stored = memory.allocate(ROOM), memory.allocate(ROOM)
    words = np.random.default_rng(3).integers(0, 1 << 32, ROOM // 4, dtype=np.uint32)
    source.view()[:] = words.view(np.uint8)
    row = lanes * size + 128
    for offsets in (row, np.where(lanes == 5, row + ROOM // 2, row)):
        data = f"v[8:{7 + width}]" if width > 1 else "v8"
        name = WIDTHS[width] if target == "gfx90a" else LDS_NAMES[width]
        state = run_assembly(
            target,
            f"global_load_{name} {data}, v0, s[2:3] offset:-64\nglobal_store_{name} v0, {data}, s[4:5] offset:-64",
            {0: offsets.astype(np.uint32), **{8 + row: 7 for row in range(width)}},
            {2: source.address, 4: stored.address},
            exec=MASKS[mask] & (1 << wave_size) - 1,
            wave_size=wave_size,
            memory=memory,
        )
        expected = np.zeros(ROOM // 4, np.uint32)
        for row_number in range(width):
            places = np.where(active, (offsets - 64) // 4 + row_number, 0)
            np.testing.assert_array_equal(state.vgpr(8 + row_number), np.where(active, words[places], 7))
            expected[places[active]] = words[places[active]]
        np.testing.assert_array_equal(stored.view().view(np.uint32), expected)
        stored.view()[:] = 0


@pytest.mark.parametrize("form", ["offsets", "addresses"])
def test_a_row_that_wraps(form: str) -> None:
    """The low 32 bits are consecutive, the addresses are not: they are 4 GiB apart."""
    memory = AllocationTable()
    target = memory.allocate(ROOM)
    if form == "offsets":
        low = (np.arange(64) * 4 - 128).astype(np.uint32)
        registers, place = {0: low}, "v0, v8, s[2:3]"
        scalars = {2: target.address + 256 - (1 << 32)}
    else:  # all upper halves are those of lane 0
        first = (target.address >> 32 << 32) - 128
        registers = {0: (np.arange(64) * 4 + first).astype(np.uint32), 1: np.full(64, first >> 32, np.uint32)}
        place, scalars = "v[0:1], v8, off", {}
    with pytest.raises(EmulationError) as caught:
        run_assembly("gfx942", f"global_store_dword {place}", {**registers, 8: 7}, scalars, memory=memory)
    assert ("lane 32" if form == "offsets" else "lane 0") in str(caught.value)
    assert not target.view().any()
