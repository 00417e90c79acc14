"""Lane masks on GFX11, in waves of 64 lanes: an SGPR that a vector instruction has read as a mask, and another
instruction then overwrites, wants a wait before it is read again.

LLVM sees to that within the application and within a payload, and takes it of each that nothing was read as a mask
before. So a payload begins by making the hardware forget what of its registers the application may have read so, and
ends by doing that with what it has read so itself: what is overwritten, and waited for, no longer counts.

There, too, a vector instruction must not read at once what was written before a change of EXEC and behind it: a
payload that changes EXEC ends with the same wait.

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
    """Assembly that payloads of one kernel begin with because of masks that the application has read.

    Args:
        edited: whether the application's instructions change, so that it is not known what they read.
    """

    def __init__(self, lifted: LiftedRepresentation, *, edited: bool) -> None:
        self._lifted, self._edited = lifted, edited
        self.matter = matter(lifted.target, lifted.wave_size)
        """Else nothing need be done."""

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
        restored: bit set of what its last scalar instructions write, for which the wait alone is enough; it must not be
            read before that.
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
    found = 0
    for index in indices:
        number = columns.opcode[index]
        if number >= 0 and is_vector(isa.opcode(number)):
            found |= masks(instance_of(table, native, columns, index))
    return found & _ALL


def _forget(target: Target, units: int, overwritten: int = 0) -> tuple[str, ...]:
    if not units:
        return ()
    assert target.lane_mask_wait is not None
    return (*(copy_text(unit, unit) for unit in UnitSet(units & ~overwritten)), target.lane_mask_wait)
