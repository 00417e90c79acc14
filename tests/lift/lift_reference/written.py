"""Which vector registers hold anything: those the launch sets, and those that code on the way here may have written.

What a kernel reads of other registers is left over from earlier waves. Even so they are left alone where that can be
seen from outside: if they are stored, or if inserted code reads them. The same goes for lanes that were not launched,
of all registers but those the program writes in such lanes, which takes an EXEC with more lanes than the wave began
with, ``v_writelane``, or a matrix operation.
"""

from __future__ import annotations

from typing import NamedTuple

from luthier.isa import registers as r
from luthier.lifting.model import BasicBlock, CallSite
from luthier.lifting.representation import LiftedRepresentation

from lift_reference.lane_flow import LaneFlow, SegmentLanes
from lift_reference.segments import Segment


class Filled(NamedTuple):
    """Vector units that may hold something."""

    anywhere: int
    """In some lane."""
    unlaunched: int
    """In a lane that was not launched."""

    def __or__(self, other: Filled) -> Filled:
        return Filled(self.anywhere | other.anywhere, self.unlaunched | other.unlaunched)


class Written:
    """The analysis of one kernel."""

    def __init__(
        self,
        lifted: LiftedRepresentation,
        segments: list[tuple[Segment, ...]],
        flow: LaneFlow,
        calls: dict[int, CallSite],
    ) -> None:
        self._lifted = lifted
        self._segments = segments
        self._flow = flow
        self._calls = calls
        self._unknown_calls = any(not call.known for call in calls.values()) or bool(lifted.unknown)
        self._entered_inside = [True] * len(lifted.functions)
        """Whether a function is only called with lanes that were launched."""
        self._entered_full = [True] * len(lifted.functions)
        """Whether a function is only called with all lanes that were launched."""
        self._look_at_callers()
        self._fills = [self._fill_of(block) for block in lifted.blocks]
        self._of_functions = self._summarise()
        first = (1 << lifted.kernel.descriptor.enable_vgpr_workitem_id + 1) - 1 << r.VGPR_FIRST
        self.before = self._solve(first)
        """By block: what may hold something at its start."""
        inserted = lifted.read_by_inserted
        for units in lifted.changed_by_inserted.values():
            inserted |= units
        seen = self._stored_unwritten() | inserted & r.VECTOR_MASK
        if seen:
            self.before = self._solve(first | seen)

    def never(self, block: BasicBlock, lanes: SegmentLanes) -> int:
        """Groups whose lanes were certainly not launched, as a bit set."""
        return lanes.outside if all(self._entered_full[one] for one in self._flow.owners[block.index]) else 0

    def inside(self, block: BasicBlock) -> list[Filled]:
        """What may hold something before each instruction of a block and behind the last."""
        anywhere, unlaunched = self.before[block.index]
        result = [self.before[block.index]]
        for segment, lanes in zip(self._segments[block.index], self._flow.blocks[block.index].segments, strict=True):
            launched = self._launched(block, lanes)
            for index in range(segment.first, segment.last + 1):
                writes = self._lifted.effects(index).writes & r.VECTOR_MASK
                anywhere |= writes
                unlaunched |= writes & segment.writes_anywhere if launched else writes
                result.append(Filled(anywhere, unlaunched))
        call = self._calls.get(block.last)
        if call is not None:
            result[-1] |= self.through_call(call)
        return result

    def _launched(self, block: BasicBlock, lanes: SegmentLanes) -> bool:
        """Whether only lanes that were launched are active."""
        return not lanes.on & ~lanes.own and all(self._entered_inside[one] for one in self._flow.owners[block.index])

    def through_call(self, call: CallSite) -> Filled:
        """What a call or tail call fills before it returns."""
        total = Filled(0, 0) if call.known else Filled(r.VECTOR_MASK, r.VECTOR_MASK)
        for callee in call.callees:
            total |= self._of_functions[callee]
        return total

    def _look_at_callers(self) -> None:
        lifted, flow = self._lifted, self._flow
        if self._unknown_calls:
            for function in lifted.functions[1:]:
                self._entered_inside[function.index] = self._entered_full[function.index] = False
        changed = True
        while changed:
            changed = False
            for index, call in self._calls.items():
                number = lifted.block_of[index]
                lanes = flow.blocks[number].segments[-1]
                owners = flow.owners[number]
                inside = self._launched(lifted.blocks[number], lanes)
                inactive = (1 << lanes.groups) - 1 & ~lanes.on
                full = not inactive & ~lanes.outside and all(self._entered_full[one] for one in owners)
                for callee in call.callees:
                    if (self._entered_inside[callee] and not inside) or (self._entered_full[callee] and not full):
                        self._entered_inside[callee] &= inside
                        self._entered_full[callee] &= full
                        changed = True

    def _fill_of(self, block: BasicBlock) -> Filled:
        """What the block fills, without what it calls."""
        total = Filled(0, 0)
        for segment, lanes in zip(self._segments[block.index], self._flow.blocks[block.index].segments, strict=True):
            writes = segment.writes & r.VECTOR_MASK
            total |= Filled(writes, segment.writes_anywhere if self._launched(block, lanes) else writes)
        return total

    def _summarise(self) -> list[Filled]:
        """What each function fills, with all it calls."""
        functions = self._lifted.functions
        self._of_functions = [Filled(0, 0)] * len(functions)
        changed = True
        while changed:
            changed = False
            for function in functions:
                total = self._of_functions[function.index]
                for block in function.blocks:
                    total |= self._fills[block.index]
                for call in function.calls:
                    total |= self.through_call(call)
                if total != self._of_functions[function.index]:
                    self._of_functions[function.index] = total
                    changed = True
        return self._of_functions

    def _solve(self, at_launch: int) -> list[Filled]:
        lifted = self._lifted
        before = [Filled(0, 0)] * len(lifted.blocks)
        for root, functions in self._flow.roots.items():
            if 0 in functions:
                before[root] = Filled(at_launch, 0)
            elif self._unknown_calls:
                before[root] = Filled(r.VECTOR_MASK, r.VECTOR_MASK)
        work = list(range(len(lifted.blocks)))[::-1]
        queued = set(work)
        while work:
            number = work.pop()
            queued.discard(number)
            block = lifted.blocks[number]
            after = before[number] | self._fills[number]
            targets = []
            call = self._calls.get(block.last)
            if call is not None:
                targets = [(lifted.functions[callee].entry_block, after) for callee in call.callees]
                after |= self.through_call(call)
            targets += [(edge.to, after) for edge in block.successors]
            for to, filled in targets:
                merged = before[to] | filled
                if merged != before[to]:
                    before[to] = merged
                    if to not in queued:
                        work.append(to)
                        queued.add(to)
        return before

    def _stored_unwritten(self) -> int:
        """Registers that are stored before anything has written them.

        What they hold depends on nothing the program does, but it can be seen, so it is left alone.
        """
        seen = 0
        for block, segments in zip(self._lifted.blocks, self._segments, strict=True):
            filled = self.before[block.index].anywhere
            for segment in segments:
                for index in segment.stores:
                    missing = self._lifted.effects(index).reads & r.VECTOR_MASK & ~filled
                    if missing:
                        for other in range(segment.first, index):
                            missing &= ~self._lifted.effects(other).writes
                        seen |= missing
                filled |= segment.writes
        return seen
