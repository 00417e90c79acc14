"""Register units that an instruction reads and writes, and in which lanes.

Operands, tied operands and implicit registers come from LLVM's MC layer; `semantics` adds further facts. A write that
does not certainly replace a whole register counts as a write that replaces nothing. This module computes the effects
that all instructions of an opcode share; the rest is native (`runtime/native/lifting/effects.cpp`).
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from luthier import _mc
from luthier.isa import InstructionArray, InstructionFlag, Isa, Opcode, OperandKind
from luthier.isa import registers as r
from luthier.isa.mc import LDS_DIRECT, register_numbers
from luthier.lifting.instructions import semantics as sem
from luthier.lifting.instructions.forms import EMPTY_WAY, exec_rule, mask_form
from luthier.lifting.instructions.semantics import Control, LaneChange


class Effects(NamedTuple):
    """The registers that one instruction reads and writes, as bit sets of units."""

    reads: int
    """Values read in the active lanes, and scalars read."""
    cross_reads: int
    """Values that may be read in any lane, and scalars read; part of `reads`."""
    writes: int
    """Everything that may change."""
    kills: int
    """Units completely replaced in the active lanes, and scalars completely replaced."""
    hard_kills: int
    """Units completely replaced in every lane, and scalars completely replaced; part of `kills`."""
    lanes: LaneChange
    """Possible changes of lanes' activity; `LaneChange.UNCHANGED` for nearly all instructions."""


class IndexMode(NamedTuple):
    """VGPR index mode at an instruction."""

    may: int
    """Operands that may be indexed: bits 0 to 3 are src0, src1, src2 and the result, as in M0[15:12]."""
    known: int | None
    """The operands that are indexed; None if the mode or its operands are not certain."""


class SkipMode(NamedTuple):
    """GFX9's vector skip mode at an instruction where it may be on."""

    again: str | None
    """Assembly of the s_setvskip that last set the mode; executing it again restores the mode. None if not certain."""
    reads: int
    """Bit set of units that the s_setvskip reads."""


_INDEXED_SOURCES = {"src0": 1, "vsrc0": 1, "src1": 2, "vsrc1": 2, "src2": 4, "vsrc2": 4}
"""Bit of M0[15:12] for an operand, by name without the destination."""


class OpcodeEffects(Struct, frozen=True):
    """Effects that all instructions of one opcode share. Numbers in tuples are operand positions."""

    opcode: Opcode
    control: Control
    reads: tuple[int, ...]
    full_writes: tuple[int, ...]
    partial_writes: tuple[int, ...]
    implicit_reads: int
    implicit_writes: int
    implicit_kills: int
    cross_lane: bool
    ignores_exec: bool
    writes_anywhere: bool
    """Whether vector registers may be written in inactive lanes."""
    special: str
    """Property for which each instruction must be examined: "dpp", "sdwa", "getreg", "setreg", "relative vector",
    "relative scalar", "coordinates", "everything" or ""."""
    coordinates: int
    """Maximum number of registers from ``vaddr`` on with an image's coordinates, if LLVM names only the first one: on
    GFX9 the descriptor determines the number. Otherwise 0."""

    def position(self, name: str) -> int:
        """Return the position of the operand with this name, -1 if there is none."""
        for index, operand in enumerate(self.opcode.operands):
            if operand.name == name:
                return index
        return -1


_REGISTER = int(OperandKind.REGISTER)
_FEW = 4
_LONG = 1 << 16
"""Length from which on a Python list takes too much memory."""


def listed(column: NDArray[Any]) -> Sequence[int]:
    """Return a column as a sequence of Python numbers: a list, or a view of the array if it is long."""
    return column.tolist() if len(column) < _LONG else np.ascontiguousarray(column).data


def _list(values: Sequence[int]) -> list[int]:
    """Return a part of such a column as a list."""
    return values if isinstance(values, list) else list(values)


class Columns:
    """The columns of an `InstructionArray` as Python numbers, for access element by element; each is created on first
    use."""

    def __init__(self, code: InstructionArray) -> None:
        self.code = code
        self.native: tuple[EffectTable, _mc.Code] | None = None
        """Code for the native analyses, created by `EffectTable.code` for one table."""
        self._asked = 0
        """How often `registers` was asked, up to `_FEW`."""

    @cached_property
    def address(self) -> Sequence[int]:
        """Return [n] the virtual address of each instruction."""
        return listed(self.code.addresses)

    @cached_property
    def size(self) -> Sequence[int]:
        """Return [n] the bytes of each instruction."""
        return listed(self.code.size)

    @cached_property
    def opcode(self) -> Sequence[int]:
        """Return [n] LLVM's opcode number of each instruction, -1 if undecodable."""
        return listed(self.code.opcode)

    @cached_property
    def opcodes(self) -> frozenset[int]:
        """Return the opcode numbers that occur, without -1."""
        return frozenset(self.opcode) - {-1}

    @cached_property
    def target(self) -> Sequence[int]:
        """Return [n] the virtual address that a branch or call encodes, `NO_TARGET` for other instructions."""
        return listed(self.code.target)

    @cached_property
    def start(self) -> Sequence[int]:
        """Return [n + 1] the position of each instruction's first operand in `value` and `register`."""
        return listed(self.code.operand_start)

    @cached_property
    def value(self) -> Sequence[int]:
        """Return [operands] the immediate value, or LLVM's number of the register."""
        return listed(self.code.operand_value)

    @cached_property
    def register(self) -> Sequence[int]:
        """Return [operands] LLVM's number of the register, 0 for other operands."""
        is_register = self.code.operand_kind == _REGISTER
        return listed(np.where(is_register, self.code.operand_value, 0))

    def values(self, index: int) -> list[int]:
        """Return the operand values of an instruction: register numbers and immediates."""
        return _list(self.value[self.start[index] : self.start[index + 1]])

    def registers(self, index: int) -> list[int]:
        """Return the register number of each operand of an instruction, 0 for an immediate."""
        if self._asked < _FEW:  # lists of the whole code would take longer
            self._asked += 1
            code = self.code
            some = slice(*code.operand_start[index : index + 2].tolist())
            operands = zip(code.operand_kind[some].tolist(), code.operand_value[some].tolist(), strict=True)
            return [value if kind == _REGISTER else 0 for kind, value in operands]
        return _list(self.register[self.start[index] : self.start[index + 1]])

    def alike(self, index: int) -> tuple[int, ...]:
        """Return a key that is equal for equal instructions: opcode number, operand values, and registers."""
        begin, end = self.start[index], self.start[index + 1]
        return (self.opcode[index], *self.value[begin:end], *self.register[begin:end])


class EffectTable:
    """Effects of instructions of one processor at one wave size.

    Args:
        isa: the processor.
        wave_size: lanes per wave, 32 or 64.
        vector_universe: bit set of the vector units that operations with computed register numbers may access.
    """

    def __init__(self, isa: Isa, wave_size: int, vector_universe: int) -> None:
        self.isa = isa
        self.wave_size = wave_size
        self.vector_universe = vector_universe
        self.everything = r.TRACKED_SCALARS | vector_universe
        self._native_units = unit_bytes(vector_universe), unit_bytes(self.everything)
        self.exec = r.EXEC_MASK if wave_size == 64 else 1 << r.EXEC_LO
        self.pseudos = _pseudos(isa)
        """LLVM's generic name of each opcode number."""
        self.masks = register_masks(isa)
        self._native = native_table(isa)

    def opcode(self, number: int) -> OpcodeEffects:
        """Return the shared effects of an LLVM opcode number."""
        return opcode_effects(self.isa, number)

    def certain_reads(self, columns: Columns, index: int) -> int:
        """Return the units that an instruction certainly reads; of coordinates those that LLVM names."""
        entry, registers = self.opcode(columns.opcode[index]), columns.registers(index)
        return functools.reduce(
            operator.or_, (self.masks[registers[position]] for position in entry.reads), entry.implicit_reads
        )

    def code(self, columns: Columns) -> _mc.Code:
        """Return decoded instructions for the native analyses."""
        known = columns.native
        if known is not None and known[0] is self:
            return known[1]
        code = columns.code
        opcodes = code.opcode
        if np.count_nonzero(opcodes < 0):
            opcodes = np.where(opcodes < 0, UNKNOWN_OPCODE, opcodes).astype(np.int32)
            if self._native.missing(np.array([UNKNOWN_OPCODE], np.int32)):
                self._native.tell(UNKNOWN_OPCODE, _UNKNOWN_FORM)
        for number in self._native.missing(code.opcode):
            self._native.tell(number, _described(opcode_effects(self.isa, number)))
        native = self._native.code(
            opcodes,
            code.operand_start,
            code.operand_kind,
            code.operand_value,
            *self._native_units,
        )
        columns.native = self, native
        return native

    def of(
        self, columns: Columns, index: int, indexed: IndexMode | None = None, skipped: SkipMode | None = None
    ) -> Effects:
        """Return the effects of an instruction.

        Args:
            indexed: VGPR index mode at the instruction, which makes vector register numbers computed.
            skipped: vector skip mode at the instruction, in which vector instructions may do nothing. The sources of
                the mode count as read, so that the mode can be restored.
        """
        reads, cross, writes, kills, hard, lanes = self.code(columns).effects(index)
        if (indexed is not None or skipped is not None) and not self.pseudos[columns.opcode[index]].startswith("S_"):
            entry = self.opcode(columns.opcode[index])
            if indexed is not None:
                registers = columns.registers(index)
                reads, writes, kills = self._relative(entry, registers, indexed.may, reads, writes, kills)
            if skipped is not None:
                kills = 0
            cross = reads if entry.cross_lane else reads & r.SCALAR_MASK
            hard = kills if entry.ignores_exec else kills & r.SCALAR_MASK
        if skipped is not None:
            reads, cross = reads | skipped.reads, cross | skipped.reads
        return Effects(reads, cross, writes, kills, hard, _LANES[lanes])

    def _relative(
        self, entry: OpcodeEffects, registers: list[int], mask: int, reads: int, writes: int, kills: int
    ) -> tuple[int, int, int]:
        """Return the units that a vector instruction in VGPR index mode reads, writes and kills.

        M0[7:0] is added to the numbers of the VGPR operands in `mask` (bits: src0, src1, src2, result). An index out of
        range reads v0, as may a selected operand that is not a VGPR (ISA documents, "VGPR Indexing"; according to the
        CLRX documentation, "GPR indexing mode", also for results). The documents cover vector ALU operations; for
        others, any operand may be indexed.
        """
        reads |= 1 << r.M0
        plain = bool(entry.opcode.flags & InstructionFlag.VALU) and not entry.opcode.flags & InstructionFlag.MATRIX
        if not plain:
            return reads | self.vector_universe, writes | self.vector_universe, kills & r.SCALAR_MASK
        for position in entry.reads:
            operand = entry.opcode.operands[position]
            own = self.masks[registers[position]] & r.VECTOR_MASK
            bit = 8 if operand.is_def or operand.tied_to >= 0 else _INDEXED_SOURCES.get(operand.name, 7)
            if mask & bit:
                reads |= self._beyond(own) | 1 << r.VGPR_FIRST
        own = writes & r.VECTOR_MASK
        if own and mask & 8:
            writes |= self._beyond(own) | 1 << r.VGPR_FIRST
            kills &= r.SCALAR_MASK
        return reads, writes, kills

    def _beyond(self, units: int) -> int:
        """Return the vector units that indexing may reach from an operand: its first one and all above it."""
        return self.vector_universe & -(units & -units)


@lru_cache(maxsize=256)
def effect_table(isa: Isa, vector_universe: int = r.VECTOR_MASK) -> EffectTable:
    """Return the table for code that may access these vector units: by default any code, such as that of payloads."""
    return EffectTable(isa, isa.wave_size, vector_universe)


class _Pseudos(dict[int, str]):
    def __init__(self, isa: Isa) -> None:
        self._isa = isa

    def __missing__(self, number: int) -> str:
        name = self[number] = self._isa.opcode(number).pseudo
        return name


@lru_cache(maxsize=64)
def _pseudos(isa: Isa) -> Mapping[int, str]:
    return _Pseudos(isa)


_LANES = [LaneChange(bits) for bits in range(16)]


def unit_bytes(units: int) -> bytes:
    """Return a set of units in the format of the native module."""
    return units.to_bytes(r.UNIT_LIMIT // 8, "little")


@lru_cache(maxsize=64)
def register_lists(isa: Isa) -> tuple[list[int], list[int]]:
    """Return the first unit and number of units of each LLVM register, as lists.

    The unit of LDS_DIRECT, an operand that is read from LDS at an address in M0, is M0.
    """
    first: list[int] = isa.register_first_unit.tolist()
    first[register_numbers()[LDS_DIRECT]] = r.M0
    return first, isa.register_unit_count.tolist()


def is_wide(isa: Isa) -> bool:
    """Return whether the native analyses of a processor need sets of more than `NARROW_VGPRS` VGPRs."""
    return isa.target.target.addressable_vgprs > r.NARROW_VGPRS


@lru_cache(maxsize=64)
def native_table(isa: Isa) -> _mc.EffectTable:
    """Return the native table of one processor; opcodes are added to it when they first occur."""
    table = _mc.WideEffectTable if is_wide(isa) else _mc.EffectTable
    return table(
        *register_lists(isa),
        isa.register_is_half.tolist(),
        isa.wave_size == 64,
    )


def _described(entry: OpcodeEffects) -> dict[str, object]:
    """Return the description of an opcode for the native table."""
    pseudo = entry.opcode.pseudo
    mask = mask_form(pseudo, entry.special)
    lanes = exec_rule(pseudo, entry.special)
    return {
        "operands": len(entry.opcode.operands),
        "reads": entry.reads,
        "full_writes": entry.full_writes,
        "partial_writes": entry.partial_writes,
        "implicit_reads": unit_bytes(entry.implicit_reads),
        "implicit_writes": unit_bytes(entry.implicit_writes),
        "implicit_kills": unit_bytes(entry.implicit_kills),
        "cross_lane": entry.cross_lane,
        "ignores_exec": entry.ignores_exec,
        "writes_anywhere": entry.writes_anywhere,
        "stores": bool(entry.opcode.flags & InstructionFlag.STORE) and not pseudo.startswith("SCRATCH_"),
        "special": entry.special,
        "coordinates": entry.coordinates,
        **{name: entry.position(name) for name in _SPECIAL_OPERANDS},
        "lanes": int(lanes.otherwise),
        **{
            f"lanes_{name}": -1 if change is None else int(change)
            for name, change in zip(lanes._fields[1:], lanes[1:], strict=True)
        },
        "half_of_exec": pseudo.endswith("_B32"),  # LLVM lists all of EXEC for the 32-bit operations that save it
        "mask": mask.kind,
        "table": mask.table,
        "width": mask.units,
        "empty_way": EMPTY_WAY.get(pseudo, -1),
    }


UNKNOWN_OPCODE = 1 << 16
"""Opcode number of undecodable words in the native table; LLVM's numbers have 16 bits."""
_SPECIAL_OPERANDS = ("row_mask", "bank_mask", "bound_ctrl", "dst_sel", "dst_unused", "simm16", "tfe", "lwe", "vaddr")


_UNKNOWN_FORM: dict[str, object] = {
    **dict.fromkeys(("operands", "table", "coordinates"), 0),
    **dict.fromkeys(("reads", "full_writes", "partial_writes"), ()),
    "implicit_writes": unit_bytes(r.TRACKED_SCALARS | r.VECTOR_MASK),
    **dict.fromkeys(("implicit_reads", "implicit_kills"), unit_bytes(0)),
    **dict.fromkeys(("cross_lane", "ignores_exec", "writes_anywhere", "stores"), True),
    "special": "everything",
    **dict.fromkeys(_SPECIAL_OPERANDS, -1),
    "lanes": int(LaneChange(15)),
    **dict.fromkeys(("lanes_if_ones", "lanes_if_first", "lanes_if_second", "empty_way"), -1),
    "half_of_exec": False,
    "mask": "other",
    "width": 1,
}
"""Description of an undecodable word: it may read and change everything."""


_PRESERVED = ("vdst_in", "old")
"""Names of operands for the part of a destination that keeps its value, which do not count as reads."""


ANY_VECTOR = ("relative vector", "everything")
"""Each `OpcodeEffects.special` of operations that may access any vector register."""


@lru_cache(maxsize=1 << 16)
def opcode_effects(isa: Isa, number: int) -> OpcodeEffects:
    """Return the effects shared by all instructions of an LLVM opcode.

    Args:
        number: LLVM opcode number, not negative.
    """
    opcode = isa.opcode(number)
    pseudo, flags = opcode.pseudo, opcode.flags
    transposes = sem.TRANSPOSING_LOAD.search(pseudo) is not None
    narrow = sem.result_is_narrow(pseudo) or "_D16" in pseudo or transposes
    reads, full, partial = _operand_effects(opcode, narrow=narrow)
    special = _special(opcode)
    implicit_reads = _implicit(isa, opcode.implicit_uses)
    if pseudo.startswith(sem.ROUNDED_PREFIXES) or sem.FLOAT_ATOMIC_OF_LDS.match(pseudo):
        implicit_reads |= 1 << r.MODE
    implicit_writes = _implicit(isa, opcode.implicit_defs)
    if flags & InstructionFlag.SDWA and "sdst" in opcode.operand_index:
        implicit_writes &= ~r.VCC_MASK  # LLVM lists VCC although the result is in another register
    if pseudo == "S_SETVSKIP":
        implicit_writes &= ~(1 << r.SCC)  # LLVM lists SCC for all SOPC; this one writes MODE.VSKIP (CDNA 3 ISA)
    implicit_kills = implicit_writes & ~(1 << r.MODE)  # only parts of MODE are written: rounding, denormals, index mode
    if pseudo.startswith("S_SET_GPR_IDX_"):
        implicit_kills &= ~(1 << r.M0)  # bits 7:0 or 15:12
    return OpcodeEffects(
        opcode=opcode,
        control=sem.control_of(pseudo, isa.target.target),
        reads=reads,
        full_writes=full,
        partial_writes=partial,
        implicit_reads=implicit_reads,
        implicit_writes=implicit_writes,
        implicit_kills=implicit_kills,
        cross_lane=bool(flags & (InstructionFlag.DPP | InstructionFlag.MATRIX))
        or pseudo.startswith(sem.CROSS_LANE_PREFIXES)
        or transposes,
        ignores_exec=pseudo.startswith(sem.EXEC_IGNORED_PREFIXES) and not narrow,
        writes_anywhere=pseudo.startswith(sem.WRITES_ANYWHERE_PREFIXES),
        special=special,
        coordinates=sem.most_coordinates(opcode.mnemonic) if special == "coordinates" else 0,
    )


def _operand_effects(opcode: Opcode, *, narrow: bool) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Return the numbers of the operands that are read, written as a whole, and written in part.

    Args:
        narrow: results have fewer bits than their registers.
    """
    pseudo = opcode.pseudo
    reads: list[int] = []
    preserved: set[int] = set()
    for index, operand in enumerate(opcode.operands):
        if operand.is_def:
            continue
        if operand.name in _PRESERVED and not pseudo.startswith(sem.SWAPPING_PREFIXES):
            preserved.add(max(operand.tied_to, 0))  # tied even where LLVM omits the constraint
        else:
            reads.append(index)
    if pseudo.startswith(sem.ACCUMULATING_PREFIXES):
        reads.append(0)
    fails = "_TFE_" in f"{pseudo}_"  # a failed access writes a status after the data, but perhaps not the data
    never_whole = narrow or fails or pseudo.startswith(sem.CONDITIONAL_WRITE_PREFIXES)
    if opcode.flags & InstructionFlag.DPP:
        preserved.clear()  # `old` of DPP is checked in each instruction
    written = [index for index, operand in enumerate(opcode.operands) if operand.is_def]
    partial = [index for index in written if never_whole or index in preserved]
    return tuple(reads), tuple(index for index in written if index not in partial), tuple(partial)


def _special(opcode: Opcode) -> str:
    """Return what the effects of single instructions depend on (`OpcodeEffects.special`)."""
    pseudo, flags = opcode.pseudo, opcode.flags
    if pseudo.startswith(("V_MOVREL", "V_SWAPREL", "S_MOVREL")):  # in any encoding, since nothing is replaced
        return "relative vector" if pseudo.startswith("V_") else "relative scalar"
    if flags & InstructionFlag.DPP:
        return "dpp"
    if flags & InstructionFlag.SDWA:
        return "sdwa"
    if pseudo.startswith(("S_GETREG", "S_SETREG")):
        return "getreg" if pseudo.startswith("S_GETREG") else "setreg"
    if pseudo == "S_TRAP":
        return "everything"
    return "coordinates" if flags & InstructionFlag.IMAGE and "vaddr" in opcode.operand_index else ""


def _implicit(isa: Isa, registers: tuple[int, ...]) -> int:
    masks = register_masks(isa)
    result = 0
    for register in registers:
        result |= masks[register]
    return result


@lru_cache(maxsize=64)
def register_masks(isa: Isa) -> Mapping[int, int]:
    """Return the mask of units of each LLVM register number."""
    return _Masks(isa)


class _Masks(dict[int, int]):
    """Computed on demand: a kernel uses few of thousands of registers."""

    def __init__(self, isa: Isa) -> None:
        super().__init__()
        self._first, self._count = register_lists(isa)

    def __missing__(self, number: int) -> int:
        first, count = self._first[number], self._count[number]
        mask = self[number] = 0 if first < 0 or first == r.UNTRACKED else ((1 << count) - 1) << first
        return mask
