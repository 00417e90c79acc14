"""Register liveness that is right for divergent code.

A vector register has one value a lane, and a lane takes part in vector instructions only while it is active. So
liveness is that of *one lane*, seen along the path of its wave. The lanes are told apart by groups
(`runtime/native/lifting/lane_masks.h`): at each point a group is active or inactive as a whole, and each has its own
set of live units. Backward over an instruction:

* a vector read makes the register live for active groups; a read across lanes makes it live for all;
* a vector write ends its life for active groups; only writes that ignore EXEC (matrix operations) end it for all;
* a write of EXEC moves lanes from groups to groups, and a group's liveness is the union over where its lanes may be
  afterwards. What is known of saved masks bounds that: lanes that an ``s_or`` at the end of a branch brings back are
  those that left at its beginning, and where EXEC is the mask the wave began with there is no inactive group but that
  of the lanes that were never launched;
* behind the branch of ``s_cbranch_execz`` no lane is active.

A value only matters in a register that something has filled (`written.h`): what a kernel reads of others is left over
from earlier waves, and so is what operations that ignore EXEC read of lanes that were never launched, unless the kernel
itself wrote such lanes.

A scalar has one value a wave and is live for all groups or none. Calls are followed through summaries of the callees,
so what is live after one call of a function is not taken to be live after another; where a target is not known,
everything is live.

A callee's effect on liveness is linear: a constant part and which bits pass from which set to which (`Transfer`). It is
found by running the same analysis with the bits behind its return as unknowns, three sets side by side in one integer.

The analysis is native (`runtime/native/lifting`); this module hands it the kernel and asks it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from luthier import _mc
from luthier.cache.memory import BoundedCache
from luthier.isa import registers as r
from luthier.lifting.instructions.effects import Effects, unit_bytes
from luthier.lifting.live import Live, LivePoints
from luthier.lifting.model import EDGE_KINDS, EXITS, BasicBlock, LiftedKernel

LONGEST = 2048
"""Instructions between two points of a block at which what is live is kept; for those between them it is found when it
is asked for."""
MOST_KEPT = 16 << 20
"""Bytes of what was found so, of one kernel."""


class Liveness:
    """Liveness at every point of the code.

    Args:
        lifted: the code.
        flow: the same as the native analyses see it.
        longest: as of `flow_of`, which made it.
    """

    def __init__(self, lifted: LiftedKernel, flow: _mc.Flow, longest: int = LONGEST) -> None:
        # Not the kernel itself: it refers to this object, and a cycle would delay its release.
        self._blocks, self._block_of = lifted.blocks, lifted.block_of
        touched = lifted.read_by_inserted
        for units in lifted.changed_by_inserted.values():
            touched |= units
        self._native = flow.liveness(unit_bytes(touched))
        self._longest = longest
        self._inside: BoundedCache[tuple[int, int], tuple[int, bytes]] = BoundedCache(
            MOST_KEPT, lambda _, points: len(points[1])
        )

    def live_before(self, index: int) -> Live:
        """Return what is live just before instruction `index` executes.

        Raises:
            IndexError: control never reaches that instruction.
        """
        block = self._block(index)
        return self._point(block, index - block.first)

    def at(self, indices: Sequence[int]) -> LivePoints:
        """Return what is live just before each of some reachable instructions."""
        points = np.array(indices, np.int32)
        blocks = np.asarray(self._block_of, np.int32)[points]
        firsts = np.array([block.first for block in self._blocks], np.int32)
        return LivePoints(*self._native.columns(blocks, points - firsts[blocks]))

    def live_after(self, index: int) -> Live:
        """Return what is live just after instruction `index`.

        For a call, when it has returned; for a branch, on any of its edges.
        """
        block = self._block(index)
        return self._point(block, index - block.first + 1)

    def live_in(self, block: int) -> Live:
        """Return what is live at the start of a block."""
        return self._point(self._blocks[block], 0)

    def live_out(self, block: int) -> Live:
        """Return what is live after the last instruction of a block."""
        return self.live_after(self._blocks[block].last)

    def _block(self, index: int) -> BasicBlock:
        number = self._block_of[index]
        if number < 0:
            raise IndexError(f"instruction {index} is never reached")
        return self._blocks[number]

    def _points(self, block: BasicBlock, number: int) -> tuple[int, bytes, int]:
        """Return the bytes of a set, sets at several points, and the offset of those before an instruction.

        The instruction is `number` of the block; if there is none, they are those after the last.
        """
        part = min(number, block.last - block.first) // self._longest
        points = self._inside.get((block.index, part))
        if points is None:
            points = self._native.points(block.index, part * self._longest)
            self._inside.put((block.index, part), points)
        size, sets = points
        return size, sets, 2 * size * (number - part * self._longest)

    def _point(self, block: BasicBlock, number: int) -> Live:
        """Return the liveness before instruction `number` of the block, or after the last."""
        size, points, at = self._points(block, number)
        middle = at + size
        return Live(
            int.from_bytes(points[at:middle], "little"), int.from_bytes(points[middle : middle + size], "little")
        )


def flow_of(lifted: LiftedKernel, longest: int = LONGEST) -> _mc.Flow:
    """Return the kernel as the native analyses see it, with what is known of its lane masks.

    Args:
        longest: instructions of a block, from which on it is followed as several.
    """
    calls = {call.index: call for function in lifted.functions for call in function.calls}
    call_number = {index: number for number, index in enumerate(calls)}
    entries = [lifted.index_at(address) for address in lifted.hardware_entries]
    return lifted.effect_table.code(lifted.columns).flow(
        lifted.blocks,
        EXITS,
        EDGE_KINDS,
        [
            (
                function.entry_block,
                [block.index for block in function.blocks],
                [call_number[call.index] for call in function.calls],
            )
            for function in lifted.functions
        ],
        [(lifted.block_of[call.index], call.kind == "tail", call.known, list(call.callees)) for call in calls.values()],
        [lifted.block_of[index] for index in entries if index is not None],
        override_rows(lifted, {index: lifted.effects(index) for index in {*lifted.index_mode, *lifted.skipped}}),
        lifted.kernel.descriptor.enable_vgpr_workitem_id + 1,
        bool(lifted.unknown),
        longest,
    )


def override_rows(lifted: LiftedKernel, effects: Mapping[int, Effects]) -> dict[int, _mc.OverrideRow]:
    """Return effects of instructions that are not those of their encoding, for the native module."""

    def row(index: int, one: Effects) -> _mc.OverrideRow:
        reads, cross, writes, kills, hard = map(unit_bytes, one[:5])
        changed = lifted.changed_by_inserted.get(index)
        sets_lanes = changed is not None and bool(changed & lifted.effect_table.exec)
        return reads, cross, writes, kills, hard, int(one.lanes), changed is not None, sets_lanes

    return {index: row(index, one) for index, one in effects.items()}


def followed_units(lifted: LiftedKernel) -> int:
    """Return the units whose writes may change what is known of lane masks.

    Vector units are among them where scalars are put into lanes.
    """
    pseudos = lifted.effect_table.pseudos
    puts = any(pseudos[number] == "V_WRITELANE_B32" for number in lifted.columns.opcodes)
    return r.SCALAR_MASK & ~(1 << r.SCC | 1 << r.MODE) | (r.VECTOR_MASK if puts else 0)
