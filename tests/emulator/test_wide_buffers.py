"""Buffers of gfx1250 against a model of its descriptors in Python."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pytest
from luthier.emulator.inspection.bench import run_assembly
from luthier.emulator.running.memory import AllocationTable
from luthier.errors import EmulationError

TARGET, LANES, SIZE, OLD = "gfx1250", 32, 8192, 0xDEADBEEF
RNG = np.random.default_rng(11)
SCALES = (1, 4, 8, 32)


class Buffer(NamedTuple):
    """Fields of a descriptor."""

    records: int
    stride: int = 0
    scale: int = 0
    swizzled: bool = False
    by_record: bool = False
    type: int = 0

    def words(self, base: int) -> dict[int, int]:
        """The descriptor in s[0:3]."""
        whole = base | self.records << 57 | self.stride << 108 | self.scale << 122
        whole |= self.swizzled << 124 | self.by_record << 125 | self.type << 126
        return {index: whole >> 32 * index & 0xFFFFFFFF for index in range(4)}

    def place(self, index: int, offset: int, scalar: int) -> int:
        """Return the offset of an access from the base."""
        stride = self.stride * SCALES[self.scale]
        if not self.swizzled:
            return scalar + (index * stride + offset) % (1 << 45)
        offset += scalar
        return (index // 32 * stride + offset // 16 * 16) * 32 + index % 32 * 16 + offset % 16

    def allows(self, index: int, offset: int, scalar: int, size: int) -> bool:
        """Return whether bytes are in bounds."""
        stride = self.stride * SCALES[self.scale]
        if self.swizzled:
            return True
        inside = scalar + index * stride + offset + size <= self.records
        return inside and (not self.by_record or scalar + offset + size <= stride)


PLAIN = Buffer(1000)
WIDE = Buffer(1 << 44)
RECORDS = Buffer(3000, 48, by_record=True)
SCALED = Buffer(7000, 12, 1)
SWIZZLED = Buffer(SIZE, 64, swizzled=True)
BUFFERS = {
    "plain": PLAIN,
    "records": RECORDS,
    "scaled": SCALED,
    "scaled by 8": Buffer(7000, 6, 2),
    "scaled by 32": Buffer(7000, 2, 3, by_record=True),
    "swizzled": SWIZZLED,
    "empty": Buffer(0),
    "wide": WIDE,
}


def accesses(buffer: Buffer, form: str) -> Iterator[tuple[int, int]]:
    """Index and offset of every lane."""
    for lane in range(LANES):
        index = lane * 5 % 64 if "idxen" in form else 0
        offset = int(RNG.integers(0, 48 if buffer.stride else 1100)) & ~7 if "offen" in form else 0
        if buffer.swizzled:
            offset &= 0x18
        yield index, offset


def registers(form: str, lanes: list[tuple[int, int]]) -> dict[int, np.ndarray]:
    columns = [np.array(column, np.uint32) for column in zip(*lanes, strict=True)]
    chosen = [columns[0]] if "idxen" in form else []
    chosen += [columns[1]] if "offen" in form else []
    return dict(enumerate(chosen))


@pytest.mark.parametrize("form", ["offen", "idxen", "idxen offen", ""])
@pytest.mark.parametrize("name", BUFFERS)
def test_loads_and_stores(name: str, form: str) -> None:
    buffer = BUFFERS[name]
    memory = AllocationTable()
    place = memory.allocate(SIZE)
    data = RNG.integers(0, 256, SIZE, np.uint8)
    place.view()[:] = data
    lanes = list(accesses(buffer, form))
    address = {"": "off", "idxen offen": "v[0:1]"}.get(form, "v0")
    own, scalar = (4, 12) if buffer.stride else (8, 20)
    where = f"{address}, s[0:3], s4 {form} offset:{own}"
    old = {row: np.full(LANES, OLD, np.uint32) for row in range(4, 10)}
    source = f"""
      buffer_load_b96 v[4:6], {where}
      buffer_load_u8 v7, {where}
      buffer_load_i16 v8, {where}
      buffer_load_d16_hi_b16 v9, {where}
      s_wait_loadcnt 0
      buffer_store_b64 v[10:11], {where}
    """
    stored = RNG.integers(0, 1 << 32, (2, LANES), np.uint32)
    given = {**registers(form, lanes), **old, 10: stored[0], 11: stored[1]}
    state = run_assembly(TARGET, source, given, {**buffer.words(place.address), 4: scalar}, memory=memory)
    after = data.copy()
    for lane, (index, offset) in enumerate(lanes):
        start = buffer.place(index, offset + own, scalar)

        def read(size: int, skip: int = 0, lane: tuple[int, int] = (index, offset), start: int = start) -> int:
            if not buffer.allows(lane[0], lane[1] + own + skip, scalar, size):
                return 0
            return int.from_bytes(data[start + skip : start + skip + size].tobytes(), "little")

        assert state.vgpr(4, 3)[:, lane].tolist() == [read(4, skip) for skip in (0, 4, 8)]
        assert state.vgpr(7)[lane] == read(1)
        half = read(2)
        assert state.vgpr(8)[lane] == (half | 0xFFFF0000 if half & 0x8000 else half)
        assert state.vgpr(9)[lane] >> 16 == half
        for word in range(2):
            if buffer.allows(index, offset + own + 4 * word, scalar, 4):
                after[start + 4 * word :][:4] = np.frombuffer(int(stored[word, lane]).to_bytes(4, "little"), np.uint8)
    np.testing.assert_array_equal(place.view(), after)


def test_atomics_are_checked_as_a_whole() -> None:
    memory = AllocationTable()
    place = memory.allocate(256)
    place.view()[:] = 0
    offsets = np.arange(LANES, dtype=np.uint32) * 8
    source = "buffer_atomic_add_u64 v[4:5], v0, s[0:3], null offen th:TH_ATOMIC_RETURN"
    ones = np.ones(LANES, np.uint32)
    state = run_assembly(
        TARGET, source, {0: offsets, 4: ones, 5: ones}, Buffer(100).words(place.address), memory=memory
    )
    words = place.view().view(np.uint64)
    assert words.tolist() == [(1 << 32 | 1) if 8 * lane + 8 <= 100 else 0 for lane in range(LANES)]
    assert not state.vgpr(4, 2).any()


@pytest.mark.parametrize(
    "source",
    [
        "buffer_load_b32 v4, v0, s[0:3], null offen",
        "buffer_atomic_add_u32 v4, v0, s[0:3], null offen th:TH_ATOMIC_RETURN",
    ],
)
def test_what_is_no_buffer_is_left_alone(source: str) -> None:
    memory = AllocationTable()
    place = memory.allocate(256)
    place.view()[:] = 7
    old = np.full(LANES, OLD, np.uint32)
    words = Buffer(256, type=1).words(place.address)
    state = run_assembly(TARGET, source, {0: np.zeros(LANES, np.uint32), 4: old}, words, memory=memory)
    assert (state.vgpr(4) == OLD).all()
    assert (place.view() == 7).all()


def test_bounds_of_swizzled_buffers_are_not_guessed() -> None:
    memory = AllocationTable()
    place = memory.allocate(4096)
    words = Buffer(64, 64, swizzled=True).words(place.address)
    with pytest.raises(EmulationError, match="swizzled"):
        run_assembly(
            TARGET,
            "buffer_load_b32 v4, v0, s[0:3], null idxen",
            {0: np.arange(LANES, dtype=np.uint32)},
            words,
            memory=memory,
        )


def test_scalar_loads() -> None:
    memory = AllocationTable()
    place = memory.allocate(256)
    place.view()[:] = np.arange(256)
    source = """
      s_buffer_load_b64 s[8:9], s[0:3], 0x10
      s_buffer_load_b64 s[10:11], s[0:3], s4
      s_buffer_load_u8 s12, s[0:3], 0x41
    """
    state = run_assembly(TARGET, source, {}, {**Buffer(68).words(place.address), 4: 64}, memory=memory)
    words = place.view().view(np.uint32)
    assert [state.sgpr(index) for index in range(8, 13)] == [words[4], words[5], words[16], 0, 0x41]
    with pytest.raises(EmulationError, match="stride of 8"):
        run_assembly(TARGET, source, {}, {**Buffer(68, 8).words(place.address), 4: 64}, memory=memory)
