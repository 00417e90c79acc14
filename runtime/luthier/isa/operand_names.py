"""Names of operand positions.

LLVM exports ``getNamedOperandIdx(opcode, name)`` but not the enumeration of names, whose order changes from release to
release. It is found here: each anchor (`Generation.operand_anchors`) is an opcode whose operands are known, and a
name's number is the only one that has the right position in every anchor. An anchor that contradicts another, or an
LLVM without it, leaves its names unknown, which `tests/isa/test_opcodes.py` would notice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

NAMES = 138
"""Names in LLVM 22's enumeration; the exported function must not be asked beyond."""


def calibrate(
    anchors: Mapping[str, str], opcodes: Mapping[str, int], positions_of: Callable[[int, int], list[int]]
) -> dict[str, int]:
    """Operand name -> number in LLVM's enumeration.

    Args:
        anchors: opcode name -> its operands in order; "." is a position that is left open.
        opcodes: opcode name -> number.
        positions_of: LLVM's function for a number of names: the operand position each has in an opcode, -1 where it has
        none.
    """
    candidates: dict[str, set[int]] = {}
    for opcode_name, text in anchors.items():
        opcode = opcodes.get(opcode_name)
        if opcode is None:
            continue
        numbers: dict[int, set[int]] = {}
        for number, position in enumerate(positions_of(opcode, NAMES)):
            if position >= 0:
                numbers.setdefault(position, set()).add(number)
        for position, name in enumerate(text.split()):
            here = numbers.get(position, set())
            if name != ".":
                candidates[name] = candidates.get(name, here) & here
    return {name: next(iter(left)) for name, left in candidates.items() if len(left) == 1}
