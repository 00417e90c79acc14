"""Code that runs once, when the hardware starts a kernel, before its first instruction."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from luthier.lifting import LiftedRepresentation
from luthier.patch.payloads.code import BoundPayload, PayloadRelocation, join

BRANCH_SIZE = 4


class EntryJump(Struct, frozen=True):
    """An s_branch of the entry code, whose branch offset is not known yet."""

    place: int
    """Its byte offset in the entry code."""
    to: int
    """Virtual address of its target, or byte offset in the entry code."""
    inside: bool
    """Whether `to` is a byte offset."""


class EntryCode(Struct, frozen=True):
    """Code before a kernel's first instruction.

    In a kernel with one entry, it falls through to the first instruction. A kernel with preloaded arguments has two
    entries `KernelDescriptor.hardware_entry` bytes apart, and each piece ends with a branch, since spliced code moves
    their continuations.
    """

    code: bytes
    """Empty if nothing is needed. The hardware starts at its first byte, or at the second entry."""
    jumps: tuple[EntryJump, ...]
    references: tuple[PayloadRelocation, ...]
    instructions: int


def entry_code(lifted: LiftedRepresentation, pieces: Sequence[Sequence[BoundPayload]]) -> EntryCode:
    """Return the code for each entry at which the hardware may start the kernel.

    Args:
        pieces: payloads for each of ``lifted.hardware_entries``, in their order.
    """
    joined = list(map(join, pieces))
    if len(lifted.hardware_entries) == 1:
        (only,) = joined
        return EntryCode(only.code, (), only.references, only.instructions)
    apart = lifted.kernel.descriptor.hardware_entry
    in_place = all(len(piece.code) + BRANCH_SIZE <= apart for piece in joined)
    code = bytearray(2 * apart)
    jumps: list[EntryJump] = []
    references: list[PayloadRelocation] = []
    for start, address, piece in zip((0, apart), lifted.hardware_entries, joined, strict=True):
        at = start
        if not in_place:
            at = len(code)
            jumps.append(EntryJump(start, at, inside=True))
            code += bytes(len(piece.code) + BRANCH_SIZE)
        code[at : at + len(piece.code)] = piece.code
        jumps.append(EntryJump(at + len(piece.code), address, inside=False))
        references += [replace(field, offset=at + field.offset) for field in piece.references]
    return EntryCode(bytes(code), tuple(jumps), tuple(references), sum(piece.instructions for piece in joined))
