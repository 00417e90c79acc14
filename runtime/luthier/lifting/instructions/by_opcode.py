"""Numbers that depend on opcodes alone, for whole columns of instructions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

_OPCODES = 1 << 16
"""Numbers of opcodes: LLVM's have 16 bits."""


class ByOpcode:
    """Table of numbers by opcode, each found when an instruction with that opcode is first seen.

    Args:
        number_of: finds the number of an opcode.
        otherwise: number of -1, which stands for bytes that are no instruction.
        kind: NumPy's type for them.
    """

    def __init__(self, number_of: Callable[[int], int], otherwise: int, kind: type[np.generic]) -> None:
        self._number_of = number_of
        self._numbers = np.zeros(_OPCODES + 1, kind)
        self._known = np.zeros(_OPCODES + 1, bool)
        self._numbers[-1], self._known[-1] = otherwise, True

    def of(self, opcodes: NDArray[np.int32]) -> NDArray[Any]:
        """Return the number of each instruction, given their opcodes."""
        for opcode in set(opcodes[~self._known[opcodes]].tolist()):
            self._numbers[opcode], self._known[opcode] = self._number_of(opcode), True
        return self._numbers[opcodes]
