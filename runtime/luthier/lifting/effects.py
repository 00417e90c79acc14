"""Which register units an instruction reads and writes, and in which lanes.

Operands, tied operands and implicit registers come from LLVM's MC layer; `semantics` adds what MC does not know.
Wherever it is not certain that a write replaces a whole register, it counts as a write that replaces nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from luthier.lifting import registers as r
from luthier.lifting import semantics as sem
from luthier.lifting.semantics import Control, Lanes
from luthier.mc import InstructionArray, InstructionFlag, Isa, Opcode, OperandKind


class Effects(NamedTuple):
    """The registers of one instruction, as bit masks over units."""

    reads: int
    """Values read in the active lanes, and scalars read."""
    cross_reads: int
    """Values that may be read in any lane, and scalars read; part of `reads`."""
    writes: int
    """Everything that may change."""
    kills: int
    """What is wholly replaced in the active lanes, and scalars wholly replaced."""
    hard_kills: int
    """What is wholly replaced in every lane, and scalars wholly replaced; part of `kills`."""
    lanes: Lanes
    """How lanes' activity may change; `Lanes.UNCHANGED` for nearly all."""


class IndexMode(NamedTuple):
    """VGPR index mode at an instruction."""

    may: int
    """Which operands may be indexed: bits 0 to 3 are src0, src1, src2 and the result, as in M0[15:12]."""
    known: int | None
    """Exactly which, where the mode is certainly on and there is one possibility."""


_INDEXED_SOURCES = {"src0": 1, "vsrc0": 1, "src1": 2, "vsrc1": 2, "src2": 4, "vsrc2": 4}
"""Bit of M0[15:12] for an operand, by name without the destination."""


@dataclass(frozen=True, slots=True)
class OpcodeEffects:
    """What is the same for every instruction of one opcode. Numbers are operand positions."""

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
    """Whether vector registers may be written in lanes that are not active."""
    special: str
    """What else has to be looked at in each instruction: "dpp", "sdwa", "hwreg", "movrel", "everything" or ""."""

    def position(self, name: str) -> int:
        """Position of the operand with this name, -1 if there is none."""
        for index, operand in enumerate(self.opcode.operands):
            if operand.name == name:
                return index
        return -1


class Columns:
    """The columns of an `InstructionArray` as Python lists, which are faster to walk one element at a time."""

    def __init__(self, code: InstructionArray) -> None:
        self.code = code
        self.address: list[int] = (code.offset + code.address).tolist()
        self.size: list[int] = code.size.tolist()
        self.opcode: list[int] = code.opcode.tolist()
        self.target: list[int] = code.target.tolist()
        self.start: list[int] = code.operand_start.tolist()
        self.value: list[int] = code.operand_value.tolist()
        is_register = code.operand_kind == int(OperandKind.REGISTER)
        self.register: list[int] = np.where(is_register, code.operand_value, 0).tolist()
        """LLVM register number of each operand, 0 (no register) where it is none."""

    def values(self, index: int) -> list[int]:
        """Operand values of an instruction: register numbers and immediates alike."""
        return self.value[self.start[index] : self.start[index + 1]]

    def registers(self, index: int) -> list[int]:
        """Register number of each operand of an instruction, 0 where it is an immediate."""
        return self.register[self.start[index] : self.start[index + 1]]


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
        self.masks, self._halves = register_masks(isa)

    def opcode(self, number: int) -> OpcodeEffects:
        """The shared part for one LLVM opcode number."""
        return opcode_effects(self.isa, number)

    def of(self, columns: Columns, index: int, indexed: IndexMode | None = None, skipped: bool = False) -> Effects:
        """Effects of instruction `index`.

        Args:
            indexed: it runs in this VGPR index mode, where vector register numbers are computed.
            skipped: it may run in vector skip mode, in which vector instructions do nothing.
        """
        entry = opcode_effects(self.isa, columns.opcode[index])
        registers = columns.registers(index)
        masks = self.masks
        reads = entry.implicit_reads
        writes = entry.implicit_writes
        kills = entry.implicit_kills
        for position in entry.reads:
            reads |= masks[registers[position]]
        for position in entry.full_writes:
            register = registers[position]
            whole = masks[register]
            writes |= whole
            if register not in self._halves:
                kills |= whole
        for position in entry.partial_writes:
            writes |= masks[registers[position]]
        if entry.special:
            reads, writes, kills = self._special(entry, columns.values(index), reads, writes, kills)
        if indexed is not None and not entry.opcode.pseudo.startswith("S_"):
            reads, writes, kills = self._relative(entry, registers, indexed.may, reads, writes, kills)
        if skipped and not entry.opcode.pseudo.startswith("S_"):
            kills = 0
        lanes = Lanes.UNCHANGED
        if writes & self.exec:  # wave32 has no lanes in EXEC_HI
            lanes = self._exec_change(entry, columns.values(index), registers, writes)
        cross = reads if entry.cross_lane else reads & r.SCALAR_MASK
        hard = kills if entry.ignores_exec else kills & r.SCALAR_MASK
        return Effects(reads, cross, writes, kills, hard, lanes)

    def _special(
        self, entry: OpcodeEffects, values: list[int], reads: int, writes: int, kills: int
    ) -> tuple[int, int, int]:
        if entry.special == "dpp":
            # A lane whose source lane is masked out or missing keeps its value, unless bound_ctrl says to read 0
            # instead.
            row, bank, bound = (entry.position(name) for name in ("row_mask", "bank_mask", "bound_ctrl"))
            if row < 0 or bank < 0 or bound < 0 or (values[row], values[bank]) != (15, 15) or values[bound] == 0:
                kills &= r.SCALAR_MASK
        elif entry.special == "sdwa":
            select, unused = entry.position("dst_sel"), entry.position("dst_unused")
            if (
                select >= 0 and values[select] != 6 and (unused < 0 or values[unused] == 2)
            ):  # not DWORD; UNUSED_PRESERVE
                kills &= r.SCALAR_MASK
        elif entry.special == "hwreg":
            position = entry.position("simm16")
            encoded = values[position] if position >= 0 else 0
            units, whole = hardware_register(encoded)
            if entry.opcode.pseudo.startswith("S_GETREG"):
                reads |= units
            else:
                units &= ~r.EXEC_MASK  # programs cannot write STATUS
                writes |= units
                kills |= units & _SETTABLE if whole else 0
        elif entry.special == "movrel":
            anywhere = self.vector_universe if entry.opcode.pseudo.startswith("V_") else r.SGPR_MASK | r.VCC_MASK
            reads |= anywhere | 1 << r.M0 | self.exec  # LLVM leaves M0 and EXEC out of some
            writes |= anywhere
            kills &= ~anywhere
        elif entry.special == "everything":
            reads |= self.everything
        return reads, writes, kills

    def _relative(
        self, entry: OpcodeEffects, registers: list[int], mask: int, reads: int, writes: int, kills: int
    ) -> tuple[int, int, int]:
        """What a vector instruction in VGPR index mode reads, writes and replaces.

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
        """The vector units that indexing may make of an operand: those from its first one on."""
        return self.vector_universe & -(units & -units)

    def _exec_change(self, entry: OpcodeEffects, values: list[int], registers: list[int], writes: int) -> Lanes:
        target = writes & r.EXEC_MASK
        pseudo = entry.opcode.pseudo
        # LLVM gives the 32-bit operations that save EXEC the whole of it, also where waves have 64 lanes.
        whole = self.wave_size == 32 or (target == r.EXEC_MASK and not pseudo.endswith("_B32"))
        sources = [self.masks[registers[position]] for position in entry.reads]
        all_ones = [registers[position] == 0 and values[position] == -1 for position in entry.reads]
        stem = pseudo.removeprefix("S_").rsplit("_", 1)[0]
        change = Lanes.ANY
        if pseudo.startswith("V_CMPX_"):
            if not entry.special:  # a DPP compare may leave bits of disabled lanes alone
                change = Lanes.NARROWED
        elif stem.endswith(("_SAVEEXEC", "_WREXEC")):
            change = sem.SAVE_EXEC.get(stem.rsplit("_", 1)[0], Lanes.ANY)
            if stem == "XOR_SAVEEXEC" and all_ones[:1] == [True]:
                change = Lanes.FLIPPED
            elif stem == "OR_SAVEEXEC" and all_ones[:1] == [True]:
                change = Lanes.ALL_ACTIVE
        elif stem == "MOV" and all_ones == [True]:
            change = Lanes.ALL_ACTIVE
        elif stem == "NOT" and sources == [target]:
            change = Lanes.FLIPPED
        elif stem == "WQM" and sources == [target]:
            change = Lanes.WIDENED
        elif stem in sem.TWO_SOURCES and len(sources) == 2:
            if sources[0] == target:
                change = sem.TWO_SOURCES[stem][0]
            elif sources[1] == target:
                change = sem.TWO_SOURCES[stem][1]
        return change if whole else change | Lanes.UNCHANGED  # the lanes of the other half stay as they are


_PRESERVED = ("vdst_in", "old")
"""Names of operands that stand for the part of a destination that keeps its value: no read of their own."""


@lru_cache(maxsize=1 << 16)
def opcode_effects(isa: Isa, number: int) -> OpcodeEffects:
    """The effects shared by all instructions of an LLVM opcode.

    Args:
        number: LLVM opcode number, not negative.
    """
    opcode = isa.opcode(number)
    pseudo = opcode.pseudo
    flags = opcode.flags
    narrow = sem.result_is_narrow(pseudo) or "_D16" in pseudo or sem.TRANSPOSING_LOAD.search(pseudo) is not None
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
        keeps = index in preserved and not flags & InstructionFlag.DPP  # DPP's `old` is looked at in each instruction
        if keeps or narrow or pseudo.startswith(sem.CONDITIONAL_WRITE_PREFIXES):
            partial.append(index)
        else:
            full.append(index)

    special = ""
    if pseudo.startswith(("V_MOVREL", "V_SWAPREL", "S_MOVREL")):  # of whatever encoding: nothing is replaced anyway
        special = "movrel"
    elif flags & InstructionFlag.DPP:
        special = "dpp"
    elif flags & InstructionFlag.SDWA:
        special = "sdwa"
    elif pseudo.startswith(("S_GETREG", "S_SETREG")):
        special = "hwreg"
    elif pseudo == "S_TRAP":
        special = "everything"

    implicit_reads = _implicit(isa, opcode.implicit_uses)
    if pseudo.startswith(sem.ROUNDED_PREFIXES):
        implicit_reads |= 1 << r.MODE
    implicit_writes = _implicit(isa, opcode.implicit_defs)
    if flags & InstructionFlag.SDWA and "sdst" in opcode.operand_index:
        implicit_writes &= ~r.VCC_MASK  # LLVM names it although the result goes elsewhere
    implicit_kills = implicit_writes & ~(1 << r.MODE)  # only parts of MODE are written: rounding, denormals, index mode
    if pseudo.startswith("S_SET_GPR_IDX_"):
        implicit_kills &= ~(1 << r.M0)  # bits 7:0 or 15:12
    return OpcodeEffects(
        opcode=opcode,
        control=sem.control_of(pseudo),
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
    )


def _implicit(isa: Isa, registers: tuple[int, ...]) -> int:
    masks, _ = register_masks(isa)
    result = 0
    for register in registers:
        result |= masks[register]
    return result


@lru_cache(maxsize=64)
def register_masks(isa: Isa) -> tuple[list[int], frozenset[int]]:
    """For each LLVM register number the mask of its units, and the numbers of the 16-bit halves."""
    masks = [
        0 if first < 0 or first == r.UNTRACKED else ((1 << count) - 1) << first
        for first, count in zip(isa.register_first_unit.tolist(), isa.register_unit_count.tolist(), strict=True)
    ]
    return masks, frozenset(np.flatnonzero(isa.register_is_half).tolist())


_HARDWARE_REGISTERS = {
    1: 1 << r.MODE,
    2: 1 << r.SCC | r.VCC_MASK | r.EXEC_MASK,  # STATUS: SCC, and whether VCC and EXEC are zero
    4: 1 << r.SCC | r.VCC_MASK | r.EXEC_MASK,  # STATE_PRIV of GFX12, which has some of those bits
    20: 1 << r.FLAT_SCRATCH_LO,
    21: 1 << r.FLAT_SCRATCH_HI,
}
"""Hardware register number (LLVM AMDGPUOperandSyntax "hwreg") -> the units it shows."""


_SETTABLE = 3 << r.FLAT_SCRATCH_LO | 1 << r.MODE


def hardware_register(encoded: int) -> tuple[int, bool]:
    """The unit mask an ``s_setreg``/``s_getreg`` operand names, and whether all 32 bits are meant.

    Args:
        encoded: the 16-bit operand: number in bits 5:0, first bit in 10:6, bits minus one in 15:11.
    """
    whole = encoded >> 6 & 0x1F == 0 and encoded >> 11 & 0x1F == 31
    return _HARDWARE_REGISTERS.get(encoded & 0x3F, 0), whole
