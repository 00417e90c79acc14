"""Images for tests: descriptors as ROCr packs them, formats as data, and what elements are in Python's numbers."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from luthier.emulator.inspection.bench import WaveState, run_assembly
from luthier.emulator.operations.image_tiles import Equation, equations
from luthier.emulator.running.memory import AllocationTable, DeviceAllocation
from numpy.typing import NDArray

TARGETS = ("gfx906", "gfx1010", "gfx1030", "gfx1100", "gfx1201")
LANES = 32

FORMATS = {
    # name: number on gfx1030 and on later processors (ROCr, CFMT_… of resource_nv.h and resource_gfx11.h), bits, kind
    "8_UNORM": (1, 1, 8, 1, "UNORM"),
    "8_SNORM": (2, 2, 8, 1, "SNORM"),
    "8_UINT": (5, 5, 8, 1, "UINT"),
    "8_SINT": (6, 6, 8, 1, "SINT"),
    "16_UNORM": (7, 7, 16, 1, "UNORM"),
    "16_SNORM": (8, 8, 16, 1, "SNORM"),
    "16_UINT": (11, 11, 16, 1, "UINT"),
    "16_SINT": (12, 12, 16, 1, "SINT"),
    "16_FLOAT": (13, 13, 16, 1, "FLOAT"),
    "8_8_UNORM": (14, 14, 8, 2, "UNORM"),
    "8_8_SNORM": (15, 15, 8, 2, "SNORM"),
    "8_8_UINT": (18, 18, 8, 2, "UINT"),
    "8_8_SINT": (19, 19, 8, 2, "SINT"),
    "32_UINT": (20, 20, 32, 1, "UINT"),
    "32_SINT": (21, 21, 32, 1, "SINT"),
    "32_FLOAT": (22, 22, 32, 1, "FLOAT"),
    "16_16_UNORM": (23, 23, 16, 2, "UNORM"),
    "16_16_SNORM": (24, 24, 16, 2, "SNORM"),
    "16_16_UINT": (27, 27, 16, 2, "UINT"),
    "16_16_SINT": (28, 28, 16, 2, "SINT"),
    "16_16_FLOAT": (29, 29, 16, 2, "FLOAT"),
    "8_8_8_8_UNORM": (56, 42, 8, 4, "UNORM"),
    "8_8_8_8_SNORM": (57, 43, 8, 4, "SNORM"),
    "8_8_8_8_UINT": (60, 46, 8, 4, "UINT"),
    "8_8_8_8_SINT": (61, 47, 8, 4, "SINT"),
    "8_8_8_8_SRGB": (130, 66, 8, 4, "SRGB"),
    "32_32_UINT": (62, 48, 32, 2, "UINT"),
    "32_32_SINT": (63, 49, 32, 2, "SINT"),
    "32_32_FLOAT": (64, 50, 32, 2, "FLOAT"),
    "16_16_16_16_UNORM": (65, 51, 16, 4, "UNORM"),
    "16_16_16_16_SNORM": (66, 52, 16, 4, "SNORM"),
    "16_16_16_16_UINT": (69, 55, 16, 4, "UINT"),
    "16_16_16_16_SINT": (70, 56, 16, 4, "SINT"),
    "16_16_16_16_FLOAT": (71, 57, 16, 4, "FLOAT"),
    "32_32_32_32_UINT": (75, 61, 32, 4, "UINT"),
    "32_32_32_32_SINT": (76, 62, 32, 4, "SINT"),
    "32_32_32_32_FLOAT": (77, 63, 32, 4, "FLOAT"),
}
DIMENSIONS = {"1D": (0, 1), "2D": (1, 2), "3D": (2, 3), "1D_ARRAY": (4, 2), "2D_ARRAY": (5, 3)}
"""The instruction's number, and coordinates."""
DATA_OF_GFX9 = {
    (8, 1): 1,
    (16, 1): 2,
    (8, 2): 3,
    (32, 1): 4,
    (16, 2): 5,
    (8, 4): 10,
    (32, 2): 11,
    (16, 4): 12,
    (32, 4): 14,
}
KINDS_OF_GFX9 = {"UNORM": 0, "SNORM": 1, "UINT": 4, "SINT": 5, "FLOAT": 7, "SRGB": 9}
"""Vega ISA, "Image resource": numbers of data formats, by bits of a component and their count, and numeric formats."""


def is_gfx9(target: str) -> bool:
    return target.startswith("gfx9")


def executed(
    target: str,
    text: str,
    given: Mapping[int, object],
    scalars: Mapping[int, int],
    memory: AllocationTable,
    **more: int,
) -> WaveState:
    """Run an instruction, as later generations write it, on 32 lanes: on GFX9 the first ones of 64."""
    if not is_gfx9(target):
        return run_assembly(target, text, given, scalars, memory=memory, wave_size=32, **more)
    text = re.sub(r"\[v(\d+), .*?v(\d+)\],", r"v[\1:\2],", text)
    text = re.sub(r" dim:SQ_RSRC_IMG_\dD(_ARRAY)?(.*)", lambda match: match[2] + " da" * bool(match[1]), text)
    wide = {
        number: np.concatenate([value, np.zeros_like(value)]) if isinstance(value, np.ndarray) else value
        for number, value in given.items()
    }
    return run_assembly(target, text, wide, scalars, memory=memory, **{"exec": (1 << LANES) - 1} | more)


@dataclass(frozen=True)
class Image:
    """An image in rows, or in tiles of two or three dimensions."""

    target: str
    form: str
    dim: str
    extents: tuple[int, ...]
    pitch: int = 0
    """Elements, of one or two dimensions; 0: the width."""
    selections: tuple[int, ...] = (4, 5, 6, 7)
    mode: int = 0
    """SW_MODE: 0 for rows."""

    @property
    def number(self) -> int:
        """The format, in its place; on GFX9 both of its numbers."""
        if is_gfx9(self.target):
            _, _, bits, count, kind = FORMATS[self.form]
            return DATA_OF_GFX9[bits, count] | KINDS_OF_GFX9[kind] << 6
        return FORMATS[self.form][0 if self.target.startswith("gfx10") else 1]

    @property
    def size(self) -> int:
        _, _, bits, count, _ = FORMATS[self.form]
        return bits * count // 8

    @property
    def says_pitch(self) -> bool:
        """Return whether the descriptor has the pitch of a row, for one or two dimensions."""
        return not self.target.startswith("gfx101")

    @property
    def row_elements(self) -> int:
        """Elements from one row to the next, as the descriptor says; in rows on GFX9 as AddrLib aligns them."""
        if self.mode and not self.pitch:
            return self.blocks[0] << self.equation.block[0]
        if is_gfx9(self.target) and not self.pitch:
            return -(-self.extents[0] * self.size // 256) * 256 // self.size
        return self.pitch or self.extents[0]

    @property
    def pitches(self) -> tuple[int, ...]:
        """Bytes from one element to the next, by coordinate."""
        width = self.extents[0]
        align = 128 if self.target == "gfx1201" else 256
        row = -(-width * self.size // align) * align
        if is_gfx9(self.target) or (self.dim in ("1D", "2D") and self.says_pitch):
            row = self.row_elements * self.size
        height = self.extents[1] if len(self.extents) > 1 else 1
        return {
            "1D": (self.size,),
            "2D": (self.size, row),
            "1D_ARRAY": (self.size, row),
        }.get(self.dim, (self.size, row, row * height))

    @property
    def bytes(self) -> int:
        if self.mode:
            return math.prod(self.blocks) << self.block_bits
        return self.pitches[-1] * self.extents[-1]

    @property
    def equation(self) -> Equation:
        return equations(self.target)[self.mode, self.size.bit_length() - 1]

    @property
    def block_bits(self) -> int:
        return len(self.equation.bits)

    @property
    def blocks(self) -> list[int]:
        """By axis."""
        return [-(-extent >> bits) for extent, bits in zip(self.extents, self.equation.block, strict=False)]

    def words(self, address: int) -> list[int]:
        assert address % 256 == 0
        newest = self.target == "gfx1201"
        width = self.extents[0] - 1
        height = self.extents[1] - 1 if self.dim in ("2D", "3D", "2D_ARRAY") else 0
        base = address >> 8
        select = sum(value << 3 * place for place, value in enumerate(self.selections))
        flat = self.dim in ("1D", "2D")
        if is_gfx9(self.target):
            layers = 0 if flat else self.extents[-1] - 1
            return [
                base & 0xFFFFFFFF,
                base >> 32 | self.number << 20,
                width | height << 14,
                select | self.mode << 20 | 8 + DIMENSIONS[self.dim][0] << 28,
                layers | self.row_elements - 1 << 13,
                *(0, 0, 0),
            ]
        last = (self.row_elements - 1 if self.says_pitch else 0) if flat else self.extents[-1] - 1
        return [
            base & 0xFFFFFFFF,
            base >> 32 | self.number << (17 if newest else 20) | (width & 3) << 30,
            width >> 2 | height << 14,
            select | self.mode << 20 | 8 + DIMENSIONS[self.dim][0] << 28,
            last,
            *(0, 0, 0),
        ]

    def place(self, at: tuple[int, ...]) -> int | None:
        """The byte at which an element begins; None outside of the image."""
        if any(not 0 <= x < extent for x, extent in zip(at, self.extents, strict=True)):
            return None
        if self.mode:
            return self._tiled(*at)
        return sum(x * pitch for x, pitch in zip(at, self.pitches, strict=True))

    def _tiled(self, *at: int) -> int:
        place = sum(
            (sum(at[axis] >> bit for axis, bit in sources if axis < len(at)) & 1) << number
            for number, sources in enumerate(self.equation.bits)
        )
        block = 0
        for coordinate, count, bits in [*zip(at, self.blocks, self.equation.block, strict=False)][::-1]:
            block = block * count + (coordinate >> bits)
        return (block << self.block_bits) + place

    def components(self, raw: bytes) -> list[float | int]:
        """The numbers of an element that its bytes stand for."""
        _, _, bits, count, kind = FORMATS[self.form]
        components: list[float | int] = []
        for place in range(count):
            piece = raw[place * bits // 8 : (place + 1) * bits // 8]
            code = int.from_bytes(piece, "little")
            signed = code - (1 << bits) if code >> bits - 1 else code
            if kind == "FLOAT":
                components.append(struct.unpack("<e" if bits == 16 else "<f", piece)[0])
            elif kind == "UNORM" or (kind == "SRGB" and place == 3):
                components.append(code / ((1 << bits) - 1))
            elif kind == "SRGB":
                part = code / 255
                components.append(part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4)
            elif kind == "SNORM":
                components.append(max(signed / ((1 << bits - 1) - 1), -1.0))
            else:
                components.append(signed if kind == "SINT" else code)
        return components

    @property
    def is_integer(self) -> bool:
        return FORMATS[self.form][4] in ("UINT", "SINT")

    def register(self, number: float | int) -> int:
        """Return the register bits of a component."""
        if self.is_integer:
            return int(number) & 0xFFFFFFFF
        with np.errstate(over="ignore"):
            return int(np.float32(number).view(np.uint32))

    def encoded(self, registers: list[int]) -> bytes:
        """The bytes of an element that registers stand for."""
        _, _, bits, count, kind = FORMATS[self.form]
        out = b""
        for place in range(count):
            value = registers[place]
            number = float(np.array(value, np.uint32).view(np.float32))
            number = 0.0 if np.isnan(number) and kind != "FLOAT" else number
            if kind == "FLOAT":
                with np.errstate(over="ignore"):
                    piece = np.float32(number).astype(np.float16 if bits == 16 else np.float32).tobytes()
                out += piece
                continue
            if kind == "UNORM":
                code = round(min(max(number, 0.0), 1.0) * ((1 << bits) - 1))
            elif kind == "SNORM":
                code = round(min(max(number, -1.0), 1.0) * ((1 << bits - 1) - 1))
            elif kind == "UINT":
                code = min(value, (1 << bits) - 1)
            else:
                signed = value - (1 << 32) if value >> 31 else value
                code = min(max(signed, -(1 << bits - 1)), (1 << bits - 1) - 1)
            out += (code & (1 << bits) - 1).to_bytes(bits // 8, "little")
        return out


def allocated(image: Image, seed: int) -> tuple[AllocationTable, DeviceAllocation]:
    """Memory with an image whose floats are ordinary numbers."""
    memory = AllocationTable()
    place = memory.allocate(max(image.bytes, 256), align=1 << image.block_bits if image.mode else 256)
    assert place.address % 256 == 0
    generator = np.random.default_rng(seed)
    contents: NDArray[np.uint8] = generator.integers(0, 256, image.bytes, np.uint8)
    _, _, bits, _, kind = FORMATS[image.form]
    if kind == "FLOAT":
        numbers = generator.normal(size=image.bytes * 8 // bits).astype(np.float16 if bits == 16 else np.float32)
        contents = numbers.view(np.uint8)
    place.view()[: len(contents)] = contents
    return memory, place
