"""Matrix multiply-accumulate: MFMA and SMFMAC of GFX9, WMMA of GFX11 and GFX12, SWMMAC of GFX12.

`matrix_layout` has the positions of elements, `number_formats` their formats, `matrix_numbers` the order of sums, and
`matrix_code` emits the loops. This module has the operations' names and modifiers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from luthier.emulator.ir.declare import OperationTable, Unsupported
from luthier.emulator.operations import matrix_layout as layout
from luthier.emulator.operations.matrix_code import BlockScale, Product, Scale, Side, multiply
from luthier.emulator.operations.matrix_numbers import Chain, Wide, model_of
from luthier.emulator.operations.number_formats import EIGHT_BIT, FORMATS, format_of

if TYPE_CHECKING:
    from luthier.emulator.ir.wave import OperandSlot, WaveBuilder

operations = OperationTable()

_NEGATE, _OTHER, _SELECT, _SELECT_HIGH = 1, 2, 4, 8
"""LLVM's SISrcMods."""


# GFX9 ---------------------------------------------------------------------------------------------------------------


def _mfma(names: Iterable[str], rows: int, steps: int, blocks: int, left: str, right: str, result: str) -> None:
    columns = rows
    wide = result == "f64"
    register = "u64" if wide else "u32"
    places = layout.mfma_result(rows, columns, blocks, wide)
    source = layout.mfma_source(rows, steps, blocks)
    each = rows * steps * blocks // 64

    @operations.wave(
        " ".join(names),
        f"u32 u32 src2:{register}x4 -> {register}x4",
        exact=left in ("i8", "f32", "f64"),
        static=("cbsz", "abid", "blgp"),
        processors=True,
    )
    def mfma(w: WaveBuilder, d: OperandSlot, a: OperandSlot, b: OperandSlot, c: OperandSlot) -> None:
        """D = A * B + C. CBSZ and ABID repeat blocks of A; BLGP moves groups of B's lanes, or negates 64-bit floats."""
        pattern = w.modifiers.get("blgp", 0)
        signs = [bool(wide and pattern >> place & 1) for place in range(3)]
        model = model_of(w.processor, left, steps, each == 2)
        multiply(
            w,
            Product(
                rows=rows,
                columns=columns,
                blocks=blocks,
                result=places,
                kind=result,
                model=model,
                a=Side(a, format_of(w.processor, left), source, (signs[0], signs[0])),
                b=Side(b, format_of(w.processor, right), source, (signs[1], signs[1])),
                c=c,
                d=d,
                broadcast=(w.modifiers.get("cbsz", 0), w.modifiers.get("abid", 0)),
                pattern=0 if wide else pattern,
                negate_c=signs[2],
            ),
        )


def _mfma_family(kind: str, shapes: Iterable[tuple[int, int, int]], old: str = "", new: str = "") -> None:
    """Declare MFMAs of a type.

    Shapes are rows, K, blocks. `old` is the spelling of the type on GFX908 and GFX90A, `new` on later processors.
    """
    result = {"i8": "i32", "f64": "f64"}.get(kind, "f32")
    for rows, steps, blocks in shapes:
        size = f"v_mfma_{result}_{rows}x{rows}x{steps}"
        names = [f"{size}{old}"] if old else []
        if new:
            names.append(f"{size}_{blocks}b_{new}" if blocks > 1 else f"{size}_{new}")
        _mfma(names, rows, steps, blocks, kind, kind, result)


_mfma_family("f32", [(32, 1, 2), (16, 1, 4), (4, 1, 16), (32, 2, 1), (16, 4, 1)], "f32", "f32")
_mfma_family("f16", [(32, 4, 2), (16, 4, 4), (4, 4, 16), (32, 8, 1), (16, 16, 1)], "f16", "f16")
_mfma_family("f16", [(32, 16, 1), (16, 32, 1)], new="f16")
_mfma_family("bf16", [(32, 2, 2), (16, 2, 4), (4, 2, 16), (32, 4, 1), (16, 8, 1)], "bf16")
_mfma_family("bf16", [(32, 4, 2), (16, 4, 4), (4, 4, 16), (32, 8, 1), (16, 16, 1)], "bf16_1k", "bf16")
_mfma_family("bf16", [(32, 16, 1), (16, 32, 1)], new="bf16")
_mfma_family("i8", [(32, 4, 2), (16, 4, 4), (4, 4, 16)], "i8", "i8")
_mfma_family("i8", [(32, 8, 1), (16, 16, 1)], "i8")
_mfma_family("i8", [(32, 16, 1), (16, 32, 1), (32, 32, 1), (16, 64, 1)], new="i8")
_mfma_family("xf32", [(32, 4, 1), (16, 8, 1)], new="xf32")
_mfma_family("f64", [(16, 4, 1), (4, 4, 4)], "f64", "f64")
for _left in EIGHT_BIT:
    for _right in EIGHT_BIT:
        for _rows, _steps in ((32, 16), (16, 32)):
            _mfma([f"v_mfma_f32_{_rows}x{_rows}x{_steps}_{_left}_{_right}"], _rows, _steps, 1, _left, _right, "f32")


def _scaled(rows: int, steps: int) -> None:
    """Declare MFMAs with formats in CBSZ and BLGP.

    In scaled ones, each block of 32 steps has a scale per row of A and column of B.
    """
    formats = ("fp8", "bf8", "fp6", "bf6", "fp4")

    def side(slot: OperandSlot, code: int, scale: Scale | None) -> Side:
        if code >= len(formats):
            raise Unsupported(f"the reserved format {code} of elements")
        kind = formats[code]
        if kind in EIGHT_BIT:
            return Side(slot, FORMATS[kind], layout.interleaved_source(rows, steps, 16), scale=scale)
        return Side(slot, FORMATS[kind], layout.mfma_source(rows, steps, 1), scale=scale)

    def emit(w: WaveBuilder, d: OperandSlot, a: Side, b: Side, c: OperandSlot) -> None:
        places = layout.mfma_result(rows, rows, 1, False)
        model = model_of(w.processor, "fp8", steps, False)
        multiply(w, Product(rows=rows, columns=rows, result=places, kind="f32", model=model, a=a, b=b, c=c, d=d))

    name = f"f32_{rows}x{rows}x{steps}_f8f6f4"

    @operations.wave(
        f"v_mfma_{name}", "u32 u32 src2:u32x4 -> u32x4", exact=False, static=("cbsz", "blgp"), processors=True
    )
    def plain(w: WaveBuilder, d: OperandSlot, a: OperandSlot, b: OperandSlot, c: OperandSlot) -> None:
        """D = A * B + C."""
        left, right = (w.modifiers.get(field, 0) for field in ("cbsz", "blgp"))
        emit(w, d, side(a, left, None), side(b, right, None), c)

    @operations.wave(
        f"v_mfma_scale_{name}",
        "u32 u32 src2:u32x4 scale_src0:u32 scale_src1:u32 -> u32x4",
        exact=False,
        static=("cbsz", "blgp", "src0_modifiers", "src1_modifiers"),
        processors=True,
    )
    def scaled(
        w: WaveBuilder,
        d: OperandSlot,
        a: OperandSlot,
        b: OperandSlot,
        c: OperandSlot,
        scale_a: OperandSlot,
        scale_b: OperandSlot,
    ) -> None:
        """D = (A * 2**scales) * (B * 2**scales) + C; op_sel and op_sel_hi choose bytes of the scale registers."""
        sides = []
        for slot, scale, code, key in ((a, scale_a, "cbsz", "src0_modifiers"), (b, scale_b, "blgp", "src1_modifiers")):
            bits = w.modifiers.get(key, 0)
            byte = bool(bits & _SELECT) + 2 * bool(bits & _SELECT_HIGH)
            sides.append(side(slot, w.modifiers.get(code, 0), Scale(scale, byte)))
        emit(w, d, sides[0], sides[1], c)


_scaled(16, 128)
_scaled(32, 64)


def _smfmac(rows: int, steps: int, left: str, right: str, result: str) -> None:
    bits = FORMATS[left].bits
    doubled = rows * steps == (2048 if bits == 8 else 1024)
    if doubled and bits == 8:
        a_source = layout.gfx950_compressed_bytes(rows, steps // 2)
    else:
        a_source = layout.mfma_source(rows, steps // 2, 1)
    b_source = layout.interleaved_source(rows, steps, 8) if doubled else layout.mfma_source(rows, steps, 1)
    name = f"v_smfmac_{result}_{rows}x{rows}x{steps}_{left}" + (f"_{right}" if left in EIGHT_BIT else "")

    @operations.wave(name, "u32 u32 idx:u32 -> u32x4", exact=left == "i8", static=("cbsz", "abid"), processors=True)
    def smfmac(w: WaveBuilder, d: OperandSlot, a: OperandSlot, b: OperandSlot, index: OperandSlot) -> None:
        """D = A * B + D; two of every four elements in a row of A are stored. ABID chooses indices if CBSZ is 0."""
        pairs = max(a_source.elements) // 2 + 1
        chosen = 0 if w.modifiers.get("cbsz", 0) else w.modifiers.get("abid", 0) * 4 * pairs % 32
        multiply(
            w,
            Product(
                rows=rows,
                columns=rows,
                result=layout.mfma_result(rows, rows, 1, False),
                kind=result,
                model=model_of(w.processor, left, steps // 2, False),
                a=Side(a, format_of(w.processor, left), a_source),
                b=Side(b, format_of(w.processor, right), b_source),
                c=d,
                d=d,
                index=index,
                index_bit=chosen,
            ),
        )


for _kind in ("f16", "bf16"):
    for _rows, _steps in ((16, 32), (32, 16), (16, 64), (32, 32)):
        _smfmac(_rows, _steps, _kind, _kind, "f32")
for _rows, _steps in ((16, 64), (32, 32), (16, 128), (32, 64)):
    _smfmac(_rows, _steps, "i8", "i8", "i32")
    for _left in EIGHT_BIT:
        for _right in EIGHT_BIT:
            _smfmac(_rows, _steps, _left, _right, "f32")

# GFX11 and GFX12 ----------------------------------------------------------------------------------------------------

_MODIFIERS = ("src0_modifiers", "src1_modifiers", "src2_modifiers", "clamp")


def _signs(w: WaveBuilder, key: str) -> tuple[bool, bool]:
    bits = w.modifiers.get(key, 0)
    return bool(bits & _NEGATE), bool(bits & _OTHER)


def _side(w: WaveBuilder, slot: OperandSlot, kind: str, key: str, source: Callable[[int], layout.Source]) -> Side:
    """Return an input of a product; for integers, the first negation bit means signed."""
    if kind.startswith("iu"):
        form = FORMATS[f"{'i' if _signs(w, key)[0] else 'u'}{kind[2:]}"]
        return Side(slot, form, source(form.bits))
    form = FORMATS[kind]
    return Side(slot, form, source(form.bits), (False, False) if form.bits == 8 else _signs(w, key))


def _result(w: WaveBuilder, kind: str) -> layout.MatrixResult:
    half = kind in ("f16", "bf16")
    if w.major >= 12:
        return layout.gfx12_result(w.wave_size, half)
    high = half and w.modifiers.get("src2_modifiers", 0) & _SELECT
    return layout.gfx11_result(w.wave_size, 16 if high else 0)


def _wmma(major: int, steps: int, left: str, right: str, result: str) -> None:
    name = f"v_wmma_{result}_16x16x{steps}_{left}" + (f"_{right}" if left in EIGHT_BIT else "")

    @operations.wave(name, "u32 u32 src2:u32x4 -> u32x4", exact=result == "i32", static=_MODIFIERS, since=(major,))
    def wmma(w: WaveBuilder, d: OperandSlot, a: OperandSlot, b: OperandSlot, c: OperandSlot) -> None:
        """D = A * B + C."""

        def source(bits: int) -> layout.Source:
            return layout.gfx11_source(steps) if major == 11 else layout.gfx12_source(w.wave_size, bits, steps)

        negate, absolute = _signs(w, "src2_modifiers")
        floats = result != "i32"
        multiply(
            w,
            Product(
                rows=16,
                columns=16,
                result=_result(w, result),
                kind=result,
                model=Chain(4),
                a=_side(w, a, left, "src0_modifiers", source),
                b=_side(w, b, right, "src1_modifiers", source),
                c=c,
                d=d,
                absolute_c=absolute and floats,
                negate_c=negate and floats,
                saturate=bool(w.modifiers.get("clamp")) and not floats,
            ),
        )


def _swmmac(steps: int, left: str, right: str, result: str) -> None:
    """Declare a sparse product of GFX12."""
    name = f"v_swmmac_{result}_16x16x{steps}_{left}" + (f"_{right}" if left in EIGHT_BIT else "")

    @operations.wave(
        name,
        "u32 u32 src2:u32 -> u32x4",
        exact=result == "i32",
        static=(*_MODIFIERS, "index_key_8bit", "index_key_16bit"),
        since=(12,),
    )
    def swmmac(w: WaveBuilder, d: OperandSlot, a: OperandSlot, b: OperandSlot, index: OperandSlot) -> None:
        """D = A * B + D; two of every four elements in a row of A are stored. A key chooses the indices."""
        bit = 8 * w.modifiers.get("index_key_8bit", 0) + 16 * w.modifiers.get("index_key_16bit", 0)

        def stored(bits: int) -> layout.Source:
            return layout.gfx12_compressed_source(w.wave_size, bits, steps // 2)

        def whole(bits: int) -> layout.Source:
            return layout.gfx12_sparse_source(w.wave_size, bits, steps)

        multiply(
            w,
            Product(
                rows=16,
                columns=16,
                result=_result(w, result),
                kind=result,
                model=Chain(4),
                a=_side(w, a, left, "src0_modifiers", stored),
                b=_side(w, b, right, "src1_modifiers", whole),
                c=d,
                d=d,
                index=index,
                index_bit=bit,
                saturate=bool(w.modifiers.get("clamp")) and result == "i32",
            ),
        )


for _result_kind, _kind in (("f32", "f16"), ("f32", "bf16"), ("f16", "f16"), ("bf16", "bf16")):
    _wmma(11, 16, _kind, _kind, _result_kind)
    _wmma(12, 16, _kind, _kind, _result_kind)
    _swmmac(32, _kind, _kind, _result_kind)
for _kind in ("iu8", "iu4"):
    _wmma(11, 16, _kind, _kind, "i32")
    _wmma(12, 16, _kind, _kind, "i32")
    _swmmac(32, _kind, _kind, "i32")
_wmma(12, 32, "iu4", "iu4", "i32")
_swmmac(64, "iu4", "iu4", "i32")
for _left in EIGHT_BIT:
    for _right in EIGHT_BIT:
        _wmma(12, 16, _left, _right, "f32")
        _swmmac(32, _left, _right, "f32")

# GFX1250 ------------------------------------------------------------------------------------------------------------

# Results have the layout of GFX12 in wave32 (Triton's layouts for gfx1250). No source gives the position of an element
# of A along K. The product is the same for any position that A and B share, except for the order of its sums.
for _result_kind, _kind in (("f32", "f16"), ("f32", "bf16"), ("f16", "f16"), ("bf16", "bf16")):
    _wmma(12, 32, _kind, _kind, _result_kind)
_wmma(12, 64, "iu8", "iu8", "i32")
_wmma(12, 4, "f32", "f32", "f32")
for _left in EIGHT_BIT:
    for _right in EIGHT_BIT:
        for _steps in (64, 128):
            for _result_kind in ("f32", "f16"):
                _wmma(12, _steps, _left, _right, _result_kind)


@operations.wave(
    "v_wmma_bf16f32_16x16x32_bf16", "u32 u32 src2:u32x8 -> u32x4", exact=False, static=_MODIFIERS, since=(125,)
)
def wmma_bf16f32(w: WaveBuilder, d: OperandSlot, a: OperandSlot, b: OperandSlot, c: OperandSlot) -> None:
    """D = A * B + C: C of 32 bits, D of 16, rounded once (rocjitsu, exec_wmma_bf16f32_16x16x32_bf16)."""

    def source(bits: int) -> layout.Source:
        return layout.gfx12_source(32, bits, 32)

    negate, absolute = _signs(w, "src2_modifiers")
    multiply(
        w,
        Product(
            rows=16,
            columns=16,
            result=layout.gfx12_result(32, True),
            kind="bf16",
            model=Chain(4),
            a=_side(w, a, "bf16", "src0_modifiers", source),
            b=_side(w, b, "bf16", "src1_modifiers", source),
            c=c,
            d=d,
            absolute_c=absolute,
            negate_c=negate,
            c_kind="f32",
            c_result=layout.gfx12_result(32, False),
        ),
    )


def _sparse(steps: int, left: str, right: str, result: str) -> None:
    """Declare a sparse product of GFX1250.

    A and B are in runs that alternate between lower and upper lanes: runs of an eighth of the steps for the stored
    elements of A, of a quarter for B. The lower lanes have the indices of the first half of a row's stored elements,
    the upper lanes those of the second half. Source: rocjitsu, shared/mma/layout.h. For 8-bit elements it cites kernels
    with correct results on hardware, and says that the CDNA5 document (7.12.3, 7.12.5) has other positions of B and of
    the indices. This follows hardware.
    """
    name = f"v_swmmac_{result}_16x16x{steps}_{left}" + (f"_{right}" if left in EIGHT_BIT else "")
    wide = result == "bf16f32"
    kind = "bf16" if wide else result

    @operations.wave(
        name,
        f"u32 u32 src2:u32x{steps // 64} -> u32x4",
        exact=result == "i32",
        static=(*_MODIFIERS, "index_key_16bit", "index_key_32bit"),
        since=(125,),
    )
    def sparse(w: WaveBuilder, d: OperandSlot, a: OperandSlot, b: OperandSlot, index: OperandSlot) -> None:
        """D = A * B + D; two of every four elements in a row of A are stored. A BF16 D may replace a 32-bit C."""
        if w.modifiers.get("index_key_16bit") or w.modifiers.get("index_key_32bit"):
            raise Unsupported(f"{name} with an index key: its indices fill the registers, no source defines the key")
        multiply(
            w,
            Product(
                rows=16,
                columns=16,
                result=layout.gfx12_result(32, kind in ("f16", "bf16")),
                kind=kind,
                model=Chain(4),
                a=_side(w, a, left, "src0_modifiers", lambda bits: layout.alternating_source(steps // 2, steps // 8)),
                b=_side(w, b, right, "src1_modifiers", lambda bits: layout.alternating_source(steps, steps // 4)),
                c=d,
                d=d,
                index=index,
                index_source=layout.halved_source(steps // 2),
                c_kind="f32" if wide else "",
                c_result=layout.gfx12_result(32, False) if wide else None,
                saturate=bool(w.modifiers.get("clamp")) and result == "i32",
            ),
        )


for _result_kind, _kind in (("f32", "f16"), ("f32", "bf16"), ("f16", "f16"), ("bf16", "bf16"), ("bf16f32", "bf16")):
    _sparse(64, _kind, _kind, _result_kind)
_sparse(128, "iu8", "iu8", "i32")
for _left in EIGHT_BIT:
    for _right in EIGHT_BIT:
        for _result_kind in ("f32", "f16"):
            _sparse(128, _left, _right, _result_kind)

_SMALL = ("fp8", "bf8", "fp6", "bf6", "fp4")
"""Formats by LLVM's numbers (AMDGPU, SIDefines.h, MatrixFMT)."""
_SCALES = (None, "", "fp8")
"""Scale formats by LLVM's numbers (MatrixScaleFMT): an exponent; 5 bits of exponent and 3 of fraction; fp8."""


def _small_format(w: WaveBuilder, side: str, fixed: str) -> str:
    """Return the format of a side, from the operation or from the instruction."""
    code = w.modifiers.get(f"matrix_{side}_fmt", 0)
    if not fixed and code >= len(_SMALL):
        raise Unsupported(f"{w.variant.operation} with the reserved matrix format {code}")
    return fixed or _SMALL[code]


def _block_scale(w: WaveBuilder, slot: OperandSlot, side: str, steps: int, lane: int) -> BlockScale:
    code = w.modifiers.get(f"matrix_{side}_scale_fmt", 0)
    kind = _SCALES[code] if code < len(_SCALES) else ""
    if kind == "":
        raise Unsupported(f"{w.variant.operation} with scale format {code}, which is not modelled")
    return BlockScale(slot, lane, steps, FORMATS[kind] if kind else None)


def _small_product(
    w: WaveBuilder,
    d: OperandSlot,
    sides: tuple[OperandSlot, OperandSlot],
    c: OperandSlot,
    rows: int,
    scales: tuple[OperandSlot, OperandSlot] | None,
    steps: int,
) -> None:
    """Emit D = A * B + C of small floats; 32 rows are two products of 16 rows.

    A and the result of rows from 16 are 8 registers after those of the first rows; their scales are in the upper lanes.
    """
    fixed = "fp4" if rows == 32 else ""
    left, right = (_small_format(w, side, fixed) for side in "ab")
    if scales is None and (left in EIGHT_BIT) != (right in EIGHT_BIT):
        raise Unsupported(
            f"{w.variant.operation} of {left} and {right}: the sources differ on the order of steps without scales"
        )
    negate, absolute = _signs(w, "src2_modifiers")
    products = []
    for first in range(0, rows, 16):
        moved = first // 16 * 8
        own = [sides[0].shifted(moved), sides[1]]
        inputs = []
        for place, (slot, kind, side) in enumerate(zip(own, (left, right), "ab", strict=True)):
            form = FORMATS[kind]
            scale = None
            if scales is not None:
                lane = first if rows == 32 and side == "a" else 16 * (w.modifiers.get(f"matrix_{side}_scale", 0) & 1)
                scale = _block_scale(w, scales[place], side, steps, lane)
            inputs.append(Side(slot, form, layout.run_source(form.bits), scale=scale))
        products.append(
            Product(
                rows=16,
                columns=16,
                result=layout.gfx12_result(32, False),
                kind="f32",
                model=Wide(4),
                a=inputs[0],
                b=inputs[1],
                c=c.shifted(moved),
                d=d.shifted(moved),
                absolute_c=absolute,
                negate_c=negate,
            )
        )
    multiply(w, *products)


def _small_products(rows: int, name: str) -> None:
    settings = {"exact": False, "since": (125,)}
    formats = ("src2_modifiers", "matrix_a_fmt", "matrix_b_fmt")
    units = rows // 2

    @operations.wave(f"v_wmma_{name}", f"u32 u32 src2:u32x{units} -> u32x{units}", static=formats, **settings)
    def plain(w: WaveBuilder, d: OperandSlot, a: OperandSlot, b: OperandSlot, c: OperandSlot) -> None:
        """D = A * B + C."""
        _small_product(w, d, (a, b), c, rows, None, 32)

    for word, kind, steps in (("scale", "u32", 32), ("scale16", "u32x2", 16)):

        @operations.wave(
            f"v_wmma_{word}_{name}",
            f"u32 u32 src2:u32x{units} scale_src0:{kind} scale_src1:{kind} -> u32x{units}",
            static=(
                *formats,
                *(f"matrix_{side}_{what}" for side in "ab" for what in ("scale", "scale_fmt")),
            ),
            **settings,
        )
        def scaled(
            w: WaveBuilder,
            d: OperandSlot,
            a: OperandSlot,
            b: OperandSlot,
            c: OperandSlot,
            scale_a: OperandSlot,
            scale_b: OperandSlot,
            steps: int = steps,
        ) -> None:
            """D = (A * scales) * (B * scales) + C, with a scale per block of steps."""
            _small_product(w, d, (a, b), c, rows, (scale_a, scale_b), steps)


_small_products(16, "f32_16x16x128_f8f6f4")
_small_products(32, "f32_32x16x128_f4")
