"""Data types of operands: number of bits in a lane, and their meaning.

Types are written as in an operation's signature: ``u32 i32 f32 b32 u64 i64 f64 u16 i16 f16 bf16 u8 i8``, ``mask``
(one bit per lane: VCC or an SGPR pair), ``scc`` (the scalar condition code), a pair of 16-bit halves ``f16x2``, or
several consecutive registers ``u32x4``.
"""

from __future__ import annotations

import functools
import re

from llvmlite import ir
from msgspec import Struct


class ScalarType(Struct, frozen=True):
    """Scalar element type, with a number of elements."""

    kind: str
    """``u`` unsigned, ``i`` signed, ``f`` IEEE float, ``bf`` bfloat, ``mask``, ``scc``."""
    bits: int
    """Bits of one element."""
    count: int = 1
    """Number of elements; an operation receives a tuple of values if it is above 1."""

    @staticmethod
    @functools.cache
    def parse(text: str) -> ScalarType:
        """Return the type called `text`."""
        if text in ("mask", "scc"):
            return ScalarType(text, 1)
        match = re.fullmatch(r"(u|i|f|bf|b)(8|16|32|64|128)(?:x(\d+))?", text)
        if match is None:
            raise ValueError(f"unknown operand type {text!r}")
        kind = "u" if match[1] == "b" else match[1]
        return ScalarType(kind, int(match[2]), int(match[3] or 1))

    def __str__(self) -> str:
        if self.kind in ("mask", "scc"):
            return self.kind
        return f"{self.kind}{self.bits}" + (f"x{self.count}" if self.count > 1 else "")

    @property
    def is_float(self) -> bool:
        """Return whether arithmetic on the type rounds."""
        return self.kind in ("f", "bf")

    @property
    def is_signed(self) -> bool:
        """Return whether it is a signed integer type."""
        return self.kind == "i"

    @property
    def element(self) -> ScalarType:
        """Return the type of one element."""
        return ScalarType(self.kind, self.bits)

    @property
    def units(self) -> int:
        """Return the number of 32-bit registers of all elements."""
        return max(1, self.bits * self.count // 32)

    @property
    def llvm(self) -> ir.Type:
        """Return the LLVM type of one element; bfloat is an i16."""
        if self.kind == "f":
            return {16: ir.HalfType(), 32: ir.FloatType(), 64: ir.DoubleType()}[self.bits]
        return ir.IntType(self.bits)
