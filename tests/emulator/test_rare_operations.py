"""Operations that compilers hardly use: forks, sources in LDS, exchanging and block loads, against their documents."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from bit_patterns import signed
from luthier.emulator.inspection.bench import WaveState, assemble, run_assembly
from luthier.emulator.running.memory import AllocationTable
from luthier.errors import EmulationError
from luthier.isa import Isa

RNG = np.random.default_rng(23)
LANES = np.arange(64, dtype=np.uint32)


def pair(address: int, first: int = 0) -> dict[int, int]:
    return {first: address & 0xFFFFFFFF, first + 1: address >> 32}


# Forks (GFX9) --------------------------------------------------------------------------------------------------------

FORK = """
    s_mov_b32 s24, 0
    s_mov_b64 s[20:21], exec
    {fork}
    v_or_b32 v1, 1, v1
    s_lshl_b32 s24, s24, 4
    s_or_b32 s24, s24, 1
    s_branch meet
taken:
    v_or_b32 v1, 2, v1
    s_lshl_b32 s24, s24, 4
    s_or_b32 s24, s24, 2
meet:
    s_cbranch_join s25
    s_mov_b64 s[22:23], exec
"""
I_FORK = "s_cbranch_i_fork s[18:19], taken"
G_FORK = """
    s_getpc_b64 s[26:27]
    s_add_u32 s26, s26, {distance}
    s_addc_u32 s27, s27, 0
    s_cbranch_g_fork s[18:19], s[26:27]"""


def run_fork(fork: str, taken: int, exec_mask: int, target: str = "gfx906") -> WaveState:
    sgprs = {18: taken & 0xFFFFFFFF, 19: taken >> 32, 25: 0}
    source = FORK.format(fork=fork)
    # The bench resolves labels of branches only: this one is counted. Four instructions of 4 bytes are skipped.
    source = source.replace("s_cbranch_i_fork s[18:19], taken", "s_cbranch_i_fork s[18:19], 4")
    return run_assembly(target, source, {1: 0}, sgprs, exec=exec_mask)


@pytest.mark.parametrize("target", ["gfx906", "gfx942"])
@pytest.mark.parametrize("fork", [I_FORK, G_FORK.format(distance=28)], ids=["immediate", "register"])
@pytest.mark.parametrize(
    ("taken", "exec_mask", "order"),
    [
        (0xFF, 0xFF, 0x2),  # all go there
        (0xFF00, 0xFF, 0x1),  # none
        (0x7, 0xFF, 0x21),  # fewer go there: they are first
        (0xF8, 0xFF, 0x12),  # more
        (0xF, 0xFF, 0x21),  # as many: those that go there are first
        (0x8000000000000001, 0xC000000000000007, 0x21),
    ],
)
def test_fork_runs_both_sides(target: str, fork: str, taken: int, exec_mask: int, order: int) -> None:
    state = run_fork(fork, taken, exec_mask, target)
    expected = [(2 if taken >> lane & 1 else 1) if exec_mask >> lane & 1 else 0 for lane in range(64)]
    assert state.vgpr(1).tolist() == expected
    assert state.sgpr(24) == order
    # What joined last goes on alone: a program restores EXEC itself.
    last = order & 15
    side = taken if last == 2 else ~taken
    assert state.sgpr(22) | state.sgpr(23) << 32 == side & exec_mask
    assert state.mode >> 29 == 0


@pytest.mark.parametrize("bits", [0xF7, 8])
def test_vskip_skips_vector_instructions_and_nothing_else(bits: int) -> None:
    source = """
      v_mov_b32_e32 v1, 1
      s_setvskip s0, 3
      v_mov_b32_e32 v1, 2
      v_cmp_eq_u32_e64 s[4:5], v1, v1
      v_readfirstlane_b32 s6, v1
      s_mov_b32 s7, 5
      s_setvskip 0, 0
      v_add_u32_e32 v2, v1, v1
    """
    state = run_assembly("gfx906", source, {}, {0: bits, 4: 9, 6: 9, 7: 9})
    skips = bool(bits >> 3 & 1)
    assert set(state.vgpr(1).tolist()) == {1 if skips else 2}
    assert set(state.vgpr(2).tolist()) == {2 if skips else 4}
    assert [state.sgpr(number) for number in (4, 6, 7)] == ([9, 9, 5] if skips else [0xFFFFFFFF, 2, 5])
    assert state.mode >> 28 & 1 == 0
    assert state.counts.tolist() == [1] * 9  # a skipped instruction is executed, too


# Sources in LDS (GFX9) -----------------------------------------------------------------------------------------------


SOURCES: dict[str, Callable[[int, int, int], int]] = {
    "add_src2_u": lambda a, b, bits: a + b,
    "sub_src2_u": lambda a, b, bits: a - b,
    "rsub_src2_u": lambda a, b, bits: b - a,
    "inc_src2_u": lambda a, b, bits: 0 if a >= b else a + 1,
    "dec_src2_u": lambda a, b, bits: b if a == 0 or a > b else a - 1,
    "min_src2_i": lambda a, b, bits: min(a, b, key=lambda v: signed(v, bits)),
    "max_src2_i": lambda a, b, bits: max(a, b, key=lambda v: signed(v, bits)),
    "min_src2_u": lambda a, b, bits: min(a, b),
    "max_src2_u": lambda a, b, bits: max(a, b),
    "and_src2_b": lambda a, b, bits: a & b,
    "or_src2_b": lambda a, b, bits: a | b,
    "xor_src2_b": lambda a, b, bits: a ^ b,
    "write_src2_b": lambda a, b, bits: b,
}


@pytest.mark.rows(11)
@pytest.mark.parametrize("target", ["gfx906", "gfx908"])
@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("name", SOURCES)
def test_operations_with_a_source_in_lds(target: str, name: str, bits: int) -> None:
    size = bits // 8
    cells = RNG.integers(0, 1 << bits, 256, f"<u{size}", endpoint=False)
    cells[:6] = [0, 1, (1 << bits) - 1, 1 << (bits - 1), 77, 77]
    cells[128:134] = [1, 0, 1, (1 << bits) - 1, 77, 78]
    # A: the first half from its end, B: 128 cells further on, or back.
    for distance in (128, -128):
        mask = int(RNG.integers(0, 1 << 32)) << 32 | int(RNG.integers(0, 1 << 32))
        numbers = LANES if distance > 0 else LANES + 128
        offset = distance * size // 4 & 0x7FFF
        source = f"ds_{name}{bits} v0 offset:{offset}"
        state = run_assembly(target, source, {0: numbers * size}, exec=mask, lds=cells.tobytes())
        expected = [int(cell) for cell in cells]
        for lane in range(64):
            if mask >> lane & 1:
                a = int(numbers[lane])
                expected[a] = SOURCES[name](int(cells[a]), int(cells[a + distance]), bits) & ((1 << bits) - 1)
        assert [int(cell) for cell in state.lds.view(cells.dtype)] == expected


@pytest.mark.parametrize(("name", "kind"), [("f32", np.float32), ("f64", np.float64)])
def test_float_operations_with_a_source_in_lds(name: str, kind: type) -> None:
    cells = RNG.uniform(-4, 4, 128).astype(kind)
    size = cells.itemsize
    for operation, model in (("min", np.minimum), ("max", np.maximum), ("add", np.add)):
        if operation == "add" and name == "f64":
            continue
        source = f"ds_{operation}_src2_{name} v0 offset:{64 * size // 4}"
        state = run_assembly("gfx906", source, {0: LANES * size}, lds=cells.tobytes())
        actual = state.lds.view(kind)
        assert np.array_equal(actual[:64], model(cells[:64], cells[64:]))
        assert np.array_equal(actual[64:], cells[64:])


def test_the_undocumented_address_form_is_refused() -> None:
    with pytest.raises(EmulationError, match="upper half of the address"):
        run_assembly("gfx906", "ds_add_src2_u32 v0 offset:0x8000", {0: 0}, lds=64)


@pytest.mark.parametrize("target", ["gfx906", "gfx90a"])
def test_store_from_lds(target: str) -> None:
    memory = AllocationTable()
    place = memory.allocate(512)
    contents = RNG.integers(0, 256, 512, np.uint8).tobytes()
    source = "s_mov_b32 m0, 32\nbuffer_store_lds_dword s[0:3], 0 offset:8 lds"
    # The lane's number is the index of a record of four bytes; two lanes are off.
    sgprs = {0: place.address & 0xFFFFFFFF, 1: place.address >> 32 | 4 << 16, 2: 512, 3: 1 << 23}
    run_assembly(target, source, {}, sgprs, exec=(1 << 64) - 1 - 0b110, lds=contents, memory=memory)
    expected = np.zeros(128, np.uint32)
    expected[2:66] = np.frombuffer(contents, np.uint32)[(32 + 8) // 4 :][:64]
    expected[3:5] = 0
    assert place.view().view(np.uint32).tolist() == expected.tolist()


LOADS_TO_LDS = [
    ("gfx906", "buffer_load_dword v0, s[0:3], 0 offen offset:8 lds", 4, 4),
    ("gfx942", "buffer_load_dword v0, s[0:3], 0 offen offset:8 lds", 4, 4),
    ("gfx942", "buffer_load_ubyte v0, s[0:3], 0 offen offset:8 lds", 1, 4),
    ("gfx942", "global_load_lds_dword v0, s[0:1] offset:8", 4, 4),
    ("gfx942", "global_load_lds_ushort v0, s[0:1] offset:8", 2, 4),
    ("gfx950", "global_load_lds_dwordx4 v0, s[0:1] offset:8", 16, 16),
    ("gfx950", "global_load_lds_dwordx3 v0, s[0:1] offset:8", 12, 16),
    ("gfx950", "buffer_load_dwordx3 v0, s[0:3], 0 offen offset:8 lds", 12, 16),
]


@pytest.mark.parametrize(("target", "load", "size", "step"), LOADS_TO_LDS)
def test_load_to_lds(target: str, load: str, size: int, step: int) -> None:
    """To M0 plus the instruction's offset plus the lane's number times the element (ISA documents on loads to LDS)."""
    memory = AllocationTable()
    place = memory.allocate(2048)
    contents = RNG.integers(0, 256, 2048, np.uint8)
    place.view()[:] = contents
    starts = RNG.permutation(64).astype(np.uint32) * 16
    mask = int(RNG.integers(1, 1 << 63))
    sgprs = {**pair(place.address), 2: 2048, 3: 1 << 15}
    state = run_assembly(
        target, f"s_mov_b32 m0, 32\n{load}", {0: starts}, sgprs, exec=mask, lds=b"\xee" * 1200, memory=memory
    )
    expected = np.full(1200, 0xEE, np.uint8)
    for lane, start in enumerate(starts.tolist()):
        if mask >> lane & 1:
            to = 32 + 8 + step * lane
            expected[to : to + max(4, size)] = 0
            expected[to : to + size] = contents[start + 8 :][:size]
    assert state.lds.view(np.uint8).tolist() == expected.tolist()


@pytest.mark.parametrize(
    ("target", "load", "place"),
    [
        ("gfx942", "global_load_lds_dword v0, s[0:1]", 0x102),
        ("gfx950", "global_load_lds_dword v0, s[0:1]", 0x10100),
        ("gfx950", "global_load_lds_dwordx4 v0, s[0:1]", 0x10100),
        ("gfx950", "buffer_load_dword v0, s[0:3], 0 offen lds", 0x10102),
    ],
)
def test_m0_reaches_all_of_lds(target: str, load: str, place: int) -> None:
    """M0 has 18 bits for LDS of 160 KiB; for buffers, even the lowest ones count (CDNA4's document)."""
    memory = AllocationTable()
    data = memory.allocate(2048)
    data.view()[:] = 0xAB
    sgprs = {**pair(data.address), 2: 2048, 3: 1 << 15}
    size = 160 << 10 if target == "gfx950" else 64 << 10
    state = run_assembly(target, f"s_mov_b32 m0, 0x10102\n{load}", {0: 0}, sgprs, exec=1, lds=size, memory=memory)
    assert int(np.flatnonzero(state.lds.view(np.uint8))[0]) == place


# Scalar accesses ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["gfx906", "gfx90a", "gfx942", "gfx1010"])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_scalar_scratch_counts_64_bytes_in_a_register(target: str, count: int) -> None:
    """An SGPR's offset does, an immediate one does not (CDNA4's document, 8.2.1.1)."""
    memory = AllocationTable()
    data = memory.allocate(4096)
    words = data.view().view(np.uint32)
    words[:] = RNG.integers(0, 1 << 32, 1024, np.uint32)
    before = words.copy()
    name = "dword" if count == 1 else f"dwordx{count}"
    from_register, immediate, stored = (f"s{at}" if count == 1 else f"s[{at}:{at + count - 1}]" for at in (8, 12, 8))
    source = f"""
      s_scratch_load_{name} {from_register}, s[0:1], s2
      s_scratch_load_{name} {immediate}, s[0:1], 0x1c
      s_waitcnt lgkmcnt(0)
      s_scratch_store_{name} {stored}, s[0:1], m0
      s_scratch_store_{name} {immediate}, s[0:1], 0x44
    """
    state = run_assembly(target, f"s_mov_b32 m0, 40\n{source}", None, {**pair(data.address), 2: 33}, memory=memory)
    assert [state.sgpr(8 + index) for index in range(count)] == before[33 * 16 :][:count].tolist()
    assert [state.sgpr(12 + index) for index in range(count)] == before[7 : 7 + count].tolist()
    expected = before.copy()
    expected[40 * 16 :][:count] = before[33 * 16 :][:count]
    expected[17 : 17 + count] = before[7 : 7 + count]
    np.testing.assert_array_equal(words, expected)


def with_immediate(target: str, source: str, bits: int, value: int) -> bytes:
    """An instruction with an immediate offset that assemblers refuse."""
    code = bytearray(assemble(Isa.of(target), source))
    word = int.from_bytes(code[4:8], "little") & -1 << bits | value & (1 << bits) - 1
    code[4:8] = word.to_bytes(4, "little")
    return bytes(code)


@pytest.mark.parametrize("target", ["gfx906", "gfx942", "gfx1010", "gfx1030", "gfx1100"])
@pytest.mark.parametrize("offset", [-16, -8, -4, 0, 8, 12, 16])
def test_scalar_accesses_of_a_buffer_begin_in_it(target: str, offset: int) -> None:
    """Each dword is checked separately: of 18 bytes, the fifth dword is in bounds (RDNA4's document, 8.4.1)."""
    memory = AllocationTable()
    data = memory.allocate(256)
    words = data.view().view(np.uint32)
    words[:] = np.arange(100, 164)
    before = words.copy()
    sgprs = {**pair(data.address + 64), 2: 18, 3: 0x20000, 8: 7, 9: 8}
    load, store = "s_buffer_load_{} s[4:5], s[0:3], 0x0", "s_buffer_store_{} s[8:9], s[0:3], 0x0"
    wide = "b64" if target == "gfx1100" else "dwordx2"
    code = with_immediate(target, load.format(wide), 21, offset)
    state = run_assembly(target, code, None, sgprs, memory=memory)
    places = [place if 0 <= place < 18 else -1 for place in (offset, offset + 4)]
    assert [state.sgpr(4), state.sgpr(5)] == [int(before[16 + place // 4]) if place >= 0 else 0 for place in places]
    if target in ("gfx1030", "gfx1100"):
        return
    expected = before.copy()
    for place, value in zip(places, (7, 8), strict=True):
        if place >= 0:
            expected[16 + place // 4] = value
    run_assembly(target, with_immediate(target, store.format(wide), 21, offset), None, sgprs, memory=memory)
    np.testing.assert_array_equal(words, expected)
    before = words.copy()
    add = with_immediate(target, "s_buffer_atomic_add_x2 s[8:9], s[0:3], 0x0", 21, offset // 8 * 8)
    run_assembly(target, add, None, sgprs, memory=memory)
    changed = np.flatnonzero(words != before).tolist()
    assert all(16 <= at < 20 for at in changed)
    assert bool(changed) == (0 <= offset // 8 * 8 < 16)


@pytest.mark.parametrize("target", ["gfx1201", "gfx1250"])
@pytest.mark.parametrize("place", [0, 1, 2, 3, 5, 7, 8])
def test_small_scalar_loads(target: str, place: int) -> None:
    """Half-words are aligned; what begins in the buffer is loaded (RDNA4's document, 8.4.1)."""
    memory = AllocationTable()
    data = memory.allocate(64)
    data.view()[:] = contents = RNG.integers(0, 256, 64, np.uint8)
    source = f"""
      s_buffer_load_u8 s8, s[0:3], {place}
      s_buffer_load_i8 s9, s[0:3], {place}
      s_buffer_load_u16 s10, s[0:3], {place}
      s_buffer_load_i16 s11, s[0:3], {place}
    """
    records = {1: data.address >> 32 | 8 << 25, 2: 0, 3: 0} if target == "gfx1250" else {2: 8, 3: 0x20000}
    state = run_assembly(target, source, None, {**pair(data.address), **records}, memory=memory)
    half = contents[place & ~1 :][:2].tobytes()
    numbers = [
        *(int.from_bytes(contents[place : place + 1].tobytes(), "little", signed=signed) for signed in (False, True)),
        *(int.from_bytes(half, "little", signed=signed) for signed in (False, True)),
    ]
    expected = [number & 0xFFFFFFFF if place < 8 else 0 for number in numbers]
    assert [state.sgpr(8 + index) for index in range(4)] == expected


@pytest.mark.parametrize(
    "source",
    [
        "s_atomic_add_x2 s[8:9], s[0:1], 0x4",
        "s_atomic_cmpswap_x2 s[8:11], s[0:1], 0x4",
        "s_buffer_atomic_add_x2 s[8:9], s[0:3], 0x4",
        *("ds_append v4 offset:1", "ds_consume v4 offset:2"),
    ],
)
def test_misaligned_atomics(source: str) -> None:
    memory = AllocationTable()
    data = memory.allocate(64)
    sgprs = {**pair(data.address), 2: 64, 3: 0x20000}
    with pytest.raises(EmulationError, match="misaligned for an atomic operation"):
        run_assembly("gfx906", f"s_mov_b32 m0, 4\n{source}", None, sgprs, lds=64, memory=memory)


@pytest.mark.parametrize("size", [16, 0x100, 0x104])
def test_scalar_atomics_stay_in_their_buffer(size: int) -> None:
    memory = AllocationTable()
    data = memory.allocate(512)
    words = data.view().view(np.uint32)
    words[:] = 5
    source = "s_mov_b32 s8, 7\ns_buffer_atomic_add s8, s[0:3], 0x100 glc\ns_waitcnt 0"
    state = run_assembly("gfx906", source, None, {**pair(data.address), 2: size, 3: 0x20000}, memory=memory)
    inside = size >= 0x104
    assert words.tolist() == [12 if inside and at == 64 else 5 for at in range(128)]
    assert state.sgpr(8) == (5 if inside else 0)


@pytest.mark.parametrize("target", ["gfx906", "gfx942"])
def test_buffers_of_private_memory_have_no_bounds(target: str) -> None:
    """With lanes added and no index (CDNA4's document, 9.1.5.1)."""
    memory = AllocationTable()
    data = memory.allocate(1024)
    data.view().view(np.uint32)[:] = np.arange(256)
    descriptor = {0: data.address & 0xFFFFFFFF, 1: data.address >> 32 | 4 << 16, 2: 0, 3: 1 << 23}
    source = "buffer_load_dword v1, off, s[0:3], 0\nbuffer_load_dword v2, v0, s[0:3], 0 idxen\ns_waitcnt 0"
    state = run_assembly(target, source, {0: 0}, descriptor, memory=memory)
    assert state.vgpr(1).tolist() == LANES.tolist()
    assert state.vgpr(2).tolist() == [0] * 64


BUFFERS = ("gfx906", "gfx90a", "gfx942", "gfx950", "gfx1010", "gfx1030", "gfx1100", "gfx1201")


def buffer_load(target: str, operands: str) -> str:
    return f"buffer_load_{'b32' if target.startswith(('gfx11', 'gfx12')) else 'dword'} v4, {operands}"


@pytest.mark.parametrize("target", BUFFERS)
@pytest.mark.parametrize(("stride", "scalar", "offset"), [(4, 0, 8), (4, 256, 0), (16, 256, 4), (20, 64, 4)])
def test_buffers_that_add_lanes(target: str, stride: int, scalar: int, offset: int) -> None:
    """base + SGPR + offset + stride * lane (RDNA4's document, 9.4.1.3); the format has bits of GFX9's strides alone."""
    old = target.startswith("gfx9")
    memory = AllocationTable()
    data = memory.allocate(0x8000 * 4 + 0x4000 if old else 0x4000)
    words = data.view().view(np.uint32)
    words[:] = RNG.integers(0, 1 << 32, len(words), np.uint32)
    for number in (0, 1) if old else (0, 1, 22):
        word3 = 1 << 23 | (number << 15 if old else number << 12 | 2 << 28)
        reach = 3 if number and old else 64
        descriptor = {**pair(data.address), 2: 1 << 20, 3: word3, 8: scalar}
        descriptor[1] |= stride << 16
        source = buffer_load(target, f"off, s[0:3], s8 offset:{offset}")
        state = run_assembly(target, source, None, descriptor, exec=(1 << reach) - 1 & 0xFFFFFFFF, memory=memory)
        lanes = min(reach, 32)
        whole = stride + (number << 14 if old else 0)
        expected = [int(words[(scalar + offset + whole * lane) // 4]) for lane in range(lanes)]
        assert state.vgpr(4)[:lanes].tolist() == expected


@pytest.mark.parametrize("target", BUFFERS)
def test_scalar_offsets_and_bounds_of_raw_buffers(target: str) -> None:
    """They count (RDNA4's document, 9.4.1; for GFX9, pull request 10928 of ROCm/rocm-systems, measured on gfx950). Only
    GFX10 loads a dword that begins inside and ends outside.
    """
    memory = AllocationTable()
    data = memory.allocate(4096)
    data.view().view(np.uint32)[:] = np.arange(1024) + 1
    lanes = np.arange(64 if target.startswith("gfx9") else 32, dtype=np.uint32)
    for records, scalar, offset in ((64, 48, 0), (64, 64, 4), (60, 4, 8), (100, 0, 12), (62, 4, 0)):
        word3 = 0x27000 if target.startswith("gfx9") else 0x27000 | 3 << 28
        descriptor = {**pair(data.address), 2: records, 3: word3, 8: scalar}
        source = buffer_load(target, f"v0, s[0:3], s8 offen offset:{offset}")
        state = run_assembly(target, source, {0: lanes * 4}, descriptor, memory=memory)
        limit = records - scalar + (3 if target.startswith("gfx10") else 0)
        places = [offset + 4 * int(lane) for lane in lanes]
        expected = [(scalar + place) // 4 + 1 if place + 4 <= limit else 0 for place in places]
        assert state.vgpr(4).tolist() == expected


@pytest.mark.parametrize("target", BUFFERS)
@pytest.mark.parametrize("kind", ["bound", "without a format", "of an image"])
def test_what_is_no_buffer(target: str, kind: str) -> None:
    """Without a format nothing is bound: 0 is loaded, and nothing stored. From GFX11 on (RDNA3.5's document, 9.6)
    instructions do nothing where the type is another one."""
    newest = target.startswith(("gfx11", "gfx12"))
    if kind == "of an image" and not newest:
        return
    memory = AllocationTable()
    data = memory.allocate(4096)
    words = data.view().view(np.uint32)
    words[:] = 9
    word3 = {"bound": 0x27000, "without a format": 0xFFF, "of an image": 0x27000 | 2 << 30}[kind]
    word3 |= 0 if target.startswith("gfx9") else 3 << 28
    suffix = "b32" if newest else "dword"
    add = "add_u32" if newest else "add"
    returns = {"gfx942": "sc0", "gfx950": "sc0", "gfx1201": "th:TH_ATOMIC_RETURN"}.get(target, "glc")
    where = f"s[0:3], {'null' if target == 'gfx1201' else '0'}"
    source = f"""
      buffer_load_{suffix} v4, off, {where} offset:16
      buffer_load_{"u8" if newest else "ubyte"} v5, off, {where} offset:16
      buffer_store_{suffix} v6, off, {where} offset:32
      buffer_atomic_{add} v7, off, {where} offset:48 {returns}
    """
    given = dict.fromkeys((4, 5, 6, 7), 3)
    state = run_assembly(target, source, given, {**pair(data.address), 2: 4096, 3: word3}, exec=1, memory=memory)
    actual = [int(state.vgpr(register)[0]) for register in (4, 5, 7)]
    assert actual == {"bound": [9, 9, 9], "without a format": [0, 0, 0], "of an image": [3, 3, 3]}[kind]
    expected = np.full(1024, 9)
    if kind == "bound":
        expected[8], expected[12] = 3, 12
    np.testing.assert_array_equal(words, expected)


@pytest.mark.parametrize("target", ["gfx1100", "gfx1151", "gfx1201"])
def test_a_reserved_element_size_is_refused(target: str) -> None:
    memory = AllocationTable()
    data = memory.allocate(4096)
    source = buffer_load(target, f"v0, s[0:3], {'null' if target == 'gfx1201' else '0'} idxen")
    for mode in range(4):
        descriptor = {**pair(data.address), 2: 64, 3: 1 << 28 | 0x27000}
        descriptor[1] |= 16 << 16 | mode << 30
        if mode == 2:
            with pytest.raises(EmulationError, match="SWIZZLE_ENABLE is 2"):
                run_assembly(target, source, {0: LANES[:32]}, descriptor, memory=memory)
        else:
            run_assembly(target, source, {0: LANES[:32]}, descriptor, memory=memory)


@pytest.mark.parametrize(
    ("target", "name"), [("gfx1030", "dword_addtid"), ("gfx1100", "addtid_b32"), ("gfx1201", "addtid_b32")]
)
def test_lanes_that_add_their_number(target: str, name: str) -> None:
    memory = AllocationTable()
    place = memory.allocate(512)
    contents = RNG.integers(0, 1 << 32, 128, np.uint32)
    place.view().view(np.uint32)[:] = contents
    source = f"global_load_{name} v1, s[0:1] offset:8\nglobal_store_{name} v2, s[0:1] offset:256"
    given = {1: 7, 2: LANES[:32] + 100}
    state = run_assembly(target, source, given, pair(place.address), exec=0x7FFFFFFE, memory=memory)
    assert state.vgpr(1).tolist() == [7, *contents[3:33].tolist(), 7]
    contents[65:95] = np.arange(101, 131)
    assert place.view().view(np.uint32).tolist() == contents.tolist()


@pytest.mark.parametrize("target", ["gfx1030", "gfx1100", "gfx1201"])
def test_modes_set_at_once(target: str) -> None:
    source = "s_round_mode 0x6\ns_denorm_mode 0x5\ns_getreg_b32 s4, hwreg(HW_REG_MODE, 0, 8)\nv_add_f32 v2, v0, v1"
    numbers = {0: np.full(32, 1, np.float32).view(np.uint32), 1: np.full(32, -(2.0**-40), np.float32).view(np.uint32)}
    state = run_assembly(target, source, numbers)
    assert state.sgpr(4) == 0x56
    assert set(state.vgpr(2).tolist()) == {0x3F7FFFFF}  # downwards


# Exchanging loads (GFX12) --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["gfx1200", "gfx1201"])
@pytest.mark.parametrize("bits", [16, 8])
def test_transposing_loads(target: str, bits: int) -> None:
    """The index formulas as the two measurements on hardware state them: received element from flat position."""
    memory = AllocationTable()
    place = memory.allocate(1024)
    contents = RNG.integers(0, 256, 1024, np.uint8)
    place.view()[:] = contents
    kind = np.uint16 if bits == 16 else np.uint8
    starts = RNG.permutation(32).astype(np.uint32) * (bits // 8 * 8)
    dwords = bits // 4
    source = f"global_load_tr_b{32 * dwords} v[4:{3 + dwords}], v0, s[0:1] offset:16"
    state = run_assembly(target, source, {0: starts}, pair(place.address), memory=memory)
    rows = [contents[16 + int(start) :][:bits].view(kind)[:8] for start in starts]
    flat = np.concatenate(rows)  # lane after lane
    actual = np.stack([state.vgpr(4 + i) for i in range(dwords)], axis=1).astype(np.uint32)
    for lane in range(32):
        received = np.ascontiguousarray(actual[lane]).view(kind)
        for number in range(8):
            if bits == 16:
                position = 8 * (8 * (lane // 8) + number) + lane % 8
            else:
                base = (lane & 7) + (lane >> 3 & 1) * 32 + (lane >> 4 & 1) * 128
                position = base + (number & 3) * 8 + (number >> 2 & 1) * 64
            assert received[number] == flat[position], (lane, number)


def test_transposing_loads_need_all_lanes_of_wave32() -> None:
    memory = AllocationTable()
    place = memory.allocate(1024)
    source = "global_load_tr_b64 v[4:5], v0, s[0:1]"
    with pytest.raises(EmulationError, match="some lanes off"):
        run_assembly("gfx1201", source, {0: 0}, pair(place.address), exec=1, memory=memory)
    assert run_assembly("gfx1201", source, {0: 0}, pair(place.address), exec=0, memory=memory).counts[0] == 1
    with pytest.raises(EmulationError, match="wave64"):
        run_assembly("gfx1201", "global_load_tr_b64 v4, v0, s[0:1]", {0: 0}, pair(place.address), wave_size=64)


@pytest.mark.parametrize("wave_size", [32, 64])
@pytest.mark.parametrize("blocks", [0, 1, 0x80000001, 0xFFFFFFFF, 0x00F0F00F])
@pytest.mark.parametrize("space", ["global", "scratch"])
def test_blocks_of_registers(wave_size: int, blocks: int, space: str) -> None:
    memory = AllocationTable()
    place = memory.allocate(160 * wave_size + 512)
    place.view()[:] = RNG.integers(0, 256, place.size, np.uint8)
    before = place.view().view(np.uint32).copy()
    mask = 0xF00FF00F0000FFF0 & ((1 << wave_size) - 1)
    offsets = np.arange(wave_size, dtype=np.uint32) * 160
    where = "v0, s[0:1]" if space == "global" else "v2, off"
    if space == "global":
        source = f"global_load_block v[4:35], {where} offset:8\nglobal_store_block v1, v[40:71], s[0:1] offset:4"
    else:
        source = f"scratch_store_block {where.replace(', off', '')}, v[40:71], off offset:8\n"
        source += f"scratch_load_block v[4:35], {where} offset:8"
    values = RNG.integers(1, 1 << 32, (32, wave_size), np.uint32)
    vgprs: dict[int, object] = {0: offsets, 1: offsets, 2: 16} | {40 + i: values[i] for i in range(32)}
    vgprs |= {4 + i: 0xDEAD0000 + i for i in range(32)}
    state = run_assembly(
        "gfx1201",
        source,
        vgprs,  # type: ignore[arg-type]
        {**pair(place.address), 124: blocks},
        exec=mask,
        wave_size=wave_size,
        scratch=160,
        memory=memory,
    )
    after = place.view().view(np.uint32)
    expected = before.copy()
    for lane in range(wave_size):
        on = mask >> lane & 1
        for index in range(32):
            chosen = on and blocks >> index & 1
            loaded = int(before[lane * 40 + 2 + index]) if space == "global" else int(values[index, lane])
            assert int(state.vgpr(4 + index)[lane]) == (loaded if chosen else 0xDEAD0000 + index)
            if chosen and space == "global":
                expected[lane * 40 + 1 + index] = values[index, lane]
    assert np.array_equal(after, expected)


def test_holes_of_a_block_are_not_touched() -> None:
    memory = AllocationTable()
    place = memory.allocate(16)
    source = "global_load_block v[4:35], v0, s[0:1]"
    run_assembly("gfx1201", source, {0: 0}, {**pair(place.address), 124: 0b1001}, exec=1, memory=memory)
    with pytest.raises(EmulationError, match="4 bytes at address"):
        run_assembly("gfx1201", source, {0: 0}, {**pair(place.address), 124: 0b10001}, exec=1, memory=memory)
