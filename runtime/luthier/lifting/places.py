"""Source locations of instructions as text: the user's ``file:line``, or the function and an offset."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from luthier.objects import CodeObject
from luthier.objects.source import SourceFrame
from luthier.objects.user_source import line_text, lines_text


class Places:
    """Source locations of the instructions of one kernel; debug information is read on first use.

    Args:
        object: the code object.
        addresses: [n] virtual address of each instruction, by index.
        function_of: for each block the name and the entry of its function.
        block_of: [n] block of each instruction, -1 if unreachable.
    """

    def __init__(
        self,
        object: CodeObject,
        addresses: NDArray[np.int64] | NDArray[np.uint64],
        function_of: Sequence[tuple[str, int]],
        block_of: Sequence[int] | NDArray[np.int32],
    ) -> None:
        self._object = object
        self._addresses = addresses
        self._function_of = function_of
        self._block_of = block_of

    @cached_property
    def _numbers(self) -> list[int]:
        numbers: list[int] = self._object.source.numbers(self._addresses).tolist()
        return numbers

    @cached_property
    def _frames(self) -> dict[int, SourceFrame]:
        locations = self._object.source.locations
        return {number: locations[number].user for number in set(self._numbers) - {-1}}

    def frame(self, index: int) -> SourceFrame | None:
        """Return the user's frame of an instruction (`SourceLocation.user`); None if its source is not known."""
        return self._frames.get(self._numbers[index])

    def at(self, index: int) -> str:
        """Return ``file:line`` of an instruction, or ``function+0x…``."""
        frame = self.frame(index)
        return self.offset(index) if frame is None else line_text(frame.file, frame.line)

    def offset(self, index: int) -> str:
        """Return ``function+0x…`` of an instruction; its address if it is unreachable."""
        address, block = int(self._addresses[index]), int(self._block_of[index])
        if block < 0:
            return hex(address)
        name, entry = self._function_of[block]
        return f"{name}+{address - entry:#x}" if address >= entry else f"{name}-{entry - address:#x}"

    def of(self, indices: Sequence[int]) -> str:
        """Return ``file:first-last`` of several instructions, or ``function+0x…`` of the first."""
        frames = filter(None, map(self.frame, indices))
        return lines_text([(frame.file, frame.line) for frame in frames]) or self.offset(indices[0])

    def of_block(self, block: int) -> str:
        """Return ``file:first-last`` of a block, or ``function+0x…`` of its first instruction."""
        first, last = self._blocks[block]
        return self.of(range(first, last + 1))

    @cached_property
    def _blocks(self) -> dict[int, tuple[int, int]]:
        """Return the first and the last instruction of each block."""
        block_of = np.asarray(self._block_of, np.int32)
        reached = np.flatnonzero(block_of >= 0)
        numbers, first, sizes = np.unique(block_of[reached], return_index=True, return_counts=True)
        begins = reached[first]
        return {
            number: (begin, begin + size - 1)
            for number, begin, size in zip(numbers.tolist(), begins.tolist(), sizes.tolist(), strict=True)
        }
