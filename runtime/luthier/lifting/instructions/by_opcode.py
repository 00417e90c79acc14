"""Tables of numbers by opcode, for whole columns of instructions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

_OPCODES = 1 << 16
"""Number of opcodes: LLVM's opcode numbers have 16 bits."""


class ByOpcode:
    """Table of numbers by opcode, each computed when the opcode first occurs.

    Args:
        number_of: returns the number of an opcode.
        otherwise: number of the opcode -1, which stands for undecodable words.
        kind: NumPy type of the numbers.
    """

    def __init__(self, number_of: Callable[[int], int], otherwise: int, kind: type[np.generic]) -> None:
        self._number_of = number_of
        self._numbers = np.zeros(_OPCODES + 1, kind)
        self._known = np.zeros(_OPCODES + 1, bool)
        self._numbers[-1], self._known[-1] = otherwise, True

    def of(self, opcodes: NDArray[np.int32]) -> NDArray[Any]:
        """Return the number of each instruction, given their opcodes."""
        known = self._known[opcodes]
        if np.count_nonzero(known) < len(known):  # a tenth of the time of `all` for a short array
            for opcode in set(opcodes[~known].tolist()):
                self._numbers[opcode], self._known[opcode] = self._number_of(opcode), True
        return self._numbers[opcodes]

    def indices(self, opcodes: NDArray[np.int32]) -> list[int]:
        """Return the indices of the instructions whose number is not zero, given their opcodes."""
        indices: list[int] = self.of(opcodes).nonzero()[0].tolist()
        return indices
