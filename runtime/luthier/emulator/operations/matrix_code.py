"""Code of a matrix operation: loops over blocks, rows and k, on vectors of one row of D.

A and B are first decoded into arrays on the stack, one vector per step of k. A row of D is then a sum over k of one
element of A times a vector of B. D is written after all rows are computed, as it may share registers with A and B.
EXEC is ignored.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from llvmlite import ir
from msgspec import Struct

from luthier.emulator.ir.exact import I8, I32, I64, PTR
from luthier.emulator.ir.types import ScalarType
from luthier.emulator.ir.values import TypedValue
from luthier.emulator.ir.variant import FloatMode
from luthier.emulator.operations.floats import power_of_two
from luthier.emulator.operations.matrix_exceptional import ExceptionalLanes, flags_of, flags_of_typed
from luthier.emulator.operations.matrix_layout import MatrixResult, Source
from luthier.emulator.operations.matrix_numbers import Fields, Model
from luthier.emulator.operations.number_formats import Format, float_value

if TYPE_CHECKING:
    from luthier.emulator.ir.wave import OperandSlot, WaveBuilder

BROADCASTS = (None, (32, 0), (32, 1), None, (16, 0), (16, 1), (16, 2), (16, 3))
"""By BLGP: size and number of the group of B's lanes that all groups receive. 3 rotates by 16 instead."""


class Scale(Struct, frozen=True):
    """Exponents of blocks of 32 steps: one byte per row (column) and block."""

    slot: OperandSlot
    byte: int


class BlockScale(Struct, frozen=True):
    """Scales of blocks of steps: bytes, in the order of the blocks, of one or two registers per row (column)."""

    slot: OperandSlot
    lane: int
    """Lane of the first row."""
    steps: int
    """Number of steps in a block."""
    form: Format | None
    """Format of a scale; None: an exponent of 2 (E8M0)."""


class Side(Struct, frozen=True):
    """A or B."""

    slot: OperandSlot
    form: Format
    source: Source
    negate: tuple[bool, bool] = (False, False)
    """Whether to flip the sign of even and of odd elements."""
    scale: Scale | BlockScale | None = None


class Product(Struct, frozen=True, kw_only=True):
    """Properties of one operation that are known at code generation."""

    rows: int
    columns: int
    blocks: int = 1
    result: MatrixResult
    kind: str
    """Type of D."""
    model: Model
    a: Side
    b: Side
    c: OperandSlot
    d: OperandSlot
    index: OperandSlot | None = None
    """Index of sparse operations: 4 bits for every pair of elements of A."""
    index_source: Source | None = None
    """Positions of the 2 bits of each element; None: in the element's lane, in the order of its elements."""
    index_bit: int = 0
    """First bit of the index in its register."""
    broadcast: tuple[int, int] = (0, 0)
    """CBSZ and ABID."""
    pattern: int = 0
    """BLGP."""
    absolute_c: bool = False
    negate_c: bool = False
    c_kind: str = ""
    """Type of C; empty: the type of D."""
    c_result: MatrixResult | None = None
    """Positions of C; None: those of D."""
    saturate: bool = False
    """Whether to add integer products to C with saturation."""


def stack(w: WaveBuilder, kind: ir.Type) -> Any:
    """Allocate memory on the stack; only outside loops."""
    place = w.ir.alloca(kind)
    place.type = PTR
    return place


def loop(
    w: WaveBuilder,
    count: int,
    carried: Sequence[TypedValue],
    body: Callable[[Any, list[TypedValue]], Sequence[TypedValue]],
) -> list[TypedValue]:
    """Emit a loop of `body(i, values)` for i below `count` (an i64), with carried values; return the last results."""
    before = w.ir.block
    head = w.ir.append_basic_block()
    w.ir.branch(head)
    w.ir.position_at_end(head)
    index = w.ir.phi(I64)
    index.add_incoming(ir.Constant(I64, 0), before)
    phis = []
    for value in carried:
        phi = w.ir.phi(value.llvm.type)
        phi.add_incoming(value.llvm, before)
        phis.append(phi)
    results = body(index, [w.wrap(phi, value.type) for phi, value in zip(phis, carried, strict=True)])
    following = w.ir.add(index, ir.Constant(I64, 1))
    more = w.ir.icmp_unsigned("<", following, ir.Constant(I64, count))
    index.add_incoming(following, w.ir.block)
    for phi, value in zip(phis, results, strict=True):
        phi.add_incoming(value.llvm, w.ir.block)
    after = w.ir.append_basic_block()
    w.ir.cbranch(more, head, after)
    w.ir.position_at_end(after)
    return list(results)


class NumberTable:
    """Table of constant 32-bit numbers, `width` for each index."""

    def __init__(self, w: WaveBuilder, rows: Sequence[Sequence[int]]) -> None:
        self.w = w
        self.width = len(rows[0])
        numbers = [number for row in rows for number in row]
        kind = ir.ArrayType(I32, len(numbers))
        module = w.ir.module
        self.variable = ir.GlobalVariable(module, kind, module.get_unique_name("matrix_table"))
        self.variable.linkage = "private"
        self.variable.global_constant = True
        self.variable.type = PTR
        self.variable.initializer = ir.Constant(kind, [ir.Constant(I32, number) for number in numbers])

    def read(self, index: Any, column: int) -> Any:
        """Return an entry as an i64."""
        place = self.w.ir.add(self.w.ir.mul(index, ir.Constant(I64, 4 * self.width)), ir.Constant(I64, 4 * column))
        return self.w.ir.zext(self.w.ir.load(self.w.address(self.variable, place), typ=I32), I64)


class Array:
    """Vectors on the stack."""

    def __init__(self, w: WaveBuilder, kind: ScalarType, count: int) -> None:
        self.w = w
        self.kind = kind
        self.size = kind.bits // 8
        self.base = stack(w, ir.ArrayType(kind.llvm, count))

    def _address(self, element: Any) -> Any:
        return self.w.address(self.base, self.w.ir.mul(element, ir.Constant(I64, self.size)))

    def vector(self, element: Any, lanes: int) -> TypedValue:
        """Return a vector of the elements from `element` (an i64)."""
        shape = ir.VectorType(self.kind.llvm, lanes)
        return self.w.wrap(self.w.ir.load(self._address(element), typ=shape, align=self.size), self.kind)

    def scalar(self, element: Any) -> TypedValue:
        """Return an element, given its number (an i64)."""
        return self.w.wrap(self.w.ir.load(self._address(element), typ=self.kind.llvm), self.kind)

    def store(self, element: Any, value: TypedValue) -> None:
        """Store elements from `element` (an i64)."""
        self.w.ir.store(value.llvm, self._address(element), align=self.size)


def multiply(w: WaveBuilder, *products: Product) -> None:
    """Emit D = A * B + C for each product in sequence."""
    w.mode = FloatMode()  # matrix units round to nearest and keep denormals, independent of MODE
    watched = w.variant.floats and ScalarType.parse(products[0].kind).is_float
    tally = ExceptionalLanes(w, stack(w, ExceptionalLanes.shape)) if watched else None
    for product in products:
        _Emitter(w, product, tally).emit()
    if tally is not None:
        tally.tell()


class _Emitter:
    def __init__(self, w: WaveBuilder, p: Product, tally: ExceptionalLanes | None) -> None:
        self.w = w
        self.p = p
        self.tally = tally
        self.row_bytes = 4 * w.wave_size
        self.steps = len(p.a.source.lanes)
        self.kind = ScalarType.parse(p.kind)
        self.c_kind = ScalarType.parse(p.c_kind or p.kind)

    def emit(self) -> None:
        w, p = self.w, self.p
        self.special = stack(w, I8)
        self.results = Array(w, self.kind, p.rows * p.blocks * p.columns)
        self.arrays: dict[tuple[str, bool], list[Array]] = {}
        self.flags: dict[str, Array] = {}
        self.offsets = Array(w, ScalarType.parse("i32"), self.steps * p.rows) if p.index is not None else None
        permuted = self._permuted() if p.pattern else None
        self.places = self._places_of(p.result)
        self.c_places = self._places_of(p.c_result) if p.c_result is not None else self.places
        for special in (False, True) if self._may_be_special() else (False,):
            self._allocate("a", p.a, p.rows, special)
            self._allocate("b", p.b, p.columns, special)

        def block(number: Any, _: list[TypedValue]) -> list[TypedValue]:
            w.ir.store(ir.Constant(I8, 0), self.special)
            cbsz, abid = p.broadcast
            other = number
            if cbsz:
                first = w.ir.shl(w.ir.lshr(number, ir.Constant(I64, cbsz)), ir.Constant(I64, cbsz))
                other = w.ir.add(first, ir.Constant(I64, abid))

            def decode(special: bool) -> None:
                self._decode("a", p.a, p.rows, other, None, special)
                self._decode("b", p.b, p.columns, number, permuted, special)

            decode(False)
            if p.index is not None:
                self._decode_index(p.index)
            if self._may_be_special():
                flag = w.ir.icmp_unsigned("!=", w.ir.load(self.special, typ=I8), ir.Constant(I8, 0))
                with w.ir.if_else(flag, likely=False) as (yes, no):
                    with yes:
                        decode(True)
                        self._rows(number, True)
                    with no:
                        self._rows(number, False)
            else:
                self._rows(number, False)
            return []

        loop(w, p.blocks, [], block)
        self._write()

    def _places_of(self, result: MatrixResult) -> NumberTable:
        rows = [
            (register * self.row_bytes + 4 * lane, shift, lane)
            for lane, register, shift in zip(result.lanes, result.registers, result.shifts, strict=True)
        ]
        return NumberTable(self.w, rows)

    # A and B --------------------------------------------------------------------------------------------------------

    def _may_be_special(self) -> bool:
        return type(self.p.model).unusual is not Model.unusual

    def _allocate(self, name: str, side: Side, lanes: int, special: bool) -> None:
        """Allocate arrays for decoded elements.

        Decoding in a temporary function gives their types.
        """
        w = self.w
        saved = w.ir
        module = ir.Module()
        function = ir.Function(module, ir.FunctionType(ir.VoidType(), []), "probe")
        w.ir = ir.IRBuilder(function.append_basic_block())
        try:
            raw = ScalarType.parse("u64" if side.form.bits == 64 else "u32")
            value = w.wrap(ir.Constant(ir.VectorType(raw.llvm, lanes), ir.Undefined), raw)
            kinds = [field.type for field in self.p.model.decode(w, value, side.form, special)]
        finally:
            w.ir = saved
        self.arrays[name, special] = [Array(w, kind, self.steps_of(side) * lanes) for kind in kinds]
        if self.tally is not None and name not in self.flags:
            self.flags[name] = Array(w, ScalarType.parse("u8"), self.steps_of(side) * lanes)

    @staticmethod
    def steps_of(side: Side) -> int:
        return len(side.source.lanes)

    def _permuted(self) -> Any:
        """Return B's registers with the lanes that BLGP chooses, on the stack."""
        w, p = self.w, self.p
        count = max(1, (max(p.b.source.elements) + 1) * p.b.form.bits // 32)
        copy = stack(w, ir.ArrayType(I32, count * w.wave_size))
        group = BROADCASTS[p.pattern]
        if group is None:
            lanes = [(lane + 16) % 64 for lane in range(64)]
        else:
            lanes = [group[0] * group[1] + lane % group[0] for lane in range(64)]
        for index in range(count):
            value = w.shuffle(p.b.slot.row(index), lanes)
            w.ir.store(value.llvm, w.address(copy, index * self.row_bytes), align=4)
        return copy

    def _decode(self, name: str, side: Side, lanes: int, block: Any, base: Any, special: bool) -> None:
        """Fill the arrays of A or B for one block.

        Args:
            base: address of the registers, if it is not the slot's.
            special: decode for `Model.step` with `special`; otherwise note elements that need this.
        """
        w, form = self.w, side.form
        table = []
        for lane, element in zip(side.source.lanes, side.source.elements, strict=True):
            register, shift = divmod(element * form.bits, 32)
            place = register * self.row_bytes + 4 * lane
            table.append((place, shift, place + self.row_bytes if shift + form.bits > 32 else place, element & 1))
        constants = NumberTable(w, table)
        origin = base if base is not None else side.slot.base()
        origin = w.address(origin, w.ir.mul(block, ir.Constant(I64, 4 * lanes)))
        shape = ir.VectorType(I32, lanes)

        def load(offset: Any) -> TypedValue:
            return w.wrap(w.ir.load(w.address(origin, offset), typ=shape, align=4), "u32")

        def step(k: Any, _: list[TypedValue]) -> list[TypedValue]:
            low = load(constants.read(k, 0))
            odd = w.wrap(w.ir.trunc(constants.read(k, 3), I32), "u32")
            if form.bits == 64:
                raw = low.to("u64") | (load(constants.read(k, 2)).to("u64") << 32)
            elif form.bits == 32:
                raw = low
            else:
                shift = self._splat(w.wrap(w.ir.trunc(constants.read(k, 1), I32), "u32"), lanes)
                raw = low >> shift
                if 32 % form.bits:
                    # The element may continue in the next register; two shifts keep each below 32.
                    raw = raw | ((load(constants.read(k, 2)) << 1) << (31 - shift))
                raw = raw & ((1 << form.bits) - 1)
            if form.is_float and any(side.negate):
                even, odds = (int(flag) << (form.bits - 1) for flag in side.negate)
                flip = w.select(odd == 0, w.number(even, str(raw.type)), w.number(odds, str(raw.type)))
                raw = raw ^ self._splat(flip, lanes)
            fields = self.p.model.decode(w, raw, form, special)
            if isinstance(side.scale, BlockScale):
                fields = (fields[0] * self._block_scale(side.scale, k, lanes),)
            elif side.scale is not None:
                fields = self._scaled(fields, side.scale, k, lanes)
            mask = None if special else self.p.model.unusual(w, fields)
            if mask is not None:
                bits = w.ir.bitcast(mask.llvm, ir.IntType(lanes))
                nonzero = w.ir.zext(w.ir.icmp_unsigned("!=", bits, ir.Constant(ir.IntType(lanes), 0)), I8)
                w.ir.store(w.ir.or_(w.ir.load(self.special, typ=I8), nonzero), self.special)
            place = w.ir.mul(k, ir.Constant(I64, lanes))
            for array, field in zip(self.arrays[name, special], fields, strict=True):
                array.store(place, field)
            if self.tally is not None:
                self.flags[name].store(place, flags_of(w, raw, fields[-1], form))
            return []

        loop(w, self.steps_of(side), [], step)

    def _scaled(self, fields: Fields, scale: Scale, k: Any, lanes: int) -> Fields:
        """Return the fields with the exponent raised by the scale of the step's block. Without a significand, the
        number is scaled, too. The scale 255 makes NaN."""
        w = self.w
        if scale.slot.is_vector:
            place = w.ir.mul(w.ir.lshr(k, ir.Constant(I64, 5)), ir.Constant(I64, 4 * lanes))
            address = w.address(scale.slot.base(), place)
            word = w.wrap(w.ir.load(address, typ=ir.VectorType(I32, lanes), align=4), "u32")
        else:
            word = self._splat(scale.slot.scalar(), lanes)
        exponent = (word >> (8 * scale.byte)) & 0xFF
        nan = w.like(0x7FC00000, exponent).as_("f32")
        shift = exponent.as_("i32") - 127
        if len(fields) == 3:
            size, own, value = fields
            return size, own + shift, w.select(exponent == 255, nan, value)
        own, value = fields
        # The factor for the scale 0 is wrong, but the number is then unusual.
        scaled = value * (w.maximum(exponent, 1) << 23).as_("f32")
        return own + w.select(exponent == 255, 1 << 16, shift), w.select(exponent == 255, nan, scaled)

    def _block_scale(self, scale: BlockScale, k: Any, lanes: int) -> TypedValue:
        """Return the factor of a step, in 64 bits; the exponent 255 makes NaN."""
        w = self.w
        byte = w.ir.udiv(k, ir.Constant(I64, scale.steps))
        register = w.ir.lshr(byte, ir.Constant(I64, 2))
        if scale.slot.is_vector:
            place = w.ir.add(w.ir.mul(register, ir.Constant(I64, self.row_bytes)), ir.Constant(I64, 4 * scale.lane))
            address = w.address(scale.slot.base(), place)
            word = w.wrap(w.ir.load(address, typ=ir.VectorType(I32, lanes), align=4), "u32")
        else:
            place = w.ir.mul(register, ir.Constant(I64, 4))
            word = self._splat(w.load(w.address(scale.slot.base(), place), "u32", align=4), lanes)
        shift = w.ir.mul(w.ir.and_(byte, ir.Constant(I64, 3)), ir.Constant(I64, 8))
        code = (word >> self._splat(w.wrap(w.ir.trunc(shift, I32), "u32"), lanes)) & 0xFF
        if scale.form is not None:
            return float_value(w, code, scale.form).to("f64")
        power = power_of_two(code.as_("i32").to("i64") - 127, 64)
        return w.select(code == 255, w.like(float("nan"), power), power)

    def _decode_index(self, slot: OperandSlot) -> None:
        """Compute, for each stored element of A, the offset of its k in B's array."""
        w, p = self.w, self.p
        source = p.index_source or p.a.source
        table = []
        for c, (lane, element) in enumerate(zip(source.lanes, source.elements, strict=True)):
            register, shift = divmod(p.index_bit + 2 * element, 32)
            table.append((register * self.row_bytes + 4 * lane, shift, 4 * (c // 2)))
        constants = NumberTable(w, table)
        assert self.offsets is not None
        offsets = self.offsets

        def step(c: Any, _: list[TypedValue]) -> list[TypedValue]:
            shape = ir.VectorType(I32, p.rows)
            word = w.wrap(w.ir.load(w.address(slot.base(), constants.read(c, 0)), typ=shape, align=4), "u32")
            shift = self._splat(w.wrap(w.ir.trunc(constants.read(c, 1), I32), "u32"), p.rows)
            first = self._splat(w.wrap(w.ir.trunc(constants.read(c, 2), I32), "u32"), p.rows)
            chosen = (((word >> shift) & 3) + first) * p.columns
            offsets.store(w.ir.mul(c, ir.Constant(I64, p.rows)), chosen.as_("i32"))
            return []

        loop(w, self.steps, [], step)

    def _splat(self, scalar: TypedValue, lanes: int) -> TypedValue:
        saved, self.w.lanes = self.w.lanes, lanes
        try:
            return self.w.splat(scalar)
        finally:
            self.w.lanes = saved

    # C and D --------------------------------------------------------------------------------------------------------

    def _load_row(self, base: Any, offset: Any, shift: Any) -> TypedValue:
        """Load a row of C from registers."""
        w, columns, kind = self.w, self.p.columns, self.c_kind
        shape = ir.VectorType(I32, columns)
        low = w.wrap(w.ir.load(w.address(base, offset), typ=shape, align=4), "u32")
        if kind.bits == 64:
            above = w.ir.add(offset, ir.Constant(I64, self.row_bytes))
            high = w.wrap(w.ir.load(w.address(base, above), typ=shape, align=4), "u32")
            return (low.to("u64") | (high.to("u64") << 32)).as_(kind)
        if kind.bits == 16:
            amount = self._splat(w.wrap(w.ir.trunc(shift, I32), "u32"), columns)
            return (low >> amount).to("u16").as_(kind)
        return low.as_(kind)

    def _stored(self, offset: Any, shift: Any) -> TypedValue:
        """Return a row of C, in C's type."""
        w, p, kind = self.w, self.p, self.c_kind
        if p.c.is_vector:
            return self._load_row(p.c.base(), offset, shift)
        word = w.load(p.c.base(), "u64" if kind.bits == 64 else "u32", align=4)
        narrow = word.to("u16") if kind.bits == 16 else word
        return self._splat(narrow.as_(kind), p.columns)

    def _initial(self, value: TypedValue) -> TypedValue:
        """Return a row of C, prepared for the sums."""
        p = self.p
        if value.type.bits == 16:
            value = value.to("f32")
        if p.absolute_c:
            value = abs(value)
        return -value if p.negate_c else value

    def _rows(self, block: Any, special: bool) -> None:
        """Emit all rows of one block; the model gives the number of rows at once."""
        w, p = self.w, self.p
        together = 1 if special else math.gcd(p.rows, p.model.rows_at_once)

        def rows(turn: Any, _: list[TypedValue]) -> list[TypedValue]:
            numbers = [self._plus(turn, together, number) for number in range(together)]
            places = [w.ir.add(w.ir.mul(block, ir.Constant(I64, p.rows)), number) for number in numbers]
            stored = [self._stored(self.c_places.read(place, 0), self.c_places.read(place, 1)) for place in places]
            initial = list(map(self._initial, stored))
            starts = [w.like(0, one) if p.saturate else p.model.start(w, one) for one in initial]
            totals = self._sums(numbers, starts, special)
            for number, place, begin, own, start, total in zip(
                numbers, places, initial, stored, starts, totals, strict=True
            ):
                result = self._rounded(w.add_saturate(begin, total) if p.saturate else total)
                self.results.store(w.ir.mul(place, ir.Constant(I64, p.columns)), result)
                if self.tally is not None:
                    with w.when(self.tally.found(result)):
                        flags = self._flags(number, flags_of_typed(w, own, start))
                        self.tally.add(result, flags, self.places.read(place, 2))
            return []

        loop(w, p.rows // together, [], rows)

    def _plus(self, turn: Any, size: int, offset: int) -> Any:
        """Return the number of element `offset` of an iteration with `size` elements."""
        return self.w.ir.add(self.w.ir.mul(turn, ir.Constant(I64, size)), ir.Constant(I64, offset))

    def _sums(self, rows: Sequence[Any], starts: list[TypedValue], special: bool) -> list[TypedValue]:
        """Return `starts` plus all products of rows of A with B."""
        w, p, group = self.w, self.p, self.p.model.group

        def some(turn: Any, carried: list[TypedValue]) -> list[TypedValue]:
            steps = [self._plus(turn, group, offset) for offset in range(group)]
            totals, b = [], list[Fields]()
            for row, total in zip(rows, carried, strict=True):
                elements = [self._elements(k, row) for k in steps]
                a = [
                    tuple(self._splat(array.scalar(own), p.columns) for array in self.arrays["a", special])
                    for own, _ in elements
                ]
                if not b or p.index is not None:  # without an index, all rows use the same elements of B
                    b = [
                        tuple(array.vector(theirs, p.columns) for array in self.arrays["b", special])
                        for _, theirs in elements
                    ]
                totals.append(p.model.step(w, total, a, b, special))
            return totals

        return loop(w, self.steps // group, starts, some)

    def _rounded(self, total: TypedValue) -> TypedValue:
        """Return a row of D, given the sum."""
        w = self.w
        if total.type.is_float:
            total = w.select(w.is_nan(total), w.like(float("nan"), total), total)
        return total if total.type == self.kind else total.to(self.kind)

    def _elements(self, k: Any, row: Any) -> tuple[Any, Any]:
        """Return the array positions of a step's element in a row of A, and of the first element of its row of B."""
        w, p = self.w, self.p
        own = w.ir.add(w.ir.mul(k, ir.Constant(I64, p.rows)), row)
        if self.offsets is None:
            return own, w.ir.mul(k, ir.Constant(I64, p.columns))
        return own, w.ir.zext(self.offsets.scalar(own).llvm, I64)

    def _flags(self, row: Any, of_c: TypedValue) -> TypedValue:
        """Return the flags of all inputs of a row of D."""
        a, b = self.flags["a"], self.flags["b"]

        def step(k: Any, carried: list[TypedValue]) -> list[TypedValue]:
            own, theirs = self._elements(k, row)
            return [carried[0] | self._splat(a.scalar(own), self.p.columns) | b.vector(theirs, self.p.columns)]

        (flags,) = loop(self.w, self.steps, [of_c], step)
        return flags

    def _write(self) -> None:
        """Write the results to the registers of D."""
        w, p = self.w, self.p
        base = p.d.base()

        def row(place: Any, _: list[TypedValue]) -> list[TypedValue]:
            offset, shift = self.places.read(place, 0), self.places.read(place, 1)
            value = self.results.vector(w.ir.mul(place, ir.Constant(I64, p.columns)), p.columns)
            if self.kind.bits == 64:
                whole = value.as_("u64")
                w.ir.store(whole.to("u32").llvm, w.address(base, offset), align=4)
                above = w.ir.add(offset, ir.Constant(I64, self.row_bytes))
                w.ir.store((whole >> 32).to("u32").llvm, w.address(base, above), align=4)
                return []
            word = value.as_(f"u{self.kind.bits}").to("u32")
            if self.kind.bits == 16:
                shape = ir.VectorType(I32, p.columns)
                old = w.wrap(w.ir.load(w.address(base, offset), typ=shape, align=4), "u32")
                amount = self._splat(w.wrap(w.ir.trunc(shift, I32), "u32"), p.columns)
                word = (old & ~(w.like(0xFFFF, old) << amount)) | (word << amount)
            w.ir.store(word.llvm, w.address(base, offset), align=4)
            return []

        loop(w, p.rows * p.blocks, [], row)
