"""Memory and LDS instructions of gfx1250 beyond GFX12, compared with copies in Python."""

from __future__ import annotations

import numpy as np
import pytest
from luthier.emulator.inspection.bench import WaveState, run_assembly
from luthier.emulator.running.memory import AllocationTable, DeviceAllocation
from luthier.errors import EmulationError
from numpy.typing import NDArray

TARGET, LANES, SIZE = "gfx1250", 32, 4096
RNG = np.random.default_rng(3)


def split(address: int) -> dict[int, int]:
    return {0: address & 0xFFFFFFFF, 1: address >> 32}


def filled(memory: AllocationTable) -> DeviceAllocation:
    place = memory.allocate(SIZE)
    place.view()[:] = RNG.integers(0, 256, SIZE, np.uint8)
    return place


def run(
    source: str, memory: AllocationTable, place: DeviceAllocation, vgprs: dict[int, NDArray[np.uint32]], **more: object
) -> WaveState:
    return run_assembly(TARGET, source, vgprs, split(place.address), memory=memory, **more)


@pytest.mark.parametrize("verb", ["global_load_async_to_lds", "cluster_load_async_to_lds"])
@pytest.mark.parametrize("bits", [8, 32, 64, 128])
def test_copies_to_lds(verb: str, bits: int) -> None:
    """The offset is added to both addresses; lanes that are off and what is beyond LDS is left alone."""
    memory = AllocationTable()
    place = filled(memory)
    size = bits // 8
    offsets = (RNG.permutation(100)[:LANES] * 16).astype(np.uint32)
    targets = (RNG.permutation(64)[:LANES] * 16).astype(np.uint32)
    targets[3] = 1020
    lds = RNG.integers(0, 256, 1024, np.uint8)
    source = f"s_mov_b32 m0, 0\n {verb}_b{bits} v1, v0, s[0:1] offset:16\n s_wait_asynccnt 0"
    state = run(source, memory, place, {0: offsets, 1: targets}, lds=lds.tobytes(), exec=0xFFFFFFF7 & ~0x10)
    expected = lds.copy()
    for lane in range(LANES):
        start = int(targets[lane]) + 16
        if lane not in (3, 4) and start + size <= 1024:
            expected[start : start + size] = place.view()[int(offsets[lane]) + 16 :][:size]
    np.testing.assert_array_equal(state.lds, expected)


@pytest.mark.parametrize("bits", [8, 32, 64, 128])
def test_copies_from_lds(bits: int) -> None:
    memory = AllocationTable()
    place = filled(memory)
    before = place.view().copy()
    size = bits // 8
    offsets = (RNG.permutation(100)[:LANES] * 16).astype(np.uint32)
    sources = (RNG.permutation(60)[:LANES] * 16).astype(np.uint32)
    lds = RNG.integers(0, 256, 1024, np.uint8)
    source = f"global_store_async_from_lds_b{bits} v0, v1, s[0:1] offset:32"
    run(source, memory, place, {0: offsets, 1: sources}, lds=lds.tobytes())
    for lane in range(LANES):
        before[int(offsets[lane]) + 32 :][:size] = lds[int(sources[lane]) + 32 :][:size]
    np.testing.assert_array_equal(place.view(), before)
    sources[5] = 1020
    with pytest.raises(EmulationError, match="beyond the end of LDS"):
        run(source, memory, place, {0: offsets, 1: sources}, lds=lds.tobytes())


@pytest.mark.parametrize("verb", ["cluster_load", "global_load_monitor", "flat_load_monitor"])
@pytest.mark.parametrize("units", [1, 2, 4])
def test_loads_for_clusters_and_monitors(verb: str, units: int) -> None:
    memory = AllocationTable()
    place = filled(memory)
    offsets = (RNG.permutation(100)[:LANES] * 16).astype(np.uint32)
    register = "v4" if units == 1 else f"v[4:{3 + units}]"
    source = f"s_mov_b32 m0, 1\n {verb}_b{32 * units} {register}, v0, s[0:1] offset:8\n s_monitor_sleep 1"
    state = run(source, memory, place, {0: offsets})
    words = place.view().view(np.uint32)
    expected = [words[offsets // 4 + 2 + unit] for unit in range(units)]
    np.testing.assert_array_equal(state.vgpr(4, units).reshape(units, LANES), expected)


def test_loads_for_other_work_groups_are_an_error() -> None:
    memory = AllocationTable()
    place = filled(memory)
    with pytest.raises(EmulationError, match="no clusters"):
        run("s_mov_b32 m0, 3\n cluster_load_b32 v4, v0, s[0:1]", memory, place, {0: np.zeros(LANES, np.uint32)})


def elements(rows: NDArray[np.uint32], bits: int) -> list[list[int]]:
    """Return every lane's elements."""
    values = []
    for lane in range(LANES):
        whole = sum(int(row[lane]) << 32 * place for place, row in enumerate(rows))
        values.append([whole >> place & (1 << bits) - 1 for place in range(0, 32 * len(rows), bits)])
    return values


@pytest.mark.rows(3)
@pytest.mark.parametrize("space", ["global", "ds"])
@pytest.mark.parametrize(("bits", "units"), [(16, 4), (8, 2), (6, 3), (4, 2)])
def test_transposing_loads(space: str, bits: int, units: int) -> None:
    """Of the data that 16 or 8 lanes load, lane k receives element k of each."""
    memory = AllocationTable()
    place = filled(memory)
    stride = 4 * units
    offsets = np.arange(LANES, dtype=np.uint32) * stride
    name = f"load_tr{bits}_b{32 * units}"
    where = "v0, s[0:1]" if space == "global" else "v0"
    state = run(
        f"{space}_{name} v[4:{3 + units}], {where}", memory, place, {0: offsets}, lds=place.view()[:1024].tobytes()
    )
    loaded = elements(place.view()[: LANES * stride].view(np.uint32).reshape(LANES, units).T, bits)
    actual = elements(state.vgpr(4, units), bits)
    for lane in range(LANES):
        column = lane % len(loaded[0])
        assert sorted(actual[lane]) == sorted(loaded[other][column] for other in sources(lane, bits))
        assert actual[lane] == [loaded[other][column] for other in sources(lane, bits)]


def sources(lane: int, bits: int) -> list[int]:
    """The lanes that a lane's elements come from, as matrix operations want their rows."""
    half = lane // 16
    if bits == 16:
        return [lane // 8 * 8 + row for row in range(8)]
    if bits == 8:
        rows = [4 * (lane // 8 % 2) + row for row in range(4)]
        return [16 * half + row + 8 * pair for pair in (0, 1) for row in rows]
    if bits == 6:
        return [8 * four + 4 * half + row for four in range(4) for row in range(4)]
    return [16 * pair + 8 * half + row for pair in (0, 1) for row in range(8)]


D16 = {"u8": (1, False), "i8": (1, True), "b16": (2, False)}


@pytest.mark.rows(18)
@pytest.mark.parametrize("half", ["", "hi_"])
@pytest.mark.parametrize("kind", D16)
@pytest.mark.parametrize("space", ["global", "flat", "scratch", "buffer", "ds"])
def test_loads_into_halves_clear_the_other(space: str, kind: str, half: str) -> None:
    memory = AllocationTable()
    place = filled(memory)
    size, sign = D16[kind]
    offsets = np.arange(LANES, dtype=np.uint32) * 6
    name = f"load_d16_{half}{kind}"
    if space == "ds":
        name = f"load_{kind.replace('b16', 'u16')}_d16{'_hi' if half else ''}"
    where = {
        "global": "v0, s[0:1]",
        "flat": "v[2:3]",
        "scratch": "v0, off",
        "buffer": "v0, s[4:7], null offen",
        "ds": "v0",
    }
    addresses = place.address + offsets.astype(np.uint64)
    fields = place.address | SIZE << 57
    sgprs = {**split(place.address), **{4 + index: fields >> 32 * index & 0xFFFFFFFF for index in range(4)}}
    vgprs = {
        0: offsets,
        2: (addresses & 0xFFFFFFFF).astype(np.uint32),
        3: (addresses >> 32).astype(np.uint32),
        4: np.full(LANES, 0x12345678, np.uint32),
    }
    data = place.view()[:1024]
    source = f"{space}_{name} v4, {where[space]}"
    if space == "scratch":
        source = f"v_mov_b32 v5, 0x80ff\n scratch_store_b32 v0, v5, off\n {source}"
    state = run_assembly(TARGET, source, vgprs, sgprs, memory=memory, lds=data.tobytes(), scratch=256)
    for lane in range(LANES):
        start = 6 * lane
        raw = (0x80FF).to_bytes(4, "little")[:size] if space == "scratch" else data[start : start + size].tobytes()
        value = int.from_bytes(raw, "little", signed=sign) & 0xFFFF
        assert state.vgpr(4)[lane] == value << (16 if half else 0)


def test_blocks_of_registers() -> None:
    memory = AllocationTable()
    place = filled(memory)
    words = place.view().view(np.uint32).copy()
    vgprs = {0: np.arange(LANES, dtype=np.uint32) * 4, **{4 + i: np.full(LANES, i, np.uint32) for i in range(32)}}
    source = "s_mov_b32 m0, 0x80000005\n global_load_block v[4:35], v0, s[0:1]"
    state = run(source, memory, place, vgprs)
    for index in range(32):
        expected = words[np.arange(LANES) + index] if index in (0, 2, 31) else np.full(LANES, index)
        np.testing.assert_array_equal(state.vgpr(4 + index), expected)


def test_relative_registers() -> None:
    memory = AllocationTable()
    place = filled(memory)
    rows = {number: RNG.integers(0, 1 << 32, LANES, np.uint32) for number in range(10)}
    source = "s_mov_b32 m0, 0x30002\n v_movrelsd_2_b32 v4, v1\n v_swaprel_b32 v5, v6"
    state = run(source, memory, place, rows)
    np.testing.assert_array_equal(state.vgpr(7), rows[3])
    np.testing.assert_array_equal(state.vgpr(8), rows[8])
    source = "s_mov_b32 m0, 0x30001\n v_swaprel_b32 v5, v6"
    state = run(source, memory, place, rows)
    np.testing.assert_array_equal(state.vgpr(8, 1), rows[7])
    np.testing.assert_array_equal(state.vgpr(7, 1), rows[8])


# Barriers in LDS ------------------------------------------------------------------------------------------------------


def barrier(pending: int, reload: int, phase: int = 0) -> int:
    return pending | phase << 29 | reload << 32


def test_arrivals() -> None:
    """The lanes arrive one after the other; every fifth arrival begins a phase."""
    memory = AllocationTable()
    place = filled(memory)
    state = run(
        "ds_atomic_barrier_arrive_rtn_b64 v[4:5], v0, v[2:3] offset:8",
        memory,
        place,
        {0: np.zeros(LANES, np.uint32), 2: np.ones(LANES, np.uint32), 3: np.zeros(LANES, np.uint32)},
        lds=bytes(8) + barrier(4, 4, 6).to_bytes(8, "little"),
    )
    seen = [barrier(4 - lane % 5, 4, (6 + lane // 5) % 8) for lane in range(LANES)]
    low, high = state.vgpr(4, 2).tolist()
    assert [a | b << 32 for a, b in zip(low, high, strict=True)] == seen
    assert int.from_bytes(state.lds[8:16].tobytes(), "little") == barrier(2, 4, 4)


def test_arrivals_of_more_than_one() -> None:
    memory = AllocationTable()
    place = filled(memory)
    counts = {2: np.full(LANES, 3, np.uint32), 3: np.zeros(LANES, np.uint32), 0: np.zeros(LANES, np.uint32)}
    source = "ds_atomic_barrier_arrive_rtn_b64 v[4:5], v0, v[2:3]"
    state = run(source, memory, place, counts, lds=barrier(5, 7).to_bytes(8, "little"), exec=3)
    assert int.from_bytes(state.lds[:8].tobytes(), "little") == barrier(7, 7, 1)
    with pytest.raises(EmulationError, match="more arrivals than an LDS barrier waits for"):
        run(source, memory, place, counts, lds=barrier(1, 7).to_bytes(8, "little"), exec=1)


def test_arrival_after_copies() -> None:
    memory = AllocationTable()
    place = filled(memory)
    source = "ds_atomic_async_barrier_arrive_b64 v0"
    state = run(source, memory, place, {0: np.zeros(LANES, np.uint32)}, lds=barrier(40, 40).to_bytes(8, "little"))
    assert int.from_bytes(state.lds[:8].tobytes(), "little") == barrier(8, 40)
