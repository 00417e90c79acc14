"""What the native data flow is told of an opcode, from LLVM's generic name: how it writes EXEC and other lane masks.

`luthier.lifting.effects` adds which registers it reads and writes. The analyses themselves are in
`runtime/native/lifting`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from luthier.lifting import semantics as sem
from luthier.lifting.semantics import Lanes

MOVE = 0b1100
TABLES = {
    # Bit 2 * a + b of the truth table is the result for operand bits a and b.
    "AND": 0b1000,
    "OR": 0b1110,
    "XOR": 0b0110,
    "ANDN1": 0b0010,  # ~a & b
    "ANDN2": 0b0100,  # a & ~b
    "ORN1": 0b1011,
    "ORN2": 0b1101,
    "NAND": 0b0111,
    "NOR": 0b0001,
    "XNOR": 0b1001,
    "MOV": MOVE,
    "NOT": 0b0011,
}


class MaskForm(NamedTuple):
    """What the result of an operation tells of lane masks. Operand positions are 0 for the target, then 1 and 2."""

    kind: str
    """logic, save, write, select, keep, compare, compare_exec, put_lane, get_lane, or other"""
    table: int = 0
    units: int = 1
    """32-bit registers of an operand."""


@lru_cache(maxsize=1 << 12)
def mask_form(pseudo: str, special: str) -> MaskForm:
    """The form of an operation, by LLVM's generic name and `OpcodeEffects.special`."""
    if pseudo.startswith("S_"):
        stem, _, width = pseudo[2:].rpartition("_")
        units = {"B32": 1, "B64": 2}.get(width, 0)
        name, _, ending = stem.rpartition("_")
        if not units:
            return MaskForm("other")
        if stem in TABLES:
            return MaskForm("logic", TABLES[stem], units)
        if name in TABLES and ending in ("SAVEEXEC", "WREXEC"):
            return MaskForm("save" if ending == "SAVEEXEC" else "write", TABLES[name], units)
        if stem in ("CSELECT", "CMOV"):
            return MaskForm("select" if stem == "CSELECT" else "keep", 0, units)
        return MaskForm("other")
    if pseudo.startswith("V_CMP") and not special:  # a DPP compare may leave bits of disabled lanes alone
        return MaskForm("compare_exec" if pseudo.startswith("V_CMPX_") else "compare")
    if pseudo in ("V_WRITELANE_B32", "V_READLANE_B32"):
        return MaskForm("put_lane" if pseudo == "V_WRITELANE_B32" else "get_lane")
    return MaskForm("other")


class ExecRule(NamedTuple):
    """How lanes' activity may change where an operation writes EXEC; the conditions in this order, None for none."""

    otherwise: Lanes
    if_ones: Lanes | None = None
    """The first source is all ones."""
    if_first: Lanes | None = None
    """The first source is EXEC itself."""
    if_second: Lanes | None = None


def exec_rule(pseudo: str, special: str) -> ExecRule:
    """The rule of an operation, by LLVM's generic name and `OpcodeEffects.special`."""
    stem = pseudo.removeprefix("S_").rsplit("_", 1)[0]
    if pseudo.startswith("V_CMPX_"):  # a DPP compare may leave bits of disabled lanes alone
        return ExecRule(Lanes.ANY if special else Lanes.NARROWED)
    if stem.endswith(("_SAVEEXEC", "_WREXEC")):
        ones = {"XOR_SAVEEXEC": Lanes.FLIPPED, "OR_SAVEEXEC": Lanes.ALL_ACTIVE}.get(stem)
        return ExecRule(sem.SAVE_EXEC.get(stem.rsplit("_", 1)[0], Lanes.ANY), if_ones=ones)
    if stem == "MOV":
        return ExecRule(Lanes.ANY, if_ones=Lanes.ALL_ACTIVE)
    if stem in ("NOT", "WQM"):
        return ExecRule(Lanes.ANY, if_first=Lanes.FLIPPED if stem == "NOT" else Lanes.WIDENED)
    if stem in sem.TWO_SOURCES:
        return ExecRule(Lanes.ANY, None, *sem.TWO_SOURCES[stem])
    return ExecRule(Lanes.ANY)


EMPTY_WAY = {"S_CBRANCH_EXECZ": 1, "S_CBRANCH_EXECNZ": 0}
"""The way out of a branch on EXEC on which no lane is active: 1 taken, 0 not."""
