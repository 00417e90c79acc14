"""Operations on values that do not round, as the base of arithmetic under a rounding mode.

An operation is compiled for one value of the wave's MODE register. A kernel that changes MODE continues in code for the
new mode.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir

from luthier.emulator.ir.types import ScalarType
from luthier.emulator.ir.values import Operand, TypedValue, constant
from luthier.emulator.ir.variant import FloatMode

I1 = ir.IntType(1)
I8 = ir.IntType(8)
I32 = ir.IntType(32)
I64 = ir.IntType(64)
PTR = ir.PointerType()
MASK = ScalarType("mask", 1)
SCC = ScalarType("scc", 1)


class ExactBuilder:
    """Builder of values that need no rounding."""

    def __init__(self, llvm: ir.IRBuilder, lanes: int, mode: FloatMode, major: int = 9) -> None:
        self.ir = llvm
        self.lanes = lanes
        """Number of elements of constants: lanes of the wave, twice that in packed operations, 0 in scalar ones."""
        self.mode = mode
        self.major = major
        """ISA generation, for operations declared with ``generations=True``."""
        self.processor = ""
        """``gfx942``, for operations declared with ``processors=True``."""
        self.modifiers: dict[str, int] = {}
        """Encoded instruction modifiers by operand name (``clamp``, ``omod``, …)."""
        self.floats_read: list[TypedValue] = []
        """Floats that the operation reads. An operation whose operands are declared as bits adds them itself."""
        self.floats_made: list[TypedValue] = []
        """Floats that the operation writes in results declared as bits."""

    # Making values --------------------------------------------------------------------------------------------------

    def wrap(self, llvm: Any, type: ScalarType | str) -> TypedValue:
        """Return an LLVM value with `type`."""
        return TypedValue(self, llvm, ScalarType.parse(type) if isinstance(type, str) else type)

    def const(self, type: str | ScalarType, number: int | float) -> TypedValue:
        """Return the number in every lane."""
        kind = ScalarType.parse(type) if isinstance(type, str) else type
        return self.wrap(constant(kind, number, self.lanes), kind)

    def bits_const(self, type: str, pattern: int) -> TypedValue:
        """Return a float constant given by its bit pattern: ``b.bits_const("f32", 0x7FC00000)``."""
        kind = ScalarType.parse(type)
        return self.const(f"u{kind.bits}", pattern).as_(kind)

    def like(self, other: Operand, model: TypedValue) -> TypedValue:
        """Return `other` with the type and shape of `model`; numbers become constants."""
        if isinstance(other, TypedValue):
            return other
        return self.wrap(constant(model.type, other, model.lanes), model.type)

    def lane_id(self, type: str = "u32") -> TypedValue:
        """Return 0, 1, 2, … along the lanes."""
        kind = ScalarType.parse(type)
        elements = [ir.Constant(kind.llvm, i) for i in range(self.lanes)]
        return self.wrap(ir.Constant(ir.VectorType(kind.llvm, self.lanes), elements), kind)

    def splat(self, scalar: TypedValue) -> TypedValue:
        """Return a scalar in every lane."""
        if not self.lanes or scalar.lanes:
            return scalar
        vector = ir.VectorType(scalar.llvm.type, self.lanes)
        single = self.ir.insert_element(ir.Constant(vector, ir.Undefined), scalar.llvm, ir.Constant(I32, 0))
        zeros = ir.Constant(ir.VectorType(I32, self.lanes), None)
        return self.wrap(self.ir.shuffle_vector(single, ir.Constant(vector, ir.Undefined), zeros), scalar.type)

    def shaped(self, element: ir.Type, lanes: int) -> ir.Type:
        """Return the type of a vector of `lanes` elements; the element itself for 0."""
        return ir.VectorType(element, lanes) if lanes else element

    # Bits and conversions -------------------------------------------------------------------------------------------

    def bitcast(self, value: TypedValue, type: str | ScalarType) -> TypedValue:
        """Return the same bits as another type of the same size."""
        kind = ScalarType.parse(type) if isinstance(type, str) else type
        if kind.llvm == value.type.llvm:
            return self.wrap(value.llvm, kind)
        if kind.bits != value.type.bits:
            raise TypeError(f"cannot read {value.type} as {kind}")
        return self.wrap(self.ir.bitcast(value.llvm, self.shaped(kind.llvm, value.lanes)), kind)

    def convert(self, value: TypedValue, type: str | ScalarType) -> TypedValue:
        """Return the number as another type.

        Integers are truncated, or extended by the value's sign; floats are widened.
        """
        kind = ScalarType.parse(type) if isinstance(type, str) else type
        source = value.type
        target = self.shaped(kind.llvm, value.lanes)
        if source == kind:
            return value
        if source.kind in ("mask", "scc") and not kind.is_float:
            return self.wrap(self.ir.zext(value.llvm, target), kind)
        if source.kind == "bf":
            wide = self.wrap(self.ir.zext(value.llvm, self.shaped(I32, value.lanes)), "u32") << 16
            return self.convert(wide.as_("f32"), kind)
        if source.is_float and kind.is_float and kind.bits > source.bits:
            return self.wrap(self.ir.fpext(value.llvm, target), kind)
        if source.is_float and not kind.is_float:
            raise TypeError("use b.float_to_int to convert a float to an integer: it defines results out of range")
        if kind.is_float:
            raise TypeError(f"cannot convert {source} to {kind} without rounding")
        if kind.bits == source.bits:
            return self.wrap(value.llvm, kind)
        if kind.bits < source.bits:
            return self.wrap(self.ir.trunc(value.llvm, target), kind)
        extend = self.ir.sext if source.is_signed else self.ir.zext
        return self.wrap(extend(value.llvm, target), kind)

    def float_to_int(self, value: TypedValue, type: str) -> TypedValue:
        """Truncate toward zero; out of range saturates, NaN gives 0 (ISA documents, V_CVT_*)."""
        kind = ScalarType.parse(type)
        if value.type.bits == 16:
            # On hosts with 16-bit arithmetic, LLVM's conversion returns the least integer for NaN.
            value = value.to("f32")
        operation = "fptosi" if kind.is_signed else "fptoui"
        return self.intrinsic(f"llvm.{operation}.sat", [value], kind, overload=[kind, value.type])

    # Arithmetic -----------------------------------------------------------------------------------------------------

    def binary(self, name: str, left: TypedValue, right: TypedValue) -> TypedValue:
        """Return one of add, sub, mul, and_, or_, xor, shl, shr on two integers or masks of one type."""
        left, right = self._same_shape(left, right)
        kind = left.type
        if kind.llvm != right.type.llvm:
            raise TypeError(f"{name} of different types: {left.type} and {right.type}")
        if kind.is_float:
            raise TypeError(f"{name} is not defined for {kind}")
        if name == "shr":
            name = "ashr" if kind.is_signed else "lshr"
        return self.wrap(getattr(self.ir, name)(left.llvm, right.llvm), kind)

    def _same_shape(self, left: TypedValue, right: TypedValue) -> tuple[TypedValue, TypedValue]:
        if left.lanes and not right.lanes:
            right = self.splat(right)
        elif right.lanes and not left.lanes:
            left = self.splat(left)
        return left, right

    def compare(self, relation: str, left: TypedValue, other: Operand) -> TypedValue:
        """Return the mask (or scc) of one of `==  !=  <  <=  >  >=`.

        Comparisons of floats are ordered, but `!=` is true on NaN.
        """
        left, right = self._same_shape(left, self.like(other, left))
        if left.type.kind == "f":
            make = self.ir.fcmp_unordered if relation == "!=" else self.ir.fcmp_ordered
        else:
            make = self.ir.icmp_signed if left.type.is_signed else self.ir.icmp_unsigned
        result = make(relation, left.llvm, right.llvm)
        return self.wrap(result, MASK if left.lanes else SCC)

    def is_nan(self, value: TypedValue) -> TypedValue:
        """Return a mask (or scc) of the floats that are NaN."""
        result = self.ir.fcmp_unordered("uno", value.llvm, value.llvm)
        return self.wrap(result, MASK if value.lanes else SCC)

    def select(self, condition: TypedValue, yes: Operand, no: Operand) -> TypedValue:
        """Return `yes` where the condition holds, otherwise `no`. One of them may be a number."""
        model = yes if isinstance(yes, TypedValue) else no
        if not isinstance(model, TypedValue):
            raise TypeError("select needs at least one value; both are numbers")
        left, right = self._same_shape(self.like(yes, model), self.like(no, model))
        if condition.lanes and not left.lanes:
            left, right = self.splat(left), self.splat(right)
        return self.wrap(self.ir.select(condition.llvm, left.llvm, right.llvm), left.type)

    def negate(self, value: TypedValue) -> TypedValue:
        """Flip the sign bit, also of NaN."""
        integer = f"u{value.type.bits}"
        return (value.as_(integer) ^ (1 << (value.type.bits - 1))).as_(value.type)

    def absolute(self, value: TypedValue) -> TypedValue:
        """Return the absolute value: clear a float's sign bit; wrap for the least signed integer."""
        if value.type.is_float:
            integer = f"u{value.type.bits}"
            return (value.as_(integer) & ((1 << (value.type.bits - 1)) - 1)).as_(value.type)
        return self.select(value < 0, -value, value)

    def minimum(self, left: TypedValue, right: Operand) -> TypedValue:
        """Return the smaller of two integers."""
        other = self.like(right, left)
        return self.select(left < other, left, other)

    def maximum(self, left: TypedValue, right: Operand) -> TypedValue:
        """Return the larger of two integers."""
        other = self.like(right, left)
        return self.select(left > other, left, other)

    def add_saturate(self, left: TypedValue, right: Operand) -> TypedValue:
        """Return the sum of integers, saturated to the type's range."""
        name = "llvm.sadd.sat" if left.type.is_signed else "llvm.uadd.sat"
        return self.intrinsic(name, [left, self.like(right, left)], left.type)

    def sub_saturate(self, left: TypedValue, right: Operand) -> TypedValue:
        """Return the difference of integers, saturated to the type's range."""
        name = "llvm.ssub.sat" if left.type.is_signed else "llvm.usub.sat"
        return self.intrinsic(name, [left, self.like(right, left)], left.type)

    def popcount(self, value: TypedValue) -> TypedValue:
        """Return the number of set bits, with the same type."""
        return self.intrinsic("llvm.ctpop", [value], value.type)

    def bit_reverse(self, value: TypedValue) -> TypedValue:
        """Return the bits in opposite order."""
        return self.intrinsic("llvm.bitreverse", [value], value.type)

    def leading_zeros(self, value: TypedValue) -> TypedValue:
        """Return the number of zeros above the highest set bit; the width for 0."""
        return self.intrinsic("llvm.ctlz", [value], value.type, flags=[0])

    def trailing_zeros(self, value: TypedValue) -> TypedValue:
        """Return the number of zeros below the lowest set bit; the width for 0."""
        return self.intrinsic("llvm.cttz", [value], value.type, flags=[0])

    def funnel_shift_right(self, high: TypedValue, low: TypedValue, amount: TypedValue) -> TypedValue:
        """Return the low half of ``{high, low} >> amount``; the amount is taken modulo the width."""
        return self.intrinsic("llvm.fshr", [high, low, amount], low.type)

    def floor(self, value: TypedValue) -> TypedValue:
        """Round a float to an integral value, down."""
        return self.intrinsic("llvm.floor", [value], value.type)

    def ceil(self, value: TypedValue) -> TypedValue:
        """Round a float to an integral value, up."""
        return self.intrinsic("llvm.ceil", [value], value.type)

    def truncate(self, value: TypedValue) -> TypedValue:
        """Round a float to an integral value, toward zero."""
        return self.intrinsic("llvm.trunc", [value], value.type)

    def round_even(self, value: TypedValue) -> TypedValue:
        """Round a float to an integral value, nearest even, independent of MODE."""
        return self.intrinsic("llvm.roundeven", [value], value.type)

    # LLVM functions -------------------------------------------------------------------------------------------------

    def function(self, name: str, result: ir.Type, arguments: Sequence[ir.Type]) -> ir.Function:
        """Return the declaration of an LLVM function in the module; add it if there is none."""
        module = self.ir.module
        function = module.globals.get(name)
        if function is None:
            function = ir.Function(module, ir.FunctionType(result, list(arguments)), name)
        return function

    def intrinsic(
        self,
        name: str,
        values: Sequence[TypedValue],
        result: ScalarType,
        *,
        overload: Sequence[ScalarType] | None = None,
        flags: Sequence[int] = (),
    ) -> TypedValue:
        """Call an LLVM intrinsic; `overload` defaults to the result's type."""
        lanes = values[0].lanes
        shapes = [self.shaped(kind.llvm, lanes) for kind in (overload or [result])]
        arguments = [value.llvm for value in values] + [ir.Constant(I1, flag) for flag in flags]
        callee = self.function(
            ".".join([name, *(overload_name(shape) for shape in shapes)]),
            self.shaped(result.llvm, lanes),
            [argument.type for argument in arguments],
        )
        return self.wrap(self.ir.call(callee, arguments), result)


def overload_name(llvm: ir.Type) -> str:
    """Return a type's spelling in names of LLVM intrinsics: ``v64i32``, ``f32``."""
    if isinstance(llvm, ir.VectorType):
        return f"v{llvm.count}{overload_name(llvm.element)}"
    if isinstance(llvm, ir.IntType):
        return f"i{llvm.width}"
    return {"half": "f16", "float": "f32", "double": "f64", "ptr": "p0"}[str(llvm)]
