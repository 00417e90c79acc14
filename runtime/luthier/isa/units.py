"""Sets of register units, as the bits of an integer.

The numbering of units is that of docs/architecture.md ("Vocabulary of registers") and the same for every target.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

SGPR_FIRST, SGPR_LIMIT = 0, 106
VCC_LO, VCC_HI = 106, 107
TTMP_FIRST = 108
M0 = 124
EXEC_LO, EXEC_HI = 126, 127
SCC = 128
MODE = 129
FLAT_SCRATCH_LO, FLAT_SCRATCH_HI = 130, 131
UNTRACKED = 132
VGPR_FIRST, AGPR_FIRST, UNIT_LIMIT = 256, 512, 768

SCALAR_MASK = (1 << VGPR_FIRST) - 1
"""Every unit with one value a wave; the others have one value a lane."""
VECTOR_MASK = ((1 << UNIT_LIMIT) - 1) ^ SCALAR_MASK
SGPR_MASK = (1 << SGPR_LIMIT) - 1
VGPR_MASK = ((1 << 256) - 1) << VGPR_FIRST
AGPR_MASK = ((1 << 256) - 1) << AGPR_FIRST
EXEC_MASK = 3 << EXEC_LO
VCC_MASK = 3 << VCC_LO
TRACKED_SCALARS = (1 << 124) - 1 | 1 << M0 | EXEC_MASK | 15 << SCC
"""Every scalar unit that has a meaning and is followed: SGPRs, VCC, trap temporaries, M0, EXEC, SCC, MODE,
FLAT_SCRATCH."""

_NAMES = {
    VCC_LO: "vcc_lo",
    VCC_HI: "vcc_hi",
    M0: "m0",
    EXEC_LO: "exec_lo",
    EXEC_HI: "exec_hi",
    SCC: "scc",
    MODE: "mode",
    FLAT_SCRATCH_LO: "flat_scratch_lo",
    FLAT_SCRATCH_HI: "flat_scratch_hi",
}
_PAIRS = {VCC_LO: "vcc", EXEC_LO: "exec", FLAT_SCRATCH_LO: "flat_scratch"}


def unit_name(unit: int) -> str:
    """How assembly spells one register unit, e.g. ``s4``, ``v17``, ``vcc_lo``."""
    if unit >= AGPR_FIRST:
        return f"a{unit - AGPR_FIRST}"
    if unit >= VGPR_FIRST:
        return f"v{unit - VGPR_FIRST}"
    return _NAMES.get(unit) or (
        f"s{unit}" if unit < SGPR_LIMIT else f"ttmp{unit - TTMP_FIRST}" if unit < M0 else f"unit{unit}"
    )


class UnitSet(int):
    """A set of register units: bit `u` is set when unit `u` is a member.

    It is an integer, so ``|``, ``&`` and ``~`` work as on any bit mask (and give plain integers); besides, it has
    ``unit in set``, iteration in ascending order, and a readable text.
    """

    __slots__ = ()

    @classmethod
    def of(cls, units: Iterable[int]) -> UnitSet:
        """The set of these units."""
        mask = 0
        for unit in units:
            mask |= 1 << unit
        return cls(mask)

    def __contains__(self, unit: int) -> bool:
        return bool(self >> unit & 1)

    def __iter__(self) -> Iterator[int]:
        rest = int(self)
        while rest:
            low = rest & -rest
            yield low.bit_length() - 1
            rest ^= low

    def __len__(self) -> int:
        return self.bit_count()

    def __bool__(self) -> bool:
        return int(self) != 0

    def names(self) -> list[str]:
        """The members, runs of numbered registers joined: ``["s[0:3]", "s7", "vcc", "scc", "v1"]``."""
        result: list[str] = []
        units = list(self)
        position = 0
        while position < len(units):
            first = last = units[position]
            numbered = first < SGPR_LIMIT or first >= VGPR_FIRST or TTMP_FIRST <= first < M0
            while (
                position + 1 < len(units)
                and units[position + 1] == last + 1
                and ((numbered and last + 1 not in (SGPR_LIMIT, M0, AGPR_FIRST)) or (first == last and first in _PAIRS))
            ):
                position += 1
                last += 1
            if first == last:
                result.append(unit_name(first))
            elif first in _PAIRS:
                result.append(_PAIRS[first])
            else:
                base = max(start for start in (0, TTMP_FIRST, VGPR_FIRST, AGPR_FIRST) if start <= first)
                result.append(f"{unit_name(first).rstrip('0123456789')}[{first - base}:{last - base}]")
            position += 1
        return result

    def __str__(self) -> str:
        return ", ".join(self.names()) or "nothing"

    def __repr__(self) -> str:
        return f"UnitSet({self})"


@dataclass(frozen=True, slots=True)
class RegisterSet:
    """What is live at a point of the code.

    A wave has one copy of a scalar register, so a scalar unit is in all sets or in none.
    """

    active: UnitSet
    """Units whose value in a lane that is active here may be read later.

    Any other may be overwritten under the current EXEC.
    """
    inactive: UnitSet
    """Units whose value in a lane that is not active here may be read later."""

    @property
    def all_lanes(self) -> UnitSet:
        """Units whose value in any lane may be read later. Any other may be overwritten under any EXEC."""
        return UnitSet(self.active | self.inactive)
