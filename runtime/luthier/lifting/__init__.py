"""Lifting: functions, blocks, calls, addresses made of the program counter, and register liveness of one kernel."""

from __future__ import annotations

from luthier.isa.registers import UnitSet
from luthier.lifting.instructions.effects import Effects, IndexMode, SkipMode
from luthier.lifting.instructions.semantics import Control, Lanes
from luthier.lifting.lifter import lift
from luthier.lifting.live import Live, LivePoints
from luthier.lifting.liveness import Liveness
from luthier.lifting.loops import Loop, LoopNest
from luthier.lifting.model import (
    BasicBlock,
    CallSite,
    Clause,
    CodeTable,
    ControlEdge,
    DirectJump,
    Edge,
    Function,
    Instruction,
    PcReference,
    Restriction,
    Unknown,
)
from luthier.lifting.representation import LiftedRepresentation

__all__ = [
    "BasicBlock",
    "CallSite",
    "Clause",
    "CodeTable",
    "Control",
    "ControlEdge",
    "DirectJump",
    "Edge",
    "Effects",
    "Function",
    "IndexMode",
    "Instruction",
    "Lanes",
    "LiftedRepresentation",
    "Live",
    "LivePoints",
    "Liveness",
    "Loop",
    "LoopNest",
    "PcReference",
    "Restriction",
    "SkipMode",
    "UnitSet",
    "Unknown",
    "lift",
]
