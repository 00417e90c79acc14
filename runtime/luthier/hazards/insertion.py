"""Wait states where a payload meets the application's code.

Inside the application's code and inside a payload, the compiler has inserted wait states where the hardware does not
interlock. These rules do so at the boundary, conservatively, with the largest numbers of the table of hazards
(`luthier.arch.hazards`). `luthier.hazards.wait_states` checks the result.
"""

from __future__ import annotations

import functools

import numpy as np

from luthier.arch.parties import OF_MODE, S_SETREG
from luthier.hazards.wait_states.kinds import test_of, units_of
from luthier.hazards.wait_states.model import hazard_model, ticks
from luthier.hazards.wait_states.steps import instance_of
from luthier.isa import InstructionArray, InstructionFlag, Isa
from luthier.isa.targets import Target
from luthier.lifting import LiftedRepresentation
from luthier.lifting.paths import successors

Boundary = tuple[tuple[str, ...], tuple[str, ...]]
"""Assembly to run before and after a payload."""


class Boundaries:
    """Boundaries of a kernel's payloads: assembly at their beginnings and ends.

    Attributes:
        same: whether all payloads have the same boundary.
        everywhere: assembly at the beginning of payloads without special neighbours.
    """

    def __init__(self, lifted: LiftedRepresentation) -> None:
        self._lifted = lifted
        hazards = hazard_model(lifted.target, lifted.wave_size)
        # SGPRs must not be overwritten while vector instructions still read them as lane masks.
        before = lifted.target.lane_mask_wait, lifted.target.replay_wait
        self.everywhere = tuple(wait for wait in before if wait is not None)
        replay = lifted.target.replay_wait
        matrix = lifted.code.flags & _MATRIX != 0
        if hazards.parted_by_v_nops:
            numbers = np.unique(lifted.code.opcode[lifted.reached]).tolist()
            behind = hazards.v_nops_behind(lifted.isa.opcode(one) if one >= 0 else None for one in numbers)
            self.everywhere += ("v_nop",) * behind
        self._behind: tuple[str, ...] = () if replay is None else (replay,)
        self._matrix_waits, self._skip_waits = hazards.behind_matrix, hazards.behind_vskip
        self._matrices: list[int] | None = None
        """[n + 1] number of matrix instructions before each instruction; None if none is reachable."""
        if self._matrix_waits and (matrix & lifted.reached).any():
            self._matrices = [0, *np.cumsum(matrix).tolist()]
        self.same = self._matrices is None and not lifted.skipped and not lifted.index_mode and not lifted.vgpr_bits

    def at(self, point: int, index: int) -> Boundary:
        """Return the boundary of a payload that starts before instruction `point`.

        Args:
            index: an instruction in the payload's block: `point`, or the one before it.
        """
        if self.same:
            return self.everywhere, self._behind
        bits = self._lifted.vgpr_bits.get(point)
        if bits is not None:
            # Both follow waits, since a wait must not directly follow a write of MODE.
            again = (f"s_set_vgpr_msb {bits:#x}",) if bits else ()
            return (*self._waits(point, index), "s_set_vgpr_msb 0"), (*self._behind, *again)
        skipped = self._lifted.skipped.get(point)
        if skipped is not None and skipped.again is not None:
            # The source of the mode is live here. Wait states separate the mode changes from vector instructions.
            waits = wait_states(self._skip_waits)
            return ("s_setvskip 0, 0", *waits, *self._waits(point, index)), (*self._behind, skipped.again, *waits)
        indexed = self._lifted.index_mode.get(point)
        if indexed is None:
            return self._waits(point, index), self._behind
        # M0 holds the index and the mask. At the end of the payload it is unchanged or dead, so turning the mode on
        # again with its value is correct.
        on = f"s_set_gpr_idx_on m0, {indexed.known}"
        return ("s_set_gpr_idx_off", *self._waits(point, index)), (on,)

    def _waits(self, point: int, index: int) -> tuple[str, ...]:
        lifted, matrices = self._lifted, self._matrices
        begin = lifted.blocks[lifted.block_of[index]].first
        if matrices is not None and (
            point - begin < self._matrix_waits or matrices[point] != matrices[point - self._matrix_waits]
        ):
            return wait_states(self._matrix_waits)
        if lifted.skipped and any(at in lifted.skipped for at in range(max(begin, point - self._skip_waits), point)):
            return wait_states(self._skip_waits)
        return self.everywhere


class ModeWrites:
    """Writes of MODE in a kernel that need a distance from vector instructions.

    Attributes:
        matter: whether there are such writes.
    """

    def __init__(self, lifted: LiftedRepresentation) -> None:
        self._lifted = lifted
        self._needed = hazard_model(lifted.target, lifted.wave_size).before_mode
        self.matter = bool(self._needed)

    def behind(self, point: int) -> tuple[str, ...]:
        """Return assembly for the end of a payload with vector instructions before instruction `point`."""
        return ("v_nop",) * (self._needed - self._near.get(point, self._needed)) if self._needed else ()

    @functools.cached_property
    def _near(self) -> dict[int, int]:
        """Return point -> minimum number of vector instructions up to a write, for points with too few."""
        lifted, columns = self._lifted, self._lifted.columns
        writes, of_mode = test_of(S_SETREG.kind), units_of(OF_MODE)
        native = lifted.effect_table.code(columns)
        opcodes = {number: lifted.isa.opcode(number) for number in columns.opcodes if number >= 0}
        waiting = [
            (index, 0)
            for index in np.flatnonzero(lifted.reached).tolist()
            if (opcode := opcodes.get(columns.opcode[index])) is not None
            and writes(opcode)
            and of_mode(instance_of(lifted.effect_table, native, columns, index))
        ]
        before: dict[int, list[int]] = {}
        for number, following in enumerate(successors(lifted) if waiting else ()):
            for to in following:
                before.setdefault(to, []).append(lifted.blocks[number].last)
        near: dict[int, int] = {}
        while waiting:
            point, distance = waiting.pop()
            if distance >= near.get(point, self._needed):
                continue
            near[point] = distance
            block = lifted.blocks[lifted.block_of[point]]
            for index in [point - 1] if point > block.first else before.get(block.index, ()):
                opcode = opcodes.get(columns.opcode[index])
                vectors = 0 if opcode is None else ticks(opcode, columns.values(index)).vector
                waiting.append((index, distance + vectors))
        return near


_MATRIX = int(InstructionFlag.MATRIX)


@functools.cache
def wait_states(count: int) -> tuple[str, ...]:
    """Return assembly that waits for a number of wait states; one s_nop covers up to 16."""
    return tuple(f"s_nop {min(16, count - done) - 1}" for done in range(0, count, 16))


def _behind_vector_scalars(target: Target) -> int:
    return hazard_model(target, target.default_wave_size).behind_vector_scalars


def waits_after_readlane(target: Target) -> list[str]:
    """Return assembly after a payload that ends by reading SGPRs from vector lanes, for a use as addresses."""
    return [*wait_states(_behind_vector_scalars(target))]


def waits_after_m0(target: Target) -> list[str]:
    """Return assembly after a payload that ends by restoring M0, which the application may use immediately.

    This also covers buffer loads to LDS, for which LLVM requires it (checkReadM0Hazards), but no document.
    """
    return [*wait_states(hazard_model(target, target.default_wave_size).behind_m0)]


def waits_behind(isa: Isa, code: InstructionArray) -> tuple[str, ...]:
    """Return assembly between a payload's code and vector instructions that may use registers of its last ones."""
    hazards = hazard_model(isa.target.target, isa.wave_size)
    if not hazards.parted_by_v_nops:
        return ()
    return ("v_nop",) * hazards.v_nops_behind(isa.opcode(one) for one in np.unique(code.opcode).tolist())


def waits_around_outputs(target: Target) -> tuple[list[str], list[str]]:
    """Return assembly before and after the copies of a payload's outputs to registers.

    SALU instructions copy results of vector instructions, and the application may use them as lane selectors,
    addresses, or through DPP.
    """
    wait = [] if target.lane_mask_wait is None else [target.lane_mask_wait]
    return wait, [*wait, *wait_states(_behind_vector_scalars(target))]
