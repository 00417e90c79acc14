"""Lifting: functions, blocks, calls, PC-relative addresses, and register liveness of one kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from luthier.support.lazy import lazy_names

if TYPE_CHECKING:
    from luthier.isa.registers import UnitSet as UnitSet
    from luthier.lifting.instructions.effects import Effects as Effects
    from luthier.lifting.instructions.effects import IndexMode as IndexMode
    from luthier.lifting.instructions.effects import SkipMode as SkipMode
    from luthier.lifting.instructions.semantics import Control as Control
    from luthier.lifting.instructions.semantics import LaneChange as LaneChange
    from luthier.lifting.lifter import lift as lift
    from luthier.lifting.live import Live as Live
    from luthier.lifting.live import LivePoints as LivePoints
    from luthier.lifting.liveness import Liveness as Liveness
    from luthier.lifting.loops import Loop as Loop
    from luthier.lifting.loops import LoopNest as LoopNest
    from luthier.lifting.model import BasicBlock as BasicBlock
    from luthier.lifting.model import CallSite as CallSite
    from luthier.lifting.model import Clause as Clause
    from luthier.lifting.model import CodeTable as CodeTable
    from luthier.lifting.model import ControlEdge as ControlEdge
    from luthier.lifting.model import DirectJump as DirectJump
    from luthier.lifting.model import Edge as Edge
    from luthier.lifting.model import Function as Function
    from luthier.lifting.model import Instruction as Instruction
    from luthier.lifting.model import PcReference as PcReference
    from luthier.lifting.model import Restriction as Restriction
    from luthier.lifting.model import Unknown as Unknown
    from luthier.lifting.representation import LiftedRepresentation as LiftedRepresentation

__getattr__ = lazy_names(__name__)
