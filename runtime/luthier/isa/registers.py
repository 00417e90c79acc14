"""LLVM's registers as 32-bit register units, one numbering for every target (docs/architecture.md)."""

from __future__ import annotations

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
