"""Accesses beyond the end of LDS: reads give 0, writes vanish, and a check names them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from luthier.devices import open_device
from luthier.emulator import CheckWarning
from luthier.emulator.inspection.bench import WaveState, run_assembly
from luthier.emulator.running.memory import AllocationTable
from numpy.typing import NDArray

TARGETS = ("gfx906", "gfx90a", "gfx950", "gfx1030", "gfx1100", "gfx1201")
SIZE = 1028
"""Of LDS: no multiple of 8 or 16, so that wide accesses end beyond it in part."""
RNG = np.random.default_rng(11)
CONTENTS = RNG.integers(0, 256, SIZE, np.uint8).tobytes()


def spelled(target: str, old: str, new: str) -> str:
    """Return a mnemonic of the target; GFX11 and later have their own."""
    return old if target.startswith(("gfx9", "gfx10")) else new


def addresses(lanes: int, align: int) -> NDArray[np.uint32]:
    """Return where the lanes go: inside, to the end, over the end, just behind, far behind, and below 0."""
    special = [SIZE - 16, SIZE - 12, SIZE - 8, SIZE - 4, SIZE, SIZE + 4, 0xF00000, 0x7FFFFFF0, 0x80000000, 0xFFFFFFF0]
    given = np.array([special[lane // 2 % len(special)] if lane % 2 else 24 * lane for lane in range(lanes)], np.uint32)
    return given // align * align


def run(target: str, source: str, vgprs: dict[int, NDArray[np.uint32]], m0: int = 0) -> WaveState:
    code = f"s_mov_b32 m0, {m0}\n{source}"
    return run_assembly(target, code, vgprs, lds=CONTENTS)


def lanes_of(target: str) -> int:
    return 64 if target.startswith("gfx9") else 32


def inside(address: int, size: int) -> bool:
    return address + size <= SIZE


def rows(state: WaveState, first: int, count: int) -> NDArray[np.uint32]:
    return np.stack([state.vgpr(first + index) for index in range(count)], axis=1)


@pytest.mark.rows(23)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dwords", [1, 2, 3, 4])
def test_loads_and_stores(target: str, dwords: int) -> None:
    size = 4 * dwords
    places = addresses(lanes_of(target), 4)
    registers = {0: places, **{4 + i: np.full(len(places), 0xA0A0A0A0, np.uint32) for i in range(dwords)}}
    name = spelled(target, "ds_read_b", "ds_load_b") + str(32 * dwords)
    span = "v4" if dwords == 1 else f"v[4:{3 + dwords}]"
    actual = rows(run(target, f"{name} {span}, v0", registers), 4, dwords)
    for place, row in zip(places.tolist(), actual, strict=True):
        expected = CONTENTS[place : place + size] if inside(place, size) else bytes(size)
        assert row.tobytes() == expected, hex(place)

    name = spelled(target, "ds_write_b", "ds_store_b") + str(32 * dwords)
    after = run(target, f"{name} v0, {span}", registers).lds
    model = bytearray(CONTENTS)
    for place in places.tolist():
        if inside(place, size):
            model[place : place + size] = b"\xa0" * size  # accesses overlap
    assert after.tobytes() == model


@pytest.mark.rows(21)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("kind", "size"), [("u8", 1), ("i8", 1), ("u16", 2), ("i16", 2), ("u16_d16_hi", 2)])
def test_small_loads_and_stores(target: str, kind: str, size: int) -> None:
    places = addresses(lanes_of(target), 1) + np.uint32(3)  # 16 bits at the very end lie half beyond it
    old = np.full(len(places), 0x12345678, np.uint32)
    name = spelled(target, "ds_read_", "ds_load_") + kind
    actual = run(target, f"{name} v4, v0", {0: places, 4: old}).vgpr(4)
    for place, value in zip(places.tolist(), actual.tolist(), strict=True):
        data = CONTENTS[place : place + size] if inside(place, size) else bytes(size)
        read = int.from_bytes(data, "little", signed=kind.startswith("i"))
        assert (value >> 16 if kind.endswith("hi") else value) == read & 0xFFFFFFFF, hex(place)

    name = spelled(target, "ds_write_b", "ds_store_b") + str(8 * size)
    model = bytearray(CONTENTS)
    for place in places.tolist():
        if inside(place, size):
            model[place : place + size] = b"\x78\x56"[:size]
    assert run(target, f"{name} v0, v4", {0: places, 4: old}).lds.tobytes() == model


@pytest.mark.rows(7)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("bits", [32, 64])
def test_two_addresses(target: str, bits: int) -> None:
    """Before GFX11, each address counts separately; since GFX11, a read with one address outside returns zeros."""
    size, units = bits // 8, bits // 32
    places = addresses(lanes_of(target), 4)
    registers = {0: places, **{8 + i: np.full(len(places), 0xB0B0B0B0, np.uint32) for i in range(4)}}
    offsets = "offset0:1 offset1:0"
    pairs = [[place + size & 0xFFFFFFFF, place] for place in places.tolist()]
    name = spelled(target, f"ds_read2_b{bits}", f"ds_load_2addr_b{bits}")
    read = run(target, f"{name} v[4:{3 + 2 * units}], v0 {offsets}", registers)
    first, second = ("v8", "v9") if units == 1 else ("v[8:9]", "v[10:11]")
    name = spelled(target, f"ds_wrxchg2_rtn_b{bits}", f"ds_storexchg_2addr_rtn_b{bits}")
    exchange = run(target, f"{name} v[4:{3 + 2 * units}], v0, {first}, {second} {offsets}", registers)
    name = spelled(target, f"ds_write2_b{bits}", f"ds_store_2addr_b{bits}")
    written = run(target, f"{name} v0, {first}, {second} {offsets}", registers).lds
    together = not target.startswith(("gfx9", "gfx10"))
    expected = []
    for pair in pairs:
        good = [inside(place, size) for place in pair]
        good = [all(good)] * 2 if together else good
        expected.append([CONTENTS[p : p + size] if ok else bytes(size) for p, ok in zip(pair, good, strict=True)])
    for state in (read, exchange):
        actual = rows(state, 4, 2 * units)
        assert [row.tobytes() for row in actual] == [b"".join(pair) for pair in expected]
    model = bytearray(CONTENTS)
    for place in (place for pair in pairs for place in pair):
        if inside(place, size):
            model[place : place + size] = b"\xb0" * size  # accesses overlap
    assert written.tobytes() == model
    assert exchange.lds.tobytes() == model


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("bits", [32, 64])
def test_atomics(target: str, bits: int) -> None:
    size, units = bits // 8, bits // 32
    places = addresses(lanes_of(target), size)
    registers = {0: places, 8: np.full(len(places), 7, np.uint32), 9: np.zeros(len(places), np.uint32)}
    span, data = ("v4", "v8") if units == 1 else ("v[4:5]", "v[8:9]")
    state = run(target, f"ds_add_rtn_u{bits} {span}, v0, {data}", registers)
    model = bytearray(CONTENTS)
    for place, row in zip(places.tolist(), rows(state, 4, units), strict=True):
        if inside(place, size):
            assert row.tobytes() == model[place : place + size]
            whole = int.from_bytes(model[place : place + size], "little") + 7
            model[place : place + size] = (whole & (1 << bits) - 1).to_bytes(size, "little")
        else:
            assert not row.any()
    assert state.lds.tobytes() == model


@pytest.mark.parametrize("target", [name for name in TARGETS if name != "gfx950"])
def test_counters_and_addresses_by_lane(target: str) -> None:
    state = run(target, "ds_append v4 offset:24\nds_consume v5 offset:28", {}, m0=1000)
    assert int(state.vgpr(4)[0]) == int.from_bytes(CONTENTS[1024:1028], "little")
    assert not state.vgpr(5).any()
    added = int.from_bytes(CONTENTS[1024:], "little") + lanes_of(target) & 0xFFFFFFFF
    assert state.lds.tobytes() == CONTENTS[:1024] + added.to_bytes(4, "little")
    name = spelled(target, "ds_read_addtid_b32", "ds_load_addtid_b32")
    actual = run(target, f"{name} v4 offset:28", {}, m0=960).vgpr(4)
    tail = np.frombuffer(CONTENTS[988:], np.uint32).tolist()
    assert actual.tolist() == tail + [0] * (lanes_of(target) - len(tail))
    name = spelled(target, "ds_write_addtid_b32", "ds_store_addtid_b32")
    ones = np.full(lanes_of(target), 0x01010101, np.uint32)
    assert run(target, f"{name} v8 offset:28", {8: ones}, m0=960).lds.tobytes() == CONTENTS[:988] + b"\1" * 40


def test_second_sources() -> None:
    """GFX9: an addition of the value at B = A + 4."""
    places = np.full(64, 0xFFFFF0, np.uint32)
    places[:3] = 0, SIZE - 4, SIZE
    state = run("gfx906", "ds_add_src2_u32 v0 offset:1", {0: places})
    words = np.frombuffer(CONTENTS, np.uint32)
    expected = words.copy()
    expected[0] += words[1]  # that of the last dword is 0, and the one of the next does not exist
    assert state.lds.tobytes() == expected.tobytes()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("offset", [0, 4, 12, 0xFFF8])
def test_conditional_exchanges(target: str, offset: int) -> None:
    """The sum of address and offset has 16 bits, and is a multiple of 8."""
    lanes = lanes_of(target)
    given = np.array([20 * lane + lane % 3 for lane in range(lanes)], np.uint32)
    given[1::4] = [0x10000 + 64 * lane for lane in range(1, lanes, 4)]
    places = given + np.uint32(offset) & np.uint32(0xFFF8)
    _, first = np.unique(places, return_index=True)
    mask = sum(1 << int(lane) for lane in first)
    data = RNG.integers(0, 1 << 32, (2, lanes), np.uint32)
    code = f"s_mov_b32 m0, -1\nds_condxchg32_rtn_b64 v[4:5], v0, v[8:9] offset:{offset}"
    state = run_assembly(target, code, {0: given, 8: data[0], 9: data[1]}, exec=mask, lds=CONTENTS)
    words = np.frombuffer(CONTENTS, np.uint32)
    expected = words.copy()
    actual = rows(state, 4, 2)
    for lane in first:
        if not inside(int(places[lane]), 8):
            assert actual[lane].tolist() == [0, 0]
            continue
        at = int(places[lane]) // 4
        assert actual[lane].tolist() == words[at : at + 2].tolist()
        for index in range(2):
            if data[index, lane] >> 31:
                expected[at + index] = data[index, lane] & 0x7FFFFFFF
    assert state.lds.tobytes() == expected.tobytes()


@pytest.mark.parametrize(("target", "dwords"), [("gfx906", 1), ("gfx90a", 1), ("gfx950", 4), ("gfx1030", 1)])
def test_loads_to_lds(target: str, dwords: int) -> None:
    memory = AllocationTable()
    source = memory.allocate(4096)
    source.view()[:] = RNG.integers(0, 256, 4096, np.uint8)
    lanes, size = lanes_of(target), 4 * dwords
    start = SIZE - 4 - 3 * size  # the fourth lane's bytes end beyond LDS, or begin there
    sgprs = {4: source.address & 0xFFFFFFFF, 5: source.address >> 32, 6: 4096, 7: 0x31014FAC}
    name = "buffer_load_dword" if dwords == 1 else "buffer_load_dwordx4"
    code = f"s_mov_b32 m0, {start}\n{name} v0, s[4:7], 0 offen lds\ns_waitcnt vmcnt(0)"
    offsets = np.arange(lanes, dtype=np.uint32) * size
    state = run_assembly(target, code, {0: offsets}, sgprs, lds=CONTENTS, memory=memory)
    kept = sum(inside(start + lane * size, size) for lane in range(lanes))
    assert kept == (4 if dwords == 1 else 3)
    loaded = source.view()[: kept * size].tobytes()
    assert state.lds.tobytes() == CONTENTS[:start] + loaded + CONTENTS[start + kept * size :]


@pytest.mark.parametrize("target", ["gfx90a", "gfx1100"])
def test_a_check_names_them(target: str, build_kernels: Callable[[str, str], Path]) -> None:
    path = build_kernels("checks", target)
    out = np.zeros(256, np.int32)
    plain = open_device(f"emu:{target}").load(path).kernel("beyond_lds")
    plain.launch(out, 0xF00000, grid=1, block=256)
    assert out[:64].tolist() == list(range(64))
    assert not out[64:].any()
    device = open_device(f"emu:{target}", check="memory")
    kernel = device.load(path).kernel("beyond_lds")
    with pytest.warns(CheckWarning, match="out-of-bounds in beyond_lds"):
        kernel.launch(out, 0xF00000, grid=1, block=256)
    written, read = device.findings
    assert (written.access, read.access) == ("write", "read")
    assert written.in_lds
    assert read.in_lds
    assert written.count == read.count == 192
    wave_size = kernel.kernel.wave_size
    assert (read.wave, read.lane) == (64 // wave_size, 0)
    assert (read.address, read.size) == (0xF00000 + 256, 4)
    assert "of the work-group's 1024 bytes" in read.message
    kernel.launch(out, 0, grid=1, block=256)
    assert not device.findings
