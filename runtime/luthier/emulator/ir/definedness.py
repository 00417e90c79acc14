"""Rules by which undefined bits propagate from the operands of an LLVM instruction to its result.

A shadow is an integer (or a vector of them) with a bit for each bit of a value: 1 if the bit is undefined. None stands
for a value whose bits are all defined. An instruction without a rule of its own has, lane by lane, an undefined result
if any bit of an operand is undefined.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir

from luthier.emulator.ir.exact import I1

Shadow = Any
"""An LLVM value, or None."""
Rule = Callable[[ir.IRBuilder, Any, Sequence[Shadow]], Shadow]
_WIDTHS = {"half": 16, "float": 32, "double": 64}


def bits_type(type: ir.Type) -> Any:
    """Return the type of a value's bits: integers for floats."""
    if isinstance(type, ir.VectorType):
        return ir.VectorType(bits_type(type.element), type.count)
    return type if isinstance(type, ir.IntType) else ir.IntType(_WIDTHS[str(type)])


def has_bits(type: ir.Type) -> bool:
    """Return whether values of a type have a shadow: numbers do, pointers and structures do not."""
    element = type.element if isinstance(type, ir.VectorType) else type
    return isinstance(element, ir.IntType) or str(element) in _WIDTHS


def bits_of(b: ir.IRBuilder, value: Any) -> Any:
    """Return a value's bits."""
    type = bits_type(value.type)
    return value if type == value.type else b.bitcast(value, type)


def lanes_of(type: ir.Type) -> int:
    """Return the number of elements; 0 for a scalar."""
    return type.count if isinstance(type, ir.VectorType) else 0


def every(type: ir.Type, number: int = -1) -> Any:
    """Return a constant with the number in each element; by default, all bits are set."""
    if not isinstance(type, ir.VectorType):
        return ir.Constant(type, number & ((1 << type.width) - 1))
    scalar = every(type.element, number)
    splat = ir.FormattedConstant(type.element, f"splat ({type.element} {scalar.get_reference()})")
    splat.type = type
    return splat


def either(b: ir.IRBuilder, shadows: Sequence[Shadow]) -> Shadow:
    """Return the union of shadows of one type."""
    union = None
    for shadow in shadows:
        if shadow is not None:
            union = shadow if union is None else b.or_(union, shadow)
    return union


def any_bit(b: ir.IRBuilder, shadow: Any) -> Any:
    """Return whether any bit of a whole shadow is set, as i1."""
    if isinstance(shadow.type, ir.VectorType):  # by lanes, as LLVM takes minutes for wide integers
        shadow = b.bitcast(lane_bits(b, shadow), ir.IntType(shadow.type.count))
    return shadow if shadow.type == I1 else b.icmp_unsigned("!=", shadow, ir.Constant(shadow.type, 0))


def lane_bits(b: ir.IRBuilder, shadow: Any) -> Any:
    """Return for each lane whether any bit is set: a vector of i1, or i1."""
    element = shadow.type.element if isinstance(shadow.type, ir.VectorType) else shadow.type
    return shadow if element == I1 else b.icmp_unsigned("!=", shadow, every(shadow.type, 0))


def spread(b: ir.IRBuilder, flags: Any, type: ir.Type) -> Any:
    """Return each flag in all bits of a lane of `type`; a scalar flag goes to all lanes."""
    if flags.type == type:
        return flags
    if isinstance(type, ir.VectorType) and not isinstance(flags.type, ir.VectorType):
        return b.select(flags, every(type), every(type, 0))
    return b.sext(flags, type)


def whole(b: ir.IRBuilder, instruction: Any, shadows: Sequence[Shadow]) -> Shadow:
    """Return the shadow of a result that is undefined if any operand is; by lanes, if operands have as many."""
    type = bits_type(instruction.type)
    undefined = None
    for shadow in shadows:
        if shadow is not None:
            alike = lanes_of(shadow.type) == lanes_of(type)
            part = spread(b, lane_bits(b, shadow) if alike else any_bit(b, shadow), type)
            undefined = part if undefined is None else b.or_(undefined, part)
    return undefined


# Bits and numbers ---------------------------------------------------------------------------------------------------


def _and(b: ir.IRBuilder, instruction: Any, shadows: Sequence[Shadow]) -> Shadow:
    (x, y), (of_x, of_y) = instruction.operands, shadows
    both = None if of_x is None or of_y is None else b.and_(of_x, of_y)
    return either(b, [both, of_x and b.and_(of_x, y), of_y and b.and_(x, of_y)])


def _or(b: ir.IRBuilder, instruction: Any, shadows: Sequence[Shadow]) -> Shadow:
    (x, y), (of_x, of_y) = instruction.operands, shadows
    both = None if of_x is None or of_y is None else b.and_(of_x, of_y)
    return either(b, [both, of_x and b.and_(of_x, b.not_(y)), of_y and b.and_(b.not_(x), of_y)])


def _carried(b: ir.IRBuilder, instruction: Any, shadows: Sequence[Shadow]) -> Shadow:
    """Return all bits from the lowest undefined one: carries propagate upwards."""
    undefined = either(b, shadows)
    return b.or_(undefined, b.neg(undefined))


def _shifted(b: ir.IRBuilder, instruction: Any, shadows: Sequence[Shadow]) -> Shadow:
    of_x, of_amount = shadows
    shift = getattr(b, "shl" if instruction.opname == "shl" else instruction.opname)
    moved = None if of_x is None else shift(of_x, instruction.operands[1])
    return either(b, [moved, whole(b, instruction, [of_amount])])


def _same_bits(b: ir.IRBuilder, instruction: Any, shadows: Sequence[Shadow]) -> Shadow:
    type = bits_type(instruction.type)
    return shadows[0] if shadows[0].type == type else b.bitcast(shadows[0], type)


# Decisions ----------------------------------------------------------------------------------------------------------


def _compared(b: ir.IRBuilder, instruction: Any, shadows: Sequence[Shadow]) -> Shadow:
    """Return whether the outcome of a comparison depends on undefined bits."""
    (x, y), relation = instruction.operands, instruction.op
    undefined = either(b, shadows)
    if relation in ("eq", "ne"):
        differs = b.icmp_unsigned("!=", b.and_(b.xor(x, y), b.not_(undefined)), every(undefined.type, 0))
        return b.and_(lane_bits(b, undefined), b.not_(differs))
    if relation.startswith("s"):
        element = undefined.type.element if isinstance(undefined.type, ir.VectorType) else undefined.type
        sign = every(undefined.type, 1 << element.width - 1)
        x, y = b.xor(x, sign), b.xor(y, sign)
    least = [
        value if shadow is None else b.and_(value, b.not_(shadow))
        for value, shadow in zip((x, y), shadows, strict=True)
    ]
    most = [value if shadow is None else b.or_(value, shadow) for value, shadow in zip((x, y), shadows, strict=True)]
    sign_of = {"lt": "<", "le": "<=", "gt": ">", "ge": ">="}[relation[1:]]
    return b.xor(b.icmp_unsigned(sign_of, least[0], most[1]), b.icmp_unsigned(sign_of, most[0], least[1]))


def _selected(b: ir.IRBuilder, instruction: Any, shadows: Sequence[Shadow]) -> Shadow:
    """Return the shadow of the chosen value; of both and of the bits that differ, if the choice is undefined."""
    condition, yes, no = instruction.operands
    of_choice, of_yes, of_no = shadows
    type = bits_type(instruction.type)
    nothing = every(type, 0)
    chosen = None
    if of_yes is not None or of_no is not None:
        chosen = b.select(condition, nothing if of_yes is None else of_yes, nothing if of_no is None else of_no)
    if of_choice is None:
        return chosen
    apart = either(b, [b.xor(bits_of(b, yes), bits_of(b, no)), of_yes, of_no])
    return b.select(of_choice, apart, nothing if chosen is None else chosen)


# Vectors ------------------------------------------------------------------------------------------------------------


def _filled(shadow: Shadow, value: Any) -> Any:
    return every(bits_type(value.type), 0) if shadow is None else shadow


def _extracted(b: ir.IRBuilder, instruction: Any, shadows: Sequence[Shadow]) -> Shadow:
    taken = None if shadows[0] is None else b.extract_element(shadows[0], instruction.operands[1])
    return either(b, [taken, whole(b, instruction, shadows[1:])])


def _inserted(b: ir.IRBuilder, instruction: Any, shadows: Sequence[Shadow]) -> Shadow:
    vector, value, index = instruction.operands
    put = b.insert_element(_filled(shadows[0], vector), _filled(shadows[1], value), index)
    return either(b, [put, whole(b, instruction, shadows[2:])])


def _shuffled(b: ir.IRBuilder, instruction: Any, shadows: Sequence[Shadow]) -> Shadow:
    first, second, mask = instruction.operands
    return b.shuffle_vector(_filled(shadows[0], first), _filled(shadows[1], second), mask)


# Functions ----------------------------------------------------------------------------------------------------------


def _funnelled(b: ir.IRBuilder, instruction: Any, shadows: Sequence[Shadow]) -> Shadow:
    high, low, amount = instruction.args
    moved = b.call(instruction.callee, [_filled(shadows[0], high), _filled(shadows[1], low), amount])
    return either(b, [moved, whole(b, instruction, shadows[2:])])


_FUNCTIONS: dict[str, Rule] = {
    "llvm.bitreverse.": lambda b, instruction, shadows: b.call(instruction.callee, [shadows[0]]),
    "llvm.fshr.": _funnelled,
}
_RULES: dict[str, Rule] = {
    "and": _and,
    "or": _or,
    "xor": lambda b, instruction, shadows: either(b, shadows),
    "bitcast": _same_bits,
    "icmp": _compared,
    "select": _selected,
    "extractelement": _extracted,
    "insertelement": _inserted,
    "shufflevector": _shuffled,
    **dict.fromkeys(("add", "sub", "mul"), _carried),
    **dict.fromkeys(("shl", "lshr", "ashr"), _shifted),
    **dict.fromkeys(
        ("zext", "sext", "trunc"),
        lambda b, instruction, shadows: getattr(b, instruction.opname)(shadows[0], instruction.type),
    ),
}


def result_shadow(b: ir.IRBuilder, instruction: Any, shadows: Sequence[Shadow]) -> Shadow:
    """Return the shadow of an instruction's result, given those of its operands (for a call, its arguments)."""
    if instruction.opname == "call":
        name = instruction.callee.name
        rule = next((rule for start, rule in _FUNCTIONS.items() if name.startswith(start)), whole)
    else:
        rule = _RULES.get(instruction.opname, whole)
    return rule(b, instruction, shadows)
