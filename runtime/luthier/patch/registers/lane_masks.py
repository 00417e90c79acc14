"""Lane masks on GFX11 in waves of 64 lanes: an SGPR that a vector instruction has read as a mask, and another
instruction then overwrites, needs a wait before it is read again.

LLVM inserts these waits inside the application and inside a payload, and assumes for each that nothing was read as a
mask before. A payload therefore begins with code that makes the hardware forget reads by the application of registers
that it overwrites, and ends with code for its own reads: an overwrite followed by a wait clears a read.

In addition, a vector instruction must not immediately read results from before and after a change of EXEC: a payload
that changes EXEC ends with the same wait.

Source: LLVM, GCNHazardRecognizer::fixVALUMaskWriteHazard, fixVALUPartialForwardingHazard.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable

from luthier.arch.parties import READS_A_MASK, VALU
from luthier.hazards.wait_states.kinds import test_of, units_of
from luthier.hazards.wait_states.steps import instance_of
from luthier.isa import Isa
from luthier.isa.registers import EXEC_MASK, SGPRS, VCC, UnitSet, mask_of
from luthier.isa.targets import Target
from luthier.lifting import LiftedRepresentation
from luthier.lifting.instructions.effects import Columns, EffectTable, effect_table
from luthier.patch.registers.copies import copy_text

_ALL = mask_of((*SGPRS, *VCC))


class LaneMasks:
    """Assembly at the beginning of payloads of one kernel for masks that the application has read.

    Args:
        edited: whether the application's instructions change, so that their reads are unknown.
    """

    def __init__(self, lifted: LiftedRepresentation, *, edited: bool) -> None:
        self._lifted, self._edited = lifted, edited
        self.matter = matter(lifted.target, lifted.wave_size)
        """Whether any assembly may be needed."""

    @functools.cached_property
    def _read(self) -> int:
        """Return the SGPRs that any instruction of the kernel reads as a mask."""
        lifted = self._lifted
        if self._edited or (lifted.code.opcode < 0).any():
            return _ALL
        return _read_by(lifted.isa, lifted.effect_table, lifted.columns, range(len(lifted.code)))

    def before(self, written: int) -> tuple[str, ...]:
        """Return assembly before a payload that overwrites some of the units in a bit set."""
        return _forget(self._lifted.target, written & self._read)


def matter(target: Target, wave_size: int) -> bool:
    """Return whether lane masks need any waits."""
    return wave_size == 64 and target.lane_mask_wait is not None and target.scalar_wait is None


def behind(isa: Isa, code: bytes, restored: int) -> tuple[str, ...]:
    """Return assembly after a payload's code.

    Args:
        restored: bit set of the units that its last scalar instructions write, for which the wait alone is sufficient;
            they must not be read before it.
    """
    columns = Columns(isa.decode(code))
    table = effect_table(isa)
    lines = _forget(isa.target.target, _read_by(isa, table, columns, range(len(columns.opcode))), restored)
    wait = isa.target.target.lane_mask_wait
    if (
        lines
        or wait is None
        or not any(table.of(columns, index).writes & EXEC_MASK for index in range(len(columns.opcode)))
    ):
        return lines
    return (wait,)


def _read_by(isa: Isa, table: EffectTable, columns: Columns, indices: Iterable[int]) -> int:
    is_vector, masks = test_of(VALU.kind), units_of(READS_A_MASK)
    native = table.code(columns)
    units = 0
    for index in indices:
        number = columns.opcode[index]
        if number >= 0 and is_vector(isa.opcode(number)):
            units |= masks(instance_of(table, native, columns, index))
    return units & _ALL


def _forget(target: Target, units: int, overwritten: int = 0) -> tuple[str, ...]:
    if not units:
        return ()
    assert target.lane_mask_wait is not None
    return (*(copy_text(unit, unit) for unit in UnitSet(units & ~overwritten)), target.lane_mask_wait)
