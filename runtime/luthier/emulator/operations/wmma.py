"""Matrix multiply-accumulate of GFX11 and GFX12 (WMMA): D = A * B + C of 16 x 16 results over a wave.

GFX11 wants A and B in every group of 16 lanes; GFX12 spreads k over the groups. Rows of D are dealt to the groups in
turn on GFX11, in runs on GFX12. Floats are summed in 32 bits, k in order, each step rounded once; hardware bounds that
only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from luthier.emulator.declare import OperationTable
from luthier.emulator.operands import read_typed
from luthier.emulator.operations.float8 import FORMATS
from luthier.emulator.operations.matrix import multiply_add, widen
from luthier.emulator.operations.valu_int import clamps
from luthier.emulator.types import Type
from luthier.emulator.values import Value
from luthier.emulator.variant import Access

if TYPE_CHECKING:
    from luthier.emulator.wave import Slot, WaveBuilder

operations = OperationTable()

NEGATE, OTHER, HIGH = 1, 2, 4
"""In a source's modifiers: negate (A, B: the even elements; of integers: signed), negate the odd ones or take C's
magnitude, and the high halves of C and D."""
_STATIC = ("src0_modifiers", "src1_modifiers", "src2_modifiers")
_BITS = {"f16": 16, "bf16": 16, "fp8": 8, "bf8": 8, "iu8": 8, "iu4": 4}


@dataclass(frozen=True)
class Wmma:
    """One operation; the layout follows from the generation and the wave size."""

    k: int
    left: str
    right: str
    result: str

    def per_lane(self, w: WaveBuilder) -> int:
        """Elements of A in a lane."""
        return self.k if w.major == 11 else self.k * 16 // w.wave_size

    def source(self, w: WaveBuilder, index: int, k: int) -> tuple[int, int]:
        """Lane and element of A's row (B's column) `index` at `k`."""
        per_lane = self.per_lane(w)
        return index + 16 * (k // per_lane), k % per_lane

    def row(self, w: WaveBuilder, element: int, lane: int) -> int:
        """The row of D that an element of a lane is in."""
        groups = w.wave_size // 16
        return element * groups + lane // 16 if w.major == 11 else lane // 16 * (16 // groups) + element


def _elements(w: WaveBuilder, slot: Slot, kind: str, count: int, modifiers: int) -> list[Value]:
    """The elements of A or B in a lane, as numbers that can be multiplied."""
    bits = _BITS[kind]
    rows = [slot.row(index) for index in range(max(1, bits * count // 32))]
    if kind.startswith("iu"):
        words = [row.as_("i32" if modifiers & NEGATE else "u32") for row in rows]
        return [words[place * bits // 32].bits(place * bits % 32, bits).as_("i32") for place in range(count)]
    name = "u8" if kind in FORMATS else kind
    raw = read_typed(w, rows, Type(Type.parse(name).kind, bits, count), Access("v"), flush=False)
    values = [widen(w, value, kind) for value in (raw if isinstance(raw, tuple) else (raw,))]
    if kind not in FORMATS:
        values = [
            -value if modifiers & (OTHER if place & 1 else NEGATE) else value for place, value in enumerate(values)
        ]
    return values


def _halves(w: WaveBuilder, rows: list[Value], kind: str, high: bool) -> list[Value]:
    """One half of each register as a 32-bit float."""
    return [(row >> 16 if high else row).to("u16").as_(kind).to("f32") for row in rows]


def _accumulators(w: WaveBuilder, spec: Wmma, c: Slot) -> list[Value]:
    """The elements of C in a lane, in 32 bits."""
    modifiers = w.modifiers.get("src2_modifiers", 0)
    count = 256 // w.wave_size
    if spec.result in ("f16", "bf16"):
        if w.major == 11:
            values = _halves(w, [c.row(index) for index in range(count)], spec.result, bool(modifiers & HIGH))
        else:
            rows = [c.row(index) for index in range(count // 2)]
            pairs = zip(_halves(w, rows, spec.result, False), _halves(w, rows, spec.result, True), strict=True)
            values = [value for pair in pairs for value in pair]
    else:
        values = [c.row(index).as_(spec.result) for index in range(count)]
    if spec.result == "i32":
        return values
    values = [abs(value) for value in values] if modifiers & OTHER else values
    return [-value for value in values] if modifiers & NEGATE else values


def _store(w: WaveBuilder, spec: Wmma, result: Slot, values: list[Value]) -> None:
    if spec.result not in ("f16", "bf16"):
        for index, value in enumerate(values):
            result.store_row(index, value.as_("u32"), None)
        return
    halves = [value.to(spec.result).as_("u16").to("u32") for value in values]
    if w.major == 12:
        for index in range(0, len(halves), 2):
            result.store_row(index // 2, halves[index] | (halves[index + 1] << 16), None)
        return
    high = w.modifiers.get("src2_modifiers", 0) & HIGH
    for index, half in enumerate(halves):
        old = result.row(index)
        row = (old & 0xFFFF) | (half << 16) if high else (old & 0xFFFF0000) | half
        result.store_row(index, row, None)


def _product(w: WaveBuilder, spec: Wmma, a: Slot, b: Slot, c: Slot) -> list[Value]:
    count = spec.per_lane(w)
    left = _elements(w, a, spec.left, count, w.modifiers.get("src0_modifiers", 0))
    right = _elements(w, b, spec.right, count, w.modifiers.get("src1_modifiers", 0))
    start = _accumulators(w, spec, c)
    integers = spec.result == "i32"
    totals = [w.like(0, value) for value in start] if integers else list(start)
    for k in range(spec.k):
        columns = [spec.source(w, lane % 16, k)[0] for lane in range(w.wave_size)]
        element = spec.source(w, 0, k)[1]
        column = w.shuffle(right[element], columns)
        for place in range(len(totals)):
            rows = [spec.source(w, spec.row(w, place, lane), k)[0] for lane in range(w.wave_size)]
            totals[place] = multiply_add(w, w.shuffle(left[element], rows), column, totals[place])
    if integers:
        # Products alone never overflow.
        return [
            w.add_saturate(value, total) if clamps(w) else value + total
            for value, total in zip(start, totals, strict=True)
        ]
    return totals


def _declare(major: int, name: str, spec: Wmma) -> None:
    settings: dict[str, Any] = {"eight_bit": True} if spec.left in FORMATS else {}
    declare: Callable[..., Any] = operations.wave(
        name,
        "src0:u32x8 src1:u32x8 src2:u32x8 -> u32x8",
        exact=spec.result == "i32",
        static=_STATIC,
        majors=(major,),
        **settings,
    )

    @declare
    def wmma(w: WaveBuilder, result: Slot, a: Slot, b: Slot, c: Slot) -> None:
        """D = A * B + C."""
        _store(w, spec, result, w.with_rounding(0, lambda _: _product(w, spec, a, b, c)))


for _major in (11, 12):
    for _result, _source in (("f32", "f16"), ("f32", "bf16"), ("f16", "f16"), ("bf16", "bf16")):
        _declare(_major, f"v_wmma_{_result}_16x16x16_{_source}", Wmma(16, _source, _source, _result))
    for _source in ("iu8", "iu4"):
        _declare(_major, f"v_wmma_i32_16x16x16_{_source}", Wmma(16, _source, _source, "i32"))
_declare(12, "v_wmma_i32_16x16x32_iu4", Wmma(32, "iu4", "iu4", "i32"))
for _left in FORMATS:
    for _right in FORMATS:
        _declare(12, f"v_wmma_f32_16x16x16_{_left}_{_right}", Wmma(16, _left, _right, "f32"))
