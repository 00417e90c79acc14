"""Lifting: functions, blocks, calls, addresses made of the program counter, and register liveness of one kernel."""

from __future__ import annotations

from luthier.lift.effects import Effects
from luthier.lift.lifter import lift
from luthier.lift.liveness import Liveness
from luthier.lift.model import (
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
    Unknown,
)
from luthier.lift.registers import RegisterSet, UnitSet
from luthier.lift.semantics import Control, Lanes

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
    "Instruction",
    "Lanes",
    "LiftedRepresentation",
    "Liveness",
    "PcReference",
    "RegisterSet",
    "UnitSet",
    "Unknown",
    "lift",
]
