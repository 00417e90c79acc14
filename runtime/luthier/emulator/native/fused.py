"""Emission of one LLVM function for a straight run of instructions.

The code of a single instruction loads the rows of its operands and stores the row of its result for all lanes. In a
run, a chunk of lanes goes through all vector instructions instead, with each row in a host register: loaded once and
stored once. Nothing else may differ: each instruction counts in its own record, EXEC does not change, and a wave that
jumps into the middle of the run finds the records there unchanged. LLVM must not optimize across instructions, nor see
constants: it treats the sign and the payload of NaN as unspecified, so an instruction would compute other NaN in a run
than alone. One difference remains: LLVM may swap factors and summands, so an operation on several NaN may return
another one in a run (docs/emulator.md, "Which NaN").
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import Any

from llvmlite import ir
from msgspec import Struct

from luthier.emulator import layout
from luthier.emulator.ir.declare import Form, OperandSpec, Unsupported
from luthier.emulator.ir.exact import I1, I32, I64, MASK
from luthier.emulator.ir.values import TypedValue
from luthier.emulator.ir.variant import FusedKey, OperandAccess, Variant
from luthier.emulator.ir.wave import OperandSlot, WaveBuilder
from luthier.emulator.native.emit import FUNCTION, PURE, emit_pure, operation_of
from luthier.emulator.native.processor import processor
from luthier.emulator.operations.control import timing_only

_COUNTS = ir.VectorType(I64, 2)
_SHORT = 16
"""Largest number of instructions in a short segment, whose rows are read again soon."""
_LITERALS = ("k", "K")


class _WaveBytes(Struct, frozen=True):
    """Bytes of a wave that hold an operand."""

    first: int
    size: int
    is_mask: bool = False

    def overlaps(self, other: _WaveBytes) -> bool:
        return self.first < other.first + other.size and other.first < self.first + self.size


class FusedStep(Struct, frozen=True):
    """Instruction of a run, with the bytes of a wave that it reads and writes."""

    variant: Variant
    slots: tuple[int, ...]
    form: Form
    reads: tuple[_WaveBytes, ...]
    writes: tuple[_WaveBytes, ...]

    @property
    def masks(self) -> list[_WaveBytes]:
        """Return the masks that the instruction writes."""
        return [place for place in self.writes if place.is_mask]


_LEAVE = {"writes_exec", "chooses_relative"}
"""Modifiers of instructions that no run contains."""


@functools.lru_cache(4096)
def step_of(variant: Variant | None, slots: tuple[int, ...]) -> FusedStep | None:
    """Return an instruction as a step of a run; None if runs cannot contain it.

    Args:
        variant: None for a branch.
        slots: the slots of its record.
    """
    if variant is None or variant.stepping or variant.observed or variant.floats or variant.undefined:
        return None
    halves = [variant] if variant.second is None else [variant, variant.second]
    reads: list[_WaveBytes] = []
    writes: list[_WaveBytes] = []
    position = 0
    for half in halves:
        operation = operation_of(half)
        if operation.function is timing_only:
            return FusedStep(half, slots, operation.form, (), ())
        if operation.form not in PURE or not operation.counted or half.dpp or _LEAVE & dict(half.modifiers).keys():
            return None
        specs = (*operation.results, *operation.sources)
        for spec, access in zip(specs, (*half.results, *half.sources), strict=True):
            if access.relative or access.bank:
                return None
            place = _place(spec, access, slots, position, half.wave_size, operation.form)
            if place is not None:
                (writes if spec.is_result else reads).append(place)
            position += access.slots
    changes = _WaveBytes(layout.EXEC, 8)
    if any(place.overlaps(changes) for place in writes):
        return None
    return FusedStep(variant, slots, operation_of(variant).form, tuple(reads), tuple(writes))


def _place(
    spec: OperandSpec, access: OperandAccess, slots: Sequence[int], position: int, wave_size: int, form: Form
) -> _WaveBytes | None:
    """Return the bytes of an operand; None if it is not in a register."""
    if spec.type.kind == "scc":
        return _WaveBytes(layout.WAVE["scc"], 4)
    if access.kind in ("-", "i", *_LITERALS):
        return None
    if spec.type.kind == "mask":
        return _WaveBytes(slots[position], wave_size // 8, is_mask=True)
    units = max(1, spec.type.units * (2 if form is Form.PACKED and spec.type.bits == 32 else 1))
    return _WaveBytes(slots[position], 4 * units * (wave_size if access.kind == "v" else 1))


def emit_run(module: ir.Module, run: FusedKey) -> ir.Function:
    """Add the function of a run to `module`.

    Raises:
        Unsupported: runs cannot contain one of the instructions.
    """
    steps = [step_of(variant, slots) for variant, slots in zip(run.variants, run.slots, strict=True)]
    function = ir.Function(module, FUNCTION, run.symbol)
    function.attributes.add("nounwind")
    for argument in function.args:
        argument.add_attribute("noalias")
    if not processor().chunk_lanes:
        raise Unsupported("runs on a host without AVX2")
    w = _RunBuilder(ir.IRBuilder(function.append_basic_block()), function, run.variants[0])
    w.count_all(len(steps))
    number = 0
    for segment in segments([step for step in steps if step is not None]):
        if segment[0].form is Form.SCALAR:
            for at, step in enumerate(segment, number):
                w.enter(step, at)
                emit_pure(w, operation_of(step.variant), step.variant)
        elif any(step.form in PURE for step in segment):
            with w.chunks(segment):
                for at, step in enumerate(segment, number):
                    w.enter(step, at)
                    if step.form in PURE:
                        emit_pure(w, operation_of(step.variant), step.variant)
        number += len(segment)
    if number != len(run.variants):
        raise Unsupported("an instruction that runs cannot contain")
    w.leave(number)
    return function


def segments(steps: Sequence[FusedStep]) -> Iterator[list[FusedStep]]:
    """Yield segments of a run, of either scalar or vector instructions only.

    In a vector segment no instruction reads a part of a mask that an earlier one writes.
    """
    for is_scalar, group in groupby(steps, lambda step: step.form is Form.SCALAR):
        if is_scalar:
            yield list(group)
            continue
        part: list[FusedStep] = []
        masks: list[_WaveBytes] = []
        for step in group:
            used = [*step.reads, *step.masks]
            if any(place != mask and place.overlaps(mask) for place in used for mask in masks):
                yield part
                part, masks = [], []
            part.append(step)
            masks += step.masks
        yield part


class _RunBuilder(WaveBuilder):
    """Builder of all instructions of a run; inside `chunks` its vectors have the lanes of a chunk."""

    def __init__(self, llvm: ir.IRBuilder, function: ir.Function, variant: Variant) -> None:
        super().__init__(llvm, function, 0, variant)
        self.chunk_lanes = processor().chunk_lanes
        self.host_masks = processor().has_masks
        self._row_of_chunk = ir.VectorType(I32, self.chunk_lanes)
        self._mask_of_chunk = ir.VectorType(I1, self.chunk_lanes)
        self._constraint = "=v,0" if self.chunk_lanes == 16 else "=x,0"
        self.first = self.record
        self.slots: tuple[int, ...] = ()
        self._number = 0
        self.rows: dict[int, TypedValue] = {}
        """Values of rows in the chunk's lanes, by offset in the wave."""
        self.masks: dict[int, TypedValue] = {}
        self._changed: set[int] = set()
        self._sums: dict[int, Any] = {}
        """By offset of a mask: its bits for the chunks so far."""
        self._splats: dict[int, TypedValue] = {}
        self._before: ir.Block | None = None
        self._chunk: Any = None

    def count_all(self, count: int) -> None:
        """Count one execution and its active lanes in each record."""
        lanes = self.popcount(self.exec_bits).llvm
        amounts = ir.Constant(_COUNTS, [I64(1), I64(0)])
        amounts = self.ir.insert_element(amounts, lanes, I32(1))
        for number in range(count):
            place = self.address(self.first, number * layout.RECORD.size + layout.RECORD["count"])
            self.ir.store(self.ir.add(self.ir.load(place, typ=_COUNTS, align=8), amounts), place, align=8)

    def enter(self, step: FusedStep, number: int) -> None:
        """Begin the code of an instruction of the run."""
        self.begin(step.variant)
        self.slots, self._number = step.slots, number
        if step.form is Form.SCALAR:
            fence = ir.InlineAsm(ir.FunctionType(ir.VoidType(), []), "", "~{memory}", side_effect=True)
            self.ir.call(fence, [])
            self.record = self.address(self.first, number * layout.RECORD.size)

    def leave(self, count: int) -> None:
        """Continue after the run."""
        self.jump(self.address(self.first, count * layout.RECORD.size))

    @contextmanager
    def chunks(self, segment: Sequence[FusedStep]) -> Iterator[None]:
        """Emit a loop over the chunks of a wave; the code emitted inside is its body."""
        self._before, head = self.ir.block, self.llvm_function.append_basic_block("chunk")
        behind = self.llvm_function.append_basic_block("behind")
        self.rows, self.masks, self._changed, self._splats = {}, {}, set(), {}
        self.lanes = self.chunk_lanes
        self.ir.position_at_end(head)
        self._chunk = self.ir.phi(I64)
        whole = ir.IntType(self.wave_size)
        phis = {place.first: self.ir.phi(whole) for step in segment for place in step.masks}
        self._sums = dict(phis)
        self._exec = self._mask_at(layout.EXEC)
        yield
        self._store_rows(whole=len(segment) <= _SHORT or not self.host_masks)
        following = self.ir.add(self._chunk, I64(1))
        last = self.ir.block
        self._chunk.add_incoming(I64(0), self._before)
        self._chunk.add_incoming(following, last)
        for place, phi in phis.items():
            phi.add_incoming(whole(0), self._before)
            phi.add_incoming(self._sums[place], last)
        self.ir.cbranch(self.ir.icmp_unsigned("<", following, I64(self.wave_size // self.chunk_lanes)), head, behind)
        with self.ir.goto_block(self._before):
            self.ir.branch(head)
        self.ir.position_at_end(behind)
        for place in phis:
            self.ir.store(self._sums[place], self.address(self.wave, place), align=4)
        self.lanes, self._exec = 0, None

    def _store_rows(self, *, whole: bool) -> None:
        """Store the rows that have changed.

        Args:
            whole: avoid masked stores, because the rows are read again soon (see `store_where`).
        """
        store = self.function(
            f"llvm.masked.store.v{self.chunk_lanes}i32.p0",
            ir.VoidType(),
            [self._row_of_chunk, ir.PointerType(), I32, self._mask_of_chunk],
        )
        for place in sorted(self._changed):
            row, address = self.rows[place], self._row_address(place)
            if whole:
                self.store_where(self.exec, row, address, hidden=True)
            else:
                self.ir.call(store, [row.llvm, address, I32(4 * self.chunk_lanes), self.exec.llvm])

    def _row_address(self, place: int) -> Any:
        return self.address(self.wave, self.ir.add(self.ir.mul(self._chunk, I64(4 * self.chunk_lanes)), I64(place)))

    def _mask_at(self, place: int) -> TypedValue:
        """Return the chunk's lanes of a mask in the wave."""
        address = self.address(self.wave, self.ir.add(self.ir.mul(self._chunk, I64(self.chunk_lanes // 8)), I64(place)))
        bits = self.ir.load(address, typ=ir.IntType(self.chunk_lanes), align=self.chunk_lanes // 8)
        return self.wrap(self.ir.bitcast(bits, self._mask_of_chunk), MASK)

    # For slots ------------------------------------------------------------------------------------------------------

    def slot(self, spec: OperandSpec, access: OperandAccess, position: int) -> OperandSlot:
        """Return one operand of the current instruction."""
        return (_RunSlot if self.lanes else OperandSlot)(self, spec, access, position)

    def slot_value(self, position: int) -> TypedValue:
        """Return the value of a slot as a constant."""
        return self.number(self.slots[position])

    def row(self, place: int) -> TypedValue:
        """Return the row at an offset in the wave."""
        if place not in self.rows:
            self.rows[place] = self.wrap(
                self.ir.load(self._row_address(place), typ=self._row_of_chunk, align=4 * self.chunk_lanes), "u32"
            )
        return self.rows[place]

    def write_row(self, place: int, value: TypedValue) -> None:
        """Set active lanes of a row; the segment stores the row at its end."""
        opaque = ir.InlineAsm(ir.FunctionType(self._row_of_chunk, [self._row_of_chunk]), "", self._constraint)
        self.rows[place] = self.wrap(self.ir.call(opaque, [value.llvm]), value.type)
        self._changed.add(place)

    def mask(self, place: int) -> TypedValue:
        """Return the mask at an offset in the wave."""
        if place not in self.masks:
            self.masks[place] = self._mask_at(place)
        return self.masks[place]

    def write_mask(self, place: int, bits: TypedValue) -> None:
        """Set the chunk's bits of a mask."""
        self.masks[place] = self.wrap(self.ir.bitcast(bits.llvm, self._mask_of_chunk), MASK)
        whole = ir.IntType(self.wave_size)
        shift = self.ir.mul(self._chunk, I64(self.chunk_lanes))
        if self.wave_size < 64:
            shift = self.ir.trunc(shift, whole)
        # Replace the bits of an earlier write in this segment; do not OR into them.
        kept = self.ir.and_(self._sums[place], self.ir.not_(self.ir.shl(whole((1 << self.chunk_lanes) - 1), shift)))
        self._sums[place] = self.ir.or_(kept, self.ir.shl(self.ir.zext(bits.llvm, whole), shift))

    def splat_at(self, place: int) -> TypedValue:
        """Return the 32 bits at an offset in the wave, in every lane."""
        splat = self._splats.get(place)
        if splat is None:
            splat = self._splats[place] = self._splat_of(self.wave, place)
        return splat

    def literal(self, number: int) -> TypedValue:
        """Return the literal in a slot of the current record, in every lane."""
        place = layout.RECORD["slots"] + 4 * number
        return self._splat_of(self.first, self._number * layout.RECORD.size + place)

    def _splat_of(self, base: Any, offset: int) -> TypedValue:
        """Return 32 bits in memory, read before the loop, in every lane."""
        assert self._before is not None
        with self.ir.goto_block(self._before):
            return self.splat(self.load(self.address(base, offset), "u32"))

    # For operations -------------------------------------------------------------------------------------------------

    def lane_id(self, type: str = "u32") -> TypedValue:
        """Return the numbers of the chunk's lanes."""
        first = self.wrap(self.ir.trunc(self.ir.mul(self._chunk, I64(self.chunk_lanes)), I32), "u32")
        return (super().lane_id() + self.splat(first)).to(type)

    def mask_bits(self, mask: TypedValue) -> TypedValue:
        """Return the chunk's lanes of a mask as a scalar."""
        return self.wrap(self.ir.bitcast(mask.llvm, ir.IntType(self.chunk_lanes)), f"u{self.chunk_lanes}")

    @property
    def m0(self) -> TypedValue:
        """Refuse: an operation that uses M0 depends on more than its operands.

        Raises:
            Unsupported: always.
        """
        raise Unsupported("M0 in a run")


class _RunSlot(OperandSlot):
    """Operand of a vector instruction of a run."""

    w: _RunBuilder

    def _at(self, index: int) -> int:
        """Return the offset in the wave of register `index` of the operand."""
        first = self.w.slots[self.position]
        return first + 4 * (self.w.wave_size if self.is_vector else 1) * index

    def row(self, index: int) -> TypedValue:
        """Return register `index` of the operand in the chunk's lanes."""
        w = self.w
        if self.is_vector:
            return w.row(self._at(index))
        if self.access.kind in ("c", "k") and self.spec.type.count > 1:
            index %= max(1, self.spec.type.bits // 32)
        if self.access.kind in _LITERALS:
            return w.literal(self.position + index)
        return w.splat_at(self._at(index))

    def rows(self) -> list[TypedValue]:
        """Return all registers of the operand; for a mask, the mask."""
        if self.spec.type.kind == "mask":
            return [self.w.mask(self._at(0))]
        return [self.row(index) for index in range(self.spec.type.units)]

    def scalar(self) -> TypedValue:
        """Return an immediate.

        Raises:
            Unsupported: the operand is not an immediate.
        """
        if self.access.kind != "i":
            raise Unsupported("a scalar operand of a vector instruction in a run")
        return self.w.slot_value(self.position)

    def write_scalar(self, value: TypedValue) -> None:
        """Write a mask."""
        self.w.write_mask(self._at(0), value)

    def store_row(self, index: int, value: TypedValue, mask: TypedValue | None) -> None:
        """Write register `index` in active lanes."""
        self.w.write_row(self._at(index), value.as_("u32"))


__all__ = ["FusedStep", "emit_run", "segments", "step_of"]
