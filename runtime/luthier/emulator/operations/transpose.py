"""Loads that exchange elements between lanes, for operands of matrix operations, and loads of register blocks.

The ISA document of CDNA4 defines the exchange of gfx950's LDS loads. RDNA4's document does not: the exchange of GFX12's
global loads in wave32 was measured on gfx1201 (element by element with distinct values; for 8 bits, by two independent
programs). The exchange in wave64 and with inactive lanes is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from luthier.emulator import layout
from luthier.emulator.ir.declare import OperationTable
from luthier.emulator.ir.memory_code import each_lane, fault, gather, gather_rows, lds_access, scatter, unanswered
from luthier.emulator.ir.values import TypedValue
from luthier.emulator.ir.wave import OperandSlot, WaveBuilder
from luthier.emulator.operations.flat import PLACE, checked
from luthier.emulator.questions import BANKS

operations = OperationTable()

Source = Callable[[int, int], tuple[int, int]]
"""Maps a lane and the number of one of its elements to the source lane and element."""


def _elements(rows: list[TypedValue], bits: int) -> list[TypedValue]:
    """Return the elements of `bits` bits in each lane's registers, low ones first, zero-extended."""
    elements = []
    for index in range(32 * len(rows) // bits):
        word, position = divmod(index * bits, 32)
        value = rows[word] >> position if position else rows[word]
        if position + bits > 32:
            value = value | (rows[word + 1] << (32 - position))
        elements.append(value & ((1 << bits) - 1))
    return elements


def exchanged(w: WaveBuilder, rows: list[TypedValue], bits: int, source: Source) -> list[TypedValue]:
    """Return registers with elements exchanged between lanes."""
    elements = _elements(rows, bits)
    packed = [w.const("u32", 0) for _ in rows]
    for index in range(len(elements)):
        sources = [source(lane, index) for lane in range(w.wave_size)]
        value = w.const("u32", 0)
        for number, element in enumerate(elements):
            chosen = w.constant_mask([other == number for _, other in sources])
            value = w.select(chosen, w.shuffle(element, [lane for lane, _ in sources]), value)
        word, position = divmod(index * bits, 32)
        packed[word] = packed[word] | (value << position if position else value)
        if position + bits > 32:
            packed[word + 1] = packed[word + 1] | (value >> (32 - position))
    return packed


def _square(lane: int, index: int) -> tuple[int, int]:
    """Return the source of a 16-bit element: each group of eight lanes is a square."""
    return lane & ~7 | index, lane & 7


def _pairs(lane: int, index: int) -> tuple[int, int]:
    """Return the source of an 8-bit element.

    The elements are 16 rows of 16, half a row per lane, in the order that matrix operations read.
    """
    return lane & 16 | (index >> 2) << 3 | (lane >> 3 & 1) << 2 | index & 3, lane & 7


def _nibbles(lane: int, index: int) -> tuple[int, int]:
    """Return the source of a 4-bit element: squares of eight lanes and eight elements."""
    return (index >> 3) << 4 | (lane >> 4) << 3 | index & 7, lane & 15


def _sixes(lane: int, index: int) -> tuple[int, int]:
    """Return the source of a 6-bit element: each half of the lanes takes the data of every other four lanes."""
    return (index >> 2) << 3 | (lane >> 4) << 2 | index & 3, lane & 15


def _check_lanes(w: WaveBuilder) -> None:
    """Stop if some lanes are inactive: the exchange is then unknown."""
    every = (1 << w.wave_size) - 1
    with w.when((w.exec_bits != every) & (w.exec_bits != 0)):
        fault(w, w.exec_bits, w.number(0), 0, layout.FAULT_LANES)


def _declare_global(names: str, dwords: int, bits: int, source: Source, since: int = 12) -> None:
    spelled = " ".join(f"global_load_{name}" for name in names.split())

    @operations.wave(spelled, f"{PLACE} -> vdst:u32x{dwords}", since=(since,))
    def load(w: WaveBuilder, result: OperandSlot, *place: OperandSlot) -> None:
        """D = memory[address] with elements exchanged between lanes."""
        _check_lanes(w)
        hosts = checked(w, "global", place, 4 * dwords)
        rows = [gather(w, hosts, 4 * index) for index in range(dwords)]
        for index, row in enumerate(exchanged(w, rows, bits, source)):
            result.store_row(index, row, w.exec)


def _declare_lds(name: str, dwords: int, bits: int, source: Source) -> None:
    @operations.wave(f"ds_load_{name}", f"addr:u32 #offset -> vdst:u32x{dwords}", since=(125,))
    def load(w: WaveBuilder, result: OperandSlot, addr: OperandSlot, offset: OperandSlot) -> None:
        """D = LDS[addr + offset] with elements exchanged between lanes, like loads from memory."""
        _check_lanes(w)
        hosts, inside = lds_access(w, addr.row(0) + w.splat(offset.scalar() & 0xFFFF), 4 * dwords)
        rows = gather_rows(w, hosts, dwords, inside)
        for index, row in enumerate(exchanged(w, rows, bits, source)):
            result.store_row(index, row, w.exec)


_declare_global("tr_b128", 4, 16, _square)
_declare_global("tr_b64", 2, 8, _pairs)
# GFX1250 exchanges elements in the same way (AMD's rocjitsu, shared/ds_transpose.h, which also has 4 and 6 bits).
for _name, _dwords, _bits, _source in (
    ("tr16_b128", 4, 16, _square),
    ("tr8_b64", 2, 8, _pairs),
    ("tr6_b96", 3, 6, _sixes),
    ("tr4_b64", 2, 4, _nibbles),
):
    _declare_global(_name, _dwords, _bits, _source, 125)
    _declare_lds(_name, _dwords, _bits, _source)


# Blocks of registers (GFX12) ------------------------------------------------------------------------------------------


def _declare_block(space: str) -> None:
    def check(w: WaveBuilder, block: OperandSlot) -> None:
        """Stop if the upper bits of the block's last register differ from those of the first."""
        if w.major >= 125:
            row = 4 * w.wave_size
            first = ((w.slot_value(block.position) - layout.VECTORS) & (layout.VECTOR_ROWS * row - 1)) + 31 * row
            unanswered(w, first >= layout.VECTOR_ROWS * row, BANKS)

    def hosts(w: WaveBuilder, place: Sequence[OperandSlot], index: TypedValue) -> TypedValue:
        return checked(w, space, place, 4, index.to("u32") << 2)

    @operations.wave(f"{space}_load_block", f"{PLACE} -> vdst:u32x32", since=(12,), generations=True)
    def load(w: WaveBuilder, result: OperandSlot, *place: OperandSlot) -> None:
        """Load D[i] = memory[address + 4 i] for each bit i of M0."""
        check(w, result)
        with each_lane(w, w.m0) as index:
            value = gather(w, hosts(w, place, index))
            into = w.address(result.base(), (index * (4 * w.wave_size)).llvm)
            old = w.wrap(w.ir.load(into, typ=w.row_type, align=4 * w.wave_size), "u32")
            w.ir.store(w.select(w.exec, value, old).llvm, into, align=4 * w.wave_size)

    @operations.wave(f"{space}_store_block", f"{PLACE} vdata:u32x32 ->", since=(12,), generations=True)
    def store(w: WaveBuilder, *operands: OperandSlot) -> None:
        """Store memory[address + 4 i] = D[i] for each bit i of M0."""
        *place, data = operands
        check(w, data)
        with each_lane(w, w.m0) as index:
            source = w.address(data.base(), (index * (4 * w.wave_size)).llvm)
            row = w.wrap(w.ir.load(source, typ=w.row_type, align=4 * w.wave_size), "u32")
            scatter(w, hosts(w, place, index), row)


for _space in ("global", "scratch"):
    _declare_block(_space)
