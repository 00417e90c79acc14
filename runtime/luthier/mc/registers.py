"""LLVM's registers as 32-bit register units, one numbering for every target (docs/architecture.md)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum


class Unit(IntEnum):
    """First register unit of each file and of each special register."""

    SGPR = 0
    FLAT_SCRATCH_SGPR = 102
    """Where FLAT_SCRATCH is an SGPR (GFX9)."""
    XNACK_MASK = 104
    """GFX9."""
    VCC = 106
    TTMP = 108
    M0 = 124
    EXEC = 126
    SCC = 128
    MODE = 129
    FLAT_SCRATCH = 130
    """Where it is not an SGPR (GFX10 and later)."""
    OTHER = 132
    VGPR = 256
    AGPR = 512


UNITS = 768
"""Number of register units."""


@dataclass(frozen=True)
class Register:
    """One LLVM register."""

    number: int
    """LLVM register number; 0 is no register."""
    name: str
    """LLVM's name, e.g. ``VGPR0_VGPR1``."""
    text: str
    """As assembly writes it, e.g. ``v[0:1]``."""
    first_unit: int
    """-1 where the register has no unit: no register, SGPR_NULL, and numbers this processor cannot name."""
    unit_count: int
    half: bool
    """A 16-bit half of its unit: a write to it leaves the other half."""


_FILES = {"SGPR": (Unit.SGPR, 106), "TTMP": (Unit.TTMP, 16), "VGPR": (Unit.VGPR, 256), "AGPR": (Unit.AGPR, 256)}
_MEMBER = re.compile(r"(SGPR|VGPR|AGPR|TTMP)(\d+)")
_VARIANT = re.compile(r"_(?:ci|vi|gfx9plus|gfxpre11|gfx11plus)(?=_|$)")
_HALF = re.compile(r"_(?:LO|HI)16$")
_PAIRS = {"VCC": Unit.VCC, "EXEC": Unit.EXEC}
_SINGLE = {"M0": Unit.M0, "SCC": Unit.SCC, "MODE": Unit.MODE, "SRC_SCC": Unit.SCC}
_NO_UNITS = {"", "PC_REG", "FP_REG", "SP_REG", "PRIVATE_RSRC_REG"}
# Reading the "is zero" bits is reading the mask they summarise.
_SUMMARIES = {"SRC_VCCZ": Unit.VCC, "SRC_EXECZ": Unit.EXEC}


def register_units(name: str, gfx9: bool) -> tuple[int, int, bool]:
    """First unit, number of units and whether it is a half, of the LLVM register `name` on GFX9 or on a later
    generation.

    (-1, 0, …) where there is none: SGPR_NULL, code generation's pseudo registers, and register numbers beyond the file
    (some processors after GFX12 have more VGPRs than units are given to).
    """
    half = _HALF.search(name) is not None
    base = _VARIANT.sub("", _HALF.sub("", name))
    members = _MEMBER.findall(base)
    if members:
        first, limit = _FILES[members[0][0]]
        numbers = [int(number) for _, number in members]
        contiguous = numbers == list(range(numbers[0], numbers[0] + len(numbers)))
        if not contiguous or any(file != members[0][0] for file, _ in members) or numbers[-1] >= limit:
            return -1, 0, half
        return first + numbers[0], len(numbers), half
    if base in _NO_UNITS or base.startswith("SGPR_NULL"):
        return -1, 0, half
    if base in _SINGLE:
        return _SINGLE[base], 1, half
    if base in _SUMMARIES:
        return _SUMMARIES[base], 2, half
    pairs = {
        **_PAIRS,
        "FLAT_SCR": Unit.FLAT_SCRATCH_SGPR if gfx9 else Unit.FLAT_SCRATCH,
        **({"XNACK_MASK": Unit.XNACK_MASK} if gfx9 else {}),
    }
    stem = re.sub(r"_(LO|HI)$", "", base)
    if stem in pairs:
        if base == stem:
            return pairs[stem], 2, half
        return pairs[stem] + base.endswith("_HI"), 1, half
    return Unit.OTHER, 1, half
