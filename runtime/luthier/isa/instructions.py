"""Instructions in columns, as decoding and assembling return them."""

from __future__ import annotations

from enum import IntEnum, IntFlag
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

NO_TARGET = -(2**63)
"""Value in `InstructionArray.target` of an instruction without a target address."""


class OperandKind(IntEnum):
    """Meaning of an operand's value."""

    REGISTER = 1
    """LLVM register number; 0 stands for an absent optional register."""
    IMMEDIATE = 2
    """Immediate in LLVM's encoding: a field's value, a literal's bits, a modifier mask."""
    EXPRESSION = 3
    """Index of the fixup with the value."""
    LITERAL = 4
    """An immediate that would fit the inline encoding but is encoded as a 32-bit literal; printed ``lit(…)``."""
    LITERAL64 = 5
    """A 64-bit literal; printed ``lit64(…)``."""


class InstructionFlag(IntFlag):
    """Properties of an instruction.

    The first eleven are LLVM's own properties, the others its instruction class.
    """

    BRANCH = 1 << 0
    CONDITIONAL = 1 << 1
    INDIRECT = 1 << 2
    CALL = 1 << 3
    RETURN = 1 << 4
    TERMINATOR = 1 << 5
    BARRIER = 1 << 6
    """Control never falls through to the next instruction."""
    LOAD = 1 << 7
    STORE = 1 << 8
    SIDE_EFFECTS = 1 << 9
    COMPARE = 1 << 10
    SALU = 1 << 11
    VALU = 1 << 12
    SMEM = 1 << 13
    VMEM = 1 << 14
    """Buffer or image access (MUBUF, MTBUF, MIMG, VIMAGE, VSAMPLE); not FLAT."""
    FLAT = 1 << 15
    """Any of flat, global and scratch."""
    DS = 1 << 16
    EXPORT = 1 << 17
    MATRIX = 1 << 18
    """MFMA, SMFMAC, WMMA, SWMMAC and moves to and from AGPRs."""
    TRANS = 1 << 19
    FLAT_GLOBAL = 1 << 20
    FLAT_SCRATCH = 1 << 21
    ATOMIC = 1 << 22
    IMAGE = 1 << 23
    SDWA = 1 << 24
    DPP = 1 << 25
    PACKED = 1 << 26
    DOT = 1 << 27
    GWS = 1 << 28
    INTERPOLATION = 1 << 29
    """Vertex attribute interpolation and LDS direct or parameter loads."""
    KNOWN_LENGTH = 1 << 30
    """An undecodable entry whose encoding determines its length and that control continues after it."""


class InstructionArray(Struct, frozen=True, eq=False):
    """Instructions in read-only columns: `n` instructions with a total of `m` operands.

    The operands of instruction `i` are ``operand_start[i]`` up to, not including, ``operand_start[i + 1]``.
    """

    address: int
    """Virtual address of the first byte."""
    code: bytes
    """The decoded or assembled bytes."""
    offset: NDArray[np.int64]
    """[n] byte offset in `code`."""
    size: NDArray[np.int32]
    """[n] bytes; of undecodable bytes 4, or the remaining ones."""
    opcode: NDArray[np.int32]
    """[n] LLVM opcode number, -1 if undecodable."""
    flags: NDArray[np.uint32]
    """[n] `InstructionFlag` bits."""
    target: NDArray[np.int64]
    """[n] absolute target address of a branch or call, `NO_TARGET` for other instructions."""
    operand_start: NDArray[np.int32]
    """[n + 1]"""
    operand_kind: NDArray[np.uint8]
    """[m] `OperandKind`"""
    operand_value: NDArray[np.int64]
    """[m] register number, immediate or fixup index."""

    def __len__(self) -> int:
        return len(self.opcode)

    @property
    def addresses(self) -> NDArray[np.int64]:
        """Return [n] the virtual address of each instruction."""
        return self.offset + self.address

    def operands(self, index: int) -> list[tuple[OperandKind, int]]:
        """Return the operands of one instruction, in LLVM's order (see `Opcode.operands` for their names)."""
        begin, end = self.operand_start[index], self.operand_start[index + 1]
        return [
            (OperandKind(kind), int(value))
            for kind, value in zip(self.operand_kind[begin:end], self.operand_value[begin:end], strict=True)
        ]

    def replaced(self, new: InstructionArray) -> InstructionArray:
        """Return the array with `new` instead of the instructions at its address.

        Raises:
            ValueError: their boundaries do not match.
        """
        addresses = self.addresses
        first = int(np.searchsorted(addresses, new.address))
        end = first + len(new)
        begins, ends = new.address - self.address, new.address - self.address + len(new.code)
        boundaries = [*self.offset.tolist()[first : end + 1], len(self.code)]
        if end > len(self) or boundaries[0] != begins or boundaries[len(new)] != ends:
            raise ValueError(f"the boundaries of the instructions at {new.address:#x} do not match")
        low, high = int(self.operand_start[first]), int(self.operand_start[end])
        more = len(new.operand_kind) - (high - low)

        def joined(name: str, begin: int, behind: int) -> NDArray[Any]:
            column = getattr(self, name)
            return np.concatenate([column[:begin], getattr(new, name), column[behind:]])

        return InstructionArray(
            self.address,
            self.code[:begins] + new.code + self.code[ends:],
            np.concatenate([self.offset[:first], new.offset + begins, self.offset[end:]]),
            joined("size", first, end),
            joined("opcode", first, end),
            joined("flags", first, end),
            joined("target", first, end),
            np.concatenate(
                [self.operand_start[:first], new.operand_start[:-1] + low, self.operand_start[end:] + more]
            ).astype(np.int32),
            joined("operand_kind", low, high),
            joined("operand_value", low, high),
        )

    def part(self, first: int, end: int) -> InstructionArray:
        """Return the instructions from `first` up to, not including, `end`."""
        begin = int(self.offset[first])
        behind = int(self.offset[end]) if end < len(self) else len(self.code)
        low, high = int(self.operand_start[first]), int(self.operand_start[end])
        return InstructionArray(
            self.address + begin,
            self.code[begin:behind],
            self.offset[first:end] - begin,
            self.size[first:end],
            self.opcode[first:end],
            self.flags[first:end],
            self.target[first:end],
            self.operand_start[first : end + 1] - low,
            self.operand_kind[low:high],
            self.operand_value[low:high],
        )

    def bytes_of(self, index: int) -> bytes:
        """Return the encoding of one instruction."""
        begin = int(self.offset[index])
        return self.code[begin : begin + int(self.size[index])]


class Fixup(Struct, frozen=True):
    """A field of an assembled instruction whose value depends on a symbol.

    The value is ``symbol - subtrahend + addend`` (addresses; an empty name is 0), made relative according to `kind` and
    truncated according to `modifier`.
    """

    instruction: int
    """Index of the instruction."""
    byte: int
    """Byte of the field inside the instruction."""
    kind: str
    """``sopp_branch``: a signed 16-bit count of dwords from the end of the 4-byte instruction to the symbol.
    ``literal32`` / ``literal64``: the literal after the instruction; with a ``rel32…`` modifier relative to the
    literal's own address. Any other: LLVM's name of the fixup."""
    symbol: str
    addend: int = 0
    modifier: str = ""
    """Relocation specifier as written (``rel32@lo``, ``gotpcrel32@hi``, ``abs32@lo``, …); ``lo32`` for
    ``(…)&0xffffffff``, ``hi32`` for ``(…)>>32``; empty for the plain value."""
    subtrahend: str = ""


class Assembly(Struct, frozen=True):
    """Contents of the text section of an assembly source."""

    instructions: InstructionArray
    labels: dict[str, int]
    """Label -> index of the instruction after it; the number of instructions for a label at the end."""
    fixups: tuple[Fixup, ...]
