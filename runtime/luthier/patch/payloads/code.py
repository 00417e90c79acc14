"""Payloads as bytes, which are spliced in at a point, or placed once and called."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from luthier.isa import Isa

ORIGINAL = "luthier.original"
"""Symbol of the load address that is added to virtual addresses of the original."""
OFFSET_3F = 0x3F
"""Branch offset in words that some targets execute incorrectly (`Generation.offset_3f_bug`)."""


class PayloadRelocation(Struct, frozen=True):
    """A 32-bit field of a payload: the low or high half of ``symbol + addend``, minus the address of the field if it is
    PC-relative."""

    offset: int
    """Byte offset of the field in the payload."""
    symbol: str
    addend: int
    high: bool
    distance: int
    """Bytes from the result of the payload's s_getpc_b64 to the field; 0 if the field is not PC-relative."""

    @property
    def key(self) -> tuple[str, int, bool, int]:
        """Return all fields except `offset`."""
        return self.symbol, self.addend, self.high, self.distance


class BoundPayload(Struct, frozen=True):
    """Bytes to splice in at one point, position independent except for `references`."""

    code: bytes
    references: tuple[PayloadRelocation, ...]
    instructions: int
    immediates: tuple[int, ...] = ()
    """Byte offsets of the per-point 32-bit numbers, in the order of `Template.immediates`."""
    call: int | None = None
    """Byte offset of an s_call_b64 of a shared payload, whose branch offset is not known yet."""

    def with_numbers(self, numbers: Sequence[int]) -> BoundPayload:
        """Return the payload with the numbers of one point."""
        code = bytearray(self.code)
        for offset, number in zip(self.immediates, numbers, strict=True):
            code[offset : offset + 4] = number.to_bytes(4, "little")
        return replace(self, code=bytes(code), immediates=())


def join(payloads: Sequence[BoundPayload]) -> BoundPayload:
    """Concatenate payloads."""
    code = b""
    references: list[PayloadRelocation] = []
    for payload in payloads:
        references += [replace(field, offset=len(code) + field.offset) for field in payload.references]
        code += payload.code
    return BoundPayload(code, tuple(references), sum(payload.instructions for payload in payloads))


@functools.lru_cache(maxsize=65536)
def snippet(isa: Isa, text: str) -> tuple[bytes, int]:
    """Assemble text to bytes. Return also the number of instructions."""
    assembly = isa.assemble(text)
    return assembly.instructions.code, len(assembly.instructions)


def assemble_payload(isa: Isa, lines: Iterable[str]) -> BoundPayload:
    """Return assembly text as a payload."""
    code, instructions = snippet(isa, "\n".join(lines))
    return BoundPayload(code, (), instructions)
