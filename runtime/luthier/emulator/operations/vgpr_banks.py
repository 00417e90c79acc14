"""Upper bits of VGPR numbers (GFX1250): ``s_set_vgpr_msb``.

They are state of the wave. Operands whose upper bits are not 0 have separate code in a separate record table
(`layout.WAVE`, ``bank_key``), so that upper bits of 0 cost nothing.
"""

from __future__ import annotations

from luthier.emulator import layout
from luthier.emulator.ir.declare import OperationTable
from luthier.emulator.ir.memory_code import fault
from luthier.emulator.ir.wave import OperandSlot, WaveBuilder
from luthier.emulator.operations.control import write_mode

operations = OperationTable()
_PLACES = range(4)


@operations.control("s_set_vgpr_msb", "#simm16 ->", since=(12,))
def s_set_vgpr_msb(w: WaveBuilder, operand: OperandSlot) -> None:
    """Bits 9:8 of VGPR numbers = two bits of the operand each: src0 1:0, src1 3:2, src2 5:4, the result 7:6.

    The upper half of the operand records the old bits; hardware ignores it (LLVM, AMDGPULowerVGPREncoding).
    """
    bits = operand.scalar() & 0xFF
    bank = layout.VECTOR_ROWS * 4 * w.wave_size
    size = w.load(w.address(w.pointer(w.context_field("launch")), layout.LAUNCH["vgpr_bytes"]), "u64")
    key = w.number(0)
    for place in _PLACES:
        upper = (bits >> (2 * place) & 3) * bank
        with w.when((upper != 0) & (upper.to("u64") >= size)):
            fault(w, bits, w.number(0), 0, layout.FAULT_BANK)
        w.store(upper, w.address(w.wave_field("banks"), 4 * place))
        key = key | w.select(upper != 0, w.number(1 << layout.RELATIVE_KEY_SHIFT + place), 0)
    w.store(bits, w.wave_field("bank_bits"))
    w.store(key, w.wave_field("bank_key"))
    write_mode(w, w.load(w.wave_field("mode"), "u32"))
