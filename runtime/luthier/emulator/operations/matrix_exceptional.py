"""Exceptional floats of matrix operations: by element of D, with those of A, B and C that enter it, and told by lane.

Elements of A, B and C have flags, `layout.FLOAT_NAN` and the like, as the unit sees them: negated, scaled, and 0 where
it takes denormals for 0. An element of D has the flags of its row of A, its column of B (of a sparse product, of those
steps that the index chooses) and its element of C.
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
"""Masks of lanes of one kind: with such results, and by flag, with such operands of these."""


def flags_of(w: WaveBuilder, raw: TypedValue, value: TypedValue, form: Format) -> TypedValue:
    """Return the flags of elements of A or B.

    Args:
        raw: codes.
        value: the numbers that the unit sees.
        form: what the codes are.
    """
    exponent = ((1 << form.exponent) - 1) << (form.bits - 1 - form.exponent)
    return _flags(w, value, (raw & exponent) == 0)


def flags_of_typed(w: WaveBuilder, number: TypedValue, seen: TypedValue) -> TypedValue:
    """Return the flags of elements of C: numbers of its type, and those that the unit sees."""
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
        one = w.wrap(w.ir.zext(mask.llvm, w.shaped(I8, value.lanes)), "u8") * bit
        flags = one if flags is None else flags | one
    assert flags is not None
    return flags


class ExceptionalLanes:
    """Lanes of an operation that have exceptional results: of each kind, origin and flow apart.

    Args:
        base: memory for it on the stack, of `ExceptionalLanes.shape`.
    """

    shape = ir.ArrayType(I64, 2 * len(KINDS) * _CELLS)

    def __init__(self, w: WaveBuilder, base: Any) -> None:
        self._w, self._base = w, base
        w.ir.store(ir.Constant(self.shape, None), base)
        self._wanted = [kind for kind in KINDS if w.variant.floats & kind]

    def found(self, results: TypedValue) -> TypedValue:
        """Return whether any of a row's results is exceptional: a scalar."""
        found = self._w.number(0, "u64")
        for kind in self._wanted:
            found = found | self._bits(is_of_kind(self._w, results, kind))
        return found != 0

    def add(self, results: TypedValue, flags: TypedValue, lane: Any) -> None:
        """Add a row of D.

        Args:
            results: its elements.
            flags: what enters each of them.
            lane: lane of the first one, an i64.
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
        """Emit code that tells of all of it, each kind by itself."""
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
