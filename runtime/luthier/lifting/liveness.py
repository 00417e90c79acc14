"""Register liveness that is right for divergent code.

A vector register has one value a lane, and a lane takes part in vector instructions only while it is active. So
liveness is that of
*one lane*, seen along the path of its wave: what may be read later of a lane that is active here, and of a lane that
is inactive here. Backward over an instruction:

* a vector read makes the register live for an active lane; a read across lanes makes it live for both;
* a vector write ends its life for an active lane; only writes that ignore EXEC (matrix operations) end it for both;
* an EXEC write lets lanes change sides. ``s_and_saveexec`` can only make lanes inactive, ``s_or exec, exec`` only
  active, and so on (`Lanes`); an active lane's liveness is the union over the sides it may be on afterwards.
* behind the branch of ``s_cbranch_execz`` no lane is active.

A scalar has one value a wave and is in both sets or none. Calls are followed through summaries of the callees, so what
is live after one call of a function is not taken to be live after another; where a target is not known, everything is
live.

The effect of a stretch of code on both sets is linear: a constant part and which bits pass from which set to which.
Composing such `Transfer`s gives blocks and whole functions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from luthier.lifting import registers as r
from luthier.lifting.effects import Effects
from luthier.lifting.registers import RegisterSet, UnitSet
from luthier.lifting.semantics import Lanes

if TYPE_CHECKING:
    from luthier.lifting.model import BasicBlock, CallSite, Function, LiftedRepresentation

ALL_UNITS = r.SCALAR_MASK | r.VECTOR_MASK


class Live(NamedTuple):
    """Units live for a lane that is active at a point, and for one that is inactive."""

    active: int
    inactive: int

    def __or__(self, other: Live) -> Live:
        return Live(self.active | other.active, self.inactive | other.inactive)


NOTHING = Live(0, 0)


@dataclass(frozen=True, slots=True)
class Transfer:
    """How liveness behind a stretch of code becomes liveness before it.

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

    def __call__(self, behind: Live) -> Live:
        return Live(
            self.active_active & behind.active | self.active_inactive & behind.inactive | self.gain_active,
            self.inactive_active & behind.active | self.inactive_inactive & behind.inactive | self.gain_inactive,
        )

    def after(self, first: Transfer) -> Transfer:
        """The transfer of the code of `first` followed by that of `self`."""
        return Transfer(
            first.active_active & self.active_active | first.active_inactive & self.inactive_active,
            first.active_active & self.active_inactive | first.active_inactive & self.inactive_inactive,
            first.inactive_active & self.active_active | first.inactive_inactive & self.inactive_active,
            first.inactive_active & self.active_inactive | first.inactive_inactive & self.inactive_inactive,
            *first(Live(self.gain_active, self.gain_inactive)),
        )

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


IDENTITY = Transfer(ALL_UNITS, 0, 0, ALL_UNITS, 0, 0)
STOP = Transfer(0, 0, 0, 0, 0, 0)
"""Nothing is read any more."""
NO_LANE_ACTIVE = Transfer(r.SCALAR_MASK, 0, 0, ALL_UNITS, 0, 0)
"""An edge that is only taken when EXEC is zero."""


def step(effects: Effects, behind: Live) -> Live:
    """Liveness before an instruction from that behind it."""
    active, inactive = behind
    lanes = effects.lanes
    if lanes is not Lanes.UNCHANGED:
        active, inactive = (
            (active if lanes & Lanes.STAYS_ACTIVE else 0) | (inactive if lanes & Lanes.BECOMES_INACTIVE else 0),
            (active if lanes & Lanes.BECOMES_ACTIVE else 0) | (inactive if lanes & Lanes.STAYS_INACTIVE else 0),
        )
    return Live(active & ~effects.kills | effects.reads, inactive & ~effects.hard_kills | effects.cross_reads)


def transfer_of(effects: Effects) -> Transfer:
    """The transfer of one instruction."""
    lanes = effects.lanes
    kept, hard_kept = ALL_UNITS & ~effects.kills, ALL_UNITS & ~effects.hard_kills
    return Transfer(
        kept if lanes & Lanes.STAYS_ACTIVE else 0,
        kept if lanes & Lanes.BECOMES_INACTIVE else 0,
        hard_kept if lanes & Lanes.BECOMES_ACTIVE else 0,
        hard_kept if lanes & Lanes.STAYS_INACTIVE else 0,
        effects.reads,
        effects.cross_reads,
    )


class Liveness:
    """Liveness at every point of a `LiftedRepresentation`.

    Args:
        lifted: the kernel.
        also_read: instruction index -> bit set of units that something inserted before it reads, in the active lanes.
    """

    def __init__(self, lifted: LiftedRepresentation, also_read: Mapping[int, int] | None = None) -> None:
        self._lifted = lifted
        self._also_read = also_read or {}
        everything = lifted.effect_table.everything
        self._unknown = Transfer(0, 0, 0, 0, everything, everything)
        self._calls: dict[int, CallSite] = {call.index: call for f in lifted.functions for call in f.calls}
        self._own = [self._straight(block) for block in lifted.blocks]
        self._summary: list[Transfer] = [STOP] * len(lifted.functions)
        if len(lifted.functions) > 1:
            self._summarise()
        self._return = [NOTHING] * len(lifted.functions)
        """What is live where each function returns to."""
        self._in: list[Live] = [NOTHING] * len(lifted.blocks)
        self._solve()
        self._inside: dict[int, list[Live]] = {}

    # What is asked

    def live_before(self, index: int) -> RegisterSet:
        """What is live just before instruction `index` executes.

        Raises:
            IndexError: control never reaches that instruction.
        """
        block = self._block(index)
        return _public(self._points(block)[index - block.first])

    def live_after(self, index: int) -> RegisterSet:
        """What is live just behind instruction `index`: for a call, when it has returned; for a branch, on any of its
        ways."""
        block = self._block(index)
        return _public(self._points(block)[index - block.first + 1])

    def live_in(self, block: int) -> RegisterSet:
        """What is live at the start of a block."""
        return _public(self._in[block])

    def live_out(self, block: int) -> RegisterSet:
        """What is live behind the last instruction of a block."""
        return self.live_after(self._lifted.blocks[block].last)

    def _block(self, index: int) -> BasicBlock:
        number = self._lifted.block_of[index]
        if number < 0:
            raise IndexError(f"instruction {index} is never reached")
        return self._lifted.blocks[number]

    def _points(self, block: BasicBlock) -> list[Live]:
        """Liveness before each instruction of the block and behind the last."""
        known = self._inside.get(block.index)
        if known is None:
            live = self._behind(block)
            points = [live]
            if block.last in self._calls:
                live = self._call(self._calls[block.last])(live)
            for index in range(block.last, block.first - 1, -1):
                live = step(self._effects(index), live)
                points.append(live)
            known = self._inside[block.index] = points[::-1]
        return known

    def _effects(self, index: int) -> Effects:
        effects = self._lifted.effects(index)
        more = self._also_read.get(index)
        return effects if more is None else effects._replace(reads=effects.reads | more)

    # Blocks

    def _straight(self, block: BasicBlock) -> Transfer:
        """The transfer of a block's own instructions, without what it calls."""
        active_active = inactive_inactive = ALL_UNITS
        active_inactive = inactive_active = gain_active = gain_inactive = 0
        effects_of = self._effects
        for index in range(block.last, block.first - 1, -1):
            reads, cross, _, kills, hard, lanes = effects_of(index)
            if lanes is not Lanes.UNCHANGED:
                behind = Transfer(
                    active_active, active_inactive, inactive_active, inactive_inactive, gain_active, gain_inactive
                )
                both = behind.after(transfer_of(effects_of(index)))
                active_active, active_inactive = both.active_active, both.active_inactive
                inactive_active, inactive_inactive = both.inactive_active, both.inactive_inactive
                gain_active, gain_inactive = both.gain_active, both.gain_inactive
                continue
            if kills:
                kept = ~kills
                active_active &= kept
                active_inactive &= kept
                gain_active &= kept
                if hard:
                    kept = ~hard
                    inactive_active &= kept
                    inactive_inactive &= kept
                    gain_inactive &= kept
            gain_active |= reads
            gain_inactive |= cross
        return Transfer(active_active, active_inactive, inactive_active, inactive_inactive, gain_active, gain_inactive)

    def _call(self, call: CallSite) -> Transfer:
        """The transfer of what a call or tail call runs, up to its return."""
        result = STOP if call.known else self._unknown
        for callee in call.callees:
            result |= self._summary[callee]
        return result

    def _edges(self, block: BasicBlock) -> list[tuple[Transfer, int]]:
        """Successors, with what the way there tells of EXEC."""
        name = self._lifted.effect_table.opcode(self._lifted.columns.opcode[block.last]).opcode.pseudo
        empty = {"S_CBRANCH_EXECZ": "taken", "S_CBRANCH_EXECNZ": "fallthrough"}.get(name)
        return [(NO_LANE_ACTIVE if edge.kind == empty else IDENTITY, edge.to) for edge in block.successors]

    # Whole functions

    def _summarise(self) -> None:
        """Find the summaries of all functions, callees and callers together until nothing changes."""
        lifted = self._lifted
        at_start: list[Transfer] = [STOP] * len(lifted.blocks)
        callers: dict[int, set[int]] = {}
        for function in lifted.functions:
            for call in function.calls:
                for callee in call.callees:
                    callers.setdefault(callee, set()).add(lifted.block_of[call.index])
        entry_of = {function.entry_block: function.index for function in lifted.functions}
        work = [block.index for block in lifted.blocks]
        queued = set(work)
        while work:
            block = lifted.blocks[work.pop()]
            queued.discard(block.index)
            behind = STOP
            if block.exit == "return" or block.exit == "tail":
                behind = IDENTITY
            elif block.exit == "unknown":
                behind = self._unknown
            for way, successor in self._edges(block):
                behind |= at_start[successor].after(way)
            if block.last in self._calls:
                behind = behind.after(self._call(self._calls[block.last]))
            new = behind.after(self._own[block.index])
            if new == at_start[block.index]:
                continue
            at_start[block.index] = new
            dependants = set(block.predecessors)
            if block.index in entry_of:
                self._summary[entry_of[block.index]] = new
                dependants |= callers.get(entry_of[block.index], set())
            for other in dependants - queued:
                work.append(other)
                queued.add(other)

    def _behind(self, block: BasicBlock) -> Live:
        """What is live behind a block's last instruction; behind a call, when it has returned."""
        live = NOTHING
        if block.exit in ("return", "tail"):
            for function in self._owners.get(block.index, ()):
                live |= self._return[function]
        elif block.exit == "unknown":
            live |= Live(self._unknown.gain_active, self._unknown.gain_inactive)
        for way, successor in self._edges(block):
            live |= way(self._in[successor])
        return live

    def _solve(self) -> None:
        lifted = self._lifted
        self._owners: dict[int, list[int]] = {}
        returns: dict[int, list[int]] = {}
        for function in lifted.functions:
            for block in function.blocks:
                if block.exit in ("return", "tail"):
                    self._owners.setdefault(block.index, []).append(function.index)
                    returns.setdefault(function.index, []).append(block.index)
        # A call's callees must learn what is live where it comes back to.
        informs: dict[int, list[Function]] = {}
        calls_of: dict[int, CallSite] = {}
        for call in self._calls.values():
            block_index = lifted.block_of[call.index]
            calls_of[block_index] = call
            informs[block_index] = [lifted.functions[callee] for callee in call.callees]
        work = [block.index for block in lifted.blocks]
        queued = set(work)
        while work:
            block = lifted.blocks[work.pop()]
            queued.discard(block.index)
            live = behind = self._behind(block)
            if block.index in calls_of:
                live = self._call(calls_of[block.index])(live)
                for function in informs[block.index]:
                    merged = self._return[function.index] | behind
                    if merged != self._return[function.index]:
                        self._return[function.index] = merged
                        for other in returns.get(function.index, ()):
                            if other not in queued:
                                work.append(other)
                                queued.add(other)
            live = self._own[block.index](live)
            if live != self._in[block.index]:
                self._in[block.index] = live
                for other in block.predecessors:
                    if other not in queued:
                        work.append(other)
                        queued.add(other)


def _public(live: Live) -> RegisterSet:
    return RegisterSet(UnitSet(live.active), UnitSet(live.inactive))
