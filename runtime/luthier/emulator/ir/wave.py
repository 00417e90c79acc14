"""The builder for operations on the wave: its registers, EXEC, and the continuation of the code."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from llvmlite import ir
from llvmlite.ir import instructions

from luthier.emulator import layout
from luthier.emulator.ir.builder import Builder
from luthier.emulator.ir.declare import OperandSpec
from luthier.emulator.ir.exact import I8, I32, I64, MASK, PTR, SCC, overload_name
from luthier.emulator.ir.operands import merged_rows, read_typed, typed_rows
from luthier.emulator.ir.types import ScalarType
from luthier.emulator.ir.values import TypedValue
from luthier.emulator.ir.variant import FloatMode, OperandAccess, Variant

NEXT = ir.FunctionType(I32, [PTR, PTR])
"""``i32 operation(wave, record)``: one of layout's reasons."""
OBSERVE_TYPE = ir.FunctionType(ir.VoidType(), [PTR, PTR, PTR, I32])
"""``void observe(wave, record, layout.ACCESS or null, one of layout's EVENTs)``."""
TRANSLATE_TYPE = ir.FunctionType(I32, [PTR, PTR, I64, I64, I64])
"""``i32 translate(wave, cache slot, lane mask, size, flat)``: 0, or 1 with the fault in the context."""
DECIDES = "luthier.decides."
"""Prefix of the names of functions that mark decisions until the code is complete (`ir.tracking`)."""
_GOES_ON = (layout.YIELD, layout.BARRIER, layout.MODE, layout.MESSAGE)


class WaveBuilder(Builder):
    """`Builder` that also has access to the wave and the executing record."""

    def __init__(self, llvm: ir.IRBuilder, function: ir.Function, lanes: int, variant: Variant) -> None:
        super().__init__(llvm, lanes, variant.mode or FloatMode(), variant.major)
        self.llvm_function = function
        self.modifiers = dict(variant.modifiers)
        self.begin(variant)
        self.wave_size = variant.wave_size
        self.wave = function.args[0]
        self.record = function.args[1]
        self.free_slot = 0
        """First slot of the record that no operand uses."""
        self.host_masks = True
        """Whether the host has lane masks (AVX-512); without them, masked stores are slow."""
        self.only_defined: set[int] = set()
        """Ids of the instructions emitted by `but_undefined`."""
        self.taken: dict[int, Any] = {}
        """Id of each instruction emitted by `taken_from` -> the lanes that took a value of an inactive lane."""
        self.defined: set[int] = set()
        """Ids of values that count as defined, and of pointers to memory with nothing else."""
        self.summed: dict[int, Any] = {}
        """Id of each load of a lane's dwords in a loop -> a place for the union of their undefined bits."""
        self.joined: dict[int, tuple[Any, ...]] = {}
        """Id of the load of all lanes' dwords after such a loop -> that place, the lanes' addresses, the lanes."""
        self._exec_bits: TypedValue | None = None
        self._exec: TypedValue | None = None

    def begin(self, variant: Variant) -> None:
        """Begin the code of a variant; a function may hold the code of several, in sequence."""
        self.variant = variant
        self.major = variant.major
        self.processor = variant.processor

    def slot(self, spec: OperandSpec, access: OperandAccess, position: int) -> OperandSlot:
        """Return the operand at a position in the record."""
        return OperandSlot(self, spec, access, position)

    # Memory of the wave and the record ------------------------------------------------------------------------------

    def address(self, base: Any, offset: int | Any) -> Any:
        """Return `base` plus bytes."""
        index = ir.Constant(I64, offset) if isinstance(offset, int) else offset
        return self.ir.gep(base, [index], source_etype=I8)

    def load(self, address: Any, type: str, *, align: int | None = None) -> TypedValue:
        """Load a scalar."""
        kind = ScalarType.parse(type)
        return self.wrap(self.ir.load(address, typ=kind.llvm, align=align), kind)

    def store(self, value: TypedValue, address: Any, *, align: int | None = None) -> None:
        """Store a scalar or a vector; `align` is in bytes, by default the size of an element."""
        self.ir.store(value.llvm, address, align=align or max(1, value.type.bits // 8))

    def store_where(self, mask: TypedValue, row: TypedValue, address: Any, *, hidden: bool) -> None:
        """Store a row where `mask` holds, by loading, merging and storing the whole row.

        Args:
            hidden: whether to hide the load from LLVM, which would otherwise emit a masked store. The host cannot
                forward a masked store to a load: the load waits until the store is in the cache, behind all stores
                that missed it.
        """
        size = self.lanes * row.type.bits // 8
        load = (_VolatileLoad if hidden else instructions.LoadInstr)(self.ir.block, address, typ=row.llvm.type)
        load.align = size
        self.ir._insert(load)
        self.ir.store(self.select(mask, row, self.wrap(load, row.type)).llvm, address, align=size)

    def wave_field(self, name: str) -> Any:
        """Return the address of a field of the wave."""
        return self.address(self.wave, layout.WAVE[name])

    def context_field(self, name: str) -> Any:
        """Return the address of a field of the thread's context."""
        return self.address(self.pointer(self.wave_field("context")), layout.CONTEXT[name])

    def pointer(self, address: Any) -> Any:
        """Load a pointer."""
        return self.ir.load(address, typ=PTR)

    def number(self, value: int, type: str = "u32") -> TypedValue:
        """Return a scalar constant."""
        kind = ScalarType.parse(type)
        return self.wrap(ir.Constant(kind.llvm, value & ((1 << kind.bits) - 1)), kind)

    def constant_table(self, name: str, words: Sequence[int]) -> ir.GlobalVariable:
        """Return a table of 32-bit words; the module holds one table per name."""
        table = self.ir.module.globals.get(name)
        if table is None:
            kind = ir.ArrayType(I32, len(words))
            table = ir.GlobalVariable(self.ir.module, kind, name)
            table.initializer = ir.Constant(kind, [ir.Constant(I32, word) for word in words])
            table.linkage, table.global_constant = "internal", True
        return table

    def constant_word(self, table: ir.GlobalVariable, index: TypedValue) -> TypedValue:
        """Return a word of a constant table, a scalar u32."""
        return self.wrap(self.ir.load(self.ir.gep(table, [ir.Constant(I32, 0), index.llvm]), typ=I32), "u32")

    def slot_value(self, position: int) -> TypedValue:
        """Return the value of a slot in the record."""
        return self.load(self.address(self.record, layout.RECORD["slots"] + 4 * position), "u32")

    def slot_address(self, position: int) -> Any:
        """Return the address in the wave that a slot names."""
        return self.address(self.wave, self.ir.zext(self.slot_value(position).llvm, I64))

    @property
    def row_type(self) -> ir.Type:
        """Return the type of a register row: 32 bits per lane."""
        return ir.VectorType(I32, self.wave_size)

    @property
    def m0(self) -> TypedValue:
        """Return M0, a scalar u32."""
        return self.load(self.address(self.wave, layout.M0), "u32")

    def relative_rows(self, offset: TypedValue, index: TypedValue, *, write: bool) -> Any:
        """Return the address of the VGPR `index` registers after the VGPR at `offset` in the wave.

        Beyond the last VGPR, reads return v0 and writes have no effect (ISA documents, "VGPR indexing": out of range).
        """
        row = 4 * self.wave_size
        moved = offset + index * row
        inside = moved < layout.agprs(self.wave_size)
        outside = layout.sink_row(self.wave_size) if write else layout.VECTORS
        place = self.select(inside, moved, outside)
        return self.address(self.wave, self.ir.zext(place.llvm, I64))

    # EXEC -----------------------------------------------------------------------------------------------------------

    @property
    def exec_bits(self) -> TypedValue:
        """Return EXEC as a scalar u64 (in wave32 only the lower half)."""
        if self._exec_bits is None:
            self._exec_bits = self.load(self.address(self.wave, layout.EXEC), f"u{self.wave_size}").to("u64")
        return self._exec_bits

    @property
    def exec(self) -> TypedValue:
        """Return EXEC as a mask."""
        if self._exec is None:
            self._exec = self.bits_mask(self.exec_bits)
        return self._exec

    def write_exec(self, bits: TypedValue) -> None:
        """Replace EXEC."""
        self.store(bits.to("u64"), self.address(self.wave, layout.EXEC))

    def bits_mask(self, bits: TypedValue) -> TypedValue:
        """Return a scalar's low bits as a mask."""
        narrow = bits.to(f"u{self.wave_size}")
        return self.wrap(self.ir.bitcast(narrow.llvm, ir.VectorType(ir.IntType(1), self.wave_size)), MASK)

    def mask_bits(self, mask: TypedValue) -> TypedValue:
        """Return a mask as a scalar of the wave's size."""
        kind = ScalarType.parse(f"u{self.wave_size}")
        return self.wrap(self.ir.bitcast(mask.llvm, kind.llvm), kind)

    def first_active(self) -> TypedValue:
        """Return the lowest active lane, 0 if there is none: a scalar u32."""
        lane = self.trailing_zeros(self.exec_bits)
        return self.select(self.exec_bits == 0, self.number(0, "u64"), lane).to("u32")

    # Vectors --------------------------------------------------------------------------------------------------------

    def shuffle(self, value: TypedValue, lanes: Sequence[int]) -> TypedValue:
        """Return a vector whose element i is element `lanes[i]` of `value`."""
        indices = ir.Constant(ir.VectorType(I32, len(lanes)), [ir.Constant(I32, lane) for lane in lanes])
        undefined = ir.Constant(value.llvm.type, ir.Undefined)
        return self.wrap(self.ir.shuffle_vector(value.llvm, undefined, indices), value.type)

    def shuffle_two(self, first: TypedValue, second: TypedValue, lanes: Sequence[int]) -> TypedValue:
        """Return a vector whose element i is element `lanes[i]` of the concatenation."""
        indices = ir.Constant(ir.VectorType(I32, len(lanes)), [ir.Constant(I32, lane) for lane in lanes])
        return self.wrap(self.ir.shuffle_vector(first.llvm, second.llvm, indices), first.type)

    def concatenate(self, first: TypedValue, second: TypedValue) -> TypedValue:
        """Return the elements of both in sequence."""
        return self.shuffle_two(first, second, range(2 * first.lanes))

    def halves(self, value: TypedValue) -> tuple[TypedValue, TypedValue]:
        """Return the lower and the upper half of the elements."""
        half = value.lanes // 2
        return self.shuffle(value, range(half)), self.shuffle(value, range(half, 2 * half))

    def constant_mask(self, lanes: Sequence[bool]) -> TypedValue:
        """Return a mask known at compile time."""
        elements = [ir.Constant(ir.IntType(1), int(lane)) for lane in lanes]
        return self.wrap(ir.Constant(ir.VectorType(ir.IntType(1), len(elements)), elements), MASK)

    def extract(self, value: TypedValue, lane: int) -> TypedValue:
        """Return a lane, known at compile time, as a scalar."""
        return self.wrap(self.ir.extract_element(value.llvm, ir.Constant(I32, lane)), value.type)

    # Control flow ---------------------------------------------------------------------------------------------------

    @contextmanager
    def when(self, condition: TypedValue) -> Iterator[None]:
        """Emit code that runs if a scalar condition holds, which is rare."""
        with self.ir.if_then(condition.llvm, likely=False):
            yield

    def count(self) -> None:
        """Count this execution and its active lanes in the record."""
        for name, amount in (("count", self.number(1, "u64")), ("lanes", self.popcount(self.exec_bits))):
            place = self.address(self.record, layout.RECORD[name])
            self.store(self.load(place, "u64") + amount, place)

    def uncount(self) -> None:
        """Undo the count of this execution: the instruction will execute again."""
        for name, amount in (("count", self.number(1, "u64")), ("lanes", self.popcount(self.exec_bits))):
            place = self.address(self.record, layout.RECORD[name])
            self.store(self.load(place, "u64") - amount, place)

    def next(self) -> None:
        """Continue with the next record."""
        self.jump(self.address(self.record, layout.RECORD.size))

    def jump(self, record: Any) -> None:
        """Continue with the given record."""
        if self.variant.stepping:
            self.stop(layout.STEP, record)
            return
        function = self.ir.load(record, typ=NEXT.as_pointer())
        self.ir.ret(self.ir.call(function, [self.wave, record], tail="musttail"))

    def decide(self, kind: int, value: TypedValue, mask: TypedValue | None = None) -> None:
        """Mark a value, in the lanes of `mask`, that should be defined because something depends on it.

        Args:
            kind: what depends on it, such as `layout.DECIDES_BRANCH`.
        """
        if self.variant.undefined:
            arguments = [I32(kind), *(one.llvm for one in (value, mask) if one is not None)]
            name = DECIDES + ".".join(overload_name(one.type) for one in arguments)
            self.ir.call(self.function(name, ir.VoidType(), [one.type for one in arguments]), arguments)

    def settled(self, value: TypedValue) -> TypedValue:
        """Return a value whose undefined bits `decide` has reported: it counts as defined."""
        if not self.variant.undefined:
            return value
        defined = self.ir.or_(value.llvm, ir.Constant(value.llvm.type, None))  # `ir.tracking` finds it
        self.defined.add(id(defined))
        return self.wrap(defined, value.type)

    def taken_from(self, row: TypedValue, active: TypedValue) -> TypedValue:
        """Return a row whose lanes took a value of another lane: undefined where that lane was not active.

        Args:
            active: for each lane, whether the lane from which it took the value was active.
        """
        if not self.variant.undefined & layout.LANE_VALUES:
            return row
        inactive = (self.exec & ~active).llvm
        marked = self.ir.or_(row.llvm, ir.Constant(row.llvm.type, None))  # `ir.tracking` finds it
        self.taken[id(marked)] = inactive
        return self.wrap(marked, row.type)

    def names_lanes(self, lanes: TypedValue) -> None:
        """Report a shuffle in a wave of 32 lanes of which all active lanes, lane 0 among them, name lanes 32 to 63.

        If only some name these, they may be meant modulo 32, as in a rotation, in which lane 0 names a lower one.

        Args:
            lanes: the named lanes; a scalar for all.
        """
        if not self.variant.undefined & layout.LANE_VALUES or self.wave_size != 32:
            return
        beyond = (lanes >= 32) & (lanes < 64)
        if not isinstance(lanes.llvm.type, ir.VectorType):
            with self.when(beyond):
                self.tell_decided(layout.NAMES_BEYOND, ir.Constant(I64, 1), scalar=True)
            return
        bits = self.mask_bits(beyond & self.exec).to("u64")
        with self.when((bits == self.exec_bits) & ((bits & 1) != 0)):
            self.tell_decided(layout.NAMES_BEYOND, bits.llvm)

    def may_lose_half(self, lanes: TypedValue) -> None:
        """Report lanes of a mask, a scalar, of which the code may drop the upper half (`layout.USE_HALF`)."""
        if self.variant.undefined & layout.LANE_VALUES and self.wave_size == 64:
            upper = lanes & (0xFFFFFFFF << 32)
            with self.when(upper != 0):
                self.tell_decided(layout.LOSES_HALF, upper.llvm)

    def tell_decided(self, kind: int, lanes: Any, *, scalar: bool = False) -> None:
        """Emit a call that reports a `layout.DECIDED`.

        Args:
            lanes: an LLVM value of 64 bits.
        """
        self._tell_undefined(lanes=lanes, kind=I32(kind), scalar=I32(int(scalar)))

    def tell_moved(self, kind: int, shadow: Any, places: Any) -> None:
        """Emit a call that reports undefined bits of elements in memory (`layout.DECIDED`).

        Args:
            kind: `layout.LOADS_UNDEFINED` or `layout.STORES_UNDEFINED`.
            shadow: the bits, an LLVM value.
            places: addresses of the elements; one address if they are in a row.
        """
        is_vector, is_scattered = (isinstance(one.type, ir.VectorType) for one in (shadow, places))
        count, element = (shadow.type.count, shadow.type.element) if is_vector else (1, shadow.type)
        for field, value in (("moved_bits", shadow), ("moved_places", places)):
            self.ir.store(value, self.context_field(field), align=8)
        numbers = {"kind": kind, "elements": count, "bytes": element.width // 8, "is_row": not is_scattered}
        self._tell_undefined(**{field: I32(int(number)) for field, number in numbers.items()})

    def _tell_undefined(self, **fields: Any) -> None:
        place = self.context_field("decided")
        for field, value in fields.items():
            self.ir.store(value, self.address(place, layout.DECIDED[field]))
        self.report(layout.EVENT_UNDEFINED, place)

    def report(self, event: int, what: Any | None = None) -> None:
        """Emit the report of an event, with its structure."""
        observe = self.ir.load(self.context_field("observe"), typ=OBSERVE_TYPE.as_pointer())
        self.ir.call(observe, [self.wave, self.record, ir.Constant(PTR, None) if what is None else what, I32(event)])

    @property
    def may_change_tracking(self) -> bool:
        """Return whether the variant may end or begin to track registers: `layout.ALL_DEFINED` may change."""
        return self.variant.undefined == layout.UNWRITTEN_VALUES and not self.variant.stepping

    def is_all_defined(self) -> TypedValue:
        """Return whether all registers of the wave are defined, as far as known: a scalar, 0 if not."""
        return self.load(self.wave_field("stepping"), "u32") & layout.ALL_DEFINED

    def but_undefined(self, mask: TypedValue) -> TypedValue:
        """Return the set bits of a mask; without the undefined ones, if undefined values are tracked."""
        if not self.variant.undefined:
            return mask
        defined = self.ir.and_(mask.llvm, ir.Constant(mask.llvm.type, -1))  # `ir.tracking` replaces -1
        self.only_defined.add(id(defined))
        return self.wrap(defined, mask.type)

    def stop(self, code: int, record: Any | None = None) -> None:
        """Return to the scheduler. The wave continues at `record`, by default at this instruction."""
        self.ir.store(self.record if record is None else record, self.wave_field("pc"))
        if self.variant.stepping and record is not None and code in _GOES_ON:
            self.store(self.number(1), self.wave_field("unseen"))
        self.ir.ret(ir.Constant(I32, code))

    def following(self) -> Any:
        """Return the next record."""
        return self.address(self.record, layout.RECORD.size)


class _VolatileLoad(instructions.LoadInstr):  # type: ignore[misc] # llvmlite has no types
    """Volatile load, which llvmlite lacks."""

    def descr(self, buf: list[str]) -> None:
        """Append the instruction's text."""
        super().descr(buf)
        buf[-1] = buf[-1].replace("load", "load volatile", 1)


class OperandSlot:
    """Operand of an operation, at a position in the record."""

    def __init__(self, w: WaveBuilder, spec: OperandSpec, access: OperandAccess, position: int, moved: int = 0) -> None:
        self.w = w
        self.spec = spec
        self.access = access
        self.position = position
        self._moved = moved
        """Number of registers to skip at the start of a vector."""

    def shifted(self, registers: int) -> OperandSlot:
        """Return the operand without its first registers; a scalar is not changed."""
        return OperandSlot(self.w, self.spec, self.access, self.position, registers if self.is_vector else 0)

    @property
    def present(self) -> bool:
        """Return whether the instruction's form has the operand."""
        return self.access.kind != "-"

    @property
    def is_vector(self) -> bool:
        """Return whether the operand is in VGPRs or AGPRs."""
        return self.access.kind == "v"

    def base(self) -> Any:
        """Return the operand's address: of its first register in the wave, or of its literal in the record."""
        place = self._first()
        return self.w.address(place, 4 * self.w.wave_size * self._moved) if self._moved else place

    def _first(self) -> Any:
        w = self.w
        if self.spec.type.kind == "scc":
            return w.wave_field("scc")
        if not self.present:
            raise TypeError(f"the instruction has no operand {self.spec.name}")
        if self.access.kind in ("k", "K"):
            return w.address(w.record, layout.RECORD["slots"] + 4 * self.position)
        if self.access.bank:
            moved = w.load(w.address(w.wave_field("banks"), 4 * (self.access.bank - 1)), "u32")
            return w.address(w.wave, w.ir.zext((w.slot_value(self.position) + moved).llvm, I64))
        if self.access.relative:
            return w.relative_rows(w.slot_value(self.position), w.m0 & 0xFF, write=self.spec.is_result)
        return w.slot_address(self.position)

    # Scalars --------------------------------------------------------------------------------------------------------

    def scalar(self) -> TypedValue:
        """Return the operand as a scalar: an immediate, an SGPR, a constant, or the first active lane of a vector."""
        w, kind = self.w, self.spec.type
        if self.access.kind == "i":
            return w.slot_value(self.position)
        if kind.kind == "scc":
            return w.wrap(w.ir.icmp_unsigned("!=", w.load(self.base(), "u32").llvm, ir.Constant(I32, 0)), SCC)
        if self.access.kind == "v":
            return self.read_lane(w.first_active())
        if kind.kind == "mask":
            return w.load(self.base(), f"u{w.wave_size}", align=4)
        base = self.base()
        if kind.bits < 32:
            word = w.load(base, "u32")
            if self.access.high:
                word = word >> 16
            narrow = w.wrap(w.ir.trunc(word.llvm, ir.IntType(kind.bits)), f"u{kind.bits}")
            return narrow.as_(kind.element)
        return w.load(base, str(kind.element), align=4)

    def scalars(self) -> list[TypedValue]:
        """Return the consecutive SGPRs of an operand with several elements."""
        w, kind = self.w, self.spec.type
        base = self.base()
        step = kind.bits // 8
        return [w.load(w.address(base, index * step), str(kind.element), align=4) for index in range(kind.count)]

    def write_scalar(self, value: TypedValue) -> None:
        """Write an SGPR, SGPR pair, VCC or SCC."""
        w, kind = self.w, self.spec.type
        if kind.kind == "scc":
            flag = value if value.type.kind == "scc" else value != 0
            w.store(w.wrap(w.ir.zext(flag.llvm, I32), "u32"), w.wave_field("scc"))
            return
        if value.type.bits < 32:
            integer = value.as_(f"u{value.type.bits}")
            value = w.wrap(w.ir.zext(integer.llvm, I32), "u32")
        w.store(value, self.base(), align=4)

    def write_scalars(self, values: Sequence[TypedValue]) -> None:
        """Write consecutive SGPRs."""
        base = self.base()
        for index, value in enumerate(values):
            self.w.store(value, self.w.address(base, index * value.type.bits // 8), align=4)

    # Vectors --------------------------------------------------------------------------------------------------------

    def _row_type(self) -> ir.Type:
        return ir.VectorType(I32, self.w.wave_size)

    def row(self, index: int) -> TypedValue:
        """Return register `index` of the operand, a vector of u32; a scalar operand is in every lane."""
        w = self.w
        base = self.base()
        if self.access.kind == "v":
            address = w.address(base, 4 * w.wave_size * index) if index else base
            return w.wrap(w.ir.load(address, typ=self._row_type(), align=4 * w.wave_size), "u32")
        if self.access.kind in ("c", "k") and self.spec.type.count > 1:
            index %= max(1, self.spec.type.bits // 32)
        word = w.load(w.address(base, 4 * index) if index else base, "u32")
        return w.splat(word)

    def rows(self) -> list[TypedValue]:
        """Return all registers of the operand; none for a mask (see `mask`)."""
        w = self.w
        if self.spec.type.kind == "mask":
            return [w.bits_mask(self.scalar())]
        return [self.row(index) for index in range(self.spec.type.units)]

    def read(self) -> TypedValue:
        """Return the operand as a vector of its type."""
        value = read_typed(self.w, self.rows(), self.spec.type, self.access)
        if not isinstance(value, TypedValue):
            raise TypeError(f"{self.spec.name} has several elements; call parts()")
        return value

    def parts(self) -> tuple[TypedValue, ...]:
        """Return the operand's elements as vectors."""
        value = read_typed(self.w, self.rows(), self.spec.type, self.access)
        return (value,) if isinstance(value, TypedValue) else value

    def read_lane(self, lane: TypedValue, index: int = 0) -> TypedValue:
        """Return a lane, given by a scalar, of register `index`; of both registers, if the operand has 64 bits."""
        w = self.w
        if self.access.kind != "v":
            return self.scalar()
        offset = w.ir.zext((lane << 2).llvm, I64)
        base = w.address(self.base(), offset)
        kind = self.spec.type.element
        if kind.bits == 64:
            low, high = (w.load(w.address(base, 4 * w.wave_size * part), "u32").to("u64") for part in (0, 1))
            return (low | (high << 32)).as_(kind)
        word = w.load(w.address(base, 4 * w.wave_size * index), "u32")
        return word.as_(kind) if kind.bits == 32 else word

    def word_of_lane(self, lane: TypedValue, index: int) -> TypedValue:
        """Return a lane, given by a scalar u64, of register `index` of a vector: a u32."""
        place = self.w.address(self.base(), (lane * 4 + 4 * self.w.wave_size * index).llvm)
        return self.w.load(place, "u32")

    def write_lane(self, lane: TypedValue, value: TypedValue, index: int = 0) -> None:
        """Write a lane of register `index`, independent of EXEC."""
        w = self.w
        base = w.address(self.base(), w.ir.zext((lane << 2).llvm, I64))
        w.store(value, w.address(base, 4 * w.wave_size * index))

    def store_row(self, index: int, value: TypedValue, mask: TypedValue | None) -> None:
        """Write register `index` where `mask` holds; None: in every lane."""
        w = self.w
        row = value.as_("u32")
        base = self.base()
        address = w.address(base, 4 * w.wave_size * index) if index else base
        if mask is not None:
            # Without lane masks, LLVM emits no masked store of a whole row.
            w.store_where(mask, row, address, hidden=w.host_masks)
        else:
            w.ir.store(row.llvm, address, align=4 * w.wave_size)

    def write(self, value: TypedValue) -> None:
        """Write active lanes."""
        self.write_parts([value])

    def write_parts(self, values: Sequence[TypedValue]) -> None:
        """Write the operand's elements in active lanes."""
        for index, row in enumerate(typed_rows(self.w, list(values), self.spec.type)):
            self.store_row(index, row, self.w.exec)

    def write_result(self, rows: list[TypedValue], enabled: TypedValue, modifiers: dict[str, int]) -> None:
        """Write a vector operation's result where `enabled`, to the part of the register that its encoding names."""
        merged = merged_rows(rows, lambda: self.row(0), self.spec.type, self.access, modifiers)
        for index, row in enumerate(merged):
            self.store_row(index, row, enabled)
