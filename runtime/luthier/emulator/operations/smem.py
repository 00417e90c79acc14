"""Scalar memory loads (SMEM)."""

from __future__ import annotations

from llvmlite import ir

from luthier.emulator import layout
from luthier.emulator.ir.atomics import ATOMICS, Atomic, apply_atomic
from luthier.emulator.ir.declare import OperationTable, Unsupported
from luthier.emulator.ir.exact import I64, PTR
from luthier.emulator.ir.memory_code import check_scalar, fault
from luthier.emulator.ir.values import TypedValue
from luthier.emulator.ir.wave import OperandSlot, WaveBuilder
from luthier.emulator.operations.buffer import wide_fields
from luthier.emulator.operations.flat import scaled

operations = OperationTable()

_SCRATCH_UNIT = 64
"""Unit, in bytes, of SGPR offsets in scratch instructions (ISA documents, "Scalar memory addressing")."""


def _offset(soffset: OperandSlot, offset: OperandSlot, size: int = 1, unit: int = 1) -> TypedValue:
    """Return the immediate (signed) plus SGPR (unsigned) offset, as u64.

    Args:
        size: bytes to load, by which ``scale_offset`` multiplies the register.
        unit: unit of the register, in bytes.
    """
    w = soffset.w
    total = w.wrap(w.ir.sext(offset.scalar().llvm, I64), "u64")
    if w.modifiers.get("scale_offset") and not soffset.present:
        raise Unsupported("scale_offset requires an offset in a register")
    if soffset.present:
        register = soffset.scalar()
        # One of GFX9's forms has the immediate as the register operand.
        if soffset.access.kind in ("i", "k"):
            return total + w.wrap(w.ir.sext(register.llvm, I64), "u64")
        total = total + scaled(w, w.wrap(w.ir.zext(register.llvm, I64), "u64") * unit, size)
    return total


def _load(
    w: WaveBuilder, result: OperandSlot, base: OperandSlot, soffset: OperandSlot, offset: OperandSlot, unit: int = 1
) -> None:
    """D = dwords at (base + offset) & ~3."""
    count = result.spec.type.count
    address = (base.scalar() + _offset(soffset, offset, 4 * count, unit)) & 0xFFFFFFFFFFFFFFFC
    pointer = check_scalar(w, address, 4 * count)
    words = [w.load(w.address(pointer, 4 * index), "u32", align=4) for index in range(count)]
    result.write_scalars(words)


def _load_scratch(
    w: WaveBuilder, result: OperandSlot, base: OperandSlot, soffset: OperandSlot, offset: OperandSlot
) -> None:
    """D = dwords at (base + offset) & ~3; an SGPR's offset counts 64 bytes."""
    _load(w, result, base, soffset, offset, _SCRATCH_UNIT)


def _buffer(w: WaveBuilder, base: OperandSlot) -> tuple[TypedValue, TypedValue]:
    """Return the address and the size in bytes of a descriptor's buffer."""
    words = base.scalars()
    if w.major >= 125:
        start, records, stride = wide_fields(words)
        # The number of records counts bytes for vector accesses; older scalar accesses multiply it by the stride.
        with w.when(stride != 0):
            fault(w, stride, w.number(0), 0, layout.FAULT_STRIDED)
        return start & 0xFFFFFFFFFFFFFFFC, records
    start = (words[0].to("u64") | ((words[1] & 0xFFFF).to("u64") << 32)) & 0xFFFFFFFFFFFFFFFC
    stride = (words[1] >> 16 & 0x3FFF).to("u64")
    records = words[2].to("u64")
    return start, w.select(stride == 0, records, records * stride)


def _buffer_load(
    w: WaveBuilder, result: OperandSlot, base: OperandSlot, soffset: OperandSlot, offset: OperandSlot
) -> None:
    """D = dwords of a buffer; 0 for dwords that begin beyond its number of records (ISA documents, "Address and GPR
    range checking")."""
    start, size = _buffer(w, base)
    where = _offset(soffset, offset)
    values = []
    for index in range(result.spec.type.count):
        place = where + 4 * index
        inside = place < size
        address = start + (place & 0xFFFFFFFFFFFFFFFC)
        zero = w.wrap(w.ir.ptrtoint(w.wave_field("zero"), I64), "u64")
        checked = w.select(inside, address, zero)
        read = w.llvm_function.append_basic_block("read")
        done = w.llvm_function.append_basic_block("done")
        w.ir.cbranch(inside.llvm, read, done)
        w.ir.position_at_end(read)
        check_scalar(w, address, 4)
        w.ir.branch(done)
        w.ir.position_at_end(done)
        values.append(w.load(w.ir.inttoptr(checked.llvm, PTR), "u32", align=4))
    result.write_scalars(values)


for _count, _names in {
    1: "dword b32",
    2: "dwordx2 b64",
    3: "dwordx3 b96",
    4: "dwordx4 b128",
    8: "dwordx8 b256",
    16: "dwordx16 b512",
}.items():
    _loads, _scratch_loads, _buffers = (
        " ".join(f"{prefix}_{name}" for name in _names.split())
        for prefix in ("s_load", "s_scratch_load", "s_buffer_load")
    )
    operations.wave(_loads, f"sbase:u64 soffset:u32 #offset -> sdst:u32x{_count}")(_load)
    if _count in (1, 2, 4):
        operations.wave(_scratch_loads, f"sbase:u64 soffset:u32 #offset -> sdst:u32x{_count}")(_load_scratch)
    operations.wave(_buffers, f"sbase:u32x4 soffset:u32 #offset -> sdst:u32x{_count}", generations=True)(_buffer_load)


def _declare_store(count: int) -> None:
    name = "dword" if count == 1 else f"dwordx{count}"

    for prefix, unit in (("s_store", 1), ("s_scratch_store", _SCRATCH_UNIT)):

        @operations.wave(
            f"{prefix}_{name}", f"sdata:u32x{count} sbase:u64 soffset:u32 #offset ->", since=(9, 10), until=(11,)
        )
        def store(
            w: WaveBuilder,
            data: OperandSlot,
            base: OperandSlot,
            soffset: OperandSlot,
            offset: OperandSlot,
            unit: int = unit,
        ) -> None:
            """Dwords at (base + offset) & ~3 = D."""
            address = (base.scalar() + _offset(soffset, offset, unit=unit)) & 0xFFFFFFFFFFFFFFFC
            pointer = check_scalar(w, address, 4 * count)
            for index, word in enumerate(data.scalars() if count > 1 else [data.scalar()]):
                w.store(word, w.address(pointer, 4 * index), align=4)

    @operations.wave(
        f"s_buffer_store_{name}", f"sdata:u32x{count} sbase:u32x4 soffset:u32 #offset ->", since=(9, 10), until=(11,)
    )
    def buffer_store(
        w: WaveBuilder, data: OperandSlot, base: OperandSlot, soffset: OperandSlot, offset: OperandSlot
    ) -> None:
        """Dwords of a buffer = D; dwords that begin beyond its number of records are dropped."""
        start, size = _buffer(w, base)
        where = _offset(soffset, offset)
        for index, word in enumerate(data.scalars() if count > 1 else [data.scalar()]):
            place = where + 4 * index
            with w.ir.if_then((place < size).llvm):
                w.store(word, check_scalar(w, start + (place & 0xFFFFFFFFFFFFFFFC), 4), align=4)


for _count in (1, 2, 4):
    _declare_store(_count)


def _aligned(w: WaveBuilder, address: TypedValue, size: int) -> ir.Value:
    """Return a pointer to an atomic operation's memory; stop if it is not aligned."""
    with w.when((address & (size - 1)) != 0):
        fault(w, address, w.number(0), size, layout.FAULT_ALIGNMENT)
    return check_scalar(w, address, size)


def _declare_atomic(atomic: Atomic) -> None:
    """Declare GFX9's scalar atomics. With GLC, the old value replaces the data register."""
    names = [name for name in atomic.vector_names if name[-3:] not in ("u32", "u64", "i32", "i64", "b32", "b64")]
    kind = f"u{32 * atomic.units}"
    data_kind = f"{kind}x{atomic.data_count}"
    for prefix, base_type in (("s_atomic", "u64"), ("s_buffer_atomic", "u32x4")):

        @operations.wave(
            " ".join(f"{prefix}_{name}" for name in names),
            f"sdata:{data_kind} sbase:{base_type} soffset:u32 #offset -> sdst:{kind}",
            since=(9, 10),
            until=(11,),
        )
        def run(
            w: WaveBuilder,
            result: OperandSlot,
            data: OperandSlot,
            base: OperandSlot,
            soffset: OperandSlot,
            offset: OperandSlot,
            base_type: str = base_type,
        ) -> None:
            """old = memory; memory = op(old, D); with GLC, D = old. Outside a buffer, nothing is stored; old is 0."""
            source = data if data.present else result
            where = _offset(soffset, offset) & 0xFFFFFFFFFFFFFFFC
            step = 4 * atomic.units
            place = w.slot_address(source.position)
            values = [w.load(w.address(place, index * step), kind, align=4) for index in range(atomic.data_count)]
            if base_type == "u64":
                old = apply_atomic(w, atomic, _aligned(w, base.scalar() + where, step), values)
            else:
                start, size = _buffer(w, base)
                before = w.ir.block
                with w.ir.if_then(((where < size) & (where + step <= size)).llvm):
                    done = apply_atomic(w, atomic, _aligned(w, start + where, step), values)
                    after = w.ir.block
                merged = w.ir.phi(done.llvm.type)
                merged.add_incoming(done.llvm, after)
                merged.add_incoming(w.number(0, kind).llvm, before)
                old = w.wrap(merged, kind)
            if result.present:
                result.write_scalar(old)


_NOT_SCALAR = ("csub", "cond_sub_u32")
for _atomic in ATOMICS:
    _integer = not _atomic.type.is_float and _atomic.type.count == 1
    if _integer and _atomic.vector_names and _atomic.vector_names[0] not in _NOT_SCALAR:
        _declare_atomic(_atomic)


def _load_small(bits: int, signed: bool) -> None:
    names = f"s_load_{'i' if signed else 'u'}{bits}"
    aligned = 0x10000000000000000 - bits // 8

    @operations.wave(names, "sbase:u64 soffset:u32 #offset -> sdst:u32", since=(12,))
    def load(w: WaveBuilder, result: OperandSlot, base: OperandSlot, soffset: OperandSlot, offset: OperandSlot) -> None:
        """D = the 8 or 16 bits at base + offset, extended."""
        address = (base.scalar() + _offset(soffset, offset, bits // 8)) & aligned
        pointer = check_scalar(w, address, bits // 8)
        value = w.load(pointer, f"{'i' if signed else 'u'}{bits}", align=1)
        result.write_scalar(value.to("i32" if signed else "u32").as_("u32"))

    buffer_names = f"s_buffer_load_{'i' if signed else 'u'}{bits}"

    @operations.wave(buffer_names, "sbase:u32x4 soffset:u32 #offset -> sdst:u32", since=(12,), generations=True)
    def buffer_load(
        w: WaveBuilder, result: OperandSlot, base: OperandSlot, soffset: OperandSlot, offset: OperandSlot
    ) -> None:
        """D = 8 or 16 bits of a buffer, extended; 0 beyond its number of records."""
        start, size = _buffer(w, base)
        place = _offset(soffset, offset)
        result.write_scalar(w.number(0))
        with w.ir.if_then((place < size).llvm):
            pointer = check_scalar(w, start + (place & aligned), bits // 8)
            value = w.load(pointer, f"{'i' if signed else 'u'}{bits}", align=1)
            result.write_scalar(value.to("i32" if signed else "u32").as_("u32"))


for _bits in (8, 16):
    for _signed in (False, True):
        _load_small(_bits, _signed)
