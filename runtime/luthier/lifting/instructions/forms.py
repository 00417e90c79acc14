"""Forms of opcodes for the native data flow: how each writes EXEC and other lane masks, by LLVM's generic name.

`luthier.lifting.instructions.effects` adds the registers that each reads and writes. The analyses are in
`runtime/native/lifting`.
"""

from __future__ import annotations

import itertools
from functools import lru_cache
from typing import NamedTuple

from luthier.lifting.instructions.semantics import LaneChange

MOVE = 0b1100
TABLES = {
    # Bit 2 * a + b of the truth table is the result for operand bits a and b. For operations that save EXEC, or write
    # it and a register, b is EXEC. Effects on lanes are derived from these tables by `exec_rule`, and for known masks
    # by the native mask_operations.cpp.
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
    """Relation of an operation's result to lane masks."""

    kind: str
    """logic, save, write, select, keep, compare, compare_exec, put_lane, get_lane, or other"""
    table: int = 0
    units: int = 1
    """Number of 32-bit registers of an operand."""


@lru_cache(maxsize=1 << 12)
def mask_form(pseudo: str, special: str) -> MaskForm:
    """Return the form of an operation, by LLVM's generic name and `OpcodeEffects.special`."""
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
    """Possible changes of lanes' activity by an operation that writes EXEC.

    The first condition that is true and not None applies.
    """

    otherwise: LaneChange
    if_ones: LaneChange | None = None
    """The first source is all ones."""
    if_first: LaneChange | None = None
    """The first source is EXEC itself."""
    if_second: LaneChange | None = None


def _change(table: int, *, a: int | None = None, is_exec: str = "") -> LaneChange:
    """Return the effect on lanes of an operation with this truth table.

    Args:
        a: the bit of the first operand in every lane, if it is constant.
        is_exec: the operand that is EXEC itself, ``a`` or ``b``; empty if both are unrelated to it.
    """
    change = LaneChange(0)
    for first, second, before in itertools.product((0, 1), repeat=3):
        if a not in (None, first) or {"a": first, "b": second}.get(is_exec, before) != before:
            continue
        after = table >> (2 * first + second) & 1
        if before:
            change |= LaneChange.STAYS_ACTIVE if after else LaneChange.BECOMES_INACTIVE
        else:
            change |= LaneChange.BECOMES_ACTIVE if after else LaneChange.STAYS_INACTIVE
    return change


@lru_cache(maxsize=1 << 12)
def exec_rule(pseudo: str, special: str) -> ExecRule:
    """Return the rule of an operation, by LLVM's generic name and `OpcodeEffects.special`."""
    if pseudo.startswith("V_CMPX_"):  # a DPP compare may leave bits of disabled lanes alone
        return ExecRule(LaneChange.ANY if special else LaneChange.NARROWED)
    form = mask_form(pseudo, special)
    if form.kind in ("save", "write"):
        return ExecRule(_change(form.table, is_exec="b"), if_ones=_change(form.table, a=1, is_exec="b"))
    if form.kind == "logic":
        ones = _change(form.table, a=1)
        return ExecRule(
            LaneChange.ANY,
            if_ones=ones if ones != LaneChange.ANY else None,
            if_first=_change(form.table, is_exec="a"),
            if_second=_change(form.table, is_exec="b"),
        )
    if pseudo.startswith("S_WQM_"):
        return ExecRule(LaneChange.ANY, if_first=LaneChange.WIDENED)
    return ExecRule(LaneChange.ANY)


EMPTY_WAY = {"S_CBRANCH_EXECZ": 1, "S_CBRANCH_EXECNZ": 0}
"""Branch on EXEC -> its edge on which no lane is active: 1 taken, 0 not taken."""
