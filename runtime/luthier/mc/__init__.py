"""LLVM's MC layer for AMDGPU: decode, print, assemble, encode, and describe instructions and registers.

Everything the rest of Luthier knows of an instruction set comes from here; there are no opcode tables of our own.
The names here are imported when first used: `luthier.mc.listing` needs none of them, and no NumPy.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from luthier._mc import LLVM_VERSION as LLVM_VERSION
    from luthier.mc.instructions import NO_TARGET as NO_TARGET
    from luthier.mc.instructions import Assembly as Assembly
    from luthier.mc.instructions import Fixup as Fixup
    from luthier.mc.instructions import InstructionArray as InstructionArray
    from luthier.mc.instructions import InstructionFlag as InstructionFlag
    from luthier.mc.instructions import OperandKind as OperandKind
    from luthier.mc.isa import Isa as Isa
    from luthier.mc.opcodes import Opcode as Opcode
    from luthier.mc.opcodes import OperandInfo as OperandInfo
    from luthier.mc.registers import Register as Register
    from luthier.mc.registers import Unit as Unit

_MODULE_OF = {
    "LLVM_VERSION": "luthier._mc",
    "NO_TARGET": "luthier.mc.instructions",
    "Assembly": "luthier.mc.instructions",
    "Fixup": "luthier.mc.instructions",
    "InstructionArray": "luthier.mc.instructions",
    "InstructionFlag": "luthier.mc.instructions",
    "Isa": "luthier.mc.isa",
    "Opcode": "luthier.mc.opcodes",
    "OperandInfo": "luthier.mc.opcodes",
    "OperandKind": "luthier.mc.instructions",
    "Register": "luthier.mc.registers",
    "Unit": "luthier.mc.registers",
}

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


def __getattr__(name: str) -> Any:
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return globals().setdefault(name, getattr(importlib.import_module(module), name))
