"""Addresses of elements of images in tiles, of one level.

Blocks of 256 bytes to 256 KiB lie one behind the other, row by row and plane by plane, as many as the extents need. The
tables of `image_tile_tables` say what lies where in a block; bits of the coordinates beyond the block take part. Low
bits of the base are exclusive-ored to those of the place in a block.
"""

from __future__ import annotations

import functools
import itertools
import operator
import re
from collections.abc import Iterator, Sequence

from msgspec import Struct

from luthier.emulator.ir.values import TypedValue
from luthier.emulator.ir.wave import WaveBuilder
from luthier.emulator.operations.image_tile_tables import TABLES

MODES = 32
"""SW_MODE has five bits."""
SIZES = 5
"""Elements have 1, 2, 4, 8 or 16 bytes."""
BITS = (11, 11, 8)
"""Bits of each coordinate that may take part in the place in a block."""
_AXES = "xyz"
_UP_TO_8_BYTES = ("gfx11", (24, 28))
"""Modes of a generation that larger elements do not have (AddrLib, Gfx11Lib)."""


class Equation(Struct, frozen=True):
    """The places of elements in a block."""

    block: tuple[int, ...]
    """Logarithms of its width, height and depth."""
    bits: tuple[frozenset[tuple[int, int]], ...]
    """For each address bit from the lowest on, axes and bits of the coordinates that are exclusive-ored."""

    @classmethod
    def parse(cls, line: str) -> Equation:
        """Return what a line of the tables says."""
        block, *bits = line.split()
        sources = [re.findall(r"([xyz])(\d+)", bit) for bit in bits]
        return cls(
            tuple(map(int, block)),
            tuple(frozenset((_AXES.index(axis), int(bit)) for axis, bit in one) for one in sources),
        )

    def words(self) -> list[int]:
        """Return the equation as compiled code reads it: address bits that coordinates' bits turn, then the extents."""
        sources = [(axis, bit) for axis, count in enumerate(BITS) for bit in range(count)]
        turned = [sum(1 << place for place, bit in enumerate(self.bits) if source in bit) for source in sources]
        return [*turned, *self.block, len(self.bits)]


_WORDS = sum(BITS) + len(_AXES) + 1


@functools.cache
def equations(processor: str) -> dict[tuple[int, int], Equation]:
    """Return equations by mode and by the logarithm of an element's bytes: none for a processor that is in no table."""
    return dict(_parsed(processor))


def _parsed(processor: str) -> Iterator[tuple[tuple[int, int], Equation]]:
    generation, without = _UP_TO_8_BYTES
    limited = without if processor.startswith(generation) else ()
    modes: list[int] = []
    lines = filter(None, TABLES.split("\n"))
    for line in lines:
        if "gfx" in line:
            mode, *processors = line.split()
            modes += [int(mode)] if processor in processors else []
            continue
        for size, row in enumerate((line, *itertools.islice(lines, SIZES - 1))):
            equation = Equation.parse(row)
            for number in modes:
                if not (number in limited and size == SIZES - 1):
                    yield (number, size), equation
        modes = []


def _rows(processor: str) -> list[Equation]:
    """Return the different equations of a processor."""
    return list(dict.fromkeys(equations(processor).values()))


class Tiles(Struct, frozen=True):
    """The tiles of an image: what its descriptor says, scalars."""

    w: WaveBuilder
    known: TypedValue
    """Whether there is an equation, or the image is in rows."""
    _row: TypedValue

    @classmethod
    def of(cls, w: WaveBuilder, mode: TypedValue, is_volume: TypedValue, size: TypedValue) -> Tiles:
        """Look the equation of an image up, given SW_MODE and the bytes of an element."""
        found = equations(w.processor)
        rows = _rows(w.processor)
        places = [0] * (MODES * SIZES)
        for (number, logarithm), equation in found.items():
            places[number * SIZES + logarithm] = 1 + rows.index(equation)
        exponent = w.number(0)
        for bit in range(1, SIZES):
            exponent = exponent + (size >= 1 << bit).to("u32")
        index = w.constant_word(w.constant_table(f"image_tiles.{w.processor}", places), mode * SIZES + exponent)
        with_depth = functools.reduce(operator.or_, (1 << mode for (mode, _), one in found.items() if one.block[2]), 0)
        fits = is_volume | ((w.number(with_depth) >> mode & 1) == 0)
        whole = size == w.number(1) << exponent
        known = (mode == 0) | (whole & fits & (index != 0))
        return cls(w, known, w.select(index == 0, w.number(0), index - 1))

    def _word(self, place: int) -> TypedValue:
        words = [word for row in _rows(self.w.processor) for word in row.words()] or [0] * _WORDS
        table = self.w.constant_table(f"image_equations.{self.w.processor}", words)
        return self.w.constant_word(table, self._row * _WORDS + place)

    def along(self, axis: int, coordinate: TypedValue, extents: Sequence[TypedValue]) -> tuple[TypedValue, TypedValue]:
        """Return what one coordinate adds: to the place in a block, of u32, and to the block's number, of u64.

        Args:
            axis: the coordinate's.
            coordinate: of u32.
            extents: of the image along all axes, scalars.
        """
        w = self.w
        offset, first = w.const("u32", 0), sum(BITS[:axis])
        for bit in range(BITS[axis]):
            turned = w.splat(self._word(first + bit))
            offset = offset ^ w.select((coordinate & 1 << bit) != 0, turned, 0)
        step = w.number(1, "u64")
        for before in range(axis):
            logarithm = self._logarithm(before)
            step = step * ((extents[before] + (w.number(1) << logarithm) - 1) >> logarithm).to("u64")
        return offset, (coordinate >> w.splat(self._logarithm(axis))).to("u64") * w.splat(step)

    def pitch(self, width: TypedValue) -> TypedValue:
        """Return the elements from one row to the next, a scalar: whole blocks."""
        logarithm = self._logarithm(0)
        return ((width + (self.w.number(1) << logarithm) - 1) >> logarithm) << logarithm

    def _logarithm(self, axis: int) -> TypedValue:
        return self._word(sum(BITS) + axis)

    def address(self, base: TypedValue, offset: TypedValue, block: TypedValue) -> TypedValue:
        """Return the addresses of elements, of u64.

        Args:
            base: the descriptor's, a scalar of u64.
            offset: what `along` says of each axis, exclusive-ored.
            block: likewise, added.
        """
        w = self.w
        total = self._word(sum(BITS) + len(_AXES)).to("u64")
        mask = (w.number(1, "u64") << total) - 1
        return w.splat(base & ~mask) + (block << w.splat(total)) + (offset.to("u64") ^ w.splat(base & mask))
