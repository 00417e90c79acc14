"""Register units that an instruction reads and writes, and in which lanes.

Operands, tied operands and implicit registers come from LLVM's MC layer; `semantics` adds what MC does not know.
Wherever it is not certain that a write replaces a whole register, it counts as a write that replaces nothing. What is
the same for every instruction of an opcode is found here; the rest is native (`runtime/native/lifting/effects.cpp`).
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
    """The registers of one instruction, as bit masks over units."""

    reads: int
    """Values read in the active lanes, and scalars read."""
    cross_reads: int
    """Values that may be read in any lane, and scalars read; part of `reads`."""
    writes: int
    """Everything that may change."""
    kills: int
    """Units wholly replaced in the active lanes, and scalars wholly replaced."""
    hard_kills: int
    """Units wholly replaced in every lane, and scalars wholly replaced; part of `kills`."""
    lanes: LaneChange
    """Possible changes of lanes' activity; `LaneChange.UNCHANGED` for nearly all."""


class IndexMode(NamedTuple):
    """VGPR index mode at an instruction."""

    may: int
    """Operands that may be indexed: bits 0 to 3 are src0, src1, src2 and the result, as in M0[15:12]."""
    known: int | None
    """Exactly which, where the mode is certainly on and there is one possibility."""


class SkipMode(NamedTuple):
    """GFX9's vector skip mode at an instruction, which may be on there."""

    again: str | None
    """The s_setvskip that it was last set by, in assembly: repeated, it sets the mode as it is. None if that is not
    certain."""
    reads: int
    """Bit set of units that it reads."""


_INDEXED_SOURCES = {"src0": 1, "vsrc0": 1, "src1": 2, "vsrc1": 2, "src2": 4, "vsrc2": 4}
"""Bit of M0[15:12] for an operand, by name without the destination."""


class OpcodeEffects(Struct, frozen=True):
    """Effects that are the same for every instruction of one opcode. Numbers are operand positions."""

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
    """True if vector registers may be written in lanes that are not active."""
    special: str
    """Property that each instruction has to be examined for: "dpp", "sdwa", "getreg", "setreg", "relative vector",
    "relative scalar", "coordinates", "everything" or ""."""
    coordinates: int
    """Registers from ``vaddr`` on that hold an image's coordinates at most, where LLVM names the first alone: how many
    there are is in the descriptor on GFX9. 0 elsewhere."""

    def position(self, name: str) -> int:
        """Return the position of the operand with this name, -1 if there is none."""
        for index, operand in enumerate(self.opcode.operands):
            if operand.name == name:
                return index
        return -1


_LONG = 1 << 16
"""Values from which on a list of them takes too much memory."""


def listed(column: NDArray[Any]) -> Sequence[int]:
    """Return a column that yields Python's numbers one at a time: a list, or a view of the array if it is long."""
    return column.tolist() if len(column) < _LONG else np.ascontiguousarray(column).data


def _list(values: Sequence[int]) -> list[int]:
    """Return a part of such a column as a list."""
    return values if isinstance(values, list) else list(values)


class Columns:
    """The columns of an `InstructionArray` as Python's numbers, which are faster to walk one element at a time; each
    made when it is first used."""

    def __init__(self, code: InstructionArray) -> None:
        self.code = code
        self.native: tuple[EffectTable, _mc.Code] | None = None
        """Code for the native analyses, made by `EffectTable.code` for one table."""

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
        """Return [n] LLVM's opcode number of each instruction, -1 where the bytes are none."""
        return listed(self.code.opcode)

    @cached_property
    def opcodes(self) -> frozenset[int]:
        """Return the opcode numbers that occur, without -1."""
        return frozenset(self.opcode) - {-1}

    @cached_property
    def target(self) -> Sequence[int]:
        """Return [n] the virtual address that a branch or call encodes, `NO_TARGET` for others."""
        return listed(self.code.target)

    @cached_property
    def start(self) -> Sequence[int]:
        """Return [n + 1] the position of each instruction's first operand in `value` and `register`."""
        return listed(self.code.operand_start)

    @cached_property
    def value(self) -> Sequence[int]:
        """Return [operands] the immediate, or LLVM's number of the register."""
        return listed(self.code.operand_value)

    @cached_property
    def register(self) -> Sequence[int]:
        """Return [operands] the LLVM register number, 0 (no register) where the operand is none."""
        is_register = self.code.operand_kind == int(OperandKind.REGISTER)
        return listed(np.where(is_register, self.code.operand_value, 0))

    def values(self, index: int) -> list[int]:
        """Return the operand values of an instruction: register numbers and immediates alike."""
        return _list(self.value[self.start[index] : self.start[index + 1]])

    def registers(self, index: int) -> list[int]:
        """Register number of each operand of an instruction, 0 where it is an immediate."""
        return _list(self.register[self.start[index] : self.start[index + 1]])

    def alike(self, index: int) -> tuple[int, ...]:
        """Return the opcode number and operands of an instruction, with registers and immediates distinguished.

        It is the same for instructions that do the same.
        """
        begin, end = self.start[index], self.start[index + 1]
        return (self.opcode[index], *self.value[begin:end], *self.register[begin:end])


class EffectTable:
    """Effects of instructions of one processor at one wave size.

    Args:
        isa: the processor.
        wave_size: lanes a wave, 32 or 64.
        vector_universe: mask of the vector units the kernel may touch, read by operations with computed register
        numbers.
    """

    def __init__(self, isa: Isa, wave_size: int, vector_universe: int) -> None:
        self.isa = isa
        self.wave_size = wave_size
        self.vector_universe = vector_universe
        self.everything = r.TRACKED_SCALARS | vector_universe
        self.exec = r.EXEC_MASK if wave_size == 64 else 1 << r.EXEC_LO
        self.pseudos = _pseudos(isa)
        """LLVM's generic name of each opcode number."""
        self.masks = register_masks(isa)
        self._native = native_table(isa)

    def opcode(self, number: int) -> OpcodeEffects:
        """Return the shared effects of one LLVM opcode number."""
        return opcode_effects(self.isa, number)

    def certain_reads(self, columns: Columns, index: int) -> int:
        """Return the units that an instruction reads in any case: of coordinates those that LLVM names."""
        entry, registers = self.opcode(columns.opcode[index]), columns.registers(index)
        return functools.reduce(
            operator.or_, (self.masks[registers[position]] for position in entry.reads), entry.implicit_reads
        )

    def code(self, columns: Columns) -> _mc.Code:
        """Return decoded instructions as the native analyses see them."""
        known = columns.native
        if known is not None and known[0] is self:
            return known[1]
        code = columns.code
        if (code.opcode < 0).any() and self._native.missing(np.array([UNKNOWN_OPCODE], np.int32)):
            self._native.tell(UNKNOWN_OPCODE, _UNKNOWN_FORM)
        for number in self._native.missing(code.opcode):
            self._native.tell(number, _described(opcode_effects(self.isa, number)))
        native = self._native.code(
            np.where(code.opcode < 0, UNKNOWN_OPCODE, code.opcode).astype(np.int32),
            code.operand_start,
            code.operand_kind,
            code.operand_value,
            unit_bytes(self.vector_universe),
            unit_bytes(self.everything),
        )
        columns.native = self, native
        return native

    def of(
        self, columns: Columns, index: int, indexed: IndexMode | None = None, skipped: SkipMode | None = None
    ) -> Effects:
        """Return the effects of instruction `index`.

        Args:
            indexed: it runs in this VGPR index mode, where vector register numbers are computed.
            skipped: it may run in this vector skip mode, in which vector instructions do nothing. What the mode was set
                from counts as read: the mode can then be set from it again.
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
        """Return what a vector instruction in VGPR index mode reads, writes and replaces.

        M0[7:0] is added to the numbers of those VGPR operands that `mask` names (bits: src0, src1, src2, result).
        An index out of range reads v0, as may a named operand that is no VGPR (ISA documents, "VGPR Indexing"; the
        CLRX documentation, "GPR indexing mode", says v0 of results too). The documents speak of vector ALU operations;
        of others, operands are not told apart.
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
        """Return the vector units that indexing may reach from an operand: those from its first one on."""
        return self.vector_universe & -(units & -units)


@lru_cache(maxsize=64)
def effect_table(isa: Isa) -> EffectTable:
    """Return a table of effects for any code, such as that of payloads."""
    return EffectTable(isa, isa.wave_size, r.VECTOR_MASK)


class _Pseudos(dict[int, str]):
    """Filled when a name is first asked for."""

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
    """Return a set of units as the native module takes it."""
    return units.to_bytes(r.UNIT_LIMIT // 8, "little")


@lru_cache(maxsize=64)
def register_lists(isa: Isa) -> tuple[list[int], list[int]]:
    """Return the first unit and number of units of each LLVM register, as lists.

    That of LDS_DIRECT is M0: an operand that is read from LDS, where M0 says.
    """
    first: list[int] = isa.register_first_unit.tolist()
    first[register_numbers()[LDS_DIRECT]] = r.M0
    return first, isa.register_unit_count.tolist()


@lru_cache(maxsize=64)
def native_table(isa: Isa) -> _mc.EffectTable:
    """Return the native table of one processor; opcodes are described to it when they are first seen."""
    table = _mc.WideEffectTable if isa.target.target.addressable_vgprs > r.NARROW_VGPRS else _mc.EffectTable
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
        "half_of_exec": pseudo.endswith("_B32"),  # LLVM gives the 32-bit operations that save EXEC the whole of it
        "mask": mask.kind,
        "table": mask.table,
        "width": mask.units,
        "empty_way": EMPTY_WAY.get(pseudo, -1),
    }


UNKNOWN_OPCODE = 1 << 16
"""Stands for -1, a word that LLVM does not know, in the native table; LLVM's numbers have 16 bits."""
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
"""Everything may be read, and may change."""


_PRESERVED = ("vdst_in", "old")
"""Names of operands that stand for the part of a destination that keeps its value: no read of their own."""


@lru_cache(maxsize=1 << 16)
def opcode_effects(isa: Isa, number: int) -> OpcodeEffects:
    """Return the effects shared by all instructions of an LLVM opcode.

    Args:
        number: LLVM opcode number, not negative.
    """
    opcode = isa.opcode(number)
    pseudo = opcode.pseudo
    flags = opcode.flags
    narrow = sem.result_is_narrow(pseudo) or "_D16" in pseudo or sem.TRANSPOSING_LOAD.search(pseudo) is not None
    fails = "_TFE_" in f"{pseudo}_"  # a status behind the data is written where an access fails, the data perhaps not
    reads: list[int] = []
    full: list[int] = []
    partial: list[int] = []
    preserved: set[int] = set()
    for index, operand in enumerate(opcode.operands):
        if operand.is_def:
            continue
        if operand.name in _PRESERVED and not pseudo.startswith(sem.SWAPPING_PREFIXES):
            preserved.add(max(operand.tied_to, 0))  # LLVM leaves some constraints out: these always have one
        else:
            reads.append(index)
    if pseudo.startswith(sem.ACCUMULATING_PREFIXES):
        reads.append(0)
    for index, operand in enumerate(opcode.operands):
        if not operand.is_def:
            continue
        keeps = index in preserved and not flags & InstructionFlag.DPP  # DPP's `old` is checked in each instruction
        if keeps or narrow or fails or pseudo.startswith(sem.CONDITIONAL_WRITE_PREFIXES):
            partial.append(index)
        else:
            full.append(index)

    special = ""
    if pseudo.startswith(("V_MOVREL", "V_SWAPREL", "S_MOVREL")):  # of whatever encoding: nothing is replaced anyway
        special = "relative vector" if pseudo.startswith("V_") else "relative scalar"
    elif flags & InstructionFlag.DPP:
        special = "dpp"
    elif flags & InstructionFlag.SDWA:
        special = "sdwa"
    elif pseudo.startswith(("S_GETREG", "S_SETREG")):
        special = "getreg" if pseudo.startswith("S_GETREG") else "setreg"
    elif pseudo == "S_TRAP":
        special = "everything"
    elif flags & InstructionFlag.IMAGE and "vaddr" in opcode.operand_index:
        special = "coordinates"

    implicit_reads = _implicit(isa, opcode.implicit_uses)
    if pseudo.startswith(sem.ROUNDED_PREFIXES) or sem.FLOAT_ATOMIC_OF_LDS.match(pseudo):
        implicit_reads |= 1 << r.MODE
    implicit_writes = _implicit(isa, opcode.implicit_defs)
    if flags & InstructionFlag.SDWA and "sdst" in opcode.operand_index:
        implicit_writes &= ~r.VCC_MASK  # LLVM names it although the result goes elsewhere
    if pseudo == "S_SETVSKIP":
        implicit_writes &= ~(1 << r.SCC)  # as of all SOPC to LLVM; the result is MODE.VSKIP (CDNA 3 ISA, "S_SETVSKIP")
    implicit_kills = implicit_writes & ~(1 << r.MODE)  # only parts of MODE are written: rounding, denormals, index mode
    if pseudo.startswith("S_SET_GPR_IDX_"):
        implicit_kills &= ~(1 << r.M0)  # bits 7:0 or 15:12
    return OpcodeEffects(
        opcode=opcode,
        control=sem.control_of(pseudo, isa.target.target),
        reads=tuple(reads),
        full_writes=tuple(full),
        partial_writes=tuple(partial),
        implicit_reads=implicit_reads,
        implicit_writes=implicit_writes,
        implicit_kills=implicit_kills,
        cross_lane=bool(flags & (InstructionFlag.DPP | InstructionFlag.MATRIX))
        or pseudo.startswith(sem.CROSS_LANE_PREFIXES)
        or sem.TRANSPOSING_LOAD.search(pseudo) is not None,
        ignores_exec=pseudo.startswith(sem.EXEC_IGNORED_PREFIXES) and not narrow,
        writes_anywhere=pseudo.startswith(sem.WRITES_ANYWHERE_PREFIXES),
        special=special,
        coordinates=sem.most_coordinates(opcode.mnemonic) if special == "coordinates" else 0,
    )


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
    """Made when they are first asked for: a kernel uses few of thousands of registers."""

    def __init__(self, isa: Isa) -> None:
        super().__init__()
        self._first, self._count = register_lists(isa)

    def __missing__(self, number: int) -> int:
        first, count = self._first[number], self._count[number]
        mask = self[number] = 0 if first < 0 or first == r.UNTRACKED else ((1 << count) - 1) << first
        return mask
