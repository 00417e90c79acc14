"""Bits of MODE beyond rounding and denormals: FP16_OVFL, and those that are refused."""

from __future__ import annotations

import luthier
import numpy as np
import pytest
from assembly import assembled, function, kernel_text
from luthier.emulator.inspection.bench import DEFAULT_MODE, WaveState, run_assembly
from luthier.emulator.running.memory import AllocationTable
from luthier.errors import EmulationError

TARGETS = {"gfx906": 64, "gfx942": 64, "gfx1030": 32, "gfx1100": 32, "gfx1201": 32}
ON = "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 23, 1), 1\n"
OFF = "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 23, 1), 0\n"
LARGEST, INFINITY = 0x7BFF, 0x7C00
SINGLES = np.array(
    [65504, 65519.996, 65520, -65520, 1e6, -1e30, np.inf, -np.inf, np.nan, 1, 3e38, -65519.99], np.float32
)


def padded(values: np.ndarray, lanes: int) -> np.ndarray:
    return np.resize(values, lanes)


def low_half(state: WaveState, register: int) -> np.ndarray:
    return state.vgpr(register).astype(np.uint32).astype(np.uint16)


def saturated(halves: np.ndarray, finite: np.ndarray) -> np.ndarray:
    """Infinities from finite operands become the largest number."""
    infinite = (halves & 0x7FFF) == INFINITY
    return np.where(infinite & finite, halves - 1, halves)


def same(actual: np.ndarray, expected: np.ndarray) -> bool:
    nan = (expected & 0x7FFF) > INFINITY
    return bool(np.all(np.where(nan, (actual & 0x7FFF) > INFINITY, actual == expected)))


def register(target: str, number: int) -> str:
    """A 16-bit operand."""
    return f"v{number}.l" if target.startswith(("gfx11", "gfx12")) else f"v{number}"


@pytest.mark.rows(16)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("rounding", [0, 1, 2, 3])
def test_conversion_to_half_saturates(target: str, rounding: int) -> None:
    lanes = TARGETS[target]
    values = padded(SINGLES, lanes)
    convert = f"v_cvt_f16_f32 {register(target, 1)}, v0\n"
    mode = DEFAULT_MODE & ~15 | rounding | rounding << 2
    both = run_assembly(
        target, f"{convert}v_mov_b32 v2, v1\n{ON}{convert}v_mov_b32 v3, v1\n{OFF}{convert}", {0: values}, mode=mode
    )
    plain, on, off = (low_half(both, number) for number in (2, 3, 1))
    assert np.array_equal(plain, off)
    assert not np.array_equal(plain, on) or rounding == 3
    assert same(on, saturated(plain, np.isfinite(values)))
    started = run_assembly(target, convert, {0: values}, mode=mode | 1 << 23)
    assert np.array_equal(low_half(started, 1), on)
    assert started.mode >> 23 & 1


@pytest.mark.parametrize("target", TARGETS)
def test_arithmetic_of_halves_saturates(target: str) -> None:
    lanes = TARGETS[target]
    edges = np.array([65504, -65504, 60000, 2, -3, np.inf, -np.inf, 0.0, 6e-8, 1], np.float16)
    first, second = (np.resize(part.ravel(), lanes) for part in np.meshgrid(edges, edges[:7]))
    finite = np.isfinite(first) & np.isfinite(second)
    a, b, d = (register(target, number) for number in (0, 1, 2))
    vgprs = {0: first.view(np.uint16).astype(np.uint32), 1: second.view(np.uint16).astype(np.uint32)}
    with np.errstate(all="ignore"):
        models = {"v_add_f16": first + second, "v_sub_f16": first - second, "v_mul_f16": first * second}
    for name, model in models.items():
        actual = low_half(run_assembly(target, f"{ON}{name} {d}, {a}, {b}", vgprs), 2)
        assert same(actual, saturated(model.view(np.uint16), finite)), name
    packed = {number: row | row << np.uint32(16) for number, row in vgprs.items()}
    actual = run_assembly(target, f"{ON}v_pk_mul_f16 v2, v0, v1", packed).vgpr(2)
    expected = saturated(models["v_mul_f16"].view(np.uint16), finite)
    assert same((actual & 0xFFFF).astype(np.uint16), expected)
    assert same((actual >> 16).astype(np.uint16), expected)


@pytest.mark.parametrize("target", TARGETS)
def test_division_by_zero_stays_infinite(target: str) -> None:
    halves = np.array([0, 0x8000, 1, 0x8001, 0x3C00], np.uint32)
    source = f"{ON}v_rcp_f16 {register(target, 1)}, {register(target, 0)}"
    actual = low_half(run_assembly(target, source, {0: padded(halves, TARGETS[target])}), 1)
    assert actual[:5].tolist() == [INFINITY, 0x8000 | INFINITY, LARGEST, 0x8000 | LARGEST, 0x3C00]


def eight_bits(fraction: int, bias: int, top: int) -> list[float]:
    """The numbers of a format of 8 bits, from 0 to the largest, whose code is `top`."""
    numbers = []
    for code in range(top + 1):
        exponent, rest = code >> fraction, code & (1 << fraction) - 1
        scale = 2.0 ** (max(exponent, 1) - bias - fraction)
        numbers.append((rest + (1 << fraction if exponent else 0)) * scale)
    return numbers


FORMATS = {
    "gfx942": {"fp8": eight_bits(3, 8, 0x7F), "bf8": eight_bits(2, 16, 0x7F)},
    "gfx950": {"fp8": eight_bits(3, 7, 0x7E), "bf8": eight_bits(2, 15, 0x7B)},
    "gfx1201": {"fp8": eight_bits(3, 7, 0x7E), "bf8": eight_bits(2, 15, 0x7B)},
}
"""Source: OCP 8-bit floating point specification; CDNA3's formats have one more exponent of bias and no infinity."""


@pytest.mark.parametrize("target", FORMATS)
@pytest.mark.parametrize("name", ["fp8", "bf8"])
def test_conversion_to_8_bits_saturates(target: str, name: str) -> None:
    lanes = TARGETS.get(target, 64)
    table = FORMATS[target][name]
    numbers = [0, 240, 247, 248, 448, 463, 464, 465, 1e9, 57344, 61439, 61440, 70000, 3e38, 1, 2.0**-9]
    values = padded(np.array([*numbers, *(-number for number in numbers)], np.float32), lanes)
    source = f"v_cvt_pk_{name}_f32 v2, v0, v0\n"
    state = run_assembly(target, f"{source}v_mov_b32 v3, v2\n{ON}{source}", {0: values})
    for lane, value in enumerate(values.tolist()):
        on, off = int(state.vgpr(2)[lane]) & 0xFF, int(state.vgpr(3)[lane]) & 0xFF
        distances = [abs(min(abs(value), table[-1]) - number) for number in table]
        best = min(distances)
        nearest = [code for code, distance in enumerate(distances) if distance == best]
        assert on & 0x7F == next((code for code in nearest if code % 2 == 0), nearest[0]), (lane, value)
        assert on >> 7 == (value < 0)
        if abs(value) > 1.1 * table[-1]:
            assert off & 0x7F >= len(table) or off == 0x80, (lane, value)  # infinity or NaN
    # Infinity is not an overflow.
    infinite = run_assembly(target, f"{ON}{source}", {0: np.full(lanes, np.inf, np.float32)}).vgpr(2)
    assert int(infinite[0]) & 0x7F >= len(table) or int(infinite[0]) & 0xFF == 0x80


def test_other_formats_are_not_touched() -> None:
    values = np.full(64, 3.402e38, np.float32)
    state = run_assembly("gfx942", f"{ON}v_add_f32 v1, v0, v0", {0: values})
    assert np.isinf(state.vgpr(1).view(np.float32)).all()
    source = f"{ON}v_cvt_sr_bf16_f32 v1, v0, v2\nv_cvt_pk_bf16_f32 v3, v0, v0"
    state = run_assembly("gfx950", source, {0: values, 2: 0xFFFFFFFF})
    assert set(state.vgpr(1).tolist()) == {0x7F80}
    assert set(state.vgpr(3).tolist()) == {0x7F807F80}


@pytest.mark.parametrize("target", ["gfx906", "gfx942", "gfx1100", "gfx1201"])
def test_mixed_precision_saturates(target: str) -> None:
    for half in ("lo", "hi"):
        source = f"v_fma_mix{half}_f16 v2, v0, v1, v1\n"
        vgprs = {0: np.full(TARGETS[target], 1e5, np.float32), 1: np.full(TARGETS[target], -1, np.float32), 2: 0}
        for prefix, code in (("", INFINITY), (ON, LARGEST)):
            actual = run_assembly(target, prefix + source, vgprs).vgpr(2)
            assert set(actual.tolist()) == {(code | 0x8000) << (16 if half == "hi" else 0)}


def test_sums_of_halves_in_matrices_are_refused() -> None:
    source = f"{ON}v_wmma_f16_16x16x16_f16 v[0:7], v[8:15], v[16:23], v[0:7]"
    with pytest.raises(EmulationError, match="FP16_OVFL"):
        run_assembly("gfx1100", source, {})


@pytest.mark.parametrize("target", TARGETS)
def test_bits_without_a_model_are_refused(target: str) -> None:
    for bit in (12, 20) if not target.startswith("gfx12") else (12, 28):
        source = f"s_setreg_imm32_b32 hwreg(HW_REG_MODE, {bit}, 1), "
        with pytest.raises(EmulationError, match="MODE becomes 0x"):
            run_assembly(target, f"{source}1", {})
        run_assembly(target, f"{source}0", {})
    # The whole previous MODE may be written back.
    restore = "s_getreg_b32 s0, hwreg(HW_REG_MODE, 0, 32)\ns_setreg_b32 hwreg(HW_REG_MODE, 0, 32), s0"
    assert run_assembly(target, restore, {}).sgpr(0) == DEFAULT_MODE


def test_gfx12_always_clamps_nan_to_zero() -> None:
    """GFX12 has no DX10_CLAMP."""
    source = "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 10), 0xf0\nv_add_f32_e64 v1, v0, v0 clamp"
    nan = np.full(32, np.nan, np.float32)
    assert not run_assembly("gfx1201", source, {0: nan}).vgpr(1).any()
    assert np.isnan(run_assembly("gfx1100", source, {0: nan}).vgpr(1).view(np.float32)).all()


@pytest.mark.parametrize("target", ["gfx906", "gfx1030"])
def test_the_global_data_share_is_refused(target: str) -> None:
    run_assembly(target, "ds_add_u32 v0, v1", {0: 0, 1: 1}, lds=64)
    with pytest.raises(EmulationError, match="global data share"):
        run_assembly(target, "ds_add_u32 v0, v1 gds", {0: 0, 1: 1}, lds=64)


@pytest.mark.parametrize("target", TARGETS)
def test_status_tells_of_empty_masks(target: str) -> None:
    if target.startswith("gfx12"):
        return
    source = "s_getreg_b32 s0, hwreg(HW_REG_STATUS)"
    every = 1 << 64 if TARGETS[target] == 64 else 1 << 32
    for scc, exec_mask, vcc in ((0, 0, 1), (1, 1, 0), (0, every - 1, every - 1), (1, 0, 0)):
        bit = 0 if every >> 32 > 1 else 1  # VCC_HI means nothing in a wave of 32 lanes
        state = run_assembly(target, source, {}, {106: vcc, 107: vcc >> 32 | bit}, exec=exec_mask, scc=scc)
        assert state.sgpr(0) == scc | (exec_mask == 0) << 9 | (vcc == 0) << 10


FLUSHED = DEFAULT_MODE & ~0xF0
SMALL, ONE = 0x00400000, 0x3F800000


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("name", "held", "data", "flushed", "kept"),
    [
        ("add", SMALL, 0, 0, SMALL),
        ("add", 0x00800001, 0x80800000, 0, 1),
        ("add", ONE, ONE, 0x40000000, 0x40000000),
        ("max", 0x80000005, 0x80000000, None, 0x80000000),
        ("max", SMALL, ONE, ONE, ONE),
        ("min", 1, 2, None, 1),
    ],
)
def test_mode_flushes_denormals_in_lds(
    target: str, name: str, held: int, data: int, flushed: int | None, kept: int
) -> None:
    """Up to GFX11 the smallest and largest is chosen as it is (CDNA4's document, 9.2.2; RDNA4's, 13.2)."""
    newest = target.startswith("gfx12")
    source = f"ds_{name}_{'num_' if newest and name != 'add' else ''}f32 v0, v1"
    if flushed is None:
        flushed = held & 0x80000000 if newest else held
    for mode, expected in ((FLUSHED, flushed), (DEFAULT_MODE, kept)):
        lds = np.array([held], np.uint32).tobytes()
        state = run_assembly(target, f"s_mov_b32 m0, -1\n{source}", {0: 0, 1: data}, exec=1, lds=lds, mode=mode)
        assert int(state.lds.view(np.uint32)[0]) == expected


def bfloat_sum(left: int, right: int, kept: int) -> int:
    """The sum of two bfloats, neither of them large, as MODE's FP_DENORM says."""
    pair = np.array([left, right], np.uint32)
    if not kept & 1:
        pair = np.where(pair & 0x7F80, pair, pair & 0x8000)
    first, second = (pair << 16).astype(np.uint32).view(np.float32)
    exact = int((first + second).view(np.uint32))
    rounded = exact + 0x7FFF + (exact >> 16 & 1) >> 16
    return rounded if kept & 2 or rounded & 0x7F80 else rounded & 0x8000


@pytest.mark.parametrize("target", ["gfx942", "gfx950", "gfx1201", "gfx1250"])
@pytest.mark.parametrize("kept", range(4))
def test_mode_flushes_denormals_of_bfloats_in_lds(target: str, kept: int) -> None:
    """FP_DENORM of 16 bits decides (CDNA4's document, 9.2.2; RDNA4's, 13.2), but on GFX1250, which keeps them."""
    numbers = (1, 0x8001, 0x7F, 0x80, 0x8080, 0x81, 0xFF, 0x807F, 0x100, 0x3F80)
    pairs = [(left, right) for left in numbers for right in numbers]
    lanes = 64 if target.startswith("gfx9") else 32
    mode = DEFAULT_MODE & ~0xF0 | kept << 6
    for start in range(0, len(pairs), lanes):
        some = pairs[start : start + lanes]
        held, added = (np.array([pair[side] | pair[1 - side] << 16 for pair in some], np.uint32) for side in (0, 1))
        offsets = np.arange(len(some), dtype=np.uint32) * 4
        given = {0: np.resize(offsets, lanes), 1: np.resize(added, lanes)}
        state = run_assembly(
            target, "ds_pk_add_bf16 v0, v1", given, exec=(1 << len(some)) - 1, lds=held.tobytes(), mode=mode
        )
        expected = [bfloat_sum(*pair, 3 if target == "gfx1250" else kept) for pair in some]
        assert state.lds.view(np.uint32).tolist() == [value | value << 16 for value in expected]


@pytest.mark.parametrize("target", ["gfx1201", "gfx1250"])
@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("name", ["min", "max"])
def test_of_two_nan_an_atomic_gives_the_second_quieted(target: str, bits: int, name: str) -> None:
    """From GFX12 on; of a NaN and a number it is the number (RDNA4's pseudo-code)."""
    unsigned, fraction = np.dtype(f"u{bits // 8}"), 23 if bits == 32 else 52
    infinity, quiet = ((1 << bits - 1 - fraction) - 1) << fraction, 1 << fraction - 1
    unit = ((1 << bits - 2 - fraction) - 1) << fraction
    numbers = [infinity | 5, infinity | quiet | 9, infinity | 1 << bits - 1 | 3, unit]
    pairs = [(held, data) for held in numbers for data in numbers]
    held, data = (np.array(column, unsigned) for column in zip(*pairs, strict=True))
    memory = AllocationTable()
    place = memory.allocate(held.nbytes)
    place.view().view(unsigned)[:] = held
    register = "v2" if bits == 32 else "v[2:3]"
    source = f"ds_{name}_num_f{bits} v0, {register}"
    if bits == 32:
        source += f"\nglobal_atomic_{name}_num_f32 v0, {register}, s[0:1]"
    offsets = np.resize(np.arange(len(pairs), dtype=np.uint32) * (bits // 8), 32)
    sgprs = {0: place.address & 0xFFFFFFFF, 1: place.address >> 32}
    given = {0: offsets, 2: np.resize(data, 32)}
    state = run_assembly(target, source, given, sgprs, exec=(1 << len(pairs)) - 1, lds=held.tobytes(), memory=memory)
    expected = [unit if unit in pair else pair[1] | quiet for pair in pairs]
    assert state.lds.view(unsigned).tolist() == expected
    if bits == 32:
        assert place.view().view(unsigned).tolist() == expected


@pytest.mark.parametrize("target", ["gfx906", "gfx1030", "gfx1100"])
def test_mode_flushes_what_is_compared_in_lds(target: str) -> None:
    name, order = ("ds_cmpstore_f32", (ONE, 0)) if target == "gfx1100" else ("ds_cmpst_f32", (0, ONE))
    for mode, expected in ((FLUSHED, ONE), (DEFAULT_MODE, 5)):
        lds = np.array([5], np.uint32).tobytes()
        registers = {0: 0, 1: order[0], 2: order[1]}
        state = run_assembly(target, f"s_mov_b32 m0, -1\n{name} v0, v1, v2", registers, exec=1, lds=lds, mode=mode)
        assert int(state.lds.view(np.uint32)[0]) == expected


@pytest.mark.parametrize(
    ("target", "source"),
    [
        (
            "gfx1100",
            "s_getreg_b32 s0, hwreg(HW_REG_SHADER_CYCLES, 0, 20)\ns_getreg_b32 s1, hwreg(HW_REG_SHADER_CYCLES, 0, 20)",
        ),
        ("gfx1201", "s_getreg_b32 s0, hwreg(HW_REG_SHADER_CYCLES_LO)\ns_getreg_b32 s1, hwreg(HW_REG_SHADER_CYCLES_LO)"),
    ],
)
def test_cycle_counters_advance(target: str, source: str) -> None:
    state = run_assembly(target, source, {})
    assert 0 < state.sgpr(0) < state.sgpr(1)


@pytest.mark.parametrize("target", TARGETS)
def test_other_hardware_registers_are_refused(target: str) -> None:
    for source in ("s_getreg_b32 s0, 5", "s_setreg_b32 5, s0"):
        with pytest.raises(EmulationError, match="hardware register 5 is not modelled"):
            run_assembly(target, source, {})
    placement = 4 if target.startswith("gfx9") else 23
    assert run_assembly(target, f"s_getreg_b32 s0, {placement | 31 << 11:#x}", {}, {0: 5}).sgpr(0) == 0


CODE = """\
 {load} s[2:3], s[0:1], 0x0
 v_mov_b32 v2, 0x49742400
 v_cvt_f16_f32 v2, v2
 v_mov_b32 v3, 0x7fc00000
 v_add_f32_e64 v3, v3, v3 clamp
 v_mov_b32 v0, 0
 s_waitcnt lgkmcnt(0)
 {store} v0, v[2:3], s[2:3]
 s_endpgm
"""


@pytest.mark.rows(6)
@pytest.mark.parametrize("target", ["gfx906", "gfx90a", "gfx1030", "gfx1201"])
@pytest.mark.parametrize("overflow", [0, 1])
def test_the_descriptor_sets_it(target: str, overflow: int) -> None:
    """A kernel starts with what its descriptor says; GFX12 clamps NaN to 0 though it cannot ask for that."""
    new = target.startswith("gfx12")
    code = CODE.format(
        load="s_load_b64" if new else "s_load_dwordx2",
        store="global_store_b64" if new else "global_store_dwordx2",
    ).replace(" s_waitcnt lgkmcnt(0)", " s_wait_kmcnt 0" if new else " s_waitcnt lgkmcnt(0)")
    directives = {"fp16_overflow": overflow} | ({} if new else {"dx10_clamp": 1})
    text = kernel_text(function("k", code.splitlines()), target, sgprs=8, vgprs=4, directives=directives)
    device = luthier.open_device(f"emu:{target}", threads=1)
    out = device.allocate(8)
    device.load(assembled(text, target)).kernel("k").launch(out, grid=1, block=1)
    half, clamped = out.read(np.uint32).tolist()
    assert half & 0xFFFF == (LARGEST if overflow else INFINITY)
    assert clamped == 0
