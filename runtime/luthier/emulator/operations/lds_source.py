"""Operations with data in LDS instead of registers (GFX9): DS_*_SRC2_*, BUFFER_STORE_LDS_DWORD.

Sources: ISA documents, "LDS instructions" (the address B), "Memory buffer load to LDS" (whose LDS addresses the store
shares).
"""

from __future__ import annotations

from luthier.emulator.ir.atomics import ATOMICS, Atomic, atomic_lanes
from luthier.emulator.ir.declare import OperationTable, Unsupported
from luthier.emulator.ir.memory_code import check_aligned, gather, lds_access, scatter
from luthier.emulator.ir.types import ScalarType
from luthier.emulator.ir.values import TypedValue
from luthier.emulator.ir.wave import OperandSlot, WaveBuilder
from luthier.emulator.operations.buffer import PLACE, STATIC, buffer_access

operations = OperationTable()


def _second(w: WaveBuilder, addr: OperandSlot, dwords: int) -> list[TypedValue]:
    """Read for all lanes at B = A + 4 * offset, where the offset is a signed number of 15 bits."""
    offset = w.modifiers.get("offset", 0) & 0xFFFF
    if offset & 0x8000:
        raise Unsupported("an offset in the upper half of the address: no source says what the address then is")
    distance = (offset & 0x7FFF) - ((offset & 0x4000) << 1)
    hosts, inside = lds_access(w, addr.row(0) + 4 * distance, 4 * dwords)
    return [gather(w, hosts, 4 * index, inside) for index in range(dwords)]


def _declare(atomic: Atomic, name: str) -> None:
    stem, _, tail = name.rpartition("_")

    @operations.wave(f"ds_{stem}_src2_{tail}", "addr:u32 ->", static=("offset",), since=(9,))
    def run(w: WaveBuilder, addr: OperandSlot) -> None:
        """LDS[A] = op(LDS[A], LDS[B])."""
        size = 4 * atomic.units
        data = _second(w, addr, atomic.units)
        check_aligned(w, addr.row(0), size)
        hosts, inside = lds_access(w, addr.row(0), size)
        atomic_lanes(w, atomic, hosts, data, None, inside)


for _atomic in ATOMICS:
    if _atomic.lds_names and _atomic.data_count == 1 and _atomic.type.count == 1:
        for _name in _atomic.lds_names:
            _declare(_atomic, _name)
for _bits in (32, 64):
    _declare(Atomic((), (), ScalarType("u", _bits), lambda w, old, data: data[0], "xchg"), f"write_b{_bits}")


@operations.wave("buffer_store_lds_dword", f"{PLACE} ->", **STATIC, since=(9,))
def store_lds(
    w: WaveBuilder, vaddr: OperandSlot, srsrc: OperandSlot, soffset: OperandSlot, offset: OperandSlot
) -> None:
    """buffer[…] = LDS[M0[15:0] + offset + lane * 4]."""
    access = buffer_access(w, vaddr, srsrc, soffset, offset)
    good = access.in_bounds(0, 4)
    hosts = access.hosts(0, 4, good)
    sources, inside = lds_access(w, w.splat((w.m0 & 0xFFFF) + (offset.scalar() & 0xFFF)) + w.lane_id() * 4, 4)
    scatter(w, hosts, gather(w, sources, 0, inside), 0, good)
