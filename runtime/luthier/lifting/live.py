"""What is live at a point of the code: the one type that liveness gives, binding asks for, and listings print."""

from __future__ import annotations

from typing import NamedTuple

from luthier.isa.registers import UnitSet


class Live(NamedTuple):
    """What is live at a point of the code.

    A wave has one copy of a scalar register, so a scalar unit is in all sets or in none. The fields are plain bit sets,
    which are quick to make; the properties without ``_bits`` are the same as sets of units.
    """

    active_bits: int
    """Units whose value in a lane that is active here may be read later."""
    inactive_bits: int
    """Units whose value in a lane that is not active here may be read later."""

    @property
    def all_bits(self) -> int:
        """Units whose value in any lane may be read later."""
        return self.active_bits | self.inactive_bits

    @property
    def active(self) -> UnitSet:
        """Units that must not be overwritten in the lanes that are active here. Any other may be, under the current
        EXEC."""
        return UnitSet(self.active_bits)

    @property
    def inactive(self) -> UnitSet:
        """Units that must not be overwritten in the lanes that are not active here."""
        return UnitSet(self.inactive_bits)

    @property
    def all_lanes(self) -> UnitSet:
        """Units that must not be overwritten in some lane. Any other may be, under any EXEC."""
        return UnitSet(self.all_bits)

    def with_any_lane_active(self) -> Live:
        """The same where it is not known which lanes are active."""
        return Live(self.all_bits, self.inactive_bits)
