"""LLVM's MC layer for AMDGPU: decode, print, assemble, encode, and describe instructions and registers.

Everything the rest of Luthier knows of an instruction set comes from here; there are no opcode tables of our own.
"""

from __future__ import annotations

from luthier._mc import LLVM_VERSION
from luthier.mc.instructions import (
    NO_TARGET,
    Assembly,
    Fixup,
    InstructionArray,
    InstructionFlag,
    OperandKind,
)
from luthier.mc.isa import Isa
from luthier.mc.opcodes import Opcode, OperandInfo
from luthier.mc.registers import Register, Unit

__all__ = [
    "LLVM_VERSION",
    "NO_TARGET",
    "Assembly",
    "Fixup",
    "InstructionArray",
    "InstructionFlag",
    "Isa",
    "Opcode",
    "OperandInfo",
    "OperandKind",
    "Register",
    "Unit",
]
