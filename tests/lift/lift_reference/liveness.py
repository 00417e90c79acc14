"""Register liveness that is right for divergent code.

A vector register has one value a lane, and a lane takes part in vector instructions only while it is active. So
liveness is that of *one lane*, seen along the path of its wave. The lanes are told apart by the groups of
`lane_masks`: at each point a group is active or inactive as a whole, and each has its own set of live units. Backward
over an instruction:

* a vector read makes the register live for active groups; a read across lanes makes it live for all;
* a vector write ends its life for active groups; only writes that ignore EXEC (matrix operations) end it for all;
* a write of EXEC moves lanes from groups to groups, and a group's liveness is the union over where its lanes may be
  afterwards. What is known of saved masks bounds that: lanes that an ``s_or`` at the end of a branch brings back are
  those that left at its beginning, and where EXEC is the mask the wave began with there is no inactive group but that
  of the lanes that were never launched;
* behind the branch of ``s_cbranch_execz`` no lane is active.

A value only matters in a register that something has filled (`written`): what a kernel reads of others is left over
from earlier waves, and so is what operations that ignore EXEC read of lanes that were never launched, unless the kernel
itself wrote such lanes.

A scalar has one value a wave and is live for all groups or none. Calls are followed through summaries of the callees,
so what is live after one call of a function is not taken to be live after another; where a target is not known,
everything is live.

A callee's effect on liveness is linear: a constant part and which bits pass from which set to which (`Transfer`). It is
found by running the same analysis with the bits behind its return as unknowns, three sets side by side in one integer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from luthier.isa import registers as r
from luthier.lifting.live import Live as LiveUnits

from lift_reference.lane_flow import BlockLanes, LaneFlow, SegmentLanes
from lift_reference.segments import cut_blocks
from lift_reference.written import Filled, Written

if TYPE_CHECKING:
    from luthier.lifting.model import BasicBlock, CallSite
    from luthier.lifting.representation import LiftedRepresentation
ALL_UNITS = r.SCALAR_MASK | r.VECTOR_MASK
Groups: TypeAlias = list[int]
"""Live units of each group."""


class Live(NamedTuple):
    """Units live for lanes that are active at a point, and for those that are inactive."""

    active: int
    inactive: int

    def __or__(self, other: Live) -> Live:
        return Live(self.active | other.active, self.inactive | other.inactive)


NOTHING = Live(0, 0)


@dataclass(frozen=True, slots=True)
class Transfer:
    """How liveness behind a call becomes liveness before it.

    ``active = from_active & behind.active | from_inactive & behind.inactive | gain_active``, the second line likewise.
    """

    active_active: int
    """Units whose liveness for active lanes passes to active lanes."""
    active_inactive: int
    """… for inactive lanes behind, to lanes active before."""
    inactive_active: int
    inactive_inactive: int
    gain_active: int
    gain_inactive: int

    def __or__(self, other: Transfer) -> Transfer:
        """Either of two ways."""
        return Transfer(
            self.active_active | other.active_active,
            self.active_inactive | other.active_inactive,
            self.inactive_active | other.inactive_active,
            self.inactive_inactive | other.inactive_inactive,
            self.gain_active | other.gain_active,
            self.gain_inactive | other.gain_inactive,
        )


STOP = Transfer(0, 0, 0, 0, 0, 0)
"""Nothing is read any more."""
WIDTH = r.UNIT_LIMIT
FROM_ACTIVE, FROM_INACTIVE = ALL_UNITS << WIDTH, ALL_UNITS << 2 * WIDTH
"""Unknowns of a summary, above the constant part: bits that are set if they are behind the return."""
REPEATED = 1 | 1 << WIDTH | 1 << 2 * WIDTH
"""A set times this is the set in each of the three parts."""


class Liveness:
    """Liveness at every point of a `LiftedRepresentation`.

    Args:
        lifted: the kernel.
        lane_flow: its masks, if they are known already.
    """

    def __init__(self, lifted: LiftedRepresentation, lane_flow: LaneFlow | None = None) -> None:
        self._lifted = lifted
        everything = lifted.effect_table.everything
        self._unknown = Transfer(0, 0, 0, 0, everything, everything)
        self._calls: dict[int, CallSite] = {call.index: call for f in lifted.functions for call in f.calls}
        self._segments = cut_blocks(lifted)
        self.lane_flow = self._flow = lane_flow or LaneFlow(lifted, self._segments, self._calls)
        self._written = Written(lifted, self._segments, self._flow, self._calls)
        self._owners = self._flow.owners
        self._summary: list[Transfer] = [STOP] * len(lifted.functions)
        self._return = [NOTHING] * len(lifted.functions)
        """What is live where each function returns to."""
        self._in: list[Groups] = []
        """Live units at the start of each block."""
        if len(lifted.functions) > 1:
            self._summarise()
        self._solve()
        self._inside: dict[int, list[LiveUnits]] = {}

    # What is asked

    def live_before(self, index: int) -> LiveUnits:
        """What is live just before instruction `index` executes.

        Raises:
            IndexError: control never reaches that instruction.
        """
        block = self._block(index)
        return self._points(block)[index - block.first]

    def live_after(self, index: int) -> LiveUnits:
        """What is live just behind instruction `index`: for a call, when it has returned; for a branch, on any of its
        ways."""
        block = self._block(index)
        return self._points(block)[index - block.first + 1]

    def live_in(self, block: int) -> LiveUnits:
        """What is live at the start of a block."""
        return self._points(self._lifted.blocks[block])[0]

    def live_out(self, block: int) -> LiveUnits:
        """What is live behind the last instruction of a block."""
        return self.live_after(self._lifted.blocks[block].last)

    def _block(self, index: int) -> BasicBlock:
        number = self._lifted.block_of[index]
        if number < 0:
            raise IndexError(f"instruction {index} is never reached")
        return self._lifted.blocks[number]

    def _points(self, block: BasicBlock) -> list[LiveUnits]:
        """Liveness before each instruction of the block and behind the last."""
        known = self._inside.get(block.index)
        if known is None:
            known = self._inside[block.index] = self._walk(block)
        return known

    def _walk(self, block: BasicBlock) -> list[LiveUnits]:
        lanes = self._flow.blocks[block.index]
        filled = self._written.inside(block)
        live = self._behind(block, lanes)
        points = [_public(lanes.behind, live, filled[-1], self._written.never(block, lanes.behind))]
        if block.last in self._calls:
            live = self._before_call(block, lanes, live)
        effects_of = self._lifted.effects
        for segment, here in zip(reversed(self._segments[block.index]), reversed(lanes.segments), strict=True):
            if here.spread is not None:
                live = _gather(live, here.spread)
            never = self._written.never(block, here)
            for index in range(segment.last, segment.first - 1, -1):
                reads, cross, _, kills, hard, _ = effects_of(index)
                live = _over(live, here.on, reads, kills, cross, hard)
                points.append(_public(here, live, filled[index - block.first], never))
        return points[::-1]

    # Blocks

    def _behind(self, block: BasicBlock, lanes: BlockLanes, summary: bool = False) -> Groups:
        """What is live behind a block's last instruction; behind a call, when it has returned."""
        active = inactive = 0
        if block.exit in ("return", "tail"):
            if summary:
                active, inactive = FROM_ACTIVE, FROM_INACTIVE
            else:
                for function in self._owners[block.index]:
                    active |= self._return[function].active
                    inactive |= self._return[function].inactive
        elif block.exit == "unknown":
            active = inactive = self._unknown.gain_active
        on = lanes.behind.on
        live = [active if on >> group & 1 else inactive for group in range(lanes.behind.groups)]
        for edge, into in zip(block.successors, lanes.edges, strict=True):
            there = self._in[edge.to]
            for group, place in enumerate(into):
                live[group] |= there[place] if place >= 0 else there[0] & r.SCALAR_MASK * REPEATED
        return live

    def _before_call(self, block: BasicBlock, lanes: BlockLanes, behind: Groups, repeated: int = 1) -> Groups:
        """From behind a call or tail call to before it."""
        call = self._calls[block.last]
        through = STOP if call.known else self._unknown
        for callee in call.callees:
            through |= self._summary[callee]
        here, after = lanes.segments[-1], lanes.behind
        # A scalar is the wave's, not its lanes': it counts on both sides even where one has no lanes.
        scalars = behind[0] & r.SCALAR_MASK * repeated
        result = []
        for group in range(here.groups):
            targets = 1 << group if lanes.call is None else lanes.call[group]
            active = inactive = scalars
            for place, units in enumerate(behind):
                if targets >> place & 1:
                    if after.on >> place & 1:
                        active |= units
                    else:
                        inactive |= units
            if here.on >> group & 1:
                passed = active & through.active_active * repeated | inactive & through.active_inactive * repeated
                result.append(passed | through.gain_active)
            else:
                passed = active & through.inactive_active * repeated | inactive & through.inactive_inactive * repeated
                result.append(passed | through.gain_inactive)
        return result

    def _start(self, block: BasicBlock, lanes: BlockLanes, live: Groups, repeated: int = 1) -> Groups:
        """From behind a block's own instructions to its start."""
        for segment, here in zip(reversed(self._segments[block.index]), reversed(lanes.segments), strict=True):
            if here.spread is not None:
                live = _gather(live, here.spread)
            live = _over(
                live,
                here.on,
                segment.reads,
                segment.kills * repeated,
                segment.cross_reads,
                segment.hard_kills * repeated,
            )
        return live

    # Whole functions

    def _nothing_live(self) -> list[Groups]:
        return [[0] * lanes.segments[0].groups for lanes in self._flow.blocks]

    def _summarise(self) -> None:
        """Find the summaries of all functions, callees and callers together until nothing changes."""
        lifted = self._lifted
        self._in = self._nothing_live()
        callers: dict[int, set[int]] = {}
        for call in self._calls.values():
            for callee in call.callees:
                callers.setdefault(callee, set()).add(lifted.block_of[call.index])
        work = [block.index for block in lifted.blocks]
        queued = set(work)
        while work:
            block = lifted.blocks[work.pop()]
            queued.discard(block.index)
            lanes = self._flow.blocks[block.index]
            live = self._behind(block, lanes, summary=True)
            if block.last in self._calls:
                live = self._before_call(block, lanes, live, REPEATED)
            live = self._start(block, lanes, live, REPEATED)
            if live == self._in[block.index]:
                continue
            self._in[block.index] = live
            dependants = set(block.predecessors)
            if block.index in self._flow.roots:
                inactive, active = (live[group] for group in self._flow.entries[block.index])
                summary = Transfer(
                    active >> WIDTH & ALL_UNITS,
                    active >> 2 * WIDTH,
                    inactive >> WIDTH & ALL_UNITS,
                    inactive >> 2 * WIDTH,
                    active & ALL_UNITS,
                    inactive & ALL_UNITS,
                )
                for callee in self._flow.roots[block.index]:
                    self._summary[callee] = summary
                    dependants |= callers.get(callee, set())
            for other in dependants - queued:
                work.append(other)
                queued.add(other)

    def _solve(self) -> None:
        lifted = self._lifted
        self._in = self._nothing_live()
        allowed = [
            self._allowed(block, self._flow.blocks[block.index].segments[0], self._written.before[block.index])
            for block in lifted.blocks
        ]
        returns: dict[int, list[int]] = {}
        for function in lifted.functions:
            returns[function.index] = [block.index for block in function.blocks if block.exit in ("return", "tail")]
        # Whoever is called must learn what is live where it comes back to: by an unknown target, perhaps any function.
        informs: dict[int, tuple[int, ...]] = {}
        anyone = tuple(function.index for function in lifted.functions[1:])
        for call in self._calls.values():
            informs[lifted.block_of[call.index]] = call.callees if call.known else anyone
        for block in lifted.blocks:
            if block.exit == "unknown":
                informs[block.index] = anyone
        work = [block.index for block in lifted.blocks]
        queued = set(work)
        while work:
            block = lifted.blocks[work.pop()]
            queued.discard(block.index)
            lanes = self._flow.blocks[block.index]
            live = behind = self._behind(block, lanes)
            changed: list[int] = []
            if block.index in informs:
                here = self._merged(block, lanes, behind)
                for callee in informs[block.index]:
                    merged = self._return[callee] | here
                    if merged != self._return[callee]:
                        self._return[callee] = merged
                        changed += returns[callee]
            if block.last in self._calls:
                live = self._before_call(block, lanes, live)
            live = self._start(block, lanes, live)
            live = [units & mask for units, mask in zip(live, allowed[block.index], strict=True)]
            if live != self._in[block.index]:
                self._in[block.index] = live
                changed += block.predecessors
            for other in changed:
                if other not in queued:
                    work.append(other)
                    queued.add(other)

    def _allowed(self, block: BasicBlock, lanes: SegmentLanes, filled: Filled) -> Groups:
        """For each group, the units whose value can matter."""
        never = self._written.never(block, lanes)
        return [
            r.SCALAR_MASK | (filled.unlaunched if never >> group & 1 else filled.anywhere)
            for group in range(lanes.groups)
        ]

    def _merged(self, block: BasicBlock, lanes: BlockLanes, behind: Groups) -> Live:
        """What is live where a call returns to, for its callee."""
        active = inactive = 0
        for group, units in enumerate(behind):
            if lanes.behind.on >> group & 1:
                active |= units
            else:
                inactive |= units
        scalars = behind[0] & r.SCALAR_MASK
        return Live(active | scalars, inactive | scalars)


def _gather(behind: Groups, spread: tuple[int, ...]) -> Groups:
    """Over a write of EXEC: each group has what is live in any of those its lanes may be in afterwards."""
    result = []
    for groups in spread:
        units = 0
        while groups:
            low = groups & -groups
            units |= behind[low.bit_length() - 1]
            groups ^= low
        result.append(units)
    return result


def _over(live: Groups, on: int, reads: int, kills: int, cross: int, hard: int) -> Groups:
    """Over instructions."""
    return [
        (units & ~kills | reads) if on >> group & 1 else (units & ~hard | cross) for group, units in enumerate(live)
    ]


def _public(lanes: SegmentLanes, live: Groups, filled: Filled, never: int) -> LiveUnits:
    """What is told of a point.

    Args:
        never: groups of lanes that were never launched.
    """
    scalars = live[0] & r.SCALAR_MASK
    active = inactive = 0
    for group, units in enumerate(live):
        if lanes.on >> group & 1:
            active |= units
        elif never >> group & 1:
            inactive |= units & filled.unlaunched
        else:
            inactive |= units & filled.anywhere
    return LiveUnits(scalars | active & filled.anywhere, scalars | inactive)
