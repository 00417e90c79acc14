"""Names of operand positions.

LLVM exports ``getNamedOperandIdx(opcode, name)`` but not the enumeration of names, whose order changes between
releases. This module recovers it: each anchor (`Generation.operand_anchors`) is an opcode with known operands, and a
name's number is the only one with the correct position in every anchor. If anchors contradict each other, or LLVM does
not have one, their names stay unknown, which `tests/isa/test_opcodes.py` would detect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

NAMES = 138
"""Number of names in LLVM 22's enumeration; the exported function must not be called with larger numbers."""


def calibrate(
    anchors: Mapping[str, str], opcodes: Mapping[str, int], positions_of: Callable[[int, int], list[int]]
) -> dict[str, int]:
    """Return operand name -> number in LLVM's enumeration.

    Args:
        anchors: opcode name -> its operands in order; "." stands for any name.
        opcodes: opcode name -> number.
        positions_of: returns the operand position of each of the first names in an opcode, -1 if it has none.
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
            matching = numbers.get(position, set())
            if name != ".":
                candidates[name] = candidates.get(name, matching) & matching
    return {name: next(iter(left)) for name, left in candidates.items() if len(left) == 1}
