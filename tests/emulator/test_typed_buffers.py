"""Typed buffer access of every generation, every format, against formats read and written with Python's numbers."""

from __future__ import annotations

import functools
import math
import re
import struct
import subprocess
from fractions import Fraction
from pathlib import Path

import luthier
import numpy as np
import pytest
from bit_patterns import signed
from luthier.emulator.inspection.bench import WaveState, run_assembly
from luthier.emulator.running.memory import AllocationTable, DeviceAllocation
from luthier.errors import EmulationError

from luthier_build.toolchain import Toolchain

RNG = np.random.default_rng(11)
TARGETS = ("gfx906", "gfx942", "gfx1030", "gfx1100", "gfx1201")
IDENTITY = 4 | 5 << 3 | 6 << 6 | 7 << 9
LETTERS = "xyzw"


def lanes_of(target: str) -> int:
    return 64 if target.startswith("gfx9") else 32


def spelled(target: str, verb: str, letters: str, half: str = "", typed: bool = False) -> str:
    new = not target.startswith(("gfx9", "gfx10"))
    middle = f"{half}_format" if half and new else f"format_{half}" if half else "format"
    return f"{'t' if typed else ''}buffer_{verb}_{middle}_{letters}"


def no_offset(target: str) -> str:
    return "null" if target.startswith("gfx12") else "0"


@functools.cache
def formats(target: str) -> dict[int, tuple[tuple[int, ...], str]]:
    """By number: bits of the components, X first, and the numeric format. As LLVM prints them."""
    source = "\n".join(
        f"tbuffer_load_format_x v0, off, s[0:3], {no_offset(target)} format:{number}" for number in range(128)
    )
    command = ["llvm-mc-22", "-triple=amdgcn", f"-mcpu={target}"]
    text = subprocess.run(command, input=source, capture_output=True, text=True, check=True).stdout
    lines = [line for line in text.splitlines() if "tbuffer" in line]
    assert len(lines) == 128
    known = {}
    for number, line in enumerate(lines):
        match = re.search(r"format:\[(.*?)\]", line)
        name = match[1] if match else "" if "format:" not in line else None
        if name is None or re.search("INVALID|RESERVED", name):
            continue
        if target.startswith("gfx9"):
            data = re.search(r"BUF_DATA_FORMAT_(\w+)", name)
            numeric = re.search(r"BUF_NUM_FORMAT_(\w+)", name)
            bits, kind = data[1] if data else "8", numeric[1] if numeric else "UNORM"
            # LLVM prints any pair. Valid are those that GFX10 numbers.
            if (bits, kind) not in {("_".join(map(str, w[::-1])), k) for w, k in formats("gfx1030").values()}:
                continue
        else:
            bits, kind = (name.removeprefix("BUF_FMT_") or "8_UNORM").rsplit("_", 1)
        known[number] = tuple(int(width) for width in reversed(bits.split("_"))), kind
    return known


def word3(target: str, number: int, selection: int = IDENTITY) -> int:
    if target.startswith("gfx9"):
        return selection | (number >> 4) << 12 | (number & 15) << 15
    # Structured out-of-bounds check, OOB_SELECT 1: by the index alone.
    return selection | number << 12 | 1 << 28


# The oracle ----------------------------------------------------------------------------------------------------------


def bits_of(number: float) -> int:
    return int.from_bytes(struct.pack("<f", number), "little")


def float_of(bits: int) -> float:
    return float(struct.unpack("<f", struct.pack("<I", bits))[0])


def small_float(code: int, width: int) -> float:
    """A float of 10, 11 or 16 bits."""
    fraction = 10 if width == 16 else width - 5
    exponent, rest = code >> fraction & 31, code & (1 << fraction) - 1
    sign = -1.0 if width == 16 and code >> 15 else 1.0
    if exponent == 31:
        return math.nan if rest else sign * math.inf
    if exponent == 0:
        return sign * math.ldexp(rest, -14 - fraction)
    return sign * math.ldexp(rest | 1 << fraction, exponent - 15 - fraction)


def components(data: bytes, widths: tuple[int, ...]) -> list[int]:
    whole = int.from_bytes(data, "little")
    values = []
    for width in widths:
        values.append(whole & (1 << width) - 1)
        whole >>= width
    return values


def number_in(code: int, width: int, kind: str) -> Fraction | int | float:
    """Return the number that a component encodes."""
    if kind in ("SNORM", "SSCALED", "SINT"):
        whole = signed(code, width)
        return max(Fraction(whole, (1 << (width - 1)) - 1), Fraction(-1)) if kind == "SNORM" else whole
    if kind == "UNORM":
        return Fraction(code, (1 << width) - 1)
    if kind == "FLOAT":
        return float_of(code) if width == 32 else small_float(code, width)
    return code


def loaded(code: int, width: int, kind: str, half: bool) -> int:
    """Return a component as register bits."""
    number = number_in(code, width, kind)
    if kind in ("UINT", "SINT"):
        return int(number) & (0xFFFF if half else 0xFFFFFFFF)
    if kind == "FLOAT" and width == (16 if half else 32):
        return code
    if not half:
        return bits_of(float(number))
    with np.errstate(over="ignore"):
        result = np.float16(float(number))
    if kind == "FLOAT" and width == 32 and math.isfinite(float(number)) and abs(float(result)) > abs(float(number)):
        result = np.float16(np.nextafter(result, np.float16(0)))  # truncation
    return int(result.view(np.uint16))


def clamped(number: float, low: int, high: int) -> Fraction:
    if math.isnan(number):
        return Fraction(0)
    return Fraction(low) if number < low else Fraction(high) if number > high else Fraction(number)


@functools.cache
def positive_codes(width: int) -> tuple[Fraction, ...]:
    """All numbers that a float without sign has, and the one where the next power would be."""
    codes = [Fraction(small_float(code, width)) for code in range(31 << (width - 5))]
    return (*codes, Fraction(1 << 16))


def stored(register: int, width: int, kind: str) -> int:
    """A register's 32 bits as a component."""
    full = (1 << width) - 1
    if kind == "UINT":
        return min(register, full)
    if kind == "SINT":
        return max(min(signed(register, 32), full >> 1), -(full >> 1) - 1) & full
    number = float_of(register)
    if kind == "UNORM":
        return round(clamped(number, 0, 1) * full)
    if kind == "SNORM":
        return round(clamped(number, -1, 1) * (full >> 1)) & full
    assert kind == "FLOAT"
    if width == 32:
        return register
    if width == 16:
        with np.errstate(over="ignore"):
            return int(np.float32(number).astype(np.float16).view(np.uint16))
    infinity = 31 << (width - 5)
    if math.isnan(number):
        return -1  # any NaN
    if number <= 0:
        return 0
    if math.isinf(number):
        return infinity
    table, wanted = positive_codes(width), Fraction(number)
    if wanted >= table[-1]:
        return infinity
    above = next(index for index, value in enumerate(table) if value > wanted)
    middle = (table[above] + table[above - 1]) / 2
    if wanted == middle:
        return above if above % 2 == 0 else above - 1
    return above if wanted > middle else above - 1


# Loads ---------------------------------------------------------------------------------------------------------------


def element_bytes(widths: tuple[int, ...]) -> int:
    return sum(widths) // 8


def filled(memory: AllocationTable, lanes: int) -> DeviceAllocation:
    """Random bits; the first lanes have edge values."""
    place = memory.allocate(16 * lanes)
    place.view()[:] = RNG.integers(0, 256, 16 * lanes, np.uint8)
    words = place.view().view(np.uint32)
    words[:8] = [0, 0xFFFFFFFF, 0x80000000, 0x7FFFFFFF, 0x80008000, 0x7C007C00, 0xFC01FE00, 0x7FC00001]
    words[8:16] = [0x3F800000, 0x00000001, 0x477FE000, 0x477FFFFF, 0xC77FF000, 0x33000001, 0x7F800000, 0xFF800000]
    words[16:24] = [0x81818181, 0x7F7F7F7F, 0x80808080, 0x001FFC00, 0xFFE003FF, 0x80100200, 0x40100401, 0xC0000000]
    return place


def run_chunk(
    target: str,
    lines: list[str],
    place: DeviceAllocation,
    memory: AllocationTable,
    vgprs: dict[int, object] | None = None,
) -> WaveState:
    lanes = lanes_of(target)
    sgprs = {0: place.address & 0xFFFFFFFF, 1: place.address >> 32, 2: lanes, 3: 0}
    given = {0: np.arange(lanes, dtype=np.uint32), **(vgprs or {})}
    return run_assembly(target, "\n".join(lines), given, sgprs, memory=memory)


def describe(target: str, place: DeviceAllocation, number: int, *, typed: bool = False) -> list[str]:
    """Make s[0:3] a descriptor; one without format if it is not needed."""
    widths, _ = formats(target)[number]
    word = word3(target, 0, 0) if typed else word3(target, number, IDENTITY & (1 << 3 * len(widths)) - 1)
    high = place.address >> 32 | element_bytes(widths) << 16
    return [f"s_mov_b32 s1, {high:#x}", f"s_mov_b32 s3, {word:#x}"]


@pytest.mark.rows(3)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("half", ["", "d16"])
@pytest.mark.parametrize("typed", [False, True], ids=["mubuf", "mtbuf"])
def test_loads_convert_every_format(target: str, half: str, typed: bool) -> None:
    lanes = lanes_of(target)
    memory = AllocationTable()
    place = filled(memory, lanes)
    contents = place.view().tobytes()
    table = [
        (number, widths, kind)
        for number, (widths, kind) in formats(target).items()
        if not half or kind not in ("UINT", "SINT") or widths[0] != 32
    ]
    registers = 2 if half else 4
    step = 240 // registers
    for start in range(0, len(table), step):
        chunk = table[start : start + step]
        lines = []
        for index, (number, _, _) in enumerate(chunk):
            lines += describe(target, place, number, typed=typed)
            first = 4 + registers * index
            lines.append(
                f"{spelled(target, 'load', LETTERS, half, typed)} v[{first}:{first + registers - 1}], v0, s[0:3], "
                f"{no_offset(target)} {f'format:{number} ' if typed else ''}idxen"
            )
        state = run_chunk(target, lines, place, memory)
        for index, (number, widths, kind) in enumerate(chunk):
            size = element_bytes(widths)
            actual = state.vgpr(4 + registers * index, registers).reshape(registers, lanes)
            for lane in range(lanes):
                codes = components(contents[size * lane : size * (lane + 1)], widths)
                want = [loaded(code, width, kind, bool(half)) for code, width in zip(codes, widths, strict=True)]
                want += [0] * (4 - len(want))
                got = actual[:, lane].tolist()
                if half:
                    got = [got[i // 2] >> 16 * (i % 2) & 0xFFFF for i in range(4)]
                compare(got, want, kind, (number, widths, kind, lane), half)


def compare(got: list[int], want: list[int], kind: str, where: object, half: str) -> None:
    for have, wish in zip(got, want, strict=True):
        if kind == "FLOAT" and half and wish & 0x7FFF > 0x7C00:
            assert have & 0x7FFF > 0x7C00, where
        elif kind == "FLOAT" and not half and wish & 0x7FFFFFFF > 0x7F800000:
            assert have & 0x7FFFFFFF > 0x7F800000, where
        else:
            assert have == wish, where


@pytest.mark.parametrize("target", TARGETS)
def test_components_and_constants_are_selected(target: str) -> None:
    memory = AllocationTable()
    lanes = lanes_of(target)
    place = filled(memory, lanes)
    contents = place.view().tobytes()
    numbers = {value: key for key, value in formats(target).items()}
    for kind, unit in (("UINT", 1), ("UNORM", 0x3F800000), ("SNORM", 0x3F800000)):
        widths = (8, 8, 8, 8)
        # X from A, Y the constant 1, Z from R, W the constant 0; three lanes are out of bounds.
        selection = 7 | 1 << 3 | 4 << 6 | 0 << 9
        lines = [
            f"s_mov_b32 s1, {place.address >> 32 | 4 << 16:#x}",
            f"s_mov_b32 s2, {lanes - 3}",
            f"s_mov_b32 s3, {word3(target, numbers[widths, kind], selection):#x}",
            f"{spelled(target, 'load', LETTERS)} v[4:7], v0, s[0:3], {no_offset(target)} idxen",
            f"{spelled(target, 'load', 'xy', 'd16')} v8, v0, s[0:3], {no_offset(target)} idxen",
        ]
        state = run_chunk(target, lines, place, memory)
        for lane in range(lanes):
            codes = components(contents[4 * lane : 4 * lane + 4], widths) if lane < lanes - 3 else None
            first, third = (loaded(codes[i], 8, kind, False) if codes else 0 for i in (3, 0))
            assert [int(state.vgpr(4 + i)[lane]) for i in range(4)] == [first, unit, third, 0]
            low = loaded(codes[3], 8, kind, True) if codes else 0
            assert int(state.vgpr(8)[lane]) == low | (1 if kind == "UINT" else 0x3C00) << 16


@pytest.mark.rows(3)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("count", [1, 2, 3])
def test_fewer_components(target: str, count: int) -> None:
    """The first components of an element; what a 16-bit load leaves of a register."""
    memory = AllocationTable()
    lanes = lanes_of(target)
    place = filled(memory, lanes)
    contents = place.view().tobytes()
    number = {value: key for key, value in formats(target).items()}[(16, 16, 16, 16), "SINT"]
    where = f"v0, s[0:3], {no_offset(target)} idxen"
    wide, narrow = (
        f"v{first}" if size == 1 else f"v[{first}:{first + size - 1}]"
        for first, size in ((4, count), (8, (count + 1) // 2))
    )
    lines = [
        *describe(target, place, number),
        f"{spelled(target, 'load', LETTERS[:count])} {wide}, {where}",
        f"{spelled(target, 'load', LETTERS[:count], 'd16')} {narrow}, {where}",
        f"{spelled(target, 'load', 'x', 'd16_hi')} v12, {where}",
    ]
    state = run_chunk(target, lines, place, memory, dict.fromkeys(range(4, 16), 0xABCD1234))
    clears = target.startswith("gfx9")  # SRAMECC
    for lane in range(lanes):
        codes = components(contents[8 * lane : 8 * lane + 8], (16,) * 4)
        want = [loaded(code, 16, "SINT", False) for code in codes[:count]] + [0xABCD1234] * (4 - count)
        assert [int(state.vgpr(4 + i)[lane]) for i in range(4)] == want
        kept_high, kept_low = (0, 0) if clears else (0xABCD0000, 0x1234)
        low = codes[0] | (codes[1] << 16 if count > 1 else kept_high)
        high = codes[2] | kept_high if count > 2 else 0xABCD1234
        assert [int(state.vgpr(8 + i)[lane]) for i in range(2)] == [low, high]
        assert int(state.vgpr(12)[lane]) == codes[0] << 16 | kept_low


# Stores --------------------------------------------------------------------------------------------------------------

EDGES = np.array(
    [
        *(0, 0x80000000, 0x3F800000, 0xBF800000, 0x3F000000, 0x3F7FFFFF, 0x3F800001, 0x40000000, 0x7F800000),
        *(0xFF800000, 0x7FC00000, 1, 0x477FE000, 0x477FF000, 0x477FEFFF, 0x33000000, 0x33000001, 0x387FC000),
        *(0x3B008081, 0x3AFFFFFF, 0x7FFFFFFF, 127, 128, 255, 256, 0xFFFFFF80, 0xFFFFFF7F, 32767, 32768, 0x3F00FFFF),
        *(0x477E0000, 0x477F0000),
    ],
    np.uint32,
)


def register_values(lanes: int) -> np.ndarray:
    """Four registers: edge values, and floats near what the formats hold."""
    values = RNG.integers(0, 1 << 32, (4, lanes), np.uint32)
    near = (RNG.uniform(-1.5, 1.5, (4, lanes)) * 2.0 ** RNG.integers(-20, 3, (4, lanes))).astype(np.float32)
    values[:, 16:] = near.view(np.uint32)[:, 16:]
    for register in range(4):
        values[register, :32] = RNG.permutation(EDGES)[:32]
    return values


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("half", ["", "d16"])
@pytest.mark.parametrize("typed", [False, True], ids=["mubuf", "mtbuf"])
def test_stores_convert_every_format(target: str, half: str, typed: bool) -> None:
    lanes = lanes_of(target)
    memory = AllocationTable()
    table = [(number, *form) for number, form in formats(target).items() if "SCALED" not in form[1]]
    values = register_values(lanes)
    if half:
        values &= np.uint32(0xFFFF)
        values[:, 8:20] = RNG.choice(
            np.array([0x3C00, 0xBC00, 0x7C00, 0x7E00, 0x7BFF, 1, 0x8001, 0x3BFF], np.uint32), 12
        )
    given: dict[int, object] = {4 + i: values[i] for i in range(4)}
    if half:
        given = {4: values[0] | values[1] << np.uint32(16), 5: values[2] | values[3] << np.uint32(16)}
    place = memory.allocate(16 * lanes * len(table))
    lines = []
    for index, (number, widths, _) in enumerate(table):
        base = place.address + 16 * lanes * index
        lines += [
            f"s_mov_b32 s0, {base & 0xFFFFFFFF:#x}",
            f"s_mov_b32 s1, {base >> 32 | element_bytes(widths) << 16:#x}",
            f"s_mov_b32 s3, {word3(target, 0 if typed else number):#x}",
            f"{spelled(target, 'store', LETTERS, half, typed)} v[4:{5 if half else 7}], v0, s[0:3], "
            f"{no_offset(target)} {f'format:{number} ' if typed else ''}idxen",
        ]
    run_chunk(target, lines, place, memory, given)
    contents = place.view().tobytes()
    for index, (number, widths, kind) in enumerate(table):
        size = element_bytes(widths)
        for lane in range(lanes):
            begin = 16 * lanes * index + size * lane
            codes = components(contents[begin : begin + size], widths)
            for component, (code, width) in enumerate(zip(codes, widths, strict=True)):
                register = int(values[component, lane])
                if half:
                    register = widened(register, kind)
                want = stored(register, width, kind)
                where = (number, widths, kind, lane, component, hex(register))
                if kind == "FLOAT" and math.isnan(float_of(register)):
                    assert math.isnan(number_in(code, width, kind)), where
                else:
                    assert code == want, where
        assert not any(contents[16 * lanes * index + size * lanes : 16 * lanes * (index + 1)])


def widened(register: int, kind: str) -> int:
    if kind == "SINT":
        return signed(register, 16) & 0xFFFFFFFF
    return register if kind == "UINT" else bits_of(small_float(register, 16))


@pytest.mark.rows(3)
@pytest.mark.parametrize("target", TARGETS)
def test_stores_of_fewer_components(target: str) -> None:
    """GFX12 repeats the first component, earlier generations store 0; B and R may be exchanged."""
    lanes = lanes_of(target)
    memory = AllocationTable()
    place = memory.allocate(4 * lanes)
    number = {value: key for key, value in formats(target).items()}[(8, 8, 8, 8), "UINT"]
    swapped = 6 | 5 << 3 | 4 << 6 | 7 << 9
    lines = [
        f"s_mov_b32 s1, {place.address >> 32 | 4 << 16:#x}",
        f"s_mov_b32 s2, {lanes - 1}",
        f"s_mov_b32 s3, {word3(target, number, swapped):#x}",
        f"{spelled(target, 'store', 'xy')} v[4:5], v0, s[0:3], {no_offset(target)} idxen",
    ]
    run_chunk(target, lines, place, memory, {4: 7, 5: 8})
    missing = 7 if target.startswith("gfx12") else 0
    assert place.view().tolist() == [missing, 8, 7, missing] * (lanes - 1) + [0] * 4


# Bounds and faults ---------------------------------------------------------------------------------------------------


@pytest.mark.rows(3)
@pytest.mark.parametrize(
    ("target", "first_byte_only"), [("gfx90a", False), ("gfx1030", True), ("gfx1100", False), ("gfx1201", False)]
)
def test_an_element_is_in_bounds_as_a_whole(target: str, first_byte_only: bool) -> None:
    """An element must end in a raw buffer; on GFX10 it only must begin there."""
    memory = AllocationTable()
    lanes = lanes_of(target)
    place = filled(memory, lanes)
    words = place.view().view(np.uint32)
    number = {value: key for key, value in formats(target).items()}[(32, 32, 32, 32), "UINT"]
    offsets = np.full(lanes, 32, np.uint32)
    offsets[1], offsets[2], offsets[3], offsets[4] = 36, 44, 48, 0x80000000
    state = run_assembly(
        target,
        f"{spelled(target, 'load', LETTERS)} v[4:7], v0, s[0:3], {no_offset(target)} offen",
        {0: offsets},
        {0: place.address & 0xFFFFFFFF, 1: place.address >> 32, 2: 48, 3: raw(target, number)},
        memory=memory,
    )
    actual = state.vgpr(4, 4)
    assert actual[:, 0].tolist() == words[8:12].tolist()
    for lane, start in ((1, 9), (2, 11)):
        assert actual[:, lane].tolist() == (words[start : start + 4].tolist() if first_byte_only else [0] * 4)
    assert not actual[:, 3:5].any()


def raw(target: str, number: int, selection: int = IDENTITY) -> int:
    """Word 3 with bounds in bytes."""
    return word3(target, number, selection) | (0 if target.startswith("gfx9") else 3 << 28)


def faulting(target: str, source: str, number: int, selection: int = IDENTITY, offset: int = 0) -> str:
    memory = AllocationTable()
    place = memory.allocate(1024)
    sgprs = {0: place.address & 0xFFFFFFFF, 1: place.address >> 32, 2: 1024, 3: raw(target, number, selection)}
    with pytest.raises(EmulationError) as problem:
        run_assembly(target, source, {0: offset}, sgprs, memory=memory)
    return str(problem.value)


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", TARGETS)
def test_what_has_no_meaning_is_a_fault(target: str) -> None:
    numbers = {value: key for key, value in formats(target).items()}
    tail = f"v[4:7], v0, s[0:3], {no_offset(target)} offen"
    load, store = (f"{spelled(target, verb, LETTERS)} {tail}" for verb in ("load", "store"))
    invalid = 15 if target.startswith("gfx9") else 0
    assert f"no data format {invalid};" in faulting(target, load, invalid)
    unknown = 4 | 1 << 4 if target.startswith("gfx9") else 100
    typed = (
        f"{spelled(target, 'load', LETTERS, typed=True)} v[4:7], v0, s[0:3], {no_offset(target)} format:{unknown} offen"
    )
    assert f"no data format {unknown};" in faulting(target, typed, 1)
    scaled = numbers[(8, 8, 8, 8), "USCALED"]
    assert f"data format {scaled} holds scaled integers" in faulting(target, store, scaled)
    pair = numbers[(16, 16), "UINT"]
    assert f"data format {pair} does not have" in faulting(target, load, pair)
    assert "DST_SEL" in faulting(target, store, pair, 4 | 4 << 3)
    assert "DST_SEL" in faulting(target, load, pair, 2)
    integer = numbers[(32,), "UINT"]
    narrowing = f"{spelled(target, 'load', 'x', 'd16')} v4, v0, s[0:3], {no_offset(target)} offen"
    assert f"data format {integer} become 16 bits" in faulting(target, narrowing, integer)
    assert "misaligned for the buffer's data format" in faulting(
        target, load, numbers[(32, 32, 32, 32), "UINT"], offset=2
    )
    # With no lane active nothing happens.
    assert run_assembly(target, load, {0: 0}, {3: word3(target, invalid)}, exec=0).counts[0] == 1


def test_loads_to_lds() -> None:
    memory = AllocationTable()
    place = filled(memory, 64)
    number = {value: key for key, value in formats("gfx942").items()}[(16,), "SINT"]
    source = "s_mov_b32 m0, 16\nbuffer_load_format_x v0, s[0:3], 0 idxen lds"
    sgprs = {0: place.address & 0xFFFFFFFF, 1: place.address >> 32 | 2 << 16, 2: 64, 3: word3("gfx942", number)}
    state = run_assembly("gfx942", source, {0: np.arange(64, dtype=np.uint32)}, sgprs, lds=512, memory=memory)
    assert state.lds[16:272].view(np.int32).tolist() == place.view().view(np.int16)[:64].tolist()


@pytest.mark.parametrize(("code", "factor"), [(0, 1), (1, 4), (2, 8), (3, 32)])
def test_gfx12_scales_the_stride(code: int, factor: int) -> None:
    memory = AllocationTable()
    place = memory.allocate(32 * 4 * 32 + 64)
    place.view()[:] = RNG.integers(0, 256, place.size, np.uint8)
    numbers = {value: key for key, value in formats("gfx1201").items()}
    word = word3("gfx1201", numbers[(32,), "UINT"], 4) | code << 18
    sgprs = {0: place.address & 0xFFFFFFFF, 1: place.address >> 32 | 4 << 16, 2: 32, 3: word}
    source = (
        "buffer_load_format_x v4, v0, s[0:3], null idxen offset:8\nbuffer_load_b32 v5, v0, s[0:3], null idxen offset:8"
    )
    state = run_assembly("gfx1201", source, {0: np.arange(32, dtype=np.uint32)}, sgprs, memory=memory)
    expected = place.view().view(np.uint32)[2::factor][:32].tolist()
    assert state.vgpr(4).tolist() == expected
    assert state.vgpr(5).tolist() == expected


def test_gfx12_swizzles_the_scalar_offset() -> None:
    """Records of 16 bytes in groups of eight, four bytes of each record after the other's (RDNA4's formula)."""
    memory = AllocationTable()
    place = memory.allocate(1024)
    place.view()[:] = RNG.integers(0, 256, place.size, np.uint8)
    words = place.view().view(np.uint32)
    sgprs = {
        0: place.address & 0xFFFFFFFF,
        1: place.address >> 32 | 16 << 16 | 1 << 30,
        2: 32,
        3: 1 << 28 | 0x27000,
        4: 4,
    }
    source = "buffer_load_b32 v4, v0, s[0:3], s4 idxen offset:4"
    state = run_assembly("gfx1201", source, {0: np.arange(32, dtype=np.uint32)}, sgprs, memory=memory)
    for lane in range(32):
        offset = 4 + 4
        place_of = (lane // 8 * 16 + offset // 4 * 4) * 8 + lane % 8 * 4 + offset % 4
        assert int(state.vgpr(4)[lane]) == int(words[place_of // 4])


KERNEL = """
declare i32 @llvm.amdgcn.workitem.id.x()
declare <4 x float> @llvm.amdgcn.struct.buffer.load.format.v4f32(<4 x i32>, i32, i32, i32, i32 immarg)
declare <4 x half> @llvm.amdgcn.struct.buffer.load.format.v4f16(<4 x i32>, i32, i32, i32, i32 immarg)
declare void @llvm.amdgcn.struct.buffer.store.format.v4f32(<4 x float>, <4 x i32>, i32, i32, i32, i32 immarg)
define amdgpu_kernel void @k(<4 x i32> %r, ptr addrspace(1) %wide, ptr addrspace(1) %narrow) {
  %lane = call i32 @llvm.amdgcn.workitem.id.x()
  %m = sub i32 127, %lane
  %x = call <4 x float> @llvm.amdgcn.struct.buffer.load.format.v4f32(<4 x i32> %r, i32 %lane, i32 0, i32 0, i32 0)
  %y = call <4 x half> @llvm.amdgcn.struct.buffer.load.format.v4f16(<4 x i32> %r, i32 %lane, i32 0, i32 0, i32 0)
  %z = fsub <4 x float> <float 1.0, float 1.0, float 1.0, float 1.0>, %x
  call void @llvm.amdgcn.struct.buffer.store.format.v4f32(<4 x float> %z, <4 x i32> %r, i32 %m, i32 0, i32 0, i32 0)
  %a = getelementptr <4 x float>, ptr addrspace(1) %wide, i32 %lane
  store <4 x float> %x, ptr addrspace(1) %a
  %b = getelementptr <4 x half>, ptr addrspace(1) %narrow, i32 %lane
  store <4 x half> %y, ptr addrspace(1) %b
  ret void
}
"""


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", ["gfx90a", "gfx1030", "gfx1100", "gfx1201"])
def test_compiled_kernel(target: str, tmp_path: Path) -> None:
    """LLVM's code for its format intrinsics, launched and checked for uninitialised reads."""
    (tmp_path / "k.ll").write_text(KERNEL)
    flags = ["-x", "ir", "--target=amdgcn-amd-amdhsa", f"-mcpu={target}", "-O2", "-nogpulib"]
    command = [Toolchain.find().clang, *flags, tmp_path / "k.ll", "-o", tmp_path / "k.hsaco"]
    subprocess.run([str(part) for part in command], check=True)
    device = luthier.open_device(f"emu:{target}", threads=1, check="init")
    kernel = device.load(tmp_path / "k.hsaco").kernel("k")
    data = RNG.integers(0, 256, (128, 4), np.uint8)
    buffer, wide, narrow = (device.allocate(size) for size in (512, 64 * 16, 64 * 8))
    buffer.write(data)
    number = {value: key for key, value in formats(target).items()}[(8, 8, 8, 8), "UNORM"]
    words = [buffer.address & 0xFFFFFFFF, buffer.address >> 32 | 4 << 16, 128, word3(target, number)]
    kernel.launch(np.array(words, np.uint32).tobytes(), wide, narrow, grid=1, block=64)
    values = data[:64].astype(np.float64) / 255
    assert np.array_equal(wide.read(np.float32).reshape(64, 4), values.astype(np.float32))
    assert np.array_equal(narrow.read(np.float16).reshape(64, 4), values.astype(np.float16))
    stored = buffer.read(np.uint8).reshape(128, 4)
    assert np.array_equal(stored[:64], data[:64])
    assert np.array_equal(stored[64:][::-1], 255 - data[:64])
    assert not device.findings
