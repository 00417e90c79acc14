"""Descriptions of opcodes."""

from __future__ import annotations

from functools import cached_property

from msgspec import Struct

from luthier.isa.instructions import InstructionFlag


class OperandInfo(Struct, frozen=True):
    """One operand position of an opcode."""

    name: str
    """LLVM's name of the position: ``vdst``, ``src0``, ``src0_modifiers``, ``offset``, ``cpol``, …; empty if none."""
    is_def: bool
    tied_to: int
    """Index of the operand that must be the same register, -1 if there is none."""
    type: int
    """LLVM's operand type number (MCOI::OperandType and AMDGPU::OperandType)."""
    register_class: str | None
    """Name of the register class of the position, None if it takes no register."""


class Opcode(Struct, frozen=True, dict=True):
    """One opcode of LLVM's instruction tables."""

    number: int
    name: str
    """LLVM's name, e.g. ``V_ADD_F32_e32_vi``."""
    mnemonic: str
    """Mnemonic as printed, e.g. ``v_add_f32_e32``."""
    pseudo: str
    """Name of the generic opcode, e.g. ``V_ADD_F32_e32``, which is the same on all targets."""
    pseudo_number: int
    """Number of the generic opcode; `number` itself if LLVM has no other."""
    operands: tuple[OperandInfo, ...]
    implicit_uses: tuple[int, ...]
    """Numbers of LLVM registers read implicitly; in wave32 VCC and EXEC appear as their low half."""
    implicit_defs: tuple[int, ...]
    size: int
    """Bytes without a trailing literal; 0 if LLVM does not know."""
    flags: InstructionFlag
    ts_flags: int
    """LLVM's target-specific flag bits (SIInstrFlags)."""
    encodable: bool
    """False for code generation's pseudo instructions, which have no encoding."""

    @cached_property
    def is_scalar(self) -> bool:
        """Return whether it executes once per wave: SALU, scalar memory, control flow, waits and messages."""
        return bool(self.flags & (InstructionFlag.SALU | InstructionFlag.SMEM)) or self.pseudo.startswith("S_")

    @cached_property
    def operand_index(self) -> dict[str, int]:
        """Return operand name -> position."""
        return {operand.name: index for index, operand in enumerate(self.operands) if operand.name}
