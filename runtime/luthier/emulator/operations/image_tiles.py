"""Addresses of elements of images in tiles, with one level.

Blocks of 256 bytes to 256 KiB are consecutive, row by row and plane by plane, as many as the extents need. The tables
in `image_tile_tables` map coordinates to offsets in a block; they also use bits of the coordinates beyond the block.
The low bits of the base are exclusive-ored with the offset in a block.
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
from luthier.emulator.operations.image_tile_tables import LOW_BITS, TABLES

MODES = 32
"""SW_MODE has five bits."""
SIZES = 5
"""Elements have 1, 2, 4, 8 or 16 bytes."""
BITS = (11, 11, 8)
"""Bits of each coordinate that may affect the offset in a block."""
_AXES = "xyz"
_HALVED = ("yxyx", "xzyx")
"""Extents of a block, of a plane and of a volume, that are halved for elements of 2, 4, 8 and 16 bytes."""
_UP_TO_8_BYTES = ("gfx11", (24, 28))
"""Modes of a generation that are not for larger elements (AddrLib, Gfx11Lib)."""


class Equation(Struct, frozen=True):
    """Offsets of elements in a block."""

    block: tuple[int, ...]
    """Logarithms of the block's width, height and depth."""
    bits: tuple[frozenset[tuple[int, int]], ...]
    """For each address bit, lowest first: axes and bits of the coordinates to exclusive-or."""

    @classmethod
    def parse(cls, line: str) -> Equation:
        """Return the equation in a line of the tables."""
        block, *bits = line.split()
        sources = [re.findall(r"([xyz])(\d+)", bit) for bit in bits]
        return cls(
            tuple(map(int, block)),
            tuple(frozenset((_AXES.index(axis), int(bit)) for axis, bit in one) for one in sources),
        )

    def of_larger(self, low_bits: Sequence[str]) -> Iterator[Equation]:
        """Yield the equations for elements of 1, 2, 4, 8 and 16 bytes, given that for 1 byte without its lowest bits.

        Args:
            low_bits: the lowest address bits of each, as in the tables.
        """
        less = [0, 0, 0]
        for low, halved in zip(low_bits, ("", *_HALVED[self.block[2] > 0]), strict=True):
            if halved:
                less[_AXES.index(halved)] += 1
            block = tuple(extent - by for extent, by in zip(self.block, less, strict=True))
            higher = tuple(frozenset((axis, bit - less[axis]) for axis, bit in bits) for bits in self.bits)
            yield Equation(block, Equation.parse(f"000 {low}").bits + higher)

    def words(self) -> list[int]:
        """Return the equation for compiled code: the address bits that each coordinate bit flips, then the extents."""
        sources = [(axis, bit) for axis, count in enumerate(BITS) for bit in range(count)]
        turned = [sum(1 << place for place, bit in enumerate(self.bits) if source in bit) for source in sources]
        return [*turned, *self.block, len(self.bits)]


_WORDS = sum(BITS) + len(_AXES) + 1


@functools.cache
def equations(processor: str) -> dict[tuple[int, int], Equation]:
    """Return equations by mode and logarithm of an element's bytes; none for a processor without tables."""
    return dict(_parsed(processor))


def _parsed(processor: str) -> Iterator[tuple[tuple[int, int], Equation]]:
    generation, without = _UP_TO_8_BYTES
    limited = without if processor.startswith(generation) else ()
    low_bits = {
        letter: rows.split("\n")[:SIZES]
        for letter, rows in re.findall(r"^([A-Z]) ((?:.+\n){5})", LOW_BITS, re.MULTILINE)
    }
    modes: list[int] = []
    lines = filter(None, TABLES.split("\n"))
    for line in lines:
        if "gfx" in line:
            mode, *processors = line.split()
            modes += [int(mode)] if processor in processors else []
            continue
        letter, _, row = line.partition(" ")
        if letter in low_bits:
            rows = list(Equation.parse(row).of_larger(low_bits[letter]))
        else:
            rows = [Equation.parse(row) for row in (line, *itertools.islice(lines, SIZES - 1))]
        for size, equation in enumerate(rows):
            for number in modes:
                if not (number in limited and size == SIZES - 1):
                    yield (number, size), equation
        modes = []


def _rows(processor: str) -> list[Equation]:
    """Return the different equations of a processor."""
    return list(dict.fromkeys(equations(processor).values()))


class Tiles(Struct, frozen=True):
    """Tiles of an image, in scalars from its descriptor."""

    w: WaveBuilder
    known: TypedValue
    """Whether there is an equation, or the image is in rows."""
    _row: TypedValue

    @classmethod
    def of(cls, w: WaveBuilder, mode: TypedValue, is_volume: TypedValue, size: TypedValue) -> Tiles:
        """Look up the equation of an image, given SW_MODE and the bytes of an element."""
        table = equations(w.processor)
        rows = _rows(w.processor)
        places = [0] * (MODES * SIZES)
        for (number, logarithm), equation in table.items():
            places[number * SIZES + logarithm] = 1 + rows.index(equation)
        exponent = w.number(0)
        for bit in range(1, SIZES):
            exponent = exponent + (size >= 1 << bit).to("u32")
        index = w.constant_word(w.constant_table(f"image_tiles.{w.processor}", places), mode * SIZES + exponent)
        with_depth = functools.reduce(operator.or_, (1 << mode for (mode, _), one in table.items() if one.block[2]), 0)
        fits = is_volume | ((w.number(with_depth) >> mode & 1) == 0)
        whole = size == w.number(1) << exponent
        known = (mode == 0) | (whole & fits & (index != 0))
        return cls(w, known, w.select(index == 0, w.number(0), index - 1))

    def _word(self, place: int) -> TypedValue:
        words = [word for row in _rows(self.w.processor) for word in row.words()] or [0] * _WORDS
        table = self.w.constant_table(f"image_equations.{self.w.processor}", words)
        return self.w.constant_word(table, self._row * _WORDS + place)

    def along(self, axis: int, coordinate: TypedValue, extents: Sequence[TypedValue]) -> tuple[TypedValue, TypedValue]:
        """Return a coordinate's part of the offset in a block, a u32, and of the block's number, a u64.

        Args:
            axis: the coordinate's axis.
            coordinate: a u32.
            extents: the image's extents along all axes, scalars.
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
        """Return the elements from one row to the next, a scalar: a multiple of a block's width."""
        logarithm = self._logarithm(0)
        return ((width + (self.w.number(1) << logarithm) - 1) >> logarithm) << logarithm

    def _logarithm(self, axis: int) -> TypedValue:
        return self._word(sum(BITS) + axis)

    def address(self, base: TypedValue, offset: TypedValue, block: TypedValue) -> TypedValue:
        """Return the addresses of elements, u64.

        Args:
            base: the descriptor's base, a scalar u64.
            offset: exclusive-or of the offsets from `along` for all axes.
            block: sum of the block numbers from `along` for all axes.
        """
        w = self.w
        total = self._word(sum(BITS) + len(_AXES)).to("u64")
        mask = (w.number(1, "u64") << total) - 1
        return w.splat(base & ~mask) + (block << w.splat(total)) + (offset.to("u64") ^ w.splat(base & mask))
