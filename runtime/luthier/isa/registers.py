"""Registers: their numbers, their names, and sets of them, for every target.

After decoding, registers are identified by 32-bit *register units* (docs/architecture.md, "Vocabulary of registers").
This module imports nothing from Luthier, because the build generates the C++ constants of `native_header` from it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from msgspec import Struct

SGPRS = range(106)
FLAT_SCRATCH_SGPR = 102
"""First unit of FLAT_SCRATCH if it is a pair of SGPRs (GFX9)."""
XNACK_MASK = 104
"""GFX9."""
VCC_LO, VCC_HI = 106, 107
VCC = VCC_LO, VCC_HI
TTMPS = range(108, 124)
M0 = 124
EXEC_LO, EXEC_HI = 126, 127
EXEC = EXEC_LO, EXEC_HI
SCC = 128
MODE = 129
FLAT_SCRATCH_LO, FLAT_SCRATCH_HI = 130, 131
"""Units of FLAT_SCRATCH if it is not a pair of SGPRs (GFX10 and later)."""
UNTRACKED = 132
"""Every other special register."""
VGPRS = range(256, 1280)
AGPRS = range(VGPRS.stop, VGPRS.stop + 256)
NARROW_VGPRS = 256
"""Number of VGPRs of most processors. Native data flow is compiled for these and for all VGPRs
(runtime/native/lifting/units.h)."""
VGPR_FIRST, AGPR_FIRST = VGPRS.start, AGPRS.start
UNIT_LIMIT = AGPRS.stop
"""One more than the last unit."""

_FILES = {"s": SGPRS, "ttmp": TTMPS, "v": VGPRS, "a": AGPRS}
"""Prefix in assembly -> units of the numbered registers."""
_SPECIAL = {
    "vcc_lo": VCC_LO,
    "vcc_hi": VCC_HI,
    "m0": M0,
    "exec_lo": EXEC_LO,
    "exec_hi": EXEC_HI,
    "scc": SCC,
    "mode": MODE,
    "flat_scratch_lo": FLAT_SCRATCH_LO,
    "flat_scratch_hi": FLAT_SCRATCH_HI,
}
_PAIRS = {"vcc": VCC_LO, "exec": EXEC_LO, "flat_scratch": FLAT_SCRATCH_LO}
_SPECIAL_NAMES = {unit: name for name, unit in _SPECIAL.items()}
_PAIR_NAMES = {unit: name for name, unit in _PAIRS.items()}


def is_vector(unit: int) -> bool:
    """Return whether a unit has one value per lane; other units have one per wave."""
    return unit >= VGPRS.start


class RegisterRange(Struct, frozen=True):
    """A register of adjacent units."""

    first: int
    count: int = 1

    @property
    def units(self) -> range:
        """Return its units."""
        return range(self.first, self.first + self.count)

    @classmethod
    def parse(cls, text: str) -> RegisterRange | None:
        """Parse an assembly register: ``v4``, ``s[2:3]``, ``a0``, ``vcc``, ``exec_lo``, ``scc``; None if it is invalid.

        Numbers are checked against the largest file of any target.
        """
        if text in _PAIRS:
            return cls(_PAIRS[text], 2)
        if text in _SPECIAL:
            return cls(_SPECIAL[text])
        match = re.fullmatch(r"(s|v|a|ttmp)(?:([0-9]{1,4})|\[([0-9]{1,4}):([0-9]{1,4})\])", text)
        if match is None:
            return None
        file = _FILES[match[1]]
        first, last = (int(match[2]),) * 2 if match[2] else (int(match[3]), int(match[4]))
        return cls(file[first], last - first + 1) if first <= last < len(file) else None

    def __str__(self) -> str:
        """Return the name in assembly, or the list of its units if they have no common name."""
        first, count = self.first, self.count
        if count == 2 and first in _PAIR_NAMES:
            return _PAIR_NAMES[first]
        for prefix, file in _FILES.items():
            if first in file:
                number = first - file.start
                return f"{prefix}{number}" if count == 1 else f"{prefix}[{number}:{number + count - 1}]"
        return ", ".join(_SPECIAL_NAMES.get(unit) or f"unit{unit}" for unit in self.units)


def unit_name(unit: int) -> str:
    """Return the assembly name of one register unit, e.g. ``s4``, ``v17``, ``vcc_lo``."""
    return str(RegisterRange(unit))


class UnitSet(int):
    """A set of register units: bit `u` is set if unit `u` is a member.

    It is an integer, so ``|``, ``&`` and ``~`` work as on any bit mask (and return plain integers). It also supports
    ``unit in set``, iteration in ascending order, and readable text.
    """

    __slots__ = ()

    @classmethod
    def of(cls, units: Iterable[int]) -> UnitSet:
        """Return the set of these units."""
        return cls(mask_of(units))

    def __contains__(self, unit: int) -> bool:
        return bool(self >> unit & 1)

    def __iter__(self) -> Iterator[int]:
        return bits_of(int(self))

    def __len__(self) -> int:
        return self.bit_count()

    def __bool__(self) -> bool:
        return int(self) != 0

    def ranges(self) -> Iterator[RegisterRange]:
        """Yield the members in ascending order, with adjacent numbered registers and halves of pairs joined."""
        first = count = 0
        for unit in self:
            if count and unit == first + count and _joined(first, unit):
                count += 1
                continue
            if count:
                yield RegisterRange(first, count)
            first, count = unit, 1
        if count:
            yield RegisterRange(first, count)

    def names(self) -> list[str]:
        """Return the names of `ranges`: ``["s[0:3]", "s7", "vcc", "scc", "v1"]``."""
        return list(map(str, self.ranges()))

    def __str__(self) -> str:
        return ", ".join(self.names()) or "nothing"

    def __repr__(self) -> str:
        return f"UnitSet({self})"


def _joined(first: int, unit: int) -> bool:
    """Return whether a range that begins at `first` continues with `unit`."""
    if unit == first + 1 and first in _PAIR_NAMES:
        return True
    return any(first in file and unit in file for file in _FILES.values())


def mask_of(units: Iterable[int]) -> int:
    """Return a set of units as a plain integer; for a `range` it takes constant time."""
    if isinstance(units, range) and units.step == 1:
        return ((1 << len(units)) - 1) << units.start
    mask = 0
    for unit in units:
        mask |= 1 << unit
    return mask


def bits_of(mask: int) -> Iterator[int]:
    """Yield the set bits in ascending order, such as the units of a set."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


SGPR_MASK, VGPR_MASK, AGPR_MASK = mask_of(SGPRS), mask_of(VGPRS), mask_of(AGPRS)
SCALAR_MASK = (1 << VGPRS.start) - 1
"""Every unit with one value per wave; other units have one per lane."""
VECTOR_MASK = VGPR_MASK | AGPR_MASK
EXEC_MASK = 3 << EXEC_LO
VCC_MASK = 3 << VCC_LO
TRACKED_SCALARS = (1 << TTMPS.stop) - 1 | 1 << M0 | EXEC_MASK | 15 << SCC
"""Every scalar unit that analyses follow: SGPRs, VCC, trap temporaries, M0, EXEC, SCC, MODE, FLAT_SCRATCH."""


class Register(Struct, frozen=True):
    """One LLVM register."""

    number: int
    """LLVM register number; 0 stands for no register."""
    name: str
    """LLVM's name, e.g. ``VGPR0_VGPR1``."""
    text: str
    """Name in assembly, e.g. ``v[0:1]``."""
    first_unit: int
    """-1 if it has no unit: no register, SGPR_NULL, and registers that this processor does not have."""
    unit_count: int
    half: bool
    """Whether it is a 16-bit half of its unit: a write to it preserves the other half."""


def native_header() -> str:
    """Return the numbers as C++ constants for the native module: ``luthier::units`` in ``unit_numbers.h``."""
    constants = {
        "Sgpr": SGPRS.start,
        "Sgprs": len(SGPRS),
        "FlatScratchSgpr": FLAT_SCRATCH_SGPR,
        "XnackMask": XNACK_MASK,
        "VccLo": VCC_LO,
        "VccHi": VCC_HI,
        "Ttmp": TTMPS.start,
        "Ttmps": len(TTMPS),
        "M0": M0,
        "ExecLo": EXEC_LO,
        "ExecHi": EXEC_HI,
        "Scc": SCC,
        "Mode": MODE,
        "FlatScratchLo": FLAT_SCRATCH_LO,
        "FlatScratchHi": FLAT_SCRATCH_HI,
        "Untracked": UNTRACKED,
        "Vgpr": VGPRS.start,
        "Vgprs": len(VGPRS),
        "Agpr": AGPRS.start,
        "Agprs": len(AGPRS),
        "UnitLimit": UNIT_LIMIT,
    }
    lines = [f"constexpr int {name} = {value};" for name, value in constants.items()]
    head = "// Made from luthier/isa/registers.py by the build."
    return "\n".join([head, "#pragma once", "namespace luthier::units {", *lines, "} // namespace luthier::units", ""])
