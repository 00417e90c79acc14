"""Scalar memory loads (SMEM)."""

from __future__ import annotations

from luthier.emulator.builder import I64, PTR
from luthier.emulator.declare import OperationTable
from luthier.emulator.memory_code import check_scalar
from luthier.emulator.values import Value
from luthier.emulator.wave import Slot, WaveBuilder

operations = OperationTable()


def _offset(soffset: Slot, offset: Slot) -> Value:
    """Immediate (signed) plus SGPR (unsigned) offset, as u64."""
    w = soffset.w
    total = w.wrap(w.ir.sext(offset.scalar().llvm, I64), "u64")
    if soffset.present:
        register = soffset.scalar()
        # GFX9 has the immediate in the place of the register in one of its forms.
        wide = w.ir.sext(register.llvm, I64) if soffset.access.kind in ("i", "k") else w.ir.zext(register.llvm, I64)
        total = total + w.wrap(wide, "u64")
    return total


def _load(w: WaveBuilder, result: Slot, base: Slot, soffset: Slot, offset: Slot) -> None:
    """D = dwords at (base + offset) & ~3."""
    address = (base.scalar() + _offset(soffset, offset)) & 0xFFFFFFFFFFFFFFFC
    count = result.spec.type.count
    pointer = check_scalar(w, address, 4 * count)
    words = [w.load(w.address(pointer, 4 * index), "u32", align=4) for index in range(count)]
    result.write_scalars(words)


def _buffer_load(w: WaveBuilder, result: Slot, base: Slot, soffset: Slot, offset: Slot) -> None:
    """D = dwords of a buffer; those beyond its number of records are 0 (ISA documents, "Scalar memory: buffer loads")."""
    words = base.scalars()
    start = (words[0].to("u64") | ((words[1] & 0xFFFF).to("u64") << 32)) & 0xFFFFFFFFFFFFFFFC
    stride = (words[1] >> 16 & 0x3FFF).to("u64")
    records = words[2].to("u64")
    size = w.select(stride == 0, records, records * stride)
    where = _offset(soffset, offset) & 0xFFFFFFFFFFFFFFFC
    values = []
    for index in range(result.spec.type.count):
        place = where + 4 * index
        inside = place + 4 <= size
        zero = w.wrap(w.ir.ptrtoint(w.wave_field("zero"), I64), "u64")
        checked = w.select(inside, start + place, zero)
        before = w.ir.block
        read = w.llvm_function.append_basic_block("read")
        done = w.llvm_function.append_basic_block("done")
        w.ir.cbranch(inside.llvm, read, done)
        w.ir.position_at_end(read)
        check_scalar(w, start + place, 4)
        w.ir.branch(done)
        w.ir.position_at_end(done)
        _ = before
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
    _loads = " ".join(f"s_load_{name} s_scratch_load_{name}" if _count <= 4 else f"s_load_{name}" for name in _names.split())
    _buffers = " ".join(f"s_buffer_load_{name}" for name in _names.split())
    operations.wave(_loads, f"sbase:u64 soffset:u32 #offset -> sdst:u32x{_count}")(_load)
    operations.wave(_buffers, f"sbase:u32x4 soffset:u32 #offset -> sdst:u32x{_count}")(_buffer_load)


def _load_small(bits: int, signed: bool) -> None:
    names = f"s_load_{'i' if signed else 'u'}{bits}"

    @operations.wave(names, "sbase:u64 soffset:u32 #offset -> sdst:u32", majors=(12,))
    def load(w: WaveBuilder, result: Slot, base: Slot, soffset: Slot, offset: Slot) -> None:
        """D = the 8 or 16 bits at base + offset, extended."""
        address = base.scalar() + _offset(soffset, offset)
        if bits == 16:
            address = address & 0xFFFFFFFFFFFFFFFE
        pointer = check_scalar(w, address, bits // 8)
        value = w.load(pointer, f"{'i' if signed else 'u'}{bits}", align=1)
        result.write_scalar(value.to("i32" if signed else "u32").as_("u32"))


for _bits in (8, 16):
    for _signed in (False, True):
        _load_small(_bits, _signed)
