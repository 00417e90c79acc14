"""Decoded code of a code object, cached between lifts of its kernels.

Text is decoded in pieces that begin at each address known to be code: function symbols and kernel entries. Data between
functions then does no harm, and lifting one kernel of many decodes only the code that it reaches.
"""

from __future__ import annotations

import bisect
import weakref
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from luthier import _mc
from luthier.cache.memory import BoundedCache
from luthier.errors import LiftError, ObjectError
from luthier.isa import InstructionArray, InstructionFlag, Isa
from luthier.lifting.instructions.by_opcode import ByOpcode
from luthier.lifting.instructions.effects import Columns
from luthier.lifting.instructions.semantics import Control, control_of
from luthier.objects import CodeObject

MOST_KEPT = 1 << 16
"""Maximum number of cached instructions over all objects; the next kernel may call the same functions."""
_END = 1 << 63
"""Addresses from here on are not code: hardware has 57 bits."""
_KNOWN_LENGTH = int(InstructionFlag.KNOWN_LENGTH)
UNDECODABLE = -1
"""In place of a `Control`: the bytes are not an instruction."""


class TextRun:
    """A run of text decoded from its first byte.

    Attributes:
        code: the instructions.
        columns: the same as lists.
        native: the same with their controls, for the explorer.
    """

    def __init__(self, isa: Isa, data: bytes, address: int) -> None:
        self.start = address
        self.code = isa.decode(data, address)
        control = _controls(isa).of(self.code.opcode)
        undecodable = self.code.opcode < 0
        if np.count_nonzero(undecodable):
            control[undecodable & (self.code.flags & _KNOWN_LENGTH != 0)] = int(Control.NEXT)
        self.columns = Columns(self.code)
        self.native = _mc.Piece(
            address, address + len(data), self.code.offset, self.code.size, self.code.target, control
        )


@lru_cache(maxsize=64)
def _controls(isa: Isa) -> ByOpcode:
    """Return the `Control` of each opcode."""
    return ByOpcode(lambda number: control_of(isa.opcode(number).pseudo, isa.target.target), UNDECODABLE, np.int8)


class Extent(NamedTuple):
    """The extent of a function symbol; `end` equals `start` if its size is unknown."""

    name: str
    start: int
    end: int


class Text:
    """The executable sections of one object, for one processor and wave size."""

    def __init__(self, object: CodeObject, isa: Isa) -> None:
        self.isa = isa
        self.name = object.name
        self.ranges = [
            (address, address + size) for address, size in object.text_ranges if size > 0 and address + size <= _END
        ]
        self._object = weakref.ref(object)  # `_texts` refers from the object to this
        self.functions: dict[int, Extent] = {}
        for symbol in object.symbols:
            around = self.range_of(symbol.address) if symbol.type == "func" else None
            if around is not None:
                known, end = self.functions.get(symbol.address), min(symbol.address + symbol.size, around[1])
                if known is None or known.end < end:
                    self.functions[symbol.address] = Extent(symbol.name, symbol.address, end)
        for kernel in object.kernels.values():
            self.functions.setdefault(kernel.entry, Extent(kernel.name, kernel.entry, kernel.entry))
        self.starts = sorted({*self.functions, *(first for first, _ in self.ranges)})
        extents = [(extent.start, extent.end) for _, extent in sorted(self.functions.items())]
        self.native = _mc.TextMap(self.ranges, extents, self.starts)
        """The same for the explorer."""
        self.relocations = {relocation.offset: relocation for relocation in object.relocations}
        """By the address that they change."""
        self.filled = sorted(address for address in self.relocations if self.range_of(address) is not None)
        """Addresses in the code that the loader writes to."""
        self._pieces: dict[int, TextRun] = {}

    def range_of(self, address: int) -> tuple[int, int] | None:
        """Return the start and end of the executable section that contains an address, if any."""
        at = bisect.bisect_right(self.ranges, address, key=lambda section: section[0])
        return self.ranges[at - 1] if at and address < self.ranges[at - 1][1] else None

    def bytes_between(self, first: int, end: int) -> bytes:
        """Return the bytes of one section from `first` up to `end`.

        Raises:
            LiftError: they are not in one executable section and in a segment.
        """
        section = self.range_of(first)
        if section is None or end > section[1]:
            raise LiftError("not in executable code", object=self.name, offset=first)
        object = self._object()
        assert object is not None, "lifting holds the object"
        try:
            return object.read(first, end - first)
        except ObjectError:
            raise LiftError("executable code that no segment holds", object=self.name, offset=first) from None

    def piece(self, start: int) -> TextRun:
        """Return the piece from `start`, a member of `starts`, to the next member or the end of the section."""
        known = self._pieces.get(start)
        if known is None:
            following = bisect.bisect_right(self.starts, start)
            section = self.range_of(start)
            if section is None:
                raise LiftError("control leaves the executable code", object=self.name, offset=start)
            known = self._pieces[start] = self.decode(start, min([section[1], *self.starts[following : following + 1]]))
        if _kept.use(known) is None:
            _kept.put(known, weakref.ref(self))
        return known

    def drop(self, start: int) -> None:
        """Drop the cached piece that begins at `start`."""
        self._pieces.pop(start, None)

    def decode(self, start: int, end: int) -> TextRun:
        """Decode from `start` up to `end`."""
        return TextRun(self.isa, self.bytes_between(start, end), start)


def _drop(piece: TextRun, owner: weakref.ref[Text]) -> None:
    if (text := owner()) is not None:
        text.drop(piece.start)


_kept: BoundedCache[TextRun, weakref.ref[Text]] = BoundedCache(MOST_KEPT, lambda piece, _: len(piece.code), _drop)
"""The cached pieces of all texts."""

_texts: weakref.WeakKeyDictionary[CodeObject, dict[Isa, Text]] = weakref.WeakKeyDictionary()


def text_of(object: CodeObject, isa: Isa) -> Text:
    """Return the text of an object, created once."""
    by_isa = _texts.setdefault(object, {})
    text = by_isa.get(isa)
    if text is None:
        text = by_isa[isa] = Text(object, isa)
    return text


def concatenate(text: Text, pieces: list[InstructionArray]) -> InstructionArray:
    """Concatenate arrays that are in ascending order and do not overlap."""
    if len(pieces) == 1:
        return pieces[0]
    address = pieces[0].address
    end = pieces[-1].address + len(pieces[-1].code)
    section = text.range_of(address)
    if section is not None and end <= section[1]:
        code = text.bytes_between(address, end)
    else:  # several sections: the bytes between them belong to no instruction
        image = bytearray(end - address)
        for piece in pieces:
            image[piece.address - address : piece.address - address + len(piece.code)] = piece.code
        code = bytes(image)
    return joined(pieces, code, address)


def joined(pieces: list[InstructionArray], code: bytes, address: int) -> InstructionArray:
    """Concatenate arrays that are in ascending order in `code`, which begins at `address`."""
    counts = np.cumsum([0, *(len(piece.operand_value) for piece in pieces)])
    starts = [piece.operand_start[:-1] + base for piece, base in zip(pieces, counts[:-1], strict=True)]
    columns = (
        np.concatenate([piece.offset + (piece.address - address) for piece in pieces]),
        np.concatenate([piece.size for piece in pieces]),
        np.concatenate([piece.opcode for piece in pieces]),
        np.concatenate([piece.flags for piece in pieces]),
        np.concatenate([piece.target for piece in pieces]),
        np.concatenate([*starts, counts[-1:]]).astype(np.int32),
        np.concatenate([piece.operand_kind for piece in pieces]),
        np.concatenate([piece.operand_value for piece in pieces]),
    )
    for column in columns:
        column.flags.writeable = False
    return InstructionArray(address, code, *columns)
