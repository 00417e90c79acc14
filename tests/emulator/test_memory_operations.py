"""Loads, stores and atomics of every address space against a Python model of memory."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from bit_patterns import signed
from luthier.emulator.inspection.bench import WaveState, run_assembly
from luthier.emulator.running.memory import AllocationTable, DeviceAllocation
from numpy.typing import NDArray

RNG = np.random.default_rng(5)
TARGETS = {"gfx942": 64, "gfx1100": 32, "gfx1201": 32}
LANES = {**TARGETS, "gfx906": 64}
SIZE = 4096
FORMAT = 0x27000
"""A data format in a buffer's descriptor, of which untyped accesses only look whether there is one."""


def split(address: int) -> dict[int, int]:
    return {0: address & 0xFFFFFFFF, 1: address >> 32}


def new(target: str) -> bool:
    """GFX11 and later spell widths in bits."""
    return not target.startswith(("gfx9", "gfx10"))


def filled(memory: AllocationTable) -> DeviceAllocation:
    place = memory.allocate(SIZE)
    place.view()[:] = RNG.integers(0, 256, SIZE, np.uint8)
    return place


LOADS = [  # old name, new name, bytes, signed, half
    ("dword", "b32", 4, False, ""),
    ("dwordx2", "b64", 8, False, ""),
    ("dwordx3", "b96", 12, False, ""),
    ("dwordx4", "b128", 16, False, ""),
    ("ubyte", "u8", 1, False, ""),
    ("sbyte", "i8", 1, True, ""),
    ("ushort", "u16", 2, False, ""),
    ("sshort", "i16", 2, True, ""),
    ("ubyte_d16", "d16_u8", 1, False, "lo"),
    ("ubyte_d16_hi", "d16_hi_u8", 1, False, "hi"),
    ("sbyte_d16", "d16_i8", 1, True, "lo"),
    ("sbyte_d16_hi", "d16_hi_i8", 1, True, "hi"),
    ("short_d16", "d16_b16", 2, False, "lo"),
    ("short_d16_hi", "d16_hi_b16", 2, False, "hi"),
]


def expected_load(data: bytes, size: int, signed: bool, half: str, old: int) -> list[int]:
    if size >= 4:
        return [int.from_bytes(data[start : start + 4], "little") for start in range(0, size, 4)]
    value = int.from_bytes(data[:size], "little", signed=signed)
    if half == "lo":
        return [(old & 0xFFFF0000) | (value & 0xFFFF)]
    if half == "hi":
        return [(old & 0xFFFF) | (value & 0xFFFF) << 16]
    return [value & 0xFFFFFFFF]


@pytest.mark.rows(23)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("load", LOADS, ids=lambda load: load[0])
@pytest.mark.parametrize("space", ["global", "global_saddr", "flat", "flat_lds", "scratch", "lds", "buffer"])
def test_load(target: str, load: tuple[str, str, int, bool, str], space: str) -> None:
    old_name, new_name, size, signed, half = load
    if space == "lds" and half and target == "gfx942":
        target = "gfx906"
    name = new_name if new(target) else old_name
    lanes = LANES[target]
    if space == "lds":
        spelled = {"dword": "b32", "dwordx2": "b64", "dwordx3": "b96", "dwordx4": "b128"}.get(old_name)
        if spelled is None:
            spelled = (
                old_name.replace("ubyte", "u8").replace("sbyte", "i8").replace("ushort", "u16").replace("sshort", "i16")
            )
            spelled = spelled.replace("short_d16", "u16_d16")
        name = f"ds_{'load' if new(target) else 'read'}_{spelled}"
    memory = AllocationTable()
    place = filled(memory)
    offsets = RNG.integers(0, SIZE - 96, lanes)
    if space == "scratch":
        offsets = offsets % 256
    exec_mask = int(RNG.integers(0, 1 << 32)) | int(RNG.integers(0, 1 << 32)) << 32
    exec_mask &= (1 << lanes) - 1
    old = 0xABCD1234
    register = "v4" if size <= 4 else f"v[4:{3 + size // 4}]"
    vgprs: dict[int, object] = {4 + i: old for i in range(4)}
    contents = place.view().tobytes()
    lds: bytes | int = 0
    scratch = 0
    prologue = ""
    wait = ""
    if space == "global":
        vgprs[0] = offsets.astype(np.uint64) + np.uint64(place.address)
        source = f"global_load_{name} {register}, v[0:1], off offset:8"
    elif space == "global_saddr":
        vgprs[0] = offsets.astype(np.uint32)
        source = f"global_load_{name} {register}, v0, s[0:1] offset:8"
    elif space in ("flat", "flat_lds"):
        base = place.address if space == "flat" else 0x0001_0000_0000_0000
        vgprs[0] = offsets.astype(np.uint64) + np.uint64(base)
        source = f"flat_load_{name} {register}, v[0:1] offset:8"
        lds = contents
    elif space == "scratch":
        scratch = 512
        vgprs[0] = offsets.astype(np.uint32)
        # Each lane first fills its own scratch with what the lane's number and the place make.
        store = "scratch_store_b32" if new(target) else "scratch_store_dword"
        prologue = "\n".join(
            f"v_mul_u32_u24 v8, 0x10101, v2\nv_add_{'nc_' if new(target) else ''}u32 v8, {0x01020304 + 97 * i}, v8\n"
            f"v_mov_b32 v9, {4 * i}\n{store} v9, v8, off"
            for i in range(128)
        )
        vgprs[2] = np.arange(lanes, dtype=np.uint32)
        source = f"scratch_load_{name} {register}, v0, off offset:8"
    elif space == "lds":
        vgprs[0] = offsets.astype(np.uint32)
        source = f"{name} {register}, v0 offset:8"
        lds = contents
    else:
        vgprs[0] = offsets.astype(np.uint32)
        nulls = "null" if target.startswith("gfx12") else "0"
        source = f"buffer_load_{name} {register}, v0, s[0:3], {nulls} offen offset:8"
    state = run_assembly(
        target,
        f"{prologue}\n{source}\n{wait}",
        vgprs,  # type: ignore[arg-type]
        {**split(place.address), 2: SIZE, 3: FORMAT | (3 << 28 if target != "gfx942" else 0)},
        exec=exec_mask if space != "scratch" else None,
        lds=lds,
        scratch=scratch,
        memory=memory,
    )
    actual = state.vgpr(4, max(1, size // 4)).reshape(-1, lanes)
    for lane in range(lanes):
        if space != "scratch" and not exec_mask >> lane & 1:
            assert actual[0, lane] == old
            continue
        data = contents
        if space == "scratch":
            words = (0x10101 * lane + 0x01020304 + 97 * np.arange(128, dtype=np.uint64)).astype(np.uint32)
            data = words.tobytes()
        start = int(offsets[lane]) + 8
        # GFX9 with SRAMECC clears the other half of a 16-bit load's register.
        kept = 0 if target.startswith("gfx9") else old
        assert actual[:, lane].tolist() == expected_load(data[start : start + 16], size, signed, half, kept), lane


@pytest.mark.parametrize(
    ("target", "kept"),
    [("gfx906", 0), ("gfx906:sramecc+", 0), ("gfx906:sramecc-", 0xABCD0000), ("gfx90a:sramecc-", 0xABCD0000)],
)
@pytest.mark.parametrize(
    "source",
    [
        *("global_load_short_d16 v4, v0, s[0:1]", "buffer_load_short_d16 v4, v0, s[0:3], 0 offen"),
        *("ds_read_u16_d16 v4, v0", "buffer_load_format_d16_x v4, v0, s[0:3], 0 offen"),
    ],
)
def test_sramecc_clears_the_other_half(target: str, kept: int, source: str) -> None:
    memory = AllocationTable()
    place = filled(memory)
    word3 = 4 | 2 << 15 | 4 << 12  # X of unsigned 16-bit integers
    sgprs = {**split(place.address), 2: SIZE, 3: word3}
    state = run_assembly(target, source, {0: 0, 4: 0xABCD1234}, sgprs, lds=place.view().tobytes(), memory=memory)
    assert set(state.vgpr(4).tolist()) == {kept | int(place.view().view(np.uint16)[0])}


STORES = [("dword", "b32", 4, 0), ("dwordx2", "b64", 8, 0), ("dwordx3", "b96", 12, 0), ("dwordx4", "b128", 16, 0)]
STORES += [
    ("byte", "b8", 1, 0),
    ("short", "b16", 2, 0),
    ("byte_d16_hi", "d16_hi_b8", 1, 16),
    ("short_d16_hi", "d16_hi_b16", 2, 16),
]


@pytest.mark.rows(25)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("store", STORES, ids=lambda store: store[0])
@pytest.mark.parametrize("space", ["global", "flat", "lds", "buffer"])
def test_store(target: str, store: tuple[str, str, int, int], space: str) -> None:
    old_name, new_name, size, shift = store
    name = new_name if new(target) else old_name
    lanes = TARGETS[target]
    memory = AllocationTable()
    place = filled(memory)
    expected = bytearray(place.view().tobytes())
    offsets = RNG.permutation(SIZE // 32 - 2)[:lanes] * 32 + RNG.integers(0, 16, lanes)  # lanes do not overlap
    mask = int(RNG.integers(0, 1 << 32)) | int(RNG.integers(0, 1 << 32)) << 32
    mask &= (1 << lanes) - 1
    values = RNG.integers(0, 1 << 32, (4, lanes), np.uint32)
    register = "v4" if size <= 4 else f"v[4:{3 + size // 4}]"
    vgprs: dict[int, object] = {4 + i: values[i] for i in range(4)}
    if space == "global":
        vgprs[0] = offsets.astype(np.uint32)
        source = f"global_store_{name} v0, {register}, s[0:1] offset:4"
    elif space == "flat":
        vgprs[0] = offsets.astype(np.uint64) + np.uint64(place.address)
        source = f"flat_store_{name} v[0:1], {register} offset:4"
    elif space == "lds":
        vgprs[0] = offsets.astype(np.uint32)
        spelled = {1: "b8", 2: "b16", 4: "b32", 8: "b64", 12: "b96", 16: "b128"}[size] + ("_d16_hi" if shift else "")
        source = f"ds_{'store' if new(target) else 'write'}_{spelled} v0, {register} offset:4"
    else:
        vgprs[0] = offsets.astype(np.uint32)
        nulls = "null" if target.startswith("gfx12") else "0"
        source = f"buffer_store_{name} {register}, v0, s[0:3], {nulls} offen offset:4"
    state = run_assembly(
        target,
        source,
        vgprs,  # type: ignore[arg-type]
        {**split(place.address), 2: SIZE, 3: FORMAT | (3 << 28 if target != "gfx942" else 0)},
        exec=mask,
        lds=bytes(expected) if space == "lds" else 0,
        memory=memory,
    )
    for lane in range(lanes):
        if mask >> lane & 1:
            raw = values[:, lane].astype("<u4").tobytes()[shift // 8 :][:size]
            expected[int(offsets[lane]) + 4 :][:0] = b""
            expected[int(offsets[lane]) + 4 : int(offsets[lane]) + 4 + size] = raw
    actual = state.lds.tobytes() if space == "lds" else place.view().tobytes()
    assert actual == bytes(expected)


def wrap(value: int, bits: int) -> int:
    return value & ((1 << bits) - 1)


INTEGER_ATOMICS: dict[str, tuple[str, str, Callable[[int, int, int], int]]] = {
    "add": ("add_u", "add_u", lambda old, data, bits: old + data),
    "sub": ("sub_u", "sub_u", lambda old, data, bits: old - data),
    "smin": ("min_i", "min_i", lambda old, data, bits: min(old, data, key=lambda v: signed(v, bits))),
    "umin": ("min_u", "min_u", lambda old, data, bits: min(old, data)),
    "smax": ("max_i", "max_i", lambda old, data, bits: max(old, data, key=lambda v: signed(v, bits))),
    "umax": ("max_u", "max_u", lambda old, data, bits: max(old, data)),
    "and": ("and_b", "and_b", lambda old, data, bits: old & data),
    "or": ("or_b", "or_b", lambda old, data, bits: old | data),
    "xor": ("xor_b", "xor_b", lambda old, data, bits: old ^ data),
    "inc": ("inc_u", "inc_u", lambda old, data, bits: 0 if old >= data else old + 1),
    "dec": ("dec_u", "dec_u", lambda old, data, bits: data if old == 0 or old > data else old - 1),
    "swap": ("swap_b", "", lambda old, data, bits: data),
}


@pytest.mark.rows(25)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("name", INTEGER_ATOMICS)
@pytest.mark.parametrize("space", ["global", "flat", "lds", "buffer"])
def test_integer_atomic_with_return(target: str, bits: int, name: str, space: str) -> None:
    stem, lds_stem, model = INTEGER_ATOMICS[name]
    lanes = TARGETS[target]
    units = bits // 32
    memory = AllocationTable()
    place = filled(memory)
    cells = place.view().view(f"<u{bits // 8}")
    cells[:8] = RNG.choice(np.array([0, 1, (1 << bits) - 1, 1 << (bits - 1), 77, 1000], cells.dtype), 8)
    state_before = [int(cell) for cell in cells]
    which = RNG.integers(0, 8, lanes)  # several lanes share a cell: they act one after another
    data = RNG.integers(0, 1 << bits, lanes, cells.dtype) >> RNG.integers(0, bits - 8, lanes).astype(cells.dtype)
    data[:4] = [0, 1, (1 << bits) - 1, 1 << (bits - 1)]
    vector = f"{stem}{bits}" if new(target) else name + ("_x2" if bits == 64 else "")
    returns = {"gfx942": "sc0", "gfx1100": "glc", "gfx1201": "th:TH_ATOMIC_RETURN"}[target]
    source_register = "v4" if units == 1 else "v[4:5]"
    result_register = "v6" if units == 1 else "v[6:7]"
    vgprs: dict[int, object] = {4: data}
    lds = 0 if space != "lds" else place.view().tobytes()
    offsets = (which * (bits // 8)).astype(np.uint32)
    if space == "lds":
        if name == "swap":
            spelled = f"storexchg_rtn_b{bits}" if new(target) else f"wrxchg_rtn_b{bits}"
        else:
            spelled = f"{lds_stem.rsplit('_', 1)[0]}_rtn_{lds_stem.rsplit('_', 1)[1]}{bits}"
        vgprs[0] = offsets
        source = f"ds_{spelled} {result_register}, v0, {source_register}"
    elif space == "flat":
        vgprs[0] = offsets.astype(np.uint64) + np.uint64(place.address)
        source = f"flat_atomic_{vector} {result_register}, v[0:1], {source_register} {returns}"
    elif space == "global":
        vgprs[0] = offsets
        source = f"global_atomic_{vector} {result_register}, v0, {source_register}, s[0:1] {returns}"
    else:
        vgprs[0] = offsets
        nulls = "null" if target.startswith("gfx12") else "0"
        source = f"buffer_atomic_{vector} {source_register}, v0, s[0:3], {nulls} offen {returns}"
        result_register = source_register
    state = run_assembly(
        target,
        source,
        vgprs,  # type: ignore[arg-type]
        {**split(place.address), 2: SIZE, 3: FORMAT | (3 << 28 if target != "gfx942" else 0)},
        lds=lds,
        memory=memory,
    )
    expected = list(state_before)
    olds = []
    for lane in range(lanes):
        cell = int(which[lane])
        olds.append(expected[cell])
        expected[cell] = wrap(model(expected[cell], int(data[lane]), bits), bits)
    number = 4 if space == "buffer" else 6
    assert state.vgpr(number, dtype=cells.dtype).tolist() == olds
    after: NDArray[np.uint8] = state.lds if space == "lds" else place.view()
    assert [int(value) for value in after.view(cells.dtype)] == expected


def test_compare_and_swap_has_the_new_value_first() -> None:
    memory = AllocationTable()
    place = memory.allocate(64)
    place.view().view(np.uint32)[:3] = [10, 20, 30]
    state = run_assembly(
        "gfx942",
        "global_atomic_cmpswap v6, v0, v[4:5], s[0:1] sc0",
        {0: np.minimum(np.arange(64), 2).astype(np.uint32) * 4, 4: 99, 5: 20},
        split(place.address),
        exec=0b111,
        memory=memory,
    )
    assert place.view().view(np.uint32)[:3].tolist() == [10, 99, 30]
    assert state.vgpr(6)[:3].tolist() == [10, 20, 30]


@pytest.mark.parametrize(
    ("target", "select"), [("gfx90a", 0), ("gfx1030", 3 << 28), ("gfx1100", 3 << 28), ("gfx1201", 3 << 28)]
)
def test_buffer_bounds_are_checked_dword_by_dword(target: str, select: int) -> None:
    memory = AllocationTable()
    place = filled(memory)
    words = place.view().view(np.uint32)
    name = "b128" if new(target) else "dwordx4"
    nulls = "null" if target.startswith("gfx12") else "0"
    lanes = 64 if target == "gfx90a" else 32
    offsets = np.full(lanes, 40, np.uint32)
    offsets[1], offsets[2], offsets[3] = 48, 0x80000000, 0xFFFFFFFC
    state = run_assembly(
        target,
        f"buffer_load_{name} v[4:7], v0, s[0:3], {nulls} offen",
        {0: offsets},
        {**split(place.address), 2: 48, 3: FORMAT | select},
        memory=memory,
    )
    actual = state.vgpr(4, 4)
    assert actual[:, 0].tolist() == [*words[10:12].tolist(), 0, 0]
    for lane in (1, 2, 3):
        assert actual[:, lane].tolist() == [0, 0, 0, 0]


def test_structured_and_swizzled_buffers() -> None:
    memory = AllocationTable()
    place = filled(memory)
    words = place.view().view(np.uint32)
    lanes = np.arange(64, dtype=np.uint32)
    source = "buffer_load_dword v4, v0, s[0:3], 0 idxen offset:4"
    base = split(place.address)
    structured = run_assembly(
        "gfx90a", source, {0: lanes}, {0: base[0], 1: base[1] | 12 << 16, 2: 20, 3: FORMAT}, memory=memory
    )
    assert structured.vgpr(4).tolist() == [int(words[3 * i + 1]) if i < 20 else 0 for i in range(64)]
    # Swizzle: index stride 8 (code 0); elements have 4 bytes, whatever the bits say that GFX8 has their size in.
    expected = [int(words[((i // 8) * 12 + 4) * 8 // 4 + i % 8]) for i in range(64)]
    for target in ("gfx906", "gfx90a", "gfx942", "gfx950"):
        for bits in range(4):
            descriptor = {0: base[0], 1: base[1] | 12 << 16 | 1 << 31, 2: 64, 3: bits << 19 | FORMAT}
            swizzled = run_assembly(target, source, {0: lanes}, descriptor, memory=memory)
            assert swizzled.vgpr(4).tolist() == expected


def lane_test(target: str, source: str, **registers: object) -> WaveState:
    return run_assembly(target, source, {int(key[1:]): value for key, value in registers.items()}, lds=1024)


@pytest.mark.parametrize(
    ("target", "wave_size", "reach"),
    [
        *(("gfx942", 64, 64), ("gfx1030", 64, 32), ("gfx1100", 64, 32), ("gfx1201", 64, 64)),
        *(("gfx1100", 32, 32), ("gfx1201", 32, 32)),
    ],
)
def test_permutations(target: str, wave_size: int, reach: int) -> None:
    """GFX10 and GFX11 permute each half of the wave separately (LLVM's GCNSubtarget::supportsWaveWideBPermute).

    High bits of lane numbers are ignored (ISA documents, "DS_BPERMUTE_B32").
    """
    lanes = np.arange(wave_size)
    data = RNG.integers(0, 1 << 32, wave_size, np.uint32)
    index = RNG.integers(0, 256, wave_size).astype(np.uint32)
    source = "ds_bpermute_b32 v2, v0, v1\nds_permute_b32 v3, v0, v1"
    state = run_assembly(target, source, {0: index * 4, 1: data}, wave_size=wave_size)
    other = lanes // reach * reach + index % reach
    assert state.vgpr(2).tolist() == data[other].tolist()
    pushed = np.zeros(wave_size, np.uint32)
    for lane in range(wave_size):
        pushed[other[lane]] = data[lane]
    assert state.vgpr(3).tolist() == pushed.tolist()


def test_swizzles() -> None:
    lanes = np.arange(64, dtype=np.uint32)
    data = RNG.integers(0, 1 << 32, 64, np.uint32)
    state = lane_test(
        "gfx942",
        "ds_swizzle_b32 v2, v1 offset:swizzle(QUAD_PERM, 3,2,1,0)\n"
        'ds_swizzle_b32 v3, v1 offset:swizzle(BITMASK_PERM, "0pi01")\n'
        "ds_swizzle_b32 v4, v1 offset:swizzle(BROADCAST, 8, 3)",
        v1=data,
    )
    assert state.vgpr(2).tolist() == data[lanes ^ 3].tolist()
    mask = (lanes & 0b01100 ^ 0b00100) & 0b01100 | 0b00001
    assert state.vgpr(3).tolist() == data[(lanes & 32) | mask].tolist()
    assert state.vgpr(4).tolist() == data[lanes & 0xF8 | 3].tolist()


def test_swizzle_rotates_and_reverses() -> None:
    lanes = np.arange(64, dtype=np.uint32)
    data = RNG.integers(0, 1 << 32, 64, np.uint32)
    state = lane_test(
        "gfx942",
        "ds_swizzle_b32 v2, v1 offset:0xc0a0\nds_swizzle_b32 v3, v1 offset:0xc4a1\n"
        "ds_swizzle_b32 v4, v1 offset:0xe000\nds_swizzle_b32 v5, v1 offset:0xe010",
        v1=data,
    )
    assert state.vgpr(2).tolist() == data[(lanes & 32) | ((lanes + 5) & 31)].tolist()
    assert state.vgpr(3).tolist() == data[(lanes & 32) | (lanes & 1) | ((lanes - 5) & 30)].tolist()
    turned = np.array([int(f"{lane & 31:05b}"[::-1], 2) for lane in range(64)], np.uint32)
    assert state.vgpr(4).tolist() == data[(lanes & 32) | turned].tolist()
    assert state.vgpr(5).tolist() == data[(lanes & 32) | (turned >> 1) | (lanes & 16)].tolist()


def test_two_addresses_and_counters() -> None:
    lanes = np.arange(64, dtype=np.uint32)
    state = lane_test(
        "gfx942",
        "s_mov_b32 m0, 16\nds_write2_b32 v0, v1, v2 offset0:1 offset1:3\nds_read2_b32 v[4:5], v0 offset0:3 offset1:1\n"
        "ds_append v6 offset:1000\nds_append v7 offset:1000\nds_consume v8 offset:1000",
        v0=lanes * 8 % 512,
        v1=lanes + 100,
        v2=lanes + 200,
    )
    rows = np.zeros(256, np.uint32)
    for offset, values in ((4, lanes + 100), (12, lanes + 200)):
        for lane in range(64):
            rows[(lane * 8 + offset) // 4] = values[lane]
    assert state.vgpr(4).tolist() == [int(rows[(8 * i + 12) // 4]) for i in range(64)]
    assert state.vgpr(5).tolist() == [int(rows[(8 * i + 4) // 4]) for i in range(64)]
    assert [int(state.vgpr(v)[3]) for v in (6, 7, 8)] == [0, 64, 128]


def test_transposing_loads() -> None:
    contents = RNG.integers(0, 256, 2048, np.uint8).tobytes()
    lanes = np.arange(64, dtype=np.uint32)
    for bits, register, size in ((16, "v[4:5]", 8), (8, "v[4:5]", 8), (4, "v[4:5]", 8), (6, "v[4:6]", 12)):
        step = 8 if size == 8 else 16
        source = f"ds_read_b{8 * size}_tr_b{bits} {register}, v0"
        state = run_assembly("gfx950", source, {0: lanes * step}, lds=contents)
        per_lane = 8 * size // bits
        loaded = [int.from_bytes(contents[lane * step : lane * step + size], "little") for lane in range(64)]
        element = [[value >> (bits * i) & ((1 << bits) - 1) for i in range(per_lane)] for value in loaded]
        for lane in range(64):
            row, place = lane & ~15, lane & 15
            want = [element[row + i * (16 // per_lane) + place // per_lane][place % per_lane] for i in range(per_lane)]
            whole = sum(value << (bits * i) for i, value in enumerate(want))
            actual = int.from_bytes(
                b"".join(int(state.vgpr(4 + i)[lane]).to_bytes(4, "little") for i in range(size // 4)), "little"
            )
            assert actual == whole, (bits, lane)
