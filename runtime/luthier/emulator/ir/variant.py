"""A variant: everything that decides the machine code of one operation. Two instructions with equal variants share
code."""

from __future__ import annotations

import hashlib

from msgspec import Struct


class FloatMode(Struct, frozen=True):
    """The part of the MODE register that floating point depends on, as the fields' codes.

    Rounding: 0 nearest even, 1 up, 2 down, 3 to zero. Denormals: bit 0 keeps inputs, bit 1 keeps results (ISA
    documents, "MODE register"). One pair for 32-bit, one for 16- and 64-bit numbers.
    """

    round32: int = 0
    round16_64: int = 0
    denorm32: int = 3
    denorm16_64: int = 3
    dx10_clamp: bool = True
    ieee: bool = True
    relative: int = 0
    """Not floating point, but of MODE too: on GFX9 bits 0 to 3 make src0, src1, src2 and the result relative to M0."""
    fp16_ovfl: bool = False
    """Finite 16- and 8-bit results of vector operations that are too large become the largest number."""

    def rounding(self, bits: int) -> int:
        """Return the FP_ROUND code for results of that width."""
        return self.round32 if bits == 32 else self.round16_64

    def denormals(self, bits: int) -> int:
        """Return the FP_DENORM code for numbers of that width: bit 0 lets denormal sources in, bit 1 results out."""
        return self.denorm32 if bits == 32 else self.denorm16_64


class OperandAccess(Struct, frozen=True):
    """Access to one operand."""

    kind: str
    """``v`` rows of a vector register file; ``s`` scalar registers or an inline constant; ``c`` an inline constant for
    each element of a tuple; ``k``, ``K`` a literal of 32, 64 bits in the record; ``i`` an immediate in the record;
    ``-`` absent."""
    high: bool = False
    """The high 16 bits of the register."""
    whole: bool = True
    """False for a 16-bit register: a write keeps the other half."""
    neg: bool = False
    abs: bool = False
    neg_high: bool = False
    """VOP3P: negate the second element."""
    select: tuple[bool, bool] = (False, True)
    """VOP3P: take the register's high half for the first, second element."""
    sdwa: int = 6
    """SDWA selection: BYTE_0 … BYTE_3, WORD_0, WORD_1, DWORD."""
    extend: bool = False
    """SDWA: sign-extend the selection."""
    relative: bool = False
    """The register number is relative to M0[7:0]."""

    bank: int = 0
    """Which upper bits of VGPR numbers are added, from 1 (`layout.WAVE`, ``banks``); 0: they are 0."""

    @property
    def slots(self) -> int:
        """Return the number of slots taken in the record."""
        return {"-": 0, "K": 2}.get(self.kind, 1)


class Dpp(Struct, frozen=True):
    """Data-parallel primitive of source 0."""

    control: int
    """DPP_CTRL, or -1 for DPP8."""
    lanes: int = 0
    """DPP8's eight 3-bit selectors."""
    row_mask: int = 15
    bank_mask: int = 15
    bound_control: bool = False
    fetch_inactive: bool = False


class Variant(Struct, frozen=True):
    """Key of a compiled function."""

    operation: str
    """A declared name, without encoding suffix; of a dual operation both, joined by ``+``."""
    wave_size: int
    major: int
    results: tuple[OperandAccess, ...] = ()
    sources: tuple[OperandAccess, ...] = ()
    modifiers: tuple[tuple[str, int], ...] = ()
    mode: FloatMode | None = None
    dpp: Dpp | None = None
    stepping: bool = False
    """The code returns after the instruction instead of going on."""
    observed: bool = False
    """The code says what it accesses, and where it waits."""
    floats: int = 0
    """Kinds of exceptional results that the code tells of: `layout.FLOAT_NAN` and the like."""
    undefined: bool = False
    """The code follows undefined values, and tells where they decide something."""
    second: Variant | None = None
    """The Y half of a dual operation."""
    processor: str = ""
    """``gfx942``; empty for operations that mean the same on all processors of a generation."""

    @property
    def symbol(self) -> str:
        """Name of the compiled function: readable, and unique by a hash."""
        digest = hashlib.sha256(repr(self).encode()).hexdigest()[:20]
        return f"{self.operation.replace('+', '_')}.{digest}"


class FusedKey(Struct, frozen=True):
    """Key of a function that executes several instructions, one after the other, in the place of the first."""

    variants: tuple[Variant, ...]
    slots: tuple[tuple[int, ...], ...]
    """What the record of each holds."""

    @property
    def symbol(self) -> str:
        """Name of the compiled function."""
        digest = hashlib.sha256(repr(self).encode()).hexdigest()[:20]
        return f"run_of_{len(self.variants)}.{digest}"
