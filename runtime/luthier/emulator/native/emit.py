"""Emission of an LLVM function for a variant.

Every compiled operation is ``i32 (ptr wave, ptr record)``. It counts its execution, works on the wave's memory, and
tail-calls the next record's function: a wave runs without returning until something stops it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from llvmlite import ir
from msgspec.structs import replace

from luthier.emulator import layout
from luthier.emulator.ir.declare import DeclaredOperation, Form, OperandSpec
from luthier.emulator.ir.dpp import apply_dpp
from luthier.emulator.ir.exceptional import halves_of, tell_floats
from luthier.emulator.ir.operands import finish_float, flush_input, read_typed, typed_rows
from luthier.emulator.ir.tracking import track
from luthier.emulator.ir.types import ScalarType
from luthier.emulator.ir.values import TypedValue, flatten
from luthier.emulator.ir.variant import HALF_READERS, FloatMode, OperandAccess, Variant
from luthier.emulator.ir.wave import OperandSlot, WaveBuilder
from luthier.emulator.native.processor import processor
from luthier.emulator.operations import operations_of
from luthier.emulator.operations.control import write_mode

I32 = ir.IntType(32)
PTR = ir.PointerType()
Write = Callable[[], None]
FUNCTION = ir.FunctionType(I32, [PTR, PTR])
PURE = (Form.LANE, Form.PACKED, Form.SCALAR)


def emit(module: ir.Module, variant: Variant) -> ir.Function:
    """Add the function of `variant` to `module`."""
    function = ir.Function(module, FUNCTION, variant.symbol)
    function.attributes.add("nounwind")
    llvm = ir.IRBuilder(function.append_basic_block())
    operation = operation_of(variant)
    lanes = 0 if operation.form is Form.SCALAR else variant.wave_size
    w = WaveBuilder(llvm, function, lanes, variant)
    w.host_masks = processor().has_masks
    if operation.counted:
        w.count()
    if operation.form is not Form.SCALAR:
        _ = w.exec  # emitted here, so that it dominates every later block
    if operation.form in PURE:
        emit_pure(w, operation, variant)
        _go_on(w)
    else:
        slots = _make_slots(w, operation, variant)
        operation.function(w, *slots)
        if operation.form is Form.WAVE:
            _go_on(w)
        if not w.ir.block.is_terminated:
            raise ValueError(f"{variant.operation} does not end its code")
    if variant.undefined:
        track(w)
    return function


def _go_on(w: WaveBuilder) -> None:
    """Continue with the next instruction, in another table if M0 was written in VGPR index mode, or if registers are
    no longer defined, or are again."""
    if w.modifiers.get("chooses_relative"):
        mode = w.load(w.wave_field("mode"), "u32")
        with w.when((mode & layout.GPR_INDEX_ENABLE) != 0):
            write_mode(w, mode)
    if w.may_change_tracking and (w.variant.all_defined or _searches(w.variant)):
        if not w.variant.all_defined:
            w.report(layout.EVENT_SEARCH)
        now = w.is_all_defined()
        with w.when(now == 0 if w.variant.all_defined else now != 0):
            write_mode(w, w.load(w.wave_field("mode"), "u32"))
    w.next()


def _searches(variant: Variant) -> bool:
    """Return whether a wave that tracks registers looks whether all are defined: where values from memory arrive."""
    return variant.operation.startswith("s_wait")


def emit_pure(w: WaveBuilder, operation: DeclaredOperation, variant: Variant) -> None:
    """Emit an operation of one of the `PURE` forms, without counting it and continuing after it."""
    if operation.form is Form.PACKED:
        _packed(w, operation, variant)
    elif operation.form is Form.SCALAR:
        _scalar(w, operation, variant)
    else:
        pending = _lane(w, operation, variant, 0)
        if variant.second is not None:
            # Both halves of a dual operation read before either writes.
            w.begin(replace(variant.second, floats=variant.floats))
            used = _slots(variant)
            pending += _lane(w, operation_of(variant.second), variant.second, used)
            w.begin(variant)
        for write in pending:
            write()


def operation_of(variant: Variant) -> DeclaredOperation:
    """Return the operation of a variant."""
    return operations_of(variant.major)[variant.operation]


def _slots(variant: Variant) -> int:
    return sum(access.slots for access in (*variant.results, *variant.sources))


def _make_slots(w: WaveBuilder, operation: DeclaredOperation, variant: Variant) -> list[OperandSlot]:
    slots = []
    position = 0
    for spec, access in zip(
        (*operation.results, *operation.sources), (*variant.results, *variant.sources), strict=True
    ):
        slots.append(w.slot(spec, access, position))
        position += access.slots
    w.free_slot = position
    return slots


def _positions(variant: Variant, start: int) -> tuple[list[int], list[int]]:
    """Return the positions of the results and of the sources in the record."""
    places: list[int] = []
    for access in (*variant.results, *variant.sources):
        places.append(start)
        start += access.slots
    return places[: len(variant.results)], places[len(variant.results) :]


def _lane(w: WaveBuilder, operation: DeclaredOperation, variant: Variant, start: int) -> list[Write]:
    """Emit reads and arithmetic, and return the writes, which the caller emits."""
    w.modifiers = dict(variant.modifiers)
    w.mode = variant.mode or FloatMode()
    result_places, source_places = _positions(variant, start)
    enabled = w.exec
    values: list[TypedValue | tuple[TypedValue, ...]] = []
    for spec, access, place in zip(operation.sources, variant.sources, source_places, strict=True):
        slot = w.slot(spec, access, place)
        if spec.is_immediate:
            values.append(slot.scalar())
            continue
        rows = slot.rows()
        if spec.name == "src0" and variant.dpp is not None and spec.type.kind != "mask":
            rows, enabled = apply_dpp(w, rows, variant.dpp, enabled)
        values.append(read_typed(w, rows, spec.type, access, flush=operation.flush))
    w.floats_read, w.floats_made = _floats(values), []
    outcome = flatten(operation.function(w, *values))
    if len(outcome) != sum(spec.type.count for spec in operation.results):
        raise ValueError(f"{variant.operation} gave {len(outcome)} results")
    left = iter(outcome)
    modifiers = w.modifiers
    mode = w.mode
    writes: list[Write] = []
    floats = list(w.floats_made)
    halves: list[TypedValue] = []
    for spec, access, place in zip(operation.results, variant.results, result_places, strict=True):
        elements = [next(left) for _ in range(spec.type.count)]
        value = elements[0]
        for element in elements:
            _check(variant, spec, element)
        slot = w.slot(spec, access, place)
        if spec.type.kind == "mask":
            bits = w.mask_bits(value & enabled)
            w.may_lose_half(bits.to("u64"))
            writes.append(partial(slot.write_scalar, bits))
            if modifiers.get("writes_exec"):
                writes.append(partial(w.write_exec, bits))
            continue
        if spec.type.is_float:
            elements = [finish_float(w, element, modifiers, mode, operation.flush) for element in elements]
            floats += elements
        elif variant.floats:
            halves += halves_of(variant.operation, value)
        rows = typed_rows(w, elements, spec.type)
        writes.append(partial(slot.write_result, rows, enabled, modifiers))
    made_apart = [([source], [half]) for source, half in zip(w.floats_read, halves, strict=False)]
    tell_floats(w, variant.operation, made_apart or [(w.floats_read, floats)], enabled)
    return writes


def _floats(values: Sequence[TypedValue | tuple[TypedValue, ...]]) -> list[TypedValue]:
    """Return the floats among operands, element by element."""
    return [element for value in values for element in flatten(value) if element.type.is_float]


def _elements(w: WaveBuilder, values: Sequence[TypedValue]) -> tuple[list[TypedValue], list[TypedValue]]:
    """Return the first and the second elements of packed numbers, from pairs of values or from vectors of both."""
    if any(value.lanes != w.wave_size for value in values):
        pairs = [w.halves(value) for value in values]
        return [low for low, _ in pairs], [high for _, high in pairs]
    return list(values[::2]), list(values[1::2])


def _check(variant: Variant, spec: OperandSpec, value: TypedValue) -> None:
    if value.type.kind == "mask" or spec.type.kind == "mask":
        matches = value.type.kind == spec.type.kind
    else:
        matches = value.type.llvm == spec.type.element.llvm
    if not matches:
        raise ValueError(f"{variant.operation}: {spec.name} is {spec.type}, the function gave {value.type}")


def _packed(w: WaveBuilder, operation: DeclaredOperation, variant: Variant) -> None:
    """Emit both 16-bit elements in one pass.

    Sources become vectors of all low elements, then all high ones.
    """
    w.modifiers = dict(variant.modifiers)
    w.mode = variant.mode or FloatMode()
    result_places, source_places = _positions(variant, 0)
    lanes = w.lanes
    values = []
    enabled = w.exec
    for spec, access, place in zip(operation.sources, variant.sources, source_places, strict=True):
        pairs = replace(spec, type=ScalarType(spec.type.kind, spec.type.bits, 2))
        rows = w.slot(pairs, access, place).rows()
        if spec.name == "src0" and variant.dpp is not None:
            rows, enabled = apply_dpp(w, rows, variant.dpp, enabled)
        pair = read_typed(w, rows, pairs.type, access, flush=operation.flush)
        assert isinstance(pair, tuple)
        if spec.type.bits == 32:
            values.append(pair)
        else:
            values.append((w.concatenate(pair[0], pair[1]),))
    spec, access = operation.results[0], variant.results[0]
    slot = w.slot(spec, access, result_places[0])
    parts: list[TypedValue] = []
    floats: list[TypedValue] = []
    w.lanes = lanes * (2 if spec.type.bits == 16 else 1)
    for elements in zip(*values, strict=True):
        value = flatten(operation.function(w, *elements))[0]
        _check(variant, spec, value)
        if spec.type.is_float:
            value = finish_float(w, value, w.modifiers, w.mode, operation.flush)
            floats.append(value)
        parts.append(value)
    w.lanes = lanes
    if variant.floats:
        both = zip(_elements(w, _floats(values)), _elements(w, floats), strict=True)
        tell_floats(w, variant.operation, [*both], enabled)
    if spec.type.bits == 16:
        parts = list(w.halves(parts[0]))
    rows = typed_rows(w, parts, ScalarType(spec.type.kind, spec.type.bits, 2))
    for index, row in enumerate(rows):
        slot.store_row(index, row, enabled)


def _look_at_halves(w: WaveBuilder, name: str, values: Sequence[TypedValue]) -> None:
    """Report a scalar instruction that may use the active lanes, or a mask of them, as 32 bits."""
    if not w.variant.undefined & layout.LANE_VALUES or not HALF_READERS.match(name):
        return
    active = w.exec_bits.to("u64")
    if name.endswith("_u64"):
        is_half = w.number(0, "u64")
        for value in values:
            is_half = is_half | w.select(value == 0xFFFFFFFF, w.number(1, "u64"), 0)
        active = w.select(is_half != 0, active, 0)
    w.may_lose_half(active)


def _scalar(w: WaveBuilder, operation: DeclaredOperation, variant: Variant) -> None:
    w.modifiers = dict(variant.modifiers)
    w.mode = variant.mode or FloatMode()
    result_places, source_places = _positions(variant, 0)
    values = []
    for spec, access, place in zip(operation.sources, variant.sources, source_places, strict=True):
        slot = w.slot(spec, access, place)
        value = slot.scalar()
        if spec.type.is_float and operation.flush:
            value = flush_input(w, value)
        values.append(value)
    _look_at_halves(w, variant.operation, values)
    outcome: Sequence[TypedValue] = flatten(operation.function(w, *values))
    if len(outcome) != len(operation.results):
        raise ValueError(f"{variant.operation} gave {len(outcome)} results")
    floats: list[TypedValue] = []
    for spec, access, place, value in zip(operation.results, variant.results, result_places, outcome, strict=True):
        if spec.type.kind != "scc":
            _check(variant, spec, value)
        if spec.type.is_float:
            value = finish_float(w, value, w.modifiers, w.mode, operation.flush)
            floats.append(value)
        w.slot(spec, access, place).write_scalar(value)
    tell_floats(w, variant.operation, [(_floats(values), floats)], w.number(1, "u64"))


__all__ = ["FUNCTION", "PURE", "OperandAccess", "emit", "emit_pure", "operation_of"]
