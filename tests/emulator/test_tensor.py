"""Copies of tiles of tensors (gfx1250), against NumPy's indexing element by element.

The reference is written from the descriptor's fields as LLVM's ``make_dma_descriptor`` packs them.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
import pytest
from luthier.devices import open_device
from luthier.emulator.inspection.bench import WaveState, run_assembly
from luthier.emulator.running.memory import AllocationTable, DeviceAllocation
from luthier.errors import EmulationError
from luthier.objects import load_object
from numpy.typing import NDArray

TARGET, SIZE, LDS = "gfx1250", 1 << 16, 8192
RNG = np.random.default_rng(5)
Bytes = NDArray[np.uint8]


@dataclass
class Descriptor:
    """Fields of a descriptor; strides are those of dimension 1 and above."""

    tile: tuple[int, ...]
    tensor: tuple[int, ...]
    strides: tuple[int, ...] = ()
    code: int = 1
    """Elements have 1 << code bytes."""
    base: int = 0
    """Byte in memory."""
    lds: int = 0
    pad: tuple[int, int] | None = None
    """Codes of the interval and the amount."""
    steps: int = 1
    step: int = 0
    lds_step: int = 0
    indices: tuple[int, ...] = ()
    wide: bool = False
    count: int = 1
    mask: int = 0
    barrier: int | None = None

    def groups(self, address: int) -> list[int]:
        tile, tensor = (list(x) + [0] * (5 - len(x)) for x in (self.tile, self.tensor))
        strides = list(self.strides) + [0] * (4 - len(self.strides))
        start = address + self.base
        first = self.count | bool(self.indices) << 31 | self.wide << 30
        first |= self.lds << 32 | start << 64 | 2 << 126
        if self.indices:
            tile[1] = len(self.indices)
        second = self.mask | self.code << 16 | (self.barrier is not None) << 18 | (self.steps > 1) << 19
        if self.pad:
            second |= 1 << 20 | self.pad[0] << 22 | self.pad[1] << 25
        second |= (self.barrier or 0) >> 3 << 32
        second |= tensor[0] << 48 | tensor[1] << 80 | tile[0] << 112 | tile[1] << 128 | tile[2] << 144
        second |= strides[0] << 160 | strides[1] << 208
        third = tensor[2] | tensor[3] << 32 | strides[2] << 64 | tile[3] << 112
        if self.steps > 1:
            third = tensor[2] | self.lds_step << 32 | self.step << 64 | self.steps - 1 << 112
        fourth = strides[3] | tensor[4] << 48 | tile[4] << 80
        if self.indices:
            bits = 32 if self.wide else 16
            whole = sum(index << bits * place for place, index in enumerate(self.indices))
            third, fourth = whole & (1 << 128) - 1, whole >> 128
        words = []
        for value, count in ((first, 4), (second, 8), (third, 4), (fourth, 4)):
            words += [value >> 32 * place & 0xFFFFFFFF for place in range(count)]
        return words

    def elements(self) -> list[tuple[int, int, bool]]:
        """Return (memory address, LDS address, whether it is in the tensor) of each element, in bytes."""
        size = 1 << self.code
        strides = (1, *self.strides)
        elements = []
        for step in range(self.steps):
            for number, reverse in enumerate(itertools.product(*(range(extent) for extent in reversed(self.shape)))):
                at = list(reversed(reverse))
                if self.indices:
                    at[1] = self.indices[at[1]]
                place = step * self.step + sum(x * y for x, y in zip(at, strides, strict=False))
                # Start of a moved tile: as if the whole tensor were one row, in rows of `strides`.
                origin = [0] * len(at)
                rest = step * self.step
                for dimension in range(len(at) - 1, 0, -1):
                    if rest and self.tensor[dimension] > 1:
                        origin[dimension], rest = divmod(rest, strides[dimension])
                origin[0] = rest
                inside = all(x + y < z for x, y, z in zip(at, origin, self.tensor, strict=True))
                target = (step * self.lds_step + number) * size
                elements.append((self.base + place * size, target, inside))
        return elements

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.tile[0], len(self.indices)) if self.indices else self.tile

    def padded(self, target: int) -> int:
        if not self.pad:
            return self.lds + target
        interval, amount = 4 << self.pad[0] + 1, 4 * (self.pad[1] + 1)
        return self.lds + target + target // interval * amount

    def loaded(self, memory: Bytes, lds: Bytes) -> Bytes:
        lds, size = lds.copy(), 1 << self.code
        for place, target, inside in self.elements():
            lds[self.padded(target) :][:size] = memory[place : place + size] if inside else 0
        return lds

    def stored(self, memory: Bytes, lds: Bytes) -> Bytes:
        memory, size = memory.copy(), 1 << self.code
        for place, target, inside in self.elements():
            if inside:
                memory[place : place + size] = lds[self.lds + target :][:size]
        return memory


def made() -> tuple[AllocationTable, DeviceAllocation, Bytes]:
    memory = AllocationTable()
    place = memory.allocate(SIZE)
    place.view()[:] = RNG.integers(0, 256, SIZE, np.uint8)
    return memory, place, RNG.integers(0, 256, LDS, np.uint8)


def run(verb: str, given: Descriptor, memory: AllocationTable, place: DeviceAllocation, lds: Bytes) -> WaveState:
    words = given.groups(place.address)
    short = len(given.shape) <= 2 and given.steps == 1 and not given.indices
    groups = "s[0:3], s[4:11]" + ("" if short else ", s[12:15], s[16:19]")
    text = f"{verb} {groups}\ns_wait_tensorcnt 0x0"
    return run_assembly(TARGET, text, {}, dict(enumerate(words)), memory=memory, lds=lds.tobytes(), exec=0)


def compare(given: Descriptor) -> None:
    memory, place, lds = made()
    before = place.view().copy()
    state = run("tensor_load_to_lds", given, memory, place, lds)
    np.testing.assert_array_equal(state.lds, given.loaded(before, lds))
    np.testing.assert_array_equal(place.view(), before)
    run("tensor_store_from_lds", given, memory, place, lds)
    np.testing.assert_array_equal(place.view(), given.stored(before, lds))


TILES = [
    Descriptor((7,), (100,)),
    Descriptor((9,), (5,)),  # beyond the tensor
    Descriptor((8, 5), (100, 100), (33,)),
    Descriptor((8, 5), (6, 3), (33,)),
    Descriptor((8, 5), (6, 0), (33,)),
    Descriptor((4, 3, 2), (4, 3, 2), (6, 20)),
    Descriptor((4, 3, 2), (3, 3, 1), (6, 20)),
    Descriptor((4, 3, 2, 3), (4, 2, 2, 2), (6, 20, 50)),
    Descriptor((3, 2, 2, 3, 2), (3, 2, 2, 2, 3), (6, 20, 50, 400)),
    Descriptor((3, 2, 2, 3, 2), (2, 2, 2, 2, 1), (6, 20, 50, 400)),
    Descriptor((4, 1, 1, 1, 2), (4, 1, 1, 1, 2), (0, 0, 0, 30)),
    Descriptor((16, 4), (16, 4), (0,)),  # all rows the same
]


@pytest.mark.parametrize("given", TILES, ids=str)
@pytest.mark.parametrize("code", range(4))
def test_tiles(given: Descriptor, code: int) -> None:
    compare(Descriptor(given.tile, given.tensor, given.strides, code, base=64, lds=128))


@pytest.mark.parametrize("code", range(4))
@pytest.mark.parametrize("pad", [(0, 0), (1, 3), (2, 7), (4, 127), (7, 3)])
@pytest.mark.parametrize("tensor", [(40, 20), (25, 3)])
def test_padding(code: int, pad: tuple[int, int], tensor: tuple[int, int]) -> None:
    """Some LDS after each interval is left unchanged; stores read consecutive elements."""
    if pad == (4, 127) and code == 3:
        pad = (5, 63)
    compare(Descriptor((32, 5), tensor, (48,), code, lds=16, pad=pad))


@pytest.mark.parametrize(
    "given",
    [
        Descriptor((8, 2), (64, 64), (64,), steps=3, step=128, lds_step=20),
        Descriptor((8, 2), (30, 5), (32,), steps=4, step=72, lds_step=16),
        Descriptor((8, 2), (30, 5), (32,), steps=4, step=0, lds_step=16),
        Descriptor((4, 2, 2), (10, 3, 9), (12, 40), steps=5, step=53, lds_step=18, pad=(1, 1)),
        Descriptor((4, 2, 2), (10, 1, 9), (5, 40), steps=5, step=53, lds_step=18),
    ],
    ids=str,
)
def test_several_tiles(given: Descriptor) -> None:
    compare(given)


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("code", range(4))
def test_gather(code: int, wide: bool) -> None:
    """Rows by their number; one that the tensor does not have is zero, or not stored."""
    rows = (5, 0, 17, 3, 40, 2, 19) if wide else (5, 0, 17, 3, 40, 2, 19, 1, 6, 7, 33, 12, 4, 15, 14, 13)
    compare(Descriptor((10, 0), (9, 20), (24,), code, indices=rows, wide=wide, pad=(0, 1)))


def test_random_tiles() -> None:
    for _ in range(40):
        rank = int(RNG.integers(1, 6))
        tile = tuple(int(x) for x in RNG.integers(1, 6, rank))
        tensor = tuple(int(x) for x in RNG.integers(0, 7, rank))
        strides = tuple(int(x) for x in RNG.integers(0, 60, rank - 1))
        code = int(RNG.integers(0, 2))
        given = Descriptor(tile, tensor, strides, code, pad=(int(RNG.integers(0, 8)), int(RNG.integers(0, 9))))
        if math.prod(tile) * 2 * 13 > LDS:
            continue
        memory, place, lds = made()
        state = run("tensor_load_to_lds", given, memory, place, lds)
        np.testing.assert_array_equal(state.lds, given.loaded(place.view(), lds), str(given))


def test_nothing_is_copied() -> None:
    """Without a count, and where the tile has no dimension."""
    for given in (Descriptor((8,), (8,), count=0), Descriptor((), ())):
        memory, place, lds = made()
        np.testing.assert_array_equal(run("tensor_load_to_lds", given, memory, place, lds).lds, lds)


@pytest.mark.parametrize("verb", ["tensor_load_to_lds", "tensor_store_from_lds"])
def test_barriers_in_lds_are_told(verb: str) -> None:
    memory, place, lds = made()
    lds[:] = 0
    lds[1024:1032] = np.array([5 | 9 << 32], np.uint64).view(np.uint8)
    state = run(verb, Descriptor((8,), (8,), barrier=1024), memory, place, lds)
    assert state.lds[1024:1032].view(np.uint64) == 4 | 9 << 32


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (Descriptor((8,), (8,), count=2), "contradict each other"),
        (Descriptor((8, 0, 2), (8, 8, 8), (8, 64)), "contradict each other"),
        (Descriptor((8,), (8,), wide=True), "contradict each other"),
        (Descriptor((8,), (8,), steps=2), "contradict each other"),
        (Descriptor((8, 2), (8, 9), (4,), steps=2, step=4), "dimensions overlap"),
        (Descriptor((8, 0), (8, 9), (8,), indices=(1,) * 9, wide=True), "contradict each other"),
        (Descriptor((8,), (8,), mask=2), "other work-groups of a cluster"),
        (Descriptor((8,), (8,), lds=LDS - 4), "beyond the end of LDS"),
        (Descriptor((8, 2), (8, 2), (SIZE,)), "past the end of buffer"),
    ],
    ids=str,
)
def test_what_is_in_doubt_stops(given: Descriptor, message: str) -> None:
    memory, place, lds = made()
    with pytest.raises(EmulationError, match=message):
        run("tensor_load_to_lds", given, memory, place, lds)


def test_a_store_knows_no_cluster() -> None:
    memory, place, lds = made()
    given = Descriptor((8,), (8,), mask=7)
    before = place.view().copy()
    run("tensor_store_from_lds", given, memory, place, lds)
    np.testing.assert_array_equal(place.view(), given.stored(before, lds))


COMPILED = """
typedef int v4i __attribute__((ext_vector_type(4)));
typedef int v8i __attribute__((ext_vector_type(8)));
__attribute__((shared)) volatile int staged[2048];

extern "C" __attribute__((global)) void copy(const v4i *a, const v8i *b, const v4i *c, const v8i *d, int *last) {
  __builtin_amdgcn_tensor_load_to_lds_d2(*a, *b, 0);
  __builtin_amdgcn_s_wait_tensorcnt(0);
  *last = staged[0];
  __builtin_amdgcn_tensor_store_from_lds_d2(*c, *d, 0);
}
"""


def test_compiled(compile_object) -> None:
    """clang's builtins: load a tile of a larger tensor, with zeros beyond it, and store it."""
    device = open_device(f"emu:{TARGET}")
    kernel = device.load(load_object(compile_object(COMPILED, TARGET, "-O2"))).kernel("copy")
    source, target = device.allocate(8192), device.allocate(1024)
    numbers = np.arange(4096, dtype=np.uint16)
    source.write(numbers)
    groups = Descriptor((32, 16), (30, 16), (64,)).groups(source.address)
    groups += Descriptor((32, 16), (32, 16), (32,)).groups(target.address)
    parts = [np.array(groups[first : first + count], np.uint32) for first, count in ((0, 4), (4, 8), (20, 4), (24, 8))]
    last = np.zeros(1, np.uint32)
    kernel.launch(*parts, last, grid=1, block=32)
    expected = numbers.reshape(64, 64)[:16, :32].copy()
    expected[:, 30:] = 0
    np.testing.assert_array_equal(target.read(np.uint16).reshape(16, 32), expected)
    assert last[0] == 1 << 16
