"""Instructions: target ids, registers, and LLVM's MC layer for AMDGPU to decode, print, assemble, encode and describe
instructions. Differences between generations are in `luthier.arch`.

The rest of Luthier knows instruction sets only through this package, which has no opcode tables of its own. Its names
are imported on first use: `luthier.isa.listing` needs none of them, and no NumPy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from luthier.support.lazy import lazy_names

if TYPE_CHECKING:
    from luthier._mc import LLVM_VERSION as LLVM_VERSION
    from luthier.arch.generation import Generation as Generation
    from luthier.isa.instructions import NO_TARGET as NO_TARGET
    from luthier.isa.instructions import Assembly as Assembly
    from luthier.isa.instructions import Fixup as Fixup
    from luthier.isa.instructions import InstructionArray as InstructionArray
    from luthier.isa.instructions import InstructionFlag as InstructionFlag
    from luthier.isa.instructions import OperandKind as OperandKind
    from luthier.isa.mc import Isa as Isa
    from luthier.isa.opcodes import Opcode as Opcode
    from luthier.isa.opcodes import OperandInfo as OperandInfo
    from luthier.isa.registers import Register as Register
    from luthier.isa.registers import RegisterRange as RegisterRange
    from luthier.isa.registers import UnitSet as UnitSet
    from luthier.isa.targets import Target as Target
    from luthier.isa.targets import TargetId as TargetId

__getattr__ = lazy_names(__name__)
