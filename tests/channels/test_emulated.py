"""Channels of kernels on the emulated device: every record exactly once, whatever its size, the lanes and the ring."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from luthier.channels.layout import FEWEST
from luthier.errors import EmulationError, LuthierError, ObjectError
from luthier.module import ToolModule
from luthier.wire.channels import Mode
from numpy.typing import NDArray

from .conftest import TARGETS, Loaded, patterns

pytestmark = pytest.mark.rows()

MakeModule = Callable[..., ToolModule]
Trace = Callable[..., Loaded]
WORD = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Shape:
    """A channel that tests generate."""

    unit: int
    """Bytes of each of its words."""
    words: int
    capacity: int
    drop: bool

    def source(self, number: int) -> str:
        """The channel, and the hook that pushes to it: words that all follow from the work-item and the round, so that
        no part of a record can be another's."""
        mode = "drop" if self.drop else "wait"
        return f"""
struct Record{number} {{ uint{8 * self.unit}_t words[{self.words}]; }};
LUTHIER_RECORD(Record{number}, words)
__device__ luthier::channel<Record{number}> channel{number}{{{self.capacity}, luthier::when_full::{mode}}};
LUTHIER_HOOK_ANNOTATE push{number}(uint32_t stored) {{
  const uint64_t key = key_of(stored);
  Record{number} record;
  for (int i = 0; i < {self.words}; ++i)
    record.words[i] = (uint{8 * self.unit}_t)(key * 0x9E3779B97F4A7C15ull * (2 * i + 1) >> (64 - {8 * self.unit}));
  channel{number}.push(record);
}}
"""

    def pushed(self, keys: NDArray[np.uint64]) -> NDArray[Any]:
        """Return the words that the hook pushes for these keys, shape (keys, words)."""
        factors = WORD * (2 * np.arange(self.words, dtype=np.uint64) + 1)
        return (keys[:, None] * factors >> np.uint64(64 - 8 * self.unit)).astype(f"<u{self.unit}")


HEADER = """
#include <luthier/channel.h>
__device__ inline uint64_t key_of(uint32_t stored) {
  const uint64_t item = __builtin_amdgcn_workgroup_size_x() * blockIdx.x + threadIdx.x;
  return item << 32 | (stored - item * 3);
}
"""


def generated() -> list[Shape]:
    """Return shapes of records of 4 to 128 bytes, including partial words, in rings from the smallest size."""
    rng = np.random.default_rng(7)
    sizes = [(4, 1), (8, 1), (4, 3), (1, 5), (2, 3), (8, 3), (4, 9), (8, 8), (1, 64), (4, 32), (2, 1), (1, 1)]
    capacities = [1, 128, 200, 4096, 0]
    return [Shape(*size, int(rng.choice(capacities)), bool(number % 4 == 3)) for number, size in enumerate(sizes)]


SHAPES = generated()
SOURCE = HEADER + "".join(shape.source(number) for number, shape in enumerate(SHAPES))


def rows(values: NDArray[Any]) -> list[bytes]:
    """Rows as bytes, sorted."""
    data = np.ascontiguousarray(values)
    return sorted(data.view(f"V{data.shape[1] * data.itemsize}").ravel().tolist())


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("together", [1, 3])
def test_every_record_once(make_module: MakeModule, trace: Trace, target: str, together: int) -> None:
    """Each shape alone, then three channels at a time, under lanes that come and go."""
    rng = np.random.default_rng(together)
    module = make_module(SOURCE, *TARGETS)
    for first in range(0, len(SHAPES), together):
        chosen = range(first, first + together)
        loaded = trace(target, module, *(f"push{number}" for number in chosen))
        for block in (64, 96, 256) if together == 1 else (256,):
            keys = loaded.launch(patterns(rng, int(rng.integers(100, 1500))), block)
            for number in chosen:
                check(loaded, number, keys)


def check(loaded: Loaded, number: int, keys: NDArray[np.uint64]) -> None:
    """Check the records of a channel in one launch."""
    shape, channel = SHAPES[number], loaded.module.channel(f"channel{number}")
    records = channel.records()
    assert records.dtype.itemsize == shape.unit * shape.words
    assert channel.ring.description.capacity >= max(shape.capacity, FEWEST)
    actual, expected = rows(records["words"]), rows(shape.pushed(keys))
    assert channel.lost == 0
    if not shape.drop:
        assert actual == expected
        assert channel.dropped == 0
        return
    left = iter(expected)
    assert all(any(one == other for other in left) for one in actual)  # in order, each at most once
    assert len(actual) + channel.dropped == len(expected)
    channel.ring._dropped[0] = 0


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", TARGETS)
def test_records_of_a_wave_are_together(make_module: MakeModule, trace: Trace, target: str) -> None:
    """Records are in the order of their lanes and contiguous, although many waves push at the same time."""
    module = make_module(
        HEADER
        + """
struct Item { uint64_t key; uint32_t lane; };
LUTHIER_RECORD(Item, key, lane)
__device__ luthier::channel<Item> items{128};
__device__ luthier::channel<uint32_t> waves;
LUTHIER_HOOK_ANNOTATE item(uint32_t stored) { items.push({key_of(stored), __lane_id()}); }
LUTHIER_HOOK_ANNOTATE wave(uint32_t stored) { waves.pushWave(__builtin_popcountll(__builtin_amdgcn_read_exec())); }
""",
        *TARGETS,
    )
    loaded = trace(target, module, "item", "wave")
    keys = loaded.launch(patterns(np.random.default_rng(3), 1000), 256)
    records = loaded.module.channel("items").records()
    assert np.array_equal(np.sort(records["key"]), keys)
    size = loaded.module.kernel("stores").kernel.wave_size
    items, rounds = records["key"] >> np.uint64(32), records["key"] & np.uint64(0xFFFFFFFF)
    assert np.array_equal(records["lane"], items % size)
    group = (items // size) << np.uint64(32) | rounds
    changes = np.flatnonzero(group[1:] != group[:-1]) + 1
    pieces = np.split(records["lane"].astype(int), changes)
    assert len(pieces) == len(np.unique(group))
    assert all((np.diff(piece) > 0).all() for piece in pieces)
    lanes = loaded.module.channel("waves").records()
    assert lanes.dtype.names == ("value",)
    assert sorted(lanes["value"].tolist()) == sorted(map(len, pieces))


@pytest.fixture
def single(make_module: MakeModule, trace: Trace) -> Callable[..., Loaded]:
    """``single(target)``: the smallest ring, of 12-byte records."""
    shape = Shape(4, 3, 1, False)
    module = make_module(HEADER + shape.source(0), *TARGETS)
    return lambda target, **more: trace(target, module, "push0", **more)


def test_a_slow_listener(single: Callable[..., Loaded]) -> None:
    """Waves wait for it; with `drop` they do not, and every record is either there or counted."""
    loaded = single("gfx90a")
    channel = loaded.module.channel("channel0")
    batches: list[NDArray[Any]] = []

    def slow(batch: NDArray[Any]) -> None:
        time.sleep(0.002)
        batches.append(batch)

    channel.listen(slow)
    keys = loaded.launch(np.full(256, 0xFFFF, np.uint32), 64)
    assert rows(np.concatenate(batches)["words"]) == rows(Shape(4, 3, 1, False).pushed(keys))
    assert max(map(len, batches)) <= FEWEST
    assert len(channel.records()) == 0
    batches.clear()
    channel.drop = True
    keys = loaded.launch(np.full(4096, 0xFFFFFFFF, np.uint32), 64)
    assert channel.dropped > 0
    assert sum(map(len, batches)) + channel.dropped == len(keys)
    channel.drop, dropped = False, channel.dropped
    loaded.launch(np.full(256, 0xFFFF, np.uint32), 64)
    assert channel.dropped == dropped


def test_a_listener_that_raises(single: Callable[..., Loaded]) -> None:
    """The launch ends, and raises what the listener did."""
    loaded = single("gfx1030")

    def bad(batch: NDArray[Any]) -> None:
        raise RuntimeError("no more")

    loaded.module.channel("channel0").listen(bad)
    with pytest.raises(RuntimeError, match="no more"):
        loaded.launch(np.full(1024, 0xFFFFFFFF, np.uint32), 64)
    loaded.module.channel("channel0").listen(None)
    keys = loaded.launch(np.full(300, 0xFFFFFFFF, np.uint32), 64)
    assert len(loaded.module.channel("channel0").records()) == len(keys)


def test_a_launch_that_fails(single: Callable[..., Loaded]) -> None:
    """Only complete records arrive, and the next launch has the whole ring."""
    loaded = single("gfx90a")
    channel = loaded.module.channel("channel0")
    kernel = loaded.module.kernel("stores")
    n = 2000
    masks = np.full(n, 1, np.uint32)
    out = np.zeros(n, np.uint32)
    with pytest.raises(EmulationError):  # no memory for work-items from 4000 on
        kernel.launch(out, np.full(n * 2, 1, np.uint32), n * 2, 1, grid=100, block=64)
    records = channel.records()
    assert len(records) + channel.lost == channel.ring.taken + channel.lost
    keys = np.arange(n * 2, dtype=np.uint64) << np.uint64(32)
    assert set(rows(records["words"])) <= set(rows(Shape(4, 3, 1, False).pushed(keys)))
    keys = loaded.launch(masks, 64, 1)
    assert rows(channel.records()["words"]) == rows(Shape(4, 3, 1, False).pushed(keys))


@pytest.mark.parametrize("drop", [False, True])
def test_nobody_listens(single: Callable[..., Loaded], drop: bool) -> None:
    """Without a ring, as in a patched object under plain HIP, or with a closed one, waves go on and nothing is hung."""
    loaded = single("gfx1201")
    channel = loaded.module.channel("channel0")
    if drop:
        channel.ring.mode = Mode.CLOSED
        channel.ring.take = lambda: np.zeros(0, channel.dtype)  # type: ignore[method-assign]
        keys = loaded.launch(np.full(1000, 0xFFFF, np.uint32), 64)
        assert channel.ring.taken + channel.dropped == len(keys)
        return
    variable = loaded.module.variable("channel0")
    data = bytearray(variable.read())
    data[40:48] = bytes(8)
    variable.write(bytes(data))
    keys = loaded.launch(np.full(1000, 0xFFFF, np.uint32), 64)
    assert len(channel.records()) == 0
    assert channel.dropped == len(keys)


def test_turns_of_the_ring_wrap(single: Callable[..., Loaded]) -> None:
    """Sequence words have 32 bits, tickets 64."""
    loaded = single("gfx90a")
    channel = loaded.module.channel("channel0")
    ring = channel.ring
    before = ((1 << 32) - 3) * ring.description.capacity + 100
    ring._reserved[0] = ring._read[0] = ring._position = before
    keys = loaded.launch(np.full(500, 0xFF, np.uint32), 64)
    assert int(ring._read[0]) == before + len(keys) > (1 << 32) * ring.description.capacity
    assert rows(channel.records()["words"]) == rows(Shape(4, 3, 1, False).pushed(keys))


def test_many_launches_and_threads(single: Callable[..., Loaded]) -> None:
    for threads in (1, 4):
        loaded = single("gfx1030", threads=threads)
        expected: list[NDArray[np.uint64]] = [loaded.launch(np.full(64, 3, np.uint32), 32) for _ in range(20)]
        records = loaded.module.channel("channel0").records()
        assert rows(records["words"]) == rows(Shape(4, 3, 1, False).pushed(np.concatenate(expected)))


def test_fields(make_module: MakeModule, trace: Trace) -> None:
    """Every kind of field, by its name."""
    module = make_module(
        HEADER
        + """
enum class Kind : uint8_t { kLoad = 1, kStore = 2 };
struct Inner { uint8_t a, b; };
struct Everything {
  Kind kind; int8_t small; bool yes; uint16_t halves[3]; float f; double d; _Float16 h; void *where; Inner inner;
  int64_t large; unsigned plain;
};
LUTHIER_RECORD(Everything, kind, small, yes, halves, f, d, h, where, inner, large, plain)
__device__ luthier::channel<Everything> all;
LUTHIER_HOOK_ANNOTATE push(uint32_t stored) {
  all.push({Kind::kStore, -3, true, {1, 2, 3}, 1.5f, -2.25, (_Float16)0.5f, &all, {7, 8}, -5000000000ll, stored});
}
""",
        *TARGETS,
    )
    loaded = trace("gfx90a", module, "push")
    loaded.launch(np.full(1, 1, np.uint32), 64)
    channel = loaded.module.channel("all")
    (record,) = channel.records()
    assert [channel.dtype[name].base.str for name in channel.dtype.names or ()] == (
        ["|u1", "|i1", "|b1", "<u2", "<f4", "<f8", "<f2", "<u8", "|u1", "<i8", "<u4"]
    )
    where = loaded.module.variable("all").address
    assert record["halves"].tolist() == [1, 2, 3]
    assert record["inner"].tolist() == [7, 8]
    values = [record[name].item() for name in ("kind", "small", "yes", "f", "d", "h", "where", "large", "plain")]
    assert values == [2, -3, True, 1.5, -2.25, 0.5, where, -5000000000, 0]
    with pytest.raises(ObjectError, match="0 channels 'none'; there are: all"):
        loaded.module.channel("none")


BAD = {
    "a huge record": (
        "struct R { uint8_t b[129]; }; LUTHIER_RECORD(R, b) __device__ luthier::channel<R> c;",
        "128 bytes",
    ),
    "not described": ("struct R { uint32_t a; }; __device__ luthier::channel<R> c;", "LUTHIER_RECORD"),
    "a constructor": (
        "struct R { uint32_t a; __device__ R(const R &) {} }; LUTHIER_RECORD(R, a) __device__ luthier::channel<R> c;",
        "byte by byte",
    ),
    "no such field": ("struct R { uint32_t a; }; LUTHIER_RECORD(R, b) __device__ luthier::channel<R> c;", "no member"),
    "a bit field": (
        "struct R { uint32_t a : 3; }; LUTHIER_RECORD(R, a) __device__ luthier::channel<R> c;",
        "bit-field",
    ),
    "a long name": (
        f"struct R {{ uint32_t {'n' * 32}; }}; LUTHIER_RECORD(R, {'n' * 32}) __device__ luthier::channel<R> c;",
        "at most 31 characters",
    ),
}


@pytest.mark.rows(1)
@pytest.mark.parametrize("what", BAD)
def test_refused_by_the_compiler(make_module: MakeModule, what: str) -> None:
    source, message = BAD[what]
    with pytest.raises(LuthierError, match=message):
        make_module(f"{HEADER}\n{source}\nLUTHIER_HOOK_ANNOTATE hook() {{}}", "gfx90a")


def test_a_ring_that_is_too_large(make_module: MakeModule, trace: Trace) -> None:
    module = make_module(HEADER + Shape(8, 8, 1 << 30, False).source(0), "gfx90a")
    with pytest.raises(LuthierError, match="its ring would take more than 1024 MiB"):
        trace("gfx90a", module, "push0")


def test_shapes_are_all_there() -> None:
    """The generated shapes cover what they are for."""
    sizes = [shape.unit * shape.words for shape in SHAPES]
    assert min(sizes) < 4 < 64 < max(sizes)
    assert {shape.drop for shape in SHAPES} == {False, True}
    assert len({shape.capacity for shape in SHAPES}) > 2
