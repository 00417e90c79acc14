"""Decoded code of a code object, cached between lifts of its kernels.

Text is decoded in pieces that begin at each address known to be code: function symbols and kernel entries. Data between
functions then does no harm, and lifting one kernel of many decodes only the code that it reaches.
"""

from __future__ import annotations

import bisect
import weakref
from functools import cached_property, lru_cache
from typing import NamedTuple

from luthier import _mc
from luthier.cache.memory import BoundedCache
from luthier.errors import LiftError, ObjectError
from luthier.isa import InstructionArray, Isa
from luthier.lifting.instructions.effects import ANY_VECTOR, Columns, opcode_effects, register_lists
from luthier.lifting.instructions.semantics import Mark, control_of, marks_of
from luthier.objects import CodeObject

MOST_KEPT = 1 << 16
"""Maximum number of cached instructions over all objects; the next kernel may call the same functions."""
_END = 1 << 63
"""Addresses from here on are not code: hardware has 57 bits."""


class TextRun:
    """A run of text decoded from its first byte.

    Attributes:
        native: the instructions with their controls, for the explorer.
    """

    def __init__(self, isa: Isa, data: bytes, address: int) -> None:
        self.start = address
        self.native = isa.piece(data, address, _traits(isa))
        self._data = data

    def __len__(self) -> int:
        return len(self.native)

    @cached_property
    def code(self) -> InstructionArray:
        """Return the instructions."""
        return InstructionArray(self.start, self._data, *self.native.columns())

    @cached_property
    def columns(self) -> Columns:
        """Return the instructions as lists."""
        return Columns(self.code)


@lru_cache(maxsize=64)
def _traits(isa: Isa) -> _mc.OpcodeTraits:
    """Return the `Control` and the `Mark`s of each opcode."""

    def traits_of(number: int) -> tuple[int, int]:
        pseudo = isa.opcode(number).pseudo
        marks = marks_of(pseudo)
        if opcode_effects(isa, number).special in ANY_VECTOR:
            marks |= Mark.ANY_REGISTER
        return int(control_of(pseudo, isa.target.target)), int(marks)

    return _mc.OpcodeTraits(traits_of)


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
        self.ranges = [(address, address + size) for address, size in object.text_ranges if address + size <= _END]
        self._firsts = [first for first, _ in self.ranges]
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
        self.native = _mc.TextMap(self.ranges, extents, self.starts, register_lists(isa)[0])
        """The same for the explorer."""
        self.relocations = {relocation.offset: relocation for relocation in object.relocations}
        """By the address that they change."""
        self.filled = sorted(address for address in self.relocations if self.range_of(address) is not None)
        """Addresses in the code that the loader writes to."""
        self._pieces: dict[int, TextRun] = {}

    def range_of(self, address: int) -> tuple[int, int] | None:
        """Return the start and end of the executable section that contains an address, if any."""
        at = bisect.bisect_right(self._firsts, address)
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

    def image(self, runs: list[tuple[int, int]]) -> bytes:
        """Return the bytes of runs of text, given by first and last address in ascending order, and those between."""
        address, end = runs[0][0], runs[-1][1]
        section = self.range_of(address)
        if section is not None and end <= section[1]:
            return self.bytes_between(address, end)
        image = bytearray(end - address)  # several sections: the bytes between them belong to no instruction
        for first, behind in runs:
            image[first - address : behind - address] = self.bytes_between(first, behind)
        return bytes(image)

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


_kept: BoundedCache[TextRun, weakref.ref[Text]] = BoundedCache(MOST_KEPT, lambda piece, _: len(piece), _drop)
"""The cached pieces of all texts."""

_texts: weakref.WeakKeyDictionary[CodeObject, dict[Isa, Text]] = weakref.WeakKeyDictionary()


def text_of(object: CodeObject, isa: Isa) -> Text:
    """Return the text of an object, created once."""
    by_isa = _texts.setdefault(object, {})
    text = by_isa.get(isa)
    if text is None:
        text = by_isa[isa] = Text(object, isa)
    return text
