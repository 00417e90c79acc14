"""Replacements of the application's instructions whose meaning depends on their address, or on code after them."""

from __future__ import annotations

import bisect
from collections.abc import Mapping
from functools import lru_cache

from msgspec import Struct

from luthier.errors import PatchError
from luthier.isa import Isa
from luthier.lifting import LiftedRepresentation
from luthier.lifting.code.text import text_of
from luthier.objects.elf import R_AMDGPU_ABS32_HI, R_AMDGPU_ABS32_LO
from luthier.patch.payloads.code import ORIGINAL, PayloadRelocation
from luthier.patch.registers.copies import unit_text

_LITERAL = 0x7EAD1234
"""Placeholder for half of an address: a literal without a shorter encoding."""
_HALVES = (R_AMDGPU_ABS32_LO, R_AMDGPU_ABS32_HI)


class Replacement(Struct, frozen=True):
    """Bytes that replace an instruction."""

    code: bytes
    references: tuple[PayloadRelocation, ...] = ()
    """Halves of the originals' addresses."""


def replacements(lifted: LiftedRepresentation, edited: Mapping[int, bytes]) -> dict[int, Replacement]:
    """Return instruction -> its replacement.

    Args:
        edited: instruction -> replacement by a tool.

    Raises:
        PatchError: the loader writes into an instruction by a relocation that cannot be moved, or a tool replaces an
            instruction into which the loader writes.
    """
    replaced = _filled(lifted)
    for index in replaced.keys() & edited.keys():
        if edited[index]:
            raise PatchError(
                "an instruction into which the loader writes an address cannot be replaced",
                kernel=lifted.kernel.name,
                offset=lifted.columns.address[index],
            )
    replaced |= {index: Replacement(code) for index, code in edited.items()}
    values = (one for one in lifted.pc_references if one.kind == "value")
    replaced |= {one.getpc: _counter(lifted, one.getpc, one.target) for one in values}
    for block in lifted.blocks:
        if block.exit in ("call", "trap") and not block.successors:
            # The call does not return, but in the new code other code follows it, so end the wave.
            code = edited.get(block.last, lifted.code.bytes_of(block.last))
            replaced[block.last] = Replacement(code + _end(lifted.isa))
    return replaced


@lru_cache(maxsize=64)
def _end(isa: Isa) -> bytes:
    """Return the instruction that ends a wave."""
    return isa.assemble("s_endpgm").instructions.code


def _filled(lifted: LiftedRepresentation) -> dict[int, Replacement]:
    """Return replacements with the same bytes for instructions into which the loader writes addresses."""
    columns = lifted.columns
    replaced: dict[int, Replacement] = {}
    text = text_of(lifted.object, lifted.isa)
    for address in text.filled:
        relocation = text.relocations[address]
        index = bisect.bisect_right(columns.address, address) - 1
        if index < 0 or address >= columns.address[index] + columns.size[index] or lifted.block_of[index] < 0:
            continue
        pointed = relocation.points_to
        if relocation.type not in _HALVES or pointed is None:
            raise PatchError(
                f"the loader writes into this instruction by a relocation (type {relocation.type}, "
                f"{relocation.symbol or 'no symbol'}) that cannot be moved",
                kernel=lifted.kernel.name,
                offset=columns.address[index],
            )
        high = relocation.type == R_AMDGPU_ABS32_HI
        field = PayloadRelocation(address - columns.address[index], ORIGINAL, pointed, high, 0)
        earlier = replaced.get(index)
        references = (field,) if earlier is None else (*earlier.references, field)
        replaced[index] = Replacement(lifted.code.bytes_of(index), references)
    return replaced


def _counter(lifted: LiftedRepresentation, index: int, value: int) -> Replacement:
    """Return code that replaces an s_getpc_b64 and returns the original program counter."""
    (register,) = lifted.columns.registers(index)
    unit = int(lifted.isa.register_first_unit[register])
    lines = [f"s_mov_b32 {unit_text(half)}, {_LITERAL:#x}" for half in (unit, unit + 1)]
    code = lifted.isa.assemble("\n".join(lines)).instructions.code
    return Replacement(code, tuple(PayloadRelocation(at, ORIGINAL, value, at > 4, 0) for at in (4, 12)))
