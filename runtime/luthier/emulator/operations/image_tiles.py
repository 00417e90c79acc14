"""Tiles of images of two dimensions and one level on GFX12: which bits of the coordinates make which of an address.

Source: AMD's rocjitsu (vm/amdgpu/image_address.h, gfx12_image_offset and gfx12_image_address), which has it of
AddrLib's gfx12SwizzlePattern.h: blocks of 256 bytes, 4, 64 and 256 KiB (SW_MODE 1 to 4) lie one behind the other, row
by row, as many in a row as the width needs. Low bits of the base are exclusive-ored to those of the place in a block.
"""

from __future__ import annotations

import functools
import operator

from luthier.emulator.ir.values import Value
from luthier.emulator.ir.wave import WaveBuilder

PATTERNS = (
    "x0 x1 y0 x2 y1 y2 x3 y3 y4 x4 y5 x5 y6 x6 y7 x7 y8 x8",
    "b x0 y0 x1 y1 x2 y2 x3 y3 x4 y4 x5 y5 x6 y6 x7 y7 x8",
    "b b x0 y0 x1 y1 x2 y2 y3 x3 y4 x4 y5 x5 y6 x6 y7 x7",
    "b b b x0 y0 x1 x2 y1 y2 x3 y3 x4 y4 x5 y5 x6 y6 x7",
    "b b b b x0 y0 x1 y1 y2 x2 y3 x3 y4 x4 y5 x5 y6 x6",
)
"""By the logarithm of an element's bytes: of each address bit, from the lowest on, the bit of a coordinate; ``b`` is
one of a byte in the element."""
MODES = 4
_BITS = 18


def block_bits(w: WaveBuilder, mode: Value) -> Value:
    """Return how many bits the place in a block has."""
    return w.select(mode == MODES, w.number(_BITS), (mode << 2) + 4)


def _chosen(w: WaveBuilder, size: Value, values: list[int]) -> Value:
    """Return the number that goes with an element's bytes, a scalar."""
    found = w.number(values[0])
    for exponent in range(1, len(PATTERNS)):
        found = w.select(size == 1 << exponent, w.number(values[exponent]), found)
    return found


def tiled_place(w: WaveBuilder, base: Value, x: Value, y: Value, width: Value, size: Value, mode: Value) -> Value:
    """Return the addresses of elements, given the descriptor's base, scalars but for the coordinates."""
    rows = [pattern.split() for pattern in PATTERNS]
    total = block_bits(w, mode)
    across, down = w.number(0), w.number(0)
    bits = []
    for bit in range(_BITS):
        kinds = [row[bit] for row in rows]
        inside = w.number(bit) < total
        is_x = (_chosen(w, size, [kind[0] == "x" for kind in kinds]) != 0) & inside
        is_y = (_chosen(w, size, [kind[0] == "y" for kind in kinds]) != 0) & inside
        number = _chosen(w, size, [int(kind[1:] or 0) for kind in kinds])
        across, down = across + is_x.to("u32"), down + is_y.to("u32")
        one = w.select(is_x, x >> w.splat(number), w.select(is_y, y >> w.splat(number), 0)) & 1
        bits.append(one << bit)
    offset = functools.reduce(operator.or_, bits)
    pitch = (width + (w.number(1) << across) - 1) >> across
    block = (y >> w.splat(down)).to("u64") * w.splat(pitch.to("u64")) + (x >> w.splat(across)).to("u64")
    mask = (w.number(1, "u64") << total.to("u64")) - 1
    start = w.splat(base & ~mask) + (block << w.splat(total.to("u64")))
    return start + (offset.to("u64") ^ w.splat(base & mask))
