"""Search for the reachable code: from each entry along branches, calls and resolved indirect jumps.

Branches are followed by native code (`runtime/native/lifting/code/explorer.h`).
"""

from __future__ import annotations

import numpy as np

from luthier import _mc
from luthier.errors import LiftError
from luthier.isa import InstructionArray
from luthier.lifting.code.text import Extent, Text, TextRun
from luthier.lifting.instructions.effects import Columns


class Explorer:
    """Marks the reachable instructions.

    Args:
        kernel: its name, for errors.
        known: an explorer of the same text, whose decoded pieces are used.
    """

    def __init__(self, text: Text, kernel: str, known: Explorer | None = None) -> None:
        self.text = text
        self.kernel = kernel
        self.native: _mc.Explorer = _mc.Explorer(text.native, None if known is None else known.native)
        self._pieces: dict[int, TextRun] = {} if known is None else known._pieces
        self._whole: tuple[list[tuple[int, int, int]], InstructionArray, Columns] | None = None
        """Last result of `code`, with its parts."""

    @property
    def leaders(self) -> int:
        """Return the number of addresses at which a block begins."""
        return self.native.leaders

    def counts(self) -> tuple[int, int, int]:
        """Return how many addresses at which a block begins, functions, and link registers of these are known."""
        return self.native.leaders, len(self.functions()), self.native.links

    def functions(self, first: int = 0) -> list[int]:
        """Return the addresses of the called functions from the one with number `first` on, the kernel first."""
        return self.native.functions(first)

    def fail(self, message: str, address: int) -> LiftError:
        """Return an error at an address."""
        return LiftError(
            message, object=self.text.name, kernel=self.kernel, offset=address, target=str(self.text.isa.target)
        )

    def check(self, problem: _mc.Problem | None) -> None:
        """Raise the error that native code reports, if any."""
        if problem is None:
            return
        message, address, function, number = problem
        if not message:
            message = self._refusal(address)
        ends = [self.text.functions[function].name] if function is not None else []
        ends += [hex(number)] if number is not None else []
        raise self.fail(" ".join([message, *ends]), address)

    def _refusal(self, address: int) -> str:
        """Return why the instruction at an address is refused."""
        piece, index = next(
            (piece, index)
            for piece in self._pieces.values()
            for index in np.flatnonzero(piece.code.addresses == address)
        )
        pseudo = self.text.isa.opcode(int(piece.code.opcode[index])).pseudo
        return f"{pseudo.lower()}: {self.text.isa.target.target.refused_control[pseudo]}"

    def extent(self, address: int) -> Extent | None:
        """Return the function symbol with a known size that contains an address."""
        start = self.text.native.function(address)
        return None if start is None else self.text.functions[start]

    def add_functions(self, entries: list[int]) -> None:
        """Explore functions.

        Raises:
            LiftError: as `reach`.
        """
        self.check(self.native.add_functions(entries, self.decode))

    def reach(self, address: int, origin: int) -> None:
        """Explore everything that control reaches from an address.

        Raises:
            LiftError: control reaches bytes that are not code, or operations that cannot be followed.
        """
        self.check(self.native.reach(address, origin, self.decode))

    def decode(self, start: int, end: int | None) -> _mc.Piece:
        """Decode one of the text's pieces, or the code between two addresses."""
        piece = self._pieces[start] = self.text.piece(start) if end is None else self.text.decode(start, end)
        return piece.native

    @property
    def marks(self) -> int:
        """Return the `Mark`s of all opcodes in the text that contains the reachable code together."""
        return self.native.marks

    def sizes(self) -> dict[int, int]:
        """Return the first address of each run of text that contains reachable code -> number of instructions."""
        return {start: count for start, count, _ in self.native.parts()}

    def code(self) -> tuple[InstructionArray, Columns]:
        """Return the text that contains the reachable code, as instructions and as lists."""
        parts = self.native.parts()
        if self._whole is None or self._whole[0] != parts:
            start, count, end = parts[0]
            first = self._pieces[start]
            if len(parts) == 1 and (count, end) == (len(first), first.native.end):
                self._whole = parts, first.code, first.columns
            else:
                image = self.text.image([(start, end) for start, _, end in parts])
                code = InstructionArray(start, image, *self.native.columns())
                self._whole = parts, code, Columns(code)
        return self._whole[1:]

    def cut(self) -> _mc.Blocks:
        """Return the blocks of the reachable code.

        Raises:
            LiftError: two reachable instructions overlap.
        """
        blocks, problem = self.native.cut(self.decode)
        self.check(problem)
        return blocks
