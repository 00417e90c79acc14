"""Every matrix instruction against exact fractions."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from effort import some
from luthier.emulator.inspection.bench import run_assembly
from luthier.emulator.inspection.samples import samples
from luthier.errors import EmulationError
from luthier.isa import Isa
from matrix_cases import INDEX, execute, expect, random_codes, run, same, spread_codes
from matrix_places import mfma, newest, scaled, smfmac, wmma

pytestmark = pytest.mark.rows()

EIGHT = [f"{left}_{right}" for left in ("fp8", "bf8") for right in ("fp8", "bf8")]
OLD_SHAPES = [
    *(f"v_mfma_f32_{shape}f32" for shape in ("32x32x1", "16x16x1", "4x4x1", "32x32x2", "16x16x4")),
    *(f"v_mfma_f32_{shape}f16" for shape in ("32x32x4", "16x16x4", "4x4x4", "32x32x8", "16x16x16")),
    *(f"v_mfma_f32_{shape}bf16" for shape in ("32x32x2", "16x16x2", "4x4x2", "32x32x4", "16x16x8")),
    *(f"v_mfma_i32_{shape}i8" for shape in ("32x32x4", "16x16x4", "4x4x4", "32x32x8", "16x16x16")),
]
NEW_SHAPES = [
    *(f"v_mfma_f32_{shape}_f32" for shape in ("32x32x1_2b", "16x16x1_4b", "4x4x1_16b", "32x32x2", "16x16x4")),
    *(f"v_mfma_f32_{shape}_f16" for shape in ("32x32x4_2b", "16x16x4_4b", "4x4x4_16b", "32x32x8", "16x16x16")),
    *(f"v_mfma_f32_{shape}_bf16" for shape in ("32x32x4_2b", "16x16x4_4b", "4x4x4_16b", "32x32x8", "16x16x16")),
    *(f"v_mfma_i32_{shape}_i8" for shape in ("32x32x4_2b", "16x16x4_4b", "4x4x4_16b", "32x32x16", "16x16x32")),
    *(f"v_mfma_f32_{shape}_{kinds}" for shape in ("32x32x16", "16x16x32") for kinds in EIGHT),
    *("v_mfma_f64_16x16x4_f64", "v_mfma_f64_4x4x4_4b_f64"),
]
MFMA = {
    "gfx908": OLD_SHAPES,
    "gfx90a": [
        *OLD_SHAPES,
        *(f"v_mfma_f32_{shape}bf16_1k" for shape in ("32x32x4", "16x16x4", "4x4x4", "32x32x8", "16x16x16")),
        *("v_mfma_f64_16x16x4f64", "v_mfma_f64_4x4x4f64"),
    ],
    "gfx942": [*NEW_SHAPES, *(f"v_mfma_f32_{shape}_xf32" for shape in ("32x32x4", "16x16x8"))],
    "gfx950": [
        *NEW_SHAPES,
        *("v_mfma_f32_32x32x16_f16", "v_mfma_f32_16x16x32_f16", "v_mfma_f32_32x32x16_bf16"),
        *("v_mfma_f32_16x16x32_bf16", "v_mfma_i32_32x32x32_i8", "v_mfma_i32_16x16x64_i8"),
    ],
}
SPARSE = [
    *(f"v_smfmac_f32_{shape}_{kind}" for shape in ("16x16x32", "32x32x16") for kind in ("f16", "bf16")),
    *(f"v_smfmac_f32_{shape}_{kinds}" for shape in ("16x16x64", "32x32x32") for kinds in EIGHT),
    *("v_smfmac_i32_16x16x64_i8", "v_smfmac_i32_32x32x32_i8"),
]
SMFMAC = {
    "gfx942": SPARSE,
    "gfx950": [
        *SPARSE,
        *(f"v_smfmac_f32_{shape}_{kind}" for shape in ("16x16x64", "32x32x32") for kind in ("f16", "bf16")),
        *(f"v_smfmac_f32_{shape}_{kinds}" for shape in ("16x16x128", "32x32x64") for kinds in EIGHT),
        *("v_smfmac_i32_16x16x128_i8", "v_smfmac_i32_32x32x64_i8"),
    ],
}
WMMA11 = ["f32_16x16x16_f16", "f32_16x16x16_bf16", "f16_16x16x16_f16", "bf16_16x16x16_bf16"]
WMMA12 = [*WMMA11, *(f"f32_16x16x16_{kinds}" for kinds in EIGHT)]
INTEGER = ["i32_16x16x16_iu8", "i32_16x16x16_iu4"]
SWMMAC = [
    *("f32_16x16x32_f16", "f32_16x16x32_bf16", "f16_16x16x32_f16", "bf16_16x16x32_bf16"),
    *(f"f32_16x16x32_{kinds}" for kinds in EIGHT),
]
SWMMAC_INTEGER = ["i32_16x16x32_iu8", "i32_16x16x32_iu4", "i32_16x16x64_iu4"]


SCALED = [f"v_mfma_{scale}f32_{shape}_f8f6f4" for scale in ("", "scale_") for shape in ("16x16x128", "32x32x64")]


@pytest.mark.parametrize("target", ["gfx908", "gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1200"])
def test_no_matrix_operation_is_left_out(target: str) -> None:
    isa = Isa.of(target)
    names = (isa.opcode(number).mnemonic for number in samples(isa))
    operations = {re.sub(r"_(e64|twoaddr|threeaddr|vcd|acd).*", "", name) for name in names}
    tested = {
        "gfx1100": [f"v_wmma_{name}" for name in [*WMMA11, *INTEGER]],
        "gfx1200": [
            *(f"v_wmma_{name}" for name in [*WMMA12, *INTEGER, "i32_16x16x32_iu4"]),
            *(f"v_swmmac_{name}" for name in [*SWMMAC, *SWMMAC_INTEGER]),
        ],
        "gfx950": [*MFMA["gfx950"], *SMFMAC["gfx950"], *SCALED],
    }.get(target) or [*MFMA[target], *SMFMAC.get(target, [])]
    assert {name for name in operations if re.match("v_(mfma_(?!ld_)|smfmac_|wmma_|swmmac_)", name)} == set(tested)


def both(case) -> None:
    """Ordinary numbers; then numbers of all sizes, denormals, infinities and NaN, with hardly a lane active."""
    same(case.result, *run(case, 1))
    if case.result != "i32":
        same(case.result, *run(case, 2, wild=True, exec=1))


@pytest.mark.rows(2)
@pytest.mark.parametrize(
    ("target", "name"), some([(target, name) for target, names in MFMA.items() for name in names], 4)
)
def test_mfma(target: str, name: str) -> None:
    case = mfma(target, name)
    same(case.result, *run(case, 1))
    if case.result != "i32":
        # The moves from and to accumulation registers obey EXEC.
        same(case.result, *run(case, 2, wild=True, exec=None if case.accumulation else 1))


@pytest.mark.rows(2)
@pytest.mark.parametrize(
    ("target", "name"), some([(target, name) for target, names in SMFMAC.items() for name in names], 4)
)
def test_smfmac(target: str, name: str) -> None:
    both(smfmac(target, name))


@pytest.mark.rows(2)
@pytest.mark.parametrize("wave_size", [32, 64])
@pytest.mark.parametrize("name", WMMA11)
def test_wmma_of_gfx11(name: str, wave_size: int) -> None:
    both(wmma("gfx1100", f"v_wmma_{name}", wave_size))


@pytest.mark.rows(2)
@pytest.mark.parametrize("wave_size", [32, 64])
@pytest.mark.parametrize("name", WMMA12)
def test_wmma_of_gfx12(name: str, wave_size: int) -> None:
    both(wmma("gfx1200", f"v_wmma_{name}", wave_size))


@pytest.mark.rows(2)
@pytest.mark.parametrize("wave_size", [32, 64])
@pytest.mark.parametrize("name", SWMMAC)
def test_swmmac(name: str, wave_size: int) -> None:
    both(wmma("gfx1200", f"v_swmmac_{name}", wave_size))


@pytest.mark.rows(6)
@pytest.mark.parametrize("wave_size", [32, 64])
@pytest.mark.parametrize(
    ("target", "name"),
    [
        *(("gfx1100", f"v_wmma_{name}") for name in INTEGER),
        *(("gfx1200", f"v_wmma_{name}") for name in [*INTEGER, "i32_16x16x32_iu4"]),
        *(("gfx1200", f"v_swmmac_{name}") for name in SWMMAC_INTEGER),
    ],
)
@pytest.mark.parametrize("signed", [(False, False), (True, False), (False, True), (True, True)])
def test_integers(target: str, name: str, wave_size: int, signed: tuple[bool, bool]) -> None:
    text = f" neg_lo:[{int(signed[0])},{int(signed[1])},0]"
    both(wmma(target, name, wave_size, text, signed))


NEWEST = [
    "v_wmma_bf16f32_16x16x32_bf16",
    *(f"v_swmmac_{kinds}" for kinds in ("f32_16x16x64_f16", "f32_16x16x64_bf16", "f16_16x16x64_f16")),
    *(f"v_swmmac_{kinds}" for kinds in ("bf16_16x16x64_bf16", "bf16f32_16x16x64_bf16")),
    *(f"v_swmmac_{result}_16x16x128_{kinds}" for result in ("f32", "f16") for kinds in EIGHT),
]


@pytest.mark.rows(2)
@pytest.mark.parametrize("name", NEWEST)
def test_products_of_gfx1250(name: str) -> None:
    both(newest(name))


@pytest.mark.rows(2)
@pytest.mark.parametrize("signed", [(False, False), (True, False), (False, True), (True, True)])
def test_sparse_integers_of_gfx1250(signed: tuple[bool, bool]) -> None:
    both(newest("v_swmmac_i32_16x16x128_iu8", f" neg_lo:[{int(signed[0])},{int(signed[1])},0]", signed))


def test_narrow_results_leave_the_rest_of_c() -> None:
    """D of BF16 is in the first four of the eight registers of C (rocjitsu, exec_swmmac_bf16f32)."""
    c = {register: np.full(32, register + 1, np.float32) for register in range(8)}
    state = run_assembly("gfx1250", "v_swmmac_bf16f32_16x16x64_bf16 v[0:7], v[64:71], v[128:143], v192", c)
    for register in range(4):
        low, high = (np.float32(2 * register + half + 1).view(np.uint32) >> 16 for half in (0, 1))
        assert (state.vgpr(register) == (low | high << 16)).all()
    for register in range(4, 8):
        np.testing.assert_array_equal(state.vgpr(register, dtype=np.float32), c[register])


@pytest.mark.parametrize(
    "name",
    ["f32_16x16x64_f16 v[0:7], v[8:15], v[16:31], v32", "f32_16x16x128_fp8_fp8 v[0:7], v[8:15], v[16:31], v[32:33]"],
)
def test_index_keys_of_gfx1250(name: str) -> None:
    with pytest.raises(EmulationError, match="index key"):
        run_assembly("gfx1250", f"v_swmmac_{name} index_key:1", {})


# Sums that are exact in 32 bits are computed in a different way: exponents of elements from -51 to 62.
PLAIN = range(-51, 63)


@pytest.mark.rows(7)
@pytest.mark.parametrize("name", [name for name in MFMA["gfx942"] if re.search("f16|xf32|fp8|bf8", name)])
@pytest.mark.parametrize("exponents", [PLAIN, range(-51, -20), range(40, 63), range(-52, 64)], ids=str)
@pytest.mark.parametrize("of_c", [range(-2, 3), range(-127, -90), range(-127, 128)], ids=str)
def test_exponents_far_apart(name: str, exponents: range, of_c: range) -> None:
    case = mfma("gfx942", name)
    generator = np.random.default_rng(7)
    a = spread_codes(generator, case.left, (case.blocks, case.m, case.k), exponents)
    b = spread_codes(generator, case.right, (case.blocks, case.n, case.k), exponents)
    b[:, ::5, :] = 0  # whole sums of zeros
    c = spread_codes(generator, "f32", (case.blocks, case.m, case.n), of_c)
    same("f32", execute(case, a, b, c), expect(case, a, b, c))


# Modifiers ----------------------------------------------------------------------------------------------------------


@pytest.mark.rows(2)
@pytest.mark.parametrize("left", range(5))
@pytest.mark.parametrize("right", range(5))
@pytest.mark.parametrize("m", [16, 32])
def test_formats_of_f8f6f4(m: int, left: int, right: int) -> None:
    case = scaled(m, left, right, f"v_mfma_f32_{m}x{m}x{128 if m == 16 else 64}_f8f6f4")
    same("f32", *run(case, 3))


@pytest.mark.parametrize("code", range(5, 8))
@pytest.mark.parametrize("side", ["cbsz", "blgp"])
@pytest.mark.parametrize(
    "source",
    [
        "v_mfma_f32_16x16x128_f8f6f4 v[20:23], v[0:7], v[8:15], 0",
        "v_mfma_scale_f32_32x32x64_f8f6f4 v[20:35], v[0:7], v[8:15], 0, v40, v41",
    ],
)
def test_reserved_formats_of_f8f6f4(source: str, side: str, code: int) -> None:
    with pytest.raises(EmulationError, match=f"the reserved format {code}"):
        run_assembly("gfx950", f"{source} {side}:{code}")


@pytest.mark.rows(6)
@pytest.mark.parametrize("scales", [range(117, 137), range(50, 205), range(255)], ids=str)
@pytest.mark.parametrize("byte", range(4))
@pytest.mark.parametrize(
    ("m", "left", "right"), [(16, 0, 0), (16, 4, 4), (16, 2, 1), (32, 0, 4), (32, 1, 3), (32, 4, 4)]
)
def test_scales(m: int, left: int, right: int, byte: int, scales: range) -> None:
    """Each block of 32 steps has a scale in the lane of its row or column; NaN makes NaN."""
    text = f", v200, v201 op_sel:[{byte & 1},{byte & 1}] op_sel_hi:[{byte >> 1},{byte >> 1}]"
    case = scaled(m, left, right, f"v_mfma_scale_f32_{m}x{m}x{128 if m == 16 else 64}_f8f6f4", text)
    generator = np.random.default_rng(byte)
    shape = (1, m, case.k)
    a, b = (random_codes(generator, kind, shape, False) for kind in (case.left, case.right))
    c = random_codes(generator, "f32", (1, m, m), False)
    words = generator.integers(0, 1 << 32, (2, 64), dtype=np.uint64)
    near = generator.integers(scales.start, scales.stop, (2, 64), dtype=np.uint64)
    words = (words & ~np.uint64(0xFF << (8 * byte))) | near << np.uint64(8 * byte)
    # By row (column) and block of 32.
    exponents = [(near[side].astype(int) - 127).astype(object).reshape(64 // m, m).T for side in (0, 1)]
    extra = {200: words[0].astype(np.uint32), 201: words[1].astype(np.uint32)}
    got = execute(case, a, b, c, extra=extra)
    same("f32", got, expect(case, a, b, c, scales=exponents))
    extra[200][3] |= np.uint32(0xFF << (8 * byte))
    got = execute(case, a, b, c, extra=extra)
    assert (got[0, 3] == 0x7FC00000).all()
    assert (got[0, 2] != 0x7FC00000).all()


@pytest.mark.parametrize(("cbsz", "abid"), [(1, 0), (1, 1), (2, 3), (3, 5), (4, 15)])
def test_blocks_of_a_are_repeated(cbsz: int, abid: int) -> None:
    case = mfma("gfx90a", "v_mfma_f32_4x4x1f32", f" cbsz:{cbsz} abid:{abid}")
    generator = np.random.default_rng(4)
    a, b = (random_codes(generator, "f32", (16, 4, 1), False) for _ in "ab")
    c = random_codes(generator, "f32", (16, 4, 4), False)
    source = [block - block % (1 << cbsz) + abid for block in range(16)]
    same("f32", execute(case, a, b, c), expect(case, a[source], b, c))


@pytest.mark.parametrize("pattern", range(1, 8))
def test_groups_of_lanes_of_b_are_moved(pattern: int) -> None:
    case = mfma("gfx90a", "v_mfma_f32_16x16x4f32", f" blgp:{pattern}")
    generator = np.random.default_rng(5)
    a, b = (random_codes(generator, "f32", (1, 16, 4), False) for _ in "ab")
    c = random_codes(generator, "f32", (1, 16, 16), False)
    # Group g of 16 lanes holds k = g.
    groups = {1: [0, 1, 0, 1], 2: [2, 3, 2, 3], 3: [1, 2, 3, 0], 4: [0] * 4, 5: [1] * 4, 6: [2] * 4, 7: [3] * 4}
    moved = b[:, :, groups[pattern]]
    same("f32", execute(case, a, b, c), expect(case, a, moved, c))


@pytest.mark.rows(3)
@pytest.mark.parametrize("signs", [(1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 1)])
def test_negation_of_doubles(signs: tuple[int, int, int]) -> None:
    case = mfma("gfx942", "v_mfma_f64_16x16x4_f64", f" neg:[{signs[0]},{signs[1]},{signs[2]}]")
    generator = np.random.default_rng(6)
    a, b = (random_codes(generator, "f64", (1, 16, 4), False) for _ in "ab")
    c = random_codes(generator, "f64", (1, 16, 16), False)
    given = [x ^ (sign << 63) for x, sign in zip((a, b, c), signs, strict=True)]
    same("f64", execute(case, a, b, c), expect(case, *given))


@pytest.mark.rows(3)
@pytest.mark.parametrize("target", ["gfx1100", "gfx1200"])
@pytest.mark.parametrize(
    ("low", "high"), [((1, 0, 0), (0, 0, 0)), ((0, 1, 0), (1, 0, 0)), ((0, 0, 1), (0, 0, 1)), ((1, 1, 0), (1, 1, 1))]
)
def test_negation_of_wmma(target: str, low: tuple[int, ...], high: tuple[int, ...]) -> None:
    """Even and odd elements of A and B apart; of C the second bit is the magnitude."""
    text = f" neg_lo:[{low[0]},{low[1]},{low[2]}] neg_hi:[{high[0]},{high[1]},{high[2]}]"
    case = wmma(target, "v_wmma_f32_16x16x16_f16", 32, text)
    generator = np.random.default_rng(7)
    a, b = (random_codes(generator, "f16", (1, 16, 16), False) for _ in "ab")
    c = random_codes(generator, "f32", (1, 16, 16), False)
    odd = np.arange(16) % 2
    given = [
        x ^ (np.where(odd, h, lo).astype(object) << 15) for x, lo, h in zip((a, b), low[:2], high[:2], strict=True)
    ]
    changed = (c & 0x7FFFFFFF if high[2] else c) ^ (low[2] << 31)
    same("f32", execute(case, a, b, c), expect(case, *given, changed))


@pytest.mark.rows(2)
@pytest.mark.parametrize("wave_size", [32, 64])
@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_high_halves_of_gfx11(kind: str, wave_size: int) -> None:
    case = wmma("gfx1100", f"v_wmma_{kind}_16x16x16_{kind}", wave_size, " op_sel:[0,0,1]")
    both(replace(case, d_start=1))


@pytest.mark.parametrize("target", ["gfx1100", "gfx1200"])
def test_saturation(target: str) -> None:
    case = wmma(target, "v_wmma_i32_16x16x16_iu8", 32, " neg_lo:[1,1,0] clamp")
    a = np.full((1, 16, 16), 0x7F, object)
    b = np.full((1, 16, 16), 0x7F, object)
    b[:, 8:] = 0x80
    c = np.full((1, 16, 16), 0x7FFFFFF0, object)
    c[:, :, 8:] = 0x80000010
    got = execute(case, a, b, c)[0]
    assert (got[:, :8] == 0x7FFFFFFF).all()
    assert (got[:, 8:] == 0x80000000).all()


@pytest.mark.rows(2)
@pytest.mark.parametrize(("wave_size", "key"), [(32, 1), (64, 1), (64, 3)])
def test_index_keys_of_swmmac(wave_size: int, key: int) -> None:
    case = wmma("gfx1200", "v_swmmac_f32_16x16x32_f16", wave_size, f" index_key:{key}")
    compare_with_index(case, key * (16 if wave_size == 32 else 8))


@pytest.mark.rows(2)
@pytest.mark.parametrize(
    ("name", "text", "shift"),
    [
        ("v_smfmac_f32_16x16x32_f16", " abid:3", 24),
        ("v_smfmac_f32_32x32x16_f16", " abid:1", 8),
        ("v_smfmac_f32_32x32x16_f16", " cbsz:1 abid:1", 0),
        ("v_smfmac_i32_16x16x64_i8", " abid:1", 16),
    ],
)
def test_index_sets_of_smfmac(name: str, text: str, shift: int) -> None:
    compare_with_index(smfmac("gfx942", name, text), shift)


def compare_with_index(case, shift: int) -> None:
    """The indices are `shift` bits up in their register, noise is around them."""
    generator = np.random.default_rng(8)
    a = random_codes(generator, case.left, (1, case.m, case.k // 2), False)
    b = random_codes(generator, case.right, (1, case.n, case.k), False)
    c = random_codes(generator, case.result, (1, case.m, case.n), False)
    index = generator.integers(0, 4, (case.m, case.k // 2))
    words = generator.integers(0, 1 << 32, case.wave_size, dtype=np.uint64)
    for lane in range(case.wave_size):
        for element in range(case.a_count):
            bit = shift + 2 * element
            value = int(index[case.a(lane, element)[1:]])
            words[lane] = int(words[lane]) & ~(3 << bit) | value << bit
    got = execute(case, a, b, c, index, extra={INDEX: words.astype(np.uint32)})
    same(case.result, got, expect(case, a, b, c, index))


def test_results_may_overlap_sources() -> None:
    """All of A and B is read before D is written."""
    case = mfma("gfx90a", "v_mfma_f32_4x4x1f32")
    generator = np.random.default_rng(9)
    values = {register: generator.uniform(-1, 1, 64).astype(np.float32) for register in (0, 1, 2, 3, 64, 128)}
    apart = run_assembly("gfx90a", "v_mfma_f32_4x4x1f32 v[4:7], v0, v1, v[0:3]", values)
    over = run_assembly("gfx90a", "v_mfma_f32_4x4x1f32 v[0:3], v0, v1, v[0:3]", values)
    for register in range(4):
        np.testing.assert_array_equal(over.vgpr(register), apart.vgpr(4 + register))
    assert case.d_registers == 4


@pytest.mark.parametrize(("text", "value"), [("0", 0.0), ("1.0", 1.0), ("-4.0", -4.0)])
def test_constant_accumulators(text: str, value: float) -> None:
    ones = {0: np.ones(64, np.float32), 1: np.ones(64, np.float32)}
    state = run_assembly("gfx942", f"v_mfma_f32_32x32x2_f32 a[0:15], v0, v1, {text}", ones)
    assert (state.agpr(0, 16, np.float32) == value + 2).all()
    doubles = {0: np.ones(64), 2: np.ones(64)}
    state = run_assembly("gfx942", f"v_mfma_f64_16x16x4_f64 v[8:15], v[0:1], v[2:3], {text}", doubles)
    assert (state.vgpr(8, 4, np.float64) == value + 4).all()
