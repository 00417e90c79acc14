"""Offsets of registers in a wave, and sources of the values in a record's slots."""

from __future__ import annotations

import enum
from typing import NamedTuple

from luthier.emulator import layout
from luthier.isa import Isa
from luthier.isa.registers import AGPRS, EXEC_HI, SCC, VGPRS

MODIFIER = 1
"""Role of an operand whose value determines the code. Other roles are the width of the operand's constant, or one of
`constants`."""

_SPECIAL = {
    "SRC_SHARED_BASE": "shared_base",
    "SRC_SHARED_LIMIT": "shared_limit",
    "SRC_PRIVATE_BASE": "private_base",
    "SRC_PRIVATE_LIMIT": "private_limit",
    "SRC_FLAT_SCRATCH_BASE": "flat_scratch",
    "SRC_POPS_EXITING_WAVE_ID": "pops_exiting_wave_id",
}


class Fill(enum.IntEnum):
    """Source of the value of a record's slot: the operand at a position of the instruction, or something else."""

    NOTHING = 0
    REGISTER = 1
    IMMEDIATE = 2
    SIGNED16 = 3
    INLINE32 = 4
    INLINE64 = 5
    HIGH = 6
    """The upper half of the literal."""
    HIGH_SIGNED = 7
    """The upper half of a signed number, whose literal may have 32 bits."""
    TARGET = 8
    FOLLOWING = 9
    FOLLOWING_HIGH = 10
    FIXED = 11
    """The position itself is the value."""


Step = tuple[int, int]
"""A `Fill` and the operand's position."""


class RegisterPlace(NamedTuple):
    """Place of a register."""

    token: str
    """Token that determines the code: ``v`` or ``s`` with ``h`` or ``l`` for a half, ``c`` SCC, ``m`` M0, ``-`` no
    register, ``0`` the null register, ``?`` and the name of a register that is not modelled."""
    slot: int
    """Offset in a wave."""
    vgprs: int = 0
    """Number of VGPRs up to its last one."""
    agprs: int = 0


class RegisterPlaces:
    """Places of the registers of one processor in a wave."""

    def __init__(self, isa: Isa) -> None:
        self._isa = isa
        self._aperture = isa.target.target.private_aperture
        self._agprs = layout.agprs(isa.wave_size)
        self._places: dict[int, RegisterPlace] = {}

    def place(self, number: int) -> RegisterPlace:
        """Return the place of the register with an LLVM number."""
        place = self._places.get(number)
        if place is None:
            place = self._places[number] = self._find(number)
        return place

    def _find(self, number: int) -> RegisterPlace:
        if number == 0:
            return RegisterPlace("-", 0)
        register = self._isa.register(number)
        unit, count, name = register.first_unit, register.unit_count, register.name
        half = ("h" if "HI16" in name else "l") if register.half else ""
        row = 4 * self._isa.wave_size
        if unit in AGPRS:
            index = unit - AGPRS.start
            return RegisterPlace(f"v{half}", self._agprs + index * row, agprs=index + count)
        if unit in VGPRS:
            index = unit - VGPRS.start
            return RegisterPlace(f"v{half}", layout.VECTORS + index * row, vgprs=index + count)
        if name.endswith(("VCCZ", "EXECZ")):
            return RegisterPlace(f"?{name}", 0)
        if 4 * unit == layout.M0:
            return RegisterPlace(f"m{half}", layout.M0)
        if 0 <= unit <= EXEC_HI:
            return RegisterPlace(f"s{half}", 4 * unit)
        if unit in layout.UNIT_OFFSETS:
            return RegisterPlace("c" if unit == SCC else "s", layout.UNIT_OFFSETS[unit])
        if name.startswith("SGPR_NULL"):
            return RegisterPlace("0", layout.WAVE["zero"])
        for prefix, field in _SPECIAL.items():
            private, scratch = field.startswith("private"), field == "flat_scratch"
            if name.startswith(prefix) and not (private if not self._aperture else scratch):
                return RegisterPlace("s", layout.WAVE[field] + (4 if name.endswith("_HI") else 0))
        return RegisterPlace(f"?{name}", 0)
