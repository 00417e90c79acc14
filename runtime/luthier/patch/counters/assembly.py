"""Pieces of assembly for the code of counters."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from luthier.isa import Isa
from luthier.patch.payloads.code import BoundPayload, PayloadRelocation
from luthier.patch.payloads.emission import PROGRAM_COUNTER
from luthier.patch.registers.copies import unit_text

WORD = 0xFFFFFFFF


def halves(offset: int) -> tuple[str, str]:
    """Return both 32-bit halves of the address of `luthier_cell` + `offset`, as assembly operands."""
    return f"luthier_cell@abs32@lo+{offset}", f"luthier_cell@abs32@hi+{offset}"


def word(value: int) -> str:
    """Return a 32-bit value as an assembly operand, as an inline constant if possible."""
    value &= WORD
    if value <= 64:
        return str(value)
    return str(value - (1 << 32)) if value >= (1 << 32) - 16 else hex(value)


def is_literal(text: str) -> bool:
    """Return whether a source is a 32-bit literal."""
    return text[0] in "-0123456789" and not -16 <= int(text, 0) <= 64


def set_scalars(values: Mapping[int, int]) -> list[str]:
    """Return assembly that sets SGPRs, in pairs if the pair's value fits 31 bits."""
    lines = []
    done = set()
    for unit, value in sorted(values.items()):
        if unit in done:
            continue
        if unit % 2 == 0 and value < 1 << 31 and values.get(unit + 1) == 0:
            lines.append(f"s_mov_b64 s[{unit}:{unit + 1}], {value:#x}")
            done.add(unit + 1)
        else:
            lines.append(f"s_mov_b32 {unit_text(unit)}, {word(value)}")
    return lines


@functools.lru_cache(maxsize=4096)
def assemble_with(isa: Isa, text: str, symbols: tuple[tuple[str, str], ...]) -> BoundPayload:
    """Assemble a payload in which names stand for symbols."""
    assembly = isa.assemble(text)
    names = dict(symbols)
    code, references = assembly.instructions, []
    for fixup in assembly.fixups:
        field = int(code.offset[fixup.instruction]) + fixup.byte
        if fixup.modifier.startswith("abs32"):
            high = fixup.modifier == "abs32@hi"
            references.append(PayloadRelocation(field, names[fixup.symbol], fixup.addend, high, 0))
            continue
        counter = next(
            index
            for index in range(fixup.instruction, -1, -1)
            if isa.opcode(int(code.opcode[index])).mnemonic in PROGRAM_COUNTER
        )
        distance = field - int(code.offset[counter]) - int(code.size[counter])
        high = fixup.modifier == "rel32@hi"
        references.append(PayloadRelocation(field, names[fixup.symbol], fixup.addend, high, distance))
    return BoundPayload(code.code, tuple(references), len(code))
