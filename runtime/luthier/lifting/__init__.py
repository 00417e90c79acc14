"""Lifting: functions, blocks, calls, addresses made of the program counter, and register liveness of one kernel."""

from __future__ import annotations

from luthier.isa.registers import UnitSet
from luthier.lifting.effects import Effects, IndexMode
from luthier.lifting.lifter import lift
from luthier.lifting.liveness import Liveness, RegisterSet
from luthier.lifting.model import (
    BasicBlock,
    CallSite,
    Clause,
    CodeTable,
    DirectJump,
    Edge,
    Function,
    Instruction,
    LiftedRepresentation,
    PcReference,
    Restriction,
    Unknown,
)
from luthier.lifting.semantics import Control, Lanes

__all__ = [
    "BasicBlock",
    "CallSite",
    "Clause",
    "CodeTable",
    "Control",
    "DirectJump",
    "Edge",
    "Effects",
    "Function",
    "IndexMode",
    "Instruction",
    "Lanes",
    "LiftedRepresentation",
    "Liveness",
    "PcReference",
    "RegisterSet",
    "Restriction",
    "UnitSet",
    "Unknown",
    "lift",
]
