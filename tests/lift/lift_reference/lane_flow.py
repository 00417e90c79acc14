"""`LaneMasks` at every point of a kernel and its functions.

Functions are analysed once for all their callers, from a state that knows nothing but which lanes are active. What a
caller keeps knowing over a call is what the callee is seen to leave alone: EXEC, and scalar registers.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import NamedTuple

from luthier.isa import registers as r
from luthier.lifting.model import BasicBlock, CallSite
from luthier.lifting.representation import LiftedRepresentation

from lift_reference.lane_masks import GROUP_OUTSIDE, GROUP_OWN, MOST_GROUPS, LaneMasks, renumber
from lift_reference.segments import Segment


class SegmentLanes(NamedTuple):
    """Groups while one segment runs, as bit sets."""

    groups: int
    """How many there are."""
    on: int
    own: int
    """Groups that were certainly active when the function was entered."""
    outside: int
    """Groups that certainly were not."""
    spread: tuple[int, ...] | None
    """For each group, the groups its lanes are in behind the segment; None: the same."""


class BlockLanes(NamedTuple):
    """Groups in one block."""

    segments: tuple[SegmentLanes, ...]
    call: tuple[int, ...] | None
    """For each group at a call, the groups its lanes are in when it has returned."""
    behind: SegmentLanes
    """Where the block is left; behind a call, when it has returned."""
    edges: tuple[tuple[int, ...], ...]
    """For each successor, the group there of each group here; -1 for one that has no lanes when control goes there."""


class LaneFlow:
    """The analysis of one kernel."""

    def __init__(
        self, lifted: LiftedRepresentation, segments: list[tuple[Segment, ...]], calls: dict[int, CallSite]
    ) -> None:
        self._lifted = lifted
        self._segments = segments
        self._calls = calls
        self._wide = lifted.wave_size == 64
        self.owners: list[list[int]] = [[] for _ in lifted.blocks]
        """Functions each block is part of."""
        for function in lifted.functions:
            for block in function.blocks:
                self.owners[block.index].append(function.index)
        self._before: dict[int, LaneMasks] = {}
        self._keeps_exec = [True] * len(lifted.functions)
        self._changes = [0] * len(lifted.functions)
        """Scalar units that may not hold their entry value when a function returns."""
        self._writes = self._written_by_functions()
        self._callers: dict[int, set[int]] = {}
        for call in calls.values():
            for callee in call.callees:
                self._callers.setdefault(callee, set()).add(lifted.block_of[call.index])
        self._kept = self._scalars_read_later()
        self.roots = {function.entry_block: [function.index] for function in lifted.functions}
        """Blocks at which functions are entered, with the functions."""
        for address in lifted.hardware_entries:
            index = lifted.index_at(address)
            if index is not None and 0 not in self.roots.setdefault(lifted.block_of[index], []):
                self.roots[lifted.block_of[index]].append(0)
        self._version = [0] * len(lifted.blocks)
        """How often what is known at the start of each block has changed."""
        self._versions: list[list[int]] = [[] for _ in lifted.blocks]
        """By block, the version of each successor that its edges were made for."""
        nothing = SegmentLanes(0, 0, 0, 0, None)
        self.blocks = [BlockLanes((), None, nothing, ())] * len(lifted.blocks)
        start = LaneMasks(self._wide, moved=len(lifted.functions) > 1)
        for root in self.roots:
            self._enter(root, start)
        self._run(self.roots)
        while stale := self._stale():
            self._run(stale)
        self.entries: dict[int, tuple[int, ...]] = {}
        """For each root, the groups of the lanes that are inactive and of those that are active on entry."""
        for root in self.roots:
            into, _ = self._enter(root, start)
            self.entries[root] = into[GROUP_OUTSIDE], into[GROUP_OWN]

    # Summaries

    def _written_by_functions(self) -> list[int]:
        """Vector units each function may write, with all it calls."""
        functions = self._lifted.functions
        writes = [0] * len(functions)
        for function in functions:
            for block in function.blocks:
                for segment in self._segments[block.index]:
                    writes[function.index] |= segment.writes & r.VECTOR_MASK
        changed = True
        while changed:
            changed = False
            for function in functions:
                total = writes[function.index]
                for call in function.calls:
                    for callee in call.callees:
                        total |= writes[callee]
                    if not call.known:
                        total |= r.VECTOR_MASK
                if total != writes[function.index]:
                    writes[function.index] = total
                    changed = True
        return writes

    def _scalars_read_later(self) -> list[int]:
        """Units of which it is worth knowing something at the start of each block: plain liveness of scalars, where
        calls, returns and jumps to unknown places read everything."""
        blocks = self._lifted.blocks
        gains, keeps = [], []
        for block in blocks:
            gain, keep = 0, r.SCALAR_MASK
            for segment in reversed(self._segments[block.index]):
                gain = gain & ~segment.kills | segment.reads
                keep &= ~segment.kills
            gains.append(gain & r.SCALAR_MASK)
            keeps.append(keep)
        live = [0] * len(blocks)
        work = list(range(len(blocks)))
        while work:
            number = work.pop()
            block = blocks[number]
            behind = 0 if block.exit not in ("call", "return", "tail", "unknown") else r.SCALAR_MASK
            for edge in block.successors:
                behind |= live[edge.to]
            new = behind & keeps[number] | gains[number]
            if new != live[number]:
                live[number] = new
                work += block.predecessors
        return [one | r.VECTOR_MASK for one in live]

    # Forward

    def _enter(self, block: int, state: LaneMasks, vacant: int = 0) -> tuple[list[int], bool]:
        """Control comes to a block with `state`: where its groups go, and whether that was news."""
        known = self._before.get(block)
        new = known is None
        if known is None:
            known = self._before[block] = LaneMasks.nowhere(state, self._kept[block])
        into, changed = known.join(state, vacant)
        if changed or new:
            self._version[block] += 1
        return into, changed or new

    def _run(self, starts: Iterable[int]) -> None:
        """Analyse these blocks, and whatever changes through that."""
        work = sorted(starts)
        queued = set(work)
        while work:
            number = heapq.heappop(work)
            queued.discard(number)
            again = self._visit(self._lifted.blocks[number]) - queued
            for other in again:
                heapq.heappush(work, other)
            queued |= again

    def _visit(self, block: BasicBlock) -> set[int]:
        """Go through a block; the blocks that must be visited because of what was found."""
        state = self._before[block.index].copy()
        segments: list[SegmentLanes] = []
        for segment in self._segments[block.index]:
            here = _lanes(state)
            spread: list[int] | None = None
            for operation in segment.operations:
                spread = operation.run(state)  # None but for the last
            segments.append(here if spread is None else here._replace(spread=tuple(spread)))
        again = self._summarise(block, state)
        through = self._call(block, state)
        edges: list[tuple[int, ...]] = []
        versions: list[int] = []
        for edge in block.successors:
            into, changed = self._enter(edge.to, state, self._vacant(block, edge.kind, state))
            edges.append(tuple(into))
            versions.append(self._version[edge.to])
            if changed:
                again.add(edge.to)
        self._versions[block.index] = versions
        self.blocks[block.index] = BlockLanes(
            tuple(segments), None if through is None else tuple(through), _lanes(state), tuple(edges)
        )
        return again

    def _vacant(self, block: BasicBlock, kind: str, state: LaneMasks) -> int:
        """Groups that have no lanes when control goes this way out of the block: none is active where EXEC is zero."""
        name = self._lifted.effect_table.opcode(self._lifted.columns.opcode[block.last]).opcode.pseudo
        empty = {"S_CBRANCH_EXECZ": "taken", "S_CBRANCH_EXECNZ": "fallthrough"}.get(name)
        return state.on if kind == empty and state.on != state.everything else 0

    def _call(self, block: BasicBlock, state: LaneMasks) -> list[int] | None:
        """Change the state to that behind a call; the spread of its groups."""
        call = self._calls.get(block.last)
        if call is None or call.kind != "call":
            return None
        lost = r.SCALAR_MASK | r.VECTOR_MASK if not call.known else 0
        keeps = call.known
        for callee in call.callees:
            lost |= self._changes[callee] | self._writes[callee]
            keeps &= self._keeps_exec[callee]
        state.forget(lost)
        if keeps:
            return None
        spread = state.change_exec(0, state.everything, ())
        if state.count > MOST_GROUPS:
            new = state.compact(MOST_GROUPS)
            spread = [renumber(groups, new) for groups in spread]
        return spread

    def _summarise(self, block: BasicBlock, state: LaneMasks) -> set[int]:
        """Note what functions that end here leave changed; blocks with calls that must be looked at again."""
        if block.exit not in ("return", "tail", "unknown"):
            return set()
        keeps, changes = state.own == (state.on, state.on), 0
        if block.exit == "unknown":
            keeps, changes = False, r.SCALAR_MASK
        elif state.moved is not None:
            changes = sum(1 << key for key, unit in state.moved.items() if isinstance(key, int) and unit != key)
        if block.exit == "tail":
            call = self._calls[block.last]
            if not call.known:
                keeps, changes = False, r.SCALAR_MASK
            for callee in call.callees:
                keeps &= self._keeps_exec[callee]
                changes |= self._changes[callee]
        again: set[int] = set()
        for function in self.owners[block.index]:
            if keeps >= self._keeps_exec[function] and changes | self._changes[function] == self._changes[function]:
                continue
            self._keeps_exec[function] &= keeps
            self._changes[function] |= changes
            again |= {caller for caller in self._callers.get(function, ()) if caller in self._before}
        return again

    def _stale(self) -> list[int]:
        """Blocks with a successor whose groups changed since."""
        return [
            block.index
            for block in self._lifted.blocks
            if self._versions[block.index] != [self._version[edge.to] for edge in block.successors]
        ]


def _lanes(state: LaneMasks) -> SegmentLanes:
    return SegmentLanes(state.count, state.on, state.own[0], state.everything & ~state.own[1], None)
