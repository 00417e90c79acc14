"""Matrix multiply-accumulate of GFX9 with accumulation registers (MFMA): D = A * B + C for one or several blocks.

Where elements are (AMD matrix instruction calculator; ISA documents, "Matrix arithmetic instructions"): a lane holds
consecutive k of one row of A, and of one column of B. Sums run over k in order, each step a fused multiply-add that
rounds to nearest; hardware orders and rounds the partial sums of 8- and 16-bit floats its own way, so those are
bounded. EXEC is ignored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from luthier.emulator.declare import OperationTable
from luthier.emulator.operands import read_typed
from luthier.emulator.operations.float8 import FORMATS, decode
from luthier.emulator.types import Type
from luthier.emulator.values import Value
from luthier.emulator.variant import Access

if TYPE_CHECKING:
    from luthier.emulator.wave import Slot, WaveBuilder

operations = OperationTable()


def elements(slot: Slot, kind: Type | None = None) -> list[Value]:
    """The elements of an operand in every lane, denormals kept."""
    chosen = kind or slot.spec.type
    value = read_typed(slot.w, slot.rows(), chosen, Access("v"), flush=False)
    return [value] if isinstance(value, Value) else list(value)


def store(slot: Slot, values: Sequence[Value]) -> None:
    """Write an operand's elements in every lane, whatever EXEC is."""
    from luthier.emulator.operands import typed_rows

    for index, row in enumerate(typed_rows(slot.w, list(values), slot.spec.type)):
        slot.store_row(index, row, None)


def widen(w: WaveBuilder, value: Value, kind: str) -> Value:
    """One element of A or B as a number that can be multiplied: a 32- or 64-bit float, or a signed 32-bit integer."""
    if kind in FORMATS:
        return decode(w, value, kind, ocp=bool(w.modifiers.get("ocp")))
    if kind in ("i8", "f16", "bf16"):
        return value.to("i32" if kind == "i8" else "f32")
    if kind == "xf32":
        # Ten bits of fraction, to nearest even.
        bits = value.as_("u32")
        rounded = (bits + 0xFFF + ((bits >> 13) & 1)) & 0xFFFFE000
        return w.select(w.is_nan(value), bits, rounded).as_("f32")
    return value


def multiply_add(w: WaveBuilder, x: Value, y: Value, z: Value) -> Value:
    """x * y + z, of floats rounded once."""
    return w.fma(x, y, z) if z.type.is_float else x * y + z


@dataclass(frozen=True)
class Shape:
    """One MFMA: `blocks` products of m x k by k x m."""

    m: int
    k: int
    blocks: int
    source: str
    """Element of A and B."""
    result: str
    """Element of C and D."""
    other: str = ""
    """Element of B where it is not that of A."""

    @property
    def per_lane(self) -> int:
        """Elements of A, and of B, in a lane."""
        return self.m * self.k * self.blocks // 64

    def element_type(self, kind: str) -> str:
        return {"xf32": "f32", "fp8": "u8", "bf8": "u8"}.get(kind, kind)

    def source_type(self, kind: str) -> str:
        name = self.element_type(kind)
        return name if self.per_lane == 1 else f"{name}x{self.per_lane}"

    @property
    def outputs(self) -> int:
        """Elements of D in a lane."""
        return self.m * self.m * self.blocks // 64

    @property
    def result_type(self) -> str:
        return self.result if self.outputs == 1 else f"{self.result}x{self.outputs}"

    def source_lane(self, row: int, k: int, block: int) -> int:
        """The lane that holds an element of A (of B: column for row)."""
        return self.m * block + self.m * self.blocks * (k // self.per_lane) + row

    def output(self, register: int, lane: int) -> tuple[int, int, int]:
        """Row, column and block of D that an element of a lane is."""
        column = lane % self.m
        if self.result == "f64":
            if self.blocks == 1:
                return 4 * register + lane // 16, column, 0
            return lane // 16, column, lane // 4 % 4
        if self.m == 4:
            return register, column, lane // 4
        per_block = self.m * self.m // 64
        block, within = divmod(register, per_block)
        group = lane // self.m
        return 8 * (within // 4) + 4 * group + within % 4, column, block


def _broadcast_block(block: int, cbsz: int, abid: int) -> int:
    """The block of A that CBSZ and ABID put in place of `block`: groups of 2**cbsz share their block `abid`."""
    return (block >> cbsz << cbsz) + abid if cbsz else block


def _lane_group(lane: int, blgp: int) -> int:
    """The lane of B that BLGP puts in place of `lane`."""
    return {
        0: lane,
        1: lane % 32,
        2: 32 + lane % 32,
        3: (lane + 16) % 64,
        4: lane % 16,
        5: 16 + lane % 16,
        6: 32 + lane % 16,
        7: 48 + lane % 16,
    }[blgp]


def product(w: WaveBuilder, shape: Shape, a: list[Value], b: list[Value], totals: list[Value]) -> list[Value]:
    """The elements of D from those of A, B and C."""
    cbsz, abid, blgp = (w.modifiers.get(name, 0) for name in ("cbsz", "abid", "blgp"))
    left = [widen(w, value, shape.source) for value in a]
    right = [widen(w, value, shape.other or shape.source) for value in b]
    if shape.result == "f64":
        # There BLGP negates A, B, C.
        left = [-value for value in left] if blgp & 1 else left
        right = [-value for value in right] if blgp & 2 else right
        totals = [-value for value in totals] if blgp & 4 else totals
        blgp = 0
    # The steps over k of all registers, so that a shuffle of B that several registers share is made once.
    shuffled: dict[tuple[int, tuple[int, ...]], Value] = {}
    for k in range(shape.k):
        element = k % shape.per_lane
        for register in range(shape.outputs):
            places = [shape.output(register, lane) for lane in range(64)]
            rows = [shape.source_lane(row, k, _broadcast_block(block, cbsz, abid)) for row, _, block in places]
            columns = tuple(_lane_group(shape.source_lane(column, k, block), blgp) for _, column, block in places)
            key = (element, columns)
            if key not in shuffled:
                shuffled[key] = w.shuffle(right[element], columns)
            totals[register] = multiply_add(w, w.shuffle(left[element], rows), shuffled[key], totals[register])
        shuffled.clear()
    return totals


def _declare(names: str, shape: Shape) -> None:
    signature = (
        f"{shape.source_type(shape.source)} {shape.source_type(shape.other or shape.source)} {shape.result_type}"
        f" -> {shape.result_type}"
    )
    exact = shape.result != "f32"
    settings: dict[str, bool] = {"eight_bit": True} if shape.source in FORMATS else {}

    @operations.wave(names, signature, exact=exact, static=("cbsz", "abid", "blgp"), **settings)
    def mfma(w: WaveBuilder, result: Slot, a: Slot, b: Slot, c: Slot) -> None:
        """D = A * B + C."""
        store(result, w.with_rounding(0, lambda _: product(w, shape, elements(a), elements(b), elements(c))))


def _family(source: str, result: str, shapes: Sequence[tuple[int, int, int]], old: str = "", new: str = "") -> None:
    """Shapes (m, k, blocks) of one type; `old` is how GFX908 and GFX90A spell the type, `new` how later targets do."""
    for m, k, blocks in shapes:
        names = []
        if old:
            names.append(f"v_mfma_{result}_{m}x{m}x{k}{old}")
        if new:
            names.append(f"v_mfma_{result}_{m}x{m}x{k}{f'_{blocks}b' if blocks > 1 else ''}_{new}")
        _declare(" ".join(names), Shape(m, k, blocks, source, result))


_family("f32", "f32", [(32, 1, 2), (16, 1, 4), (4, 1, 16), (32, 2, 1), (16, 4, 1)], "f32", "f32")
_family("f16", "f32", [(32, 4, 2), (16, 4, 4), (4, 4, 16), (32, 8, 1), (16, 16, 1)], "f16", "f16")
_family("f16", "f32", [(32, 16, 1), (16, 32, 1)], new="f16")
_family("bf16", "f32", [(32, 2, 2), (16, 2, 4), (4, 2, 16), (32, 4, 1), (16, 8, 1)], "bf16")
_family("bf16", "f32", [(32, 4, 2), (16, 4, 4), (4, 4, 16), (32, 8, 1), (16, 16, 1)], "bf16_1k", "bf16")
_family("bf16", "f32", [(32, 16, 1), (16, 32, 1)], new="bf16")
_family("i8", "i32", [(32, 4, 2), (16, 4, 4), (4, 4, 16), (32, 8, 1), (16, 16, 1)], "i8")
_family("i8", "i32", [(32, 4, 2), (16, 4, 4), (4, 4, 16), (32, 16, 1), (16, 32, 1)], new="i8")
_family("i8", "i32", [(32, 32, 1), (16, 64, 1)], new="i8")
_family("xf32", "f32", [(32, 4, 1), (16, 8, 1)], new="xf32")
_family("f64", "f64", [(16, 4, 1), (4, 4, 4)], "f64", "f64")
for _left in FORMATS:
    for _right in FORMATS:
        for _m, _k in ((32, 16), (16, 32)):
            _declare(f"v_mfma_f32_{_m}x{_m}x{_k}_{_left}_{_right}", Shape(_m, _k, 1, _left, "f32", _right))
