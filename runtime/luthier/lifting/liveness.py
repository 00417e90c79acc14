"""Register liveness that is correct for divergent code.

A vector register has one value per lane, and a lane takes part in vector instructions only while it is active. Liveness
is therefore defined for *one lane*, along the path of its wave. Lanes are divided into groups
(`runtime/native/lifting/lane_masks.h`): at each point a group is active or inactive as a whole, and each group has its
own set of live units. Backward over an instruction:

* a vector read makes the register live for active groups; a read across lanes makes it live for all groups;
* a vector write ends its life for active groups; only writes that ignore EXEC (matrix operations) end it for all;
* a write of EXEC moves lanes between groups, and the liveness of a group is the union over the groups of its lanes
  afterwards. Knowledge of saved masks bounds this: the lanes that an ``s_or`` at the end of a branch restores are those
  that became inactive at its beginning; and where EXEC is the initial mask of the wave, the only inactive group is that
  of the lanes that were never launched;
* after a taken ``s_cbranch_execz`` no lane is active.

A value matters only in a register that something has written (`written.h`). Other registers contain leftovers of
earlier waves; the same holds for lanes that were never launched, which operations that ignore EXEC read, unless the
kernel itself wrote such lanes.

A scalar has one value per wave and is live for all groups or none. Calls are followed through summaries of the callees,
so that registers live after one call of a function are not live after another. If a target is unknown, everything is
live.

A callee's effect on liveness is linear: a constant part, and the bits that pass from one set to another (`Transfer`).
It is found by running the same analysis with the bits after its return as unknowns, three sets side by side in one
integer.

The analysis is native (`runtime/native/lifting`); this module passes the kernel to it and returns its results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from luthier import _mc
from luthier.isa import registers as r
from luthier.lifting.instructions.effects import Effects, unit_bytes
from luthier.lifting.live import Live, LivePoints
from luthier.lifting.model import BasicBlock, LiftedKernel
from luthier.support.named_tuples import new_tuple

LONGEST = 2048
"""Number of instructions between two points of a block whose liveness is stored; for others it is computed on
demand."""


class Liveness:
    """Liveness at every point of the code.

    Args:
        lifted: the code.
        flow: the same code for the native analyses.
    """

    def __init__(self, lifted: LiftedKernel, flow: _mc.Flow) -> None:
        # The kernel itself refers to this object; a reference back would be a cycle and delay its release.
        self._blocks, self._block_of = lifted.blocks, lifted.block_of
        touched = lifted.read_by_inserted
        for units in lifted.changed_by_inserted.values():
            touched |= units
        self._native = flow.liveness(unit_bytes(touched))

    def live_before(self, index: int) -> Live:
        """Return the live registers just before an instruction.

        Raises:
            IndexError: the instruction is unreachable.
        """
        number = self._block_of[index]
        if number < 0:
            raise IndexError(f"instruction {index} is unreachable")
        # Equivalent to `_point`; this is asked at every block of a kernel.
        return new_tuple(Live, self._native.at(number, index - self._blocks[number].first))

    def at(self, indices: Sequence[int]) -> LivePoints:
        """Return the live registers just before each of some reachable instructions."""
        points = np.array(indices, np.int32)
        blocks = np.asarray(self._block_of, np.int32)[points]
        firsts = np.array([block.first for block in self._blocks], np.int32)
        return LivePoints(*self._native.columns(blocks, points - firsts[blocks]))

    def live_after(self, index: int) -> Live:
        """Return the live registers just after an instruction.

        For a call this is the point of its return; for a branch, the union over its edges.
        """
        block = self._block(index)
        return self._point(block, index - block.first + 1)

    def live_in(self, block: int) -> Live:
        """Return the live registers at the start of a block."""
        return self._point(self._blocks[block], 0)

    def live_out(self, block: int) -> Live:
        """Return the live registers after the last instruction of a block."""
        return self.live_after(self._blocks[block].last)

    def _block(self, index: int) -> BasicBlock:
        number = self._block_of[index]
        if number < 0:
            raise IndexError(f"instruction {index} is unreachable")
        return self._blocks[number]

    def _point(self, block: BasicBlock, number: int) -> Live:
        """Return the liveness before instruction `number` of the block, or at its end."""
        return new_tuple(Live, self._native.at(block.index, number))


def flow_of(lifted: LiftedKernel, longest: int = LONGEST) -> _mc.Flow:
    """Return the kernel for the native analyses, with knowledge of its lane masks.

    Args:
        longest: maximum number of instructions of a block; longer ones are split.
    """
    calls = {call.index: call for function in lifted.functions for call in function.calls}
    call_number = {index: number for number, index in enumerate(calls)}
    further = [lifted.index_at(address) for address in lifted.hardware_entries[1:]]
    return lifted.effect_table.code(lifted.columns).flow(
        lifted.arranged,
        [(function.entry_block, [call_number[call.index] for call in function.calls]) for function in lifted.functions],
        [(lifted.block_of[call.index], call.kind == "tail", call.known, list(call.callees)) for call in calls.values()],
        [lifted.functions[0].entry_block, *(lifted.block_of[index] for index in further if index is not None)],
        override_rows(lifted, {index: lifted.effects(index) for index in {*lifted.index_mode, *lifted.skipped}}),
        lifted.kernel.descriptor.enable_vgpr_workitem_id + 1,
        bool(lifted.unknown),
        longest,
    )


def override_rows(lifted: LiftedKernel, effects: Mapping[int, Effects]) -> dict[int, _mc.OverrideRow]:
    """Return effects that differ from those of an instruction's encoding, for the native module."""

    def row(index: int, override: Effects) -> _mc.OverrideRow:
        reads, cross, writes, kills, hard = map(unit_bytes, override[:5])
        changed = lifted.changed_by_inserted.get(index)
        sets_lanes = changed is not None and bool(changed & lifted.effect_table.exec)
        return reads, cross, writes, kills, hard, int(override.lanes), changed is not None, sets_lanes

    return {index: row(index, override) for index, override in effects.items()}


def followed_units(lifted: LiftedKernel) -> int:
    """Return the units whose writes may change the knowledge of lane masks.

    They include vector units if v_writelane stores scalars in lanes.
    """
    pseudos = lifted.effect_table.pseudos
    puts = any(pseudos[number] == "V_WRITELANE_B32" for number in lifted.columns.opcodes)
    return r.SCALAR_MASK & ~(1 << r.SCC | 1 << r.MODE) | (r.VECTOR_MASK if puts else 0)
