"""Code that runs when the hardware starts a kernel, before its first instruction, and never again."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from luthier.lifting import LiftedRepresentation
from luthier.patch.payloads.code import BoundPayload, PayloadRelocation, join

BRANCH_SIZE = 4


class EntryJump(Struct, frozen=True):
    """An s_branch of the entry code, whose offset is not known yet."""

    place: int
    """Its byte offset in the entry code."""
    to: int
    """Virtual address of the instruction it goes to, or the byte offset in the entry code."""
    inside: bool
    """True if `to` is such an offset."""


class EntryCode(Struct, frozen=True):
    """Code before a kernel's first instruction.

    A kernel with one entry falls from it into its first instruction. One with preloaded arguments is started at
    either of two places `KernelDescriptor.hardware_entry` bytes apart, and each piece ends with a branch, since what is
    spliced in moves them.
    """

    code: bytes
    """Empty where nothing is needed. The hardware starts at its first byte, or at the other place."""
    jumps: tuple[EntryJump, ...]
    references: tuple[PayloadRelocation, ...]
    instructions: int


def entry_code(lifted: LiftedRepresentation, pieces: Sequence[Sequence[BoundPayload]]) -> EntryCode:
    """Put together what runs at each place where the hardware may start the kernel.

    Args:
        pieces: payloads for each of ``lifted.hardware_entries``, in their order.
    """
    joined = [join(one) for one in pieces]
    if len(lifted.hardware_entries) == 1:
        (only,) = joined
        return EntryCode(only.code, (), only.references, only.instructions)
    apart = lifted.kernel.descriptor.hardware_entry
    in_place = all(len(one.code) + BRANCH_SIZE <= apart for one in joined)
    code = bytearray(2 * apart)
    jumps: list[EntryJump] = []
    references: list[PayloadRelocation] = []
    for start, address, one in zip((0, apart), lifted.hardware_entries, joined, strict=True):
        at = start
        if not in_place:
            at = len(code)
            jumps.append(EntryJump(start, at, inside=True))
            code += bytes(len(one.code) + BRANCH_SIZE)
        code[at : at + len(one.code)] = one.code
        jumps.append(EntryJump(at + len(one.code), address, inside=False))
        references += [replace(field, offset=at + field.offset) for field in one.references]
    return EntryCode(bytes(code), tuple(jumps), tuple(references), sum(one.instructions for one in joined))
