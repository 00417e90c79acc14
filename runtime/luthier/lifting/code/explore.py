"""Search for the reachable code: from each entry along branches, calls and resolved indirect jumps.

Branches are followed by native code (`runtime/native/lifting/code/explorer.h`).
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from luthier import _mc
from luthier.errors import LiftError
from luthier.isa import InstructionArray
from luthier.lifting.code.text import Extent, Text, TextRun
from luthier.lifting.instructions.effects import Columns, register_lists

_Problem = tuple[str, int, int | None, int | None]


class Resolution(Struct, gc=False):
    """Targets of an indirect jump or call."""

    is_return: bool = False
    targets: tuple[int, ...] = ()
    """Addresses, all of them if `reason` is empty."""
    reason: str = ""
    """Reason why targets are unknown, or empty."""
    references: tuple[int, ...] = ()
    """Addresses of the s_getpc_b64 that flow into the target address."""
    slots: tuple[int, ...] = ()
    """Addresses of the memory words from which the target address may be loaded."""
    direct: bool = False
    """The address cannot be retargeted, so the instruction must become a direct jump or call."""


class Explorer:
    """Marks the reachable instructions.

    Attributes:
        entries: address of a called function, the kernel first -> first units of the link registers of its callers.
    """

    def __init__(self, text: Text, kernel: str) -> None:
        self.text = text
        self.kernel = kernel
        self.entries: dict[int, set[int]] = {}
        self._native = _mc.Explorer(text.native)
        self._first_unit = register_lists(text.isa)[0]
        self._pieces: dict[int, TextRun] = {}
        self._whole: tuple[list[tuple[int, int, int]], InstructionArray, Columns] | None = None
        """Last result of `code`, with its parts."""

    @property
    def leaders(self) -> int:
        """Return the number of addresses at which a block begins."""
        return self._native.leaders

    def fail(self, message: str, address: int) -> LiftError:
        """Return an error at an address."""
        return LiftError(
            message, object=self.text.name, kernel=self.kernel, offset=address, target=str(self.text.isa.target)
        )

    def _check(self, problem: _Problem | None) -> None:
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

    def add_function(self, entry: int, link: int | None, caller: int) -> bool:
        """Explore a function, and return whether it or its link register is new."""
        if entry % 4:
            raise self.fail(f"call to the misaligned address {entry:#x}", caller)
        links = self.entries.get(entry)
        new = links is None or (link is not None and link not in links)
        if links is None:
            links = self.entries[entry] = set()
            self.reach(entry, caller)
        if link is not None:
            links.add(link)
        return new

    def reach(self, address: int, origin: int) -> None:
        """Explore everything that control reaches from an address.

        Raises:
            LiftError: control reaches bytes that are not code, or operations that cannot be followed.
        """
        calls, problem = self._native.reach(address, origin, self._decode)
        for target, start, index in calls:
            link = self.link_of(self._pieces[start].native.first_register(index))
            self.entries.setdefault(target, set()).update([link] if link is not None else [])
        self._check(problem)

    def _decode(self, start: int, end: int | None) -> _mc.Piece:
        """Decode one of the text's pieces, or the code between two addresses."""
        piece = self._pieces[start] = self.text.piece(start) if end is None else self.text.decode(start, end)
        return piece.native

    def link_of(self, register: int) -> int | None:
        """Return the first unit of the registers that receive the return address of a call, by LLVM's number."""
        first = self._first_unit[register]
        return first if first >= 0 else None

    @property
    def marks(self) -> int:
        """Return the `Mark`s of all opcodes in the text that contains the reachable code together."""
        return self._native.marks

    def sizes(self) -> dict[int, int]:
        """Return the first address of each run of text that contains reachable code -> number of instructions."""
        return {start: count for start, count, _ in self._native.parts()}

    def code(self) -> tuple[InstructionArray, Columns]:
        """Return the text that contains the reachable code, as instructions and as lists."""
        parts = self._native.parts()
        if self._whole is None or self._whole[0] != parts:
            start, count, end = parts[0]
            first = self._pieces[start]
            if len(parts) == 1 and (count, end) == (len(first), first.native.end):
                self._whole = parts, first.code, first.columns
            else:
                image = self.text.image([(start, end) for start, _, end in parts])
                code = InstructionArray(start, image, *self._native.columns())
                self._whole = parts, code, Columns(code)
        return self._whole[1:]

    def cut(self) -> _mc.Blocks:
        """Return the blocks of the reachable code.

        Raises:
            LiftError: two reachable instructions overlap.
        """
        blocks, problem = self._native.cut(self._decode)
        self._check(problem)
        return blocks
