"""Exceptional floats of matrix operations: elements of D and their inputs from A, B and C, reported by lane.

Elements of A, B and C have flags, such as `layout.FLOAT_NAN`, of the numbers that the unit uses: negated, scaled, and 0
for denormals that it flushes. An element of D has the flags of its row of A, its column of B (in a sparse product, of
the steps that the index chooses) and its element of C.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llvmlite import ir

from luthier.emulator import layout
from luthier.emulator.ir.exact import I8, I64
from luthier.emulator.ir.exceptional import PASSED_ON, is_of_kind, report
from luthier.emulator.ir.types import ScalarType
from luthier.emulator.ir.values import TypedValue
from luthier.emulator.operations.number_formats import Format

if TYPE_CHECKING:
    from luthier.emulator.ir.wave import WaveBuilder

KINDS = (layout.FLOAT_NAN, layout.FLOAT_INFINITY, layout.FLOAT_DENORMAL)
FLAGS = (*KINDS, layout.FLOAT_ZERO)
_CELLS = 1 + len(FLAGS)
"""Number of lane masks of one kind: of lanes with such results, and, by flag, of those with such operands."""


def flags_of(w: WaveBuilder, raw: TypedValue, value: TypedValue, form: Format) -> TypedValue:
    """Return the flags of elements of A or B.

    Args:
        raw: codes.
        value: the numbers that the unit uses.
        form: format of the codes.
    """
    exponent = ((1 << form.exponent) - 1) << (form.bits - 1 - form.exponent)
    return _flags(w, value, (raw & exponent) == 0)


def flags_of_typed(w: WaveBuilder, number: TypedValue, seen: TypedValue) -> TypedValue:
    """Return the flags of elements of C, given the numbers in its type and those that the unit uses."""
    return _flags(w, seen, is_of_kind(w, number, layout.FLOAT_DENORMAL))


def _flags(w: WaveBuilder, value: TypedValue, small: TypedValue) -> TypedValue:
    zero, nan = value == 0.0, w.is_nan(value)
    masks = {
        layout.FLOAT_NAN: nan,
        layout.FLOAT_INFINITY: abs(value) == float("inf"),
        layout.FLOAT_DENORMAL: small & ~zero & ~nan,
        layout.FLOAT_ZERO: zero,
    }
    flags = None
    for bit, mask in masks.items():
        flag = w.wrap(w.ir.zext(mask.llvm, w.shaped(I8, value.lanes)), "u8") * bit
        flags = flag if flags is None else flags | flag
    assert flags is not None
    return flags


class ExceptionalLanes:
    """Lanes of an operation with exceptional results, separately by kind, and by origin and flow.

    Args:
        base: memory on the stack, of type `ExceptionalLanes.shape`.
    """

    shape = ir.ArrayType(I64, 2 * len(KINDS) * _CELLS)

    def __init__(self, w: WaveBuilder, base: Any) -> None:
        self._w, self._base = w, base
        w.ir.store(ir.Constant(self.shape, None), base)
        self._wanted = [kind for kind in KINDS if w.variant.floats & kind]

    def found(self, results: TypedValue) -> TypedValue:
        """Return whether any result of a row is exceptional: a scalar."""
        bits = self._w.number(0, "u64")
        for kind in self._wanted:
            bits = bits | self._bits(is_of_kind(self._w, results, kind))
        return bits != 0

    def add(self, results: TypedValue, flags: TypedValue, lane: Any) -> None:
        """Add a row of D.

        Args:
            results: elements of the row.
            flags: flags of each element's inputs.
            lane: lane of the first element, an i64.
        """
        for kind in self._wanted:
            exceptional = is_of_kind(self._w, results, kind)
            flows = (flags & PASSED_ON[kind]) != 0
            for row, chosen in ((0, exceptional & ~flows), (1, exceptional & flows)):
                masks = [chosen, *(chosen & ((flags & flag) != 0) for flag in FLAGS)]
                for cell, mask in enumerate(masks):
                    place = self._place(kind, row, cell)
                    bits = self._w.ir.shl(self._bits(mask).llvm, lane)
                    self._w.store(self._w.load(place, "u64") | self._w.wrap(bits, "u64"), place)

    def tell(self) -> None:
        """Emit the reports, one for each kind."""
        w = self._w
        for kind in self._wanted:
            for row in (0, 1):
                lanes, *flagged = (w.load(self._place(kind, row, cell), "u64") for cell in range(_CELLS))
                with w.when(lanes != 0):
                    report(w, [(dict(zip(FLAGS, flagged, strict=True)), {kind: lanes})])

    def _place(self, kind: int, row: int, cell: int) -> Any:
        return self._w.address(self._base, 8 * ((2 * KINDS.index(kind) + row) * _CELLS + cell))

    def _bits(self, mask: TypedValue) -> TypedValue:
        """Return a mask of a row as a scalar."""
        bits = self._w.ir.bitcast(mask.llvm, ir.IntType(mask.lanes))
        return self._w.wrap(self._w.ir.zext(bits, I64), ScalarType.parse("u64"))
