"""Stores to LDS that other waves may not see after a barrier.

A barrier holds a wave until all waves of its work-group have reached it, not until their stores to LDS are complete. A
store whose data other waves load after the barrier must therefore be waited for before it (LLVM, AMDGPUUsage, "Memory
Model": a release fence of a work-group waits for LDS on every target). The check follows such stores like results of
operations, as a register that they write and that barriers read.

FLAT instructions may access LDS: their loads count, but their stores do not, since they may access other memory. Not
checked are stores to other memory, for which such a fence waits only in some modes of execution; loads that are still
outstanding when a barrier lets other waves overwrite their data; and barriers of other sets of waves than a work-group.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from msgspec.structs import replace

from luthier.hazards.wait_counters.check import check_waits
from luthier.hazards.wait_counters.findings import WaitFinding
from luthier.hazards.wait_counters.steps import WaitStep, WaitSteps
from luthier.isa import registers as r
from luthier.isa.registers import UnitSet
from luthier.lifting.instructions.memory import AccessKind, Space, memory_access
from luthier.lifting.model import BasicBlock, Instruction, LiftedKernel
from luthier.lifting.paths import successors

_STORED = 1 << r.UNTRACKED
"""The register that stands for data stored in LDS."""
_SPLIT = re.compile("s_barrier_(signal|wait)")
_WORKGROUP = 0xFFFF
"""Number of the barrier of a work-group in these instructions: -1, in 16 bits."""


def check_order(lifted: LiftedKernel) -> tuple[WaitFinding, ...]:
    """Return the stores to LDS without a wait before a barrier after which LDS is loaded."""
    barriers = frozenset(_barriers(lifted))
    if not barriers:
        return ()
    findings = check_waits(lifted, unneeded=False, steps=_Steps(lifted, barriers)).findings
    return tuple(replace(finding, access="order", registers=UnitSet(0)) for finding in findings)


class _Steps(WaitSteps):
    """Steps in which only stores to LDS are outstanding, and only barriers use them.

    Args:
        barriers: barriers after which LDS is loaded.
    """

    def __init__(self, lifted: LiftedKernel, barriers: frozenset[int]) -> None:
        super().__init__(lifted, plain=False)
        self._barriers = barriers
        self._own = sorted({*self._own, *barriers})

    def _alone(self, index: int) -> WaitStep:
        step = super()._alone(index)
        stored = _STORED if _accesses(self.lifted.instructions[index], ["lds"], ["store", "atomic"]) else 0
        issues = tuple((stream, stored) for stream, _ in step.issues)
        touches = _STORED if index in self._barriers else 0
        return step._replace(touches=touches, writes=0, both=0, issues=issues)


def _accesses(instruction: Instruction, spaces: Collection[Space], kinds: Collection[AccessKind]) -> bool:
    access, gds = memory_access(instruction.opcode), instruction.operand("gds")
    return access is not None and access.space in spaces and access.kind in kinds and not (gds and gds[1])


def _barriers(lifted: LiftedKernel) -> Iterator[int]:
    """Yield barriers of several waves after which LDS is loaded before the next barrier."""
    if lifted.kernel.most_waves < 2:
        return
    events = {block.index: _events(lifted, block) for block in lifted.blocks}
    if not any(kind in "BS" for of_block in events.values() for _, kind in of_block):
        return
    following = successors(lifted)
    loads: set[tuple[int, bool]] = set()
    """Blocks from whose beginnings such a load is reachable, and whether a wave must wait at the barrier first."""

    def reached(block: int, first: int, waits: bool) -> bool:
        for index, kind in events[block]:
            if index < first:
                continue
            if kind in "BS":
                return False
            if kind == "L" and not waits:
                return True
            waits = waits and kind != "W"
        return any((one, waits) in loads for one in following[block])

    changed = True
    while changed:
        fresh = {
            (block.index, waits)
            for block in reversed(lifted.blocks)
            for waits in (False, True)
            if (block.index, waits) not in loads and reached(block.index, block.first, waits)
        }
        loads |= fresh
        changed = bool(fresh)
    for block in lifted.blocks:
        for index, kind in events[block.index]:
            if kind in "BS" and reached(block.index, index + 1, kind == "S"):
                yield index


def _events(lifted: LiftedKernel, block: BasicBlock) -> list[tuple[int, str]]:
    """Return a block's barriers (B), signals (S) and waits (W) of split barriers, and possible loads of LDS (L)."""
    events = []
    for index in range(block.first, block.last + 1):
        instruction = lifted.instructions[index]
        if lifted.columns.opcode[index] < 0:
            continue
        name = instruction.mnemonic
        if _accesses(instruction, ["lds", "flat"], ["load", "atomic"]):
            events.append((index, "L"))
        elif name == "s_barrier":
            events.append((index, "B"))
        elif _SPLIT.match(name) and any(value & 0xFFFF == _WORKGROUP for _, value in instruction.operands[:1]):
            events.append((index, "S" if "signal" in name else "W"))
    return events
