"""Variants: all that determines the machine code of an operation. Instructions with equal variants share code."""

from __future__ import annotations

import hashlib
import re

from msgspec import Struct

FOLLOWED = 16
"""Beside bits such as `layout.FLOAT_NAN`: memory instructions report accesses while NaN is followed."""
HALF_READERS = re.compile(r"s_(mov_b64|(bcnt1_i32|ff1_i32|ctz_i32|flbit_i32)_b32|clz_i32_u32|cmp_(eq|lg)_[iu](32|64))$")
"""Scalar operations that report the active lanes if values of lanes are tracked: they may use EXEC as 32 bits, or
compare a mask of 64 lanes with 32 ones."""


class FloatMode(Struct, frozen=True):
    """The part of the MODE register that affects floating point, as the fields' codes.

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
    """Not floating point: on GFX9, bits 0 to 3 make src0, src1, src2 and the result relative to M0."""
    fp16_ovfl: bool = False
    """Whether 16- and 8-bit results of vector operations that overflow become the largest number."""

    def rounding(self, bits: int) -> int:
        """Return the FP_ROUND code for results of `bits` bits."""
        return self.round32 if bits == 32 else self.round16_64

    def denormals(self, bits: int) -> int:
        """Return the FP_DENORM code for numbers of `bits` bits: bit 0 keeps denormal sources, bit 1 results."""
        return self.denorm32 if bits == 32 else self.denorm16_64


class OperandAccess(Struct, frozen=True):
    """Access to one operand."""

    kind: str
    """``v`` rows of a vector register file; ``s`` scalar registers or an inline constant; ``c`` an inline constant for
    each element of a tuple; ``k``, ``K`` a literal of 32 or 64 bits in the record; ``i`` an immediate in the record;
    ``-`` absent."""
    high: bool = False
    """The high 16 bits of the register."""
    whole: bool = True
    """False for a 16-bit register, whose writes keep the other half."""
    neg: bool = False
    abs: bool = False
    neg_high: bool = False
    """VOP3P: negate the second element."""
    select: tuple[bool, bool] = (False, True)
    """VOP3P: whether the first and the second element are the register's high half."""
    sdwa: int = 6
    """SDWA selection: BYTE_0 … BYTE_3, WORD_0, WORD_1, DWORD."""
    extend: bool = False
    """SDWA: sign-extend the selection."""
    relative: bool = False
    """The register number is relative to M0[7:0]."""
    bank: int = 0
    """Number, from 1, of the upper bits of the VGPR number (`layout.WAVE`, ``banks``); 0: these bits are 0."""

    @property
    def slots(self) -> int:
        """Return the number of slots in the record."""
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
    """Declared name, without encoding suffix."""
    wave_size: int
    major: int
    results: tuple[OperandAccess, ...] = ()
    sources: tuple[OperandAccess, ...] = ()
    modifiers: tuple[tuple[str, int], ...] = ()
    mode: FloatMode | None = None
    dpp: Dpp | None = None
    stepping: bool = False
    """The code returns after the instruction instead of continuing."""
    observed: bool = False
    """The code reports accesses and barriers."""
    floats: int = 0
    """Kinds of exceptional results that the code reports, bits such as `layout.FLOAT_NAN`; or `FOLLOWED`."""
    undefined: int = 0
    """Sources of undefined values that the code tracks, such as `layout.LANE_VALUES`; it reports decisions that depend
    on them."""
    all_defined: bool = False
    """All registers are defined: undefined values are looked for only where memory is read (`layout.ALL_DEFINED`)."""
    second: Variant | None = None
    """The Y half of a dual operation."""
    processor: str = ""
    """``gfx942``; empty for operations that mean the same on all processors of a generation."""

    @property
    def symbol(self) -> str:
        """Return the name of the compiled function: readable, and unique by a hash."""
        digest = hashlib.sha256(repr(self).encode()).hexdigest()[:20]
        return f"{self.operation}.{digest}"


class FusedKey(Struct, frozen=True):
    """Key of a function that executes several consecutive instructions in place of the first."""

    variants: tuple[Variant, ...]
    slots: tuple[tuple[int, ...], ...]
    """Slots of each instruction's record."""

    @property
    def symbol(self) -> str:
        """Return the name of the compiled function."""
        digest = hashlib.sha256(repr(self).encode()).hexdigest()[:20]
        return f"run_of_{len(self.variants)}.{digest}"
