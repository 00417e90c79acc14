"""Image descriptors of each generation, and coordinates of instructions on images.

Sources: ROCr's resource descriptors (image/resource_ai.h, resource_nv.h, resource_gfx11.h, resource_gfx12.h,
PopulateImageSrd of the image managers); AMD's rocjitsu (vm/amdgpu/image_address.h) for pitches of arrays and volumes on
GFX10 and later; the Vega ISA ("Image address") for the coordinates of each image type. Formats have the numbers of
typed buffers. A descriptor that uses fields which ROCr does not use is a fault.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence

from msgspec import Struct

from luthier.emulator import layout
from luthier.emulator.ir.declare import Unsupported
from luthier.emulator.ir.memory_code import unanswered
from luthier.emulator.ir.values import TypedValue
from luthier.emulator.ir.wave import OperandSlot, WaveBuilder
from luthier.emulator.operations.buffer_formats import DataFormat, image_format_count
from luthier.emulator.operations.buffer_typed import selections
from luthier.emulator.operations.image_tiles import MODES, Tiles
from luthier.emulator.questions import IMAGE, IMAGE_PITCH, TILES

LINE, PLANE, VOLUME, _, LINES, PLANES = range(6)
"""The instruction's DIM (LLVM, MIMGDim). The descriptor's type is DIM + 8."""
COORDINATES = {LINE: 1, PLANE: 2, VOLUME: 3, LINES: 2, PLANES: 3}
FLAT_ALONG = {1: (LINE, LINES), 2: (LINE, PLANE)}
"""By axis: image types with one element along it."""
_FIRST_TYPE = 8
_LEFT_OUT = ("tfe", "lwe", "r128")


class ImageDescriptor(Struct, frozen=True):
    """An image's descriptor; values are scalars of u32 unless noted."""

    w: WaveBuilder
    dim: int
    """The instruction's DIM."""
    kind: TypedValue
    """The descriptor's type, minus 8."""
    base: TypedValue
    form: DataFormat
    extents: list[TypedValue]
    """Width, height, and depth or layers; 1 if the image lacks it."""
    pitches: list[TypedValue]
    """Bytes from one element to the next along each axis of an image in rows, as u64."""
    selections: list[TypedValue]
    mode: TypedValue
    """SW_MODE: 0 for rows."""
    tiles: Tiles

    def is_one_of(self, *kinds: int) -> TypedValue:
        """Return whether the descriptor's type is one of these."""
        return _one_of(self.kind, kinds)

    def extends_along(self, axis: int) -> TypedValue:
        """Return whether images of the descriptor's type can have several elements along an axis."""
        return ~self.is_one_of(*FLAT_ALONG[axis]) if axis else self.w.number(1) == 1


def _one_of(kind: TypedValue, kinds: Sequence[int]) -> TypedValue:
    return functools.reduce(operator.or_, (kind == one for one in kinds))


def stop(w: WaveBuilder, arises: TypedValue, question: str) -> None:
    """Stop the wave for a question, unless no lane is active."""
    unanswered(w, arises & (w.exec_bits != 0), question)


def dimension(w: WaveBuilder) -> int:
    """Return the instruction's DIM. GFX9 has none: return the DIM that includes all possible ones, VOLUME or PLANES.

    Raises:
        Unsupported: the DIM or a modifier is not modelled.
    """
    for key in _LEFT_OUT:
        if w.modifiers.get(key):
            raise Unsupported(f"{w.variant.operation} with {key}, which is not modelled")
    if w.major == 9:
        return PLANES if w.modifiers.get("da") else VOLUME
    dim = w.modifiers.get("dim", 0)
    if dim not in COORDINATES:
        raise Unsupported(f"{w.variant.operation} of cubes or samples, which are not modelled")
    return dim


class _Fields(Struct, frozen=True):
    """Scalar fields whose positions depend on the generation."""

    format: TypedValue
    width: TypedValue
    height: TypedValue
    last: TypedValue
    """Depth or layers, minus one."""
    pitch: TypedValue
    """Elements from one row to the next, minus one."""
    more: TypedValue
    """Not 0 if there are levels, a first layer or compression."""
    has_pitch: TypedValue
    """Whether the descriptor has a pitch."""


def _fields_of_gfx9(w: WaveBuilder, words: Sequence[TypedValue], _: TypedValue) -> _Fields:
    more = (words[1] & 0xC00FFF00) | (words[3] >> 12 & 0xFF) | words[5] | words[6] | words[7]
    return _Fields(
        format=words[1] >> 20 & 0x3FF,
        width=words[2] & 0x3FFF,
        height=words[2] >> 14 & 0x3FFF,
        last=words[4] & 0x1FFF,
        pitch=words[4] >> 13 & 0xFFFF,
        more=more,
        has_pitch=w.number(1) == 1,
    )


def _fields_since_gfx10(w: WaveBuilder, words: Sequence[TypedValue], kind: TypedValue) -> _Fields:
    newest = w.major >= 12
    levels = [words[1] >> 25 & 31, words[3] >> 15 & 31] if newest else [words[3] >> 12 & 15, words[3] >> 16 & 15]
    most = 0xFFFF if newest else 0x3FFF
    pitch, flat = words[4] & (0xFFFF if newest else 0x3FFF), _one_of(kind, (LINE, PLANE))
    without = w.major == 10 and not w.processor.startswith("gfx103")  # PopulateImageSrd of the image manager for GFX10
    if without:
        stop(w, flat & (pitch != 0), IMAGE_PITCH)
    return _Fields(
        format=words[1] >> 17 & 0xFF if newest else words[1] >> 20 & (0x1FF if w.major == 10 else 0xFF),
        width=words[1] >> 30 | (words[2] << 2 & most),
        height=words[2] >> 14 & most,
        last=words[4] & (0x3FFF if newest else 0x1FFF),
        pitch=pitch,
        more=levels[0] | levels[1] | (words[4] >> 16 & 0x1FFF) | words[5] | words[6] | words[7],
        has_pitch=w.number(0) == 1 if without else flat,
    )


def _kind_of(w: WaveBuilder, kind: TypedValue, dim: int, *, lenient: bool) -> tuple[TypedValue, TypedValue]:
    """Return the image type to use, and whether the instruction does not fit the descriptor's type."""
    if w.major == 9:
        arrays, single = (LINES, PLANES), (LINE, PLANE, VOLUME)
        fitting = (*arrays, *(single if lenient else ())) if dim == PLANES else single
        return kind, ~_one_of(kind, fitting)
    if lenient and dim == PLANES:
        return kind, (kind != PLANES) & (kind > VOLUME) & (kind != LINES)
    return w.number(dim), kind != dim


def image_of(w: WaveBuilder, resource: OperandSlot, dim: int, *, lenient: bool = False) -> ImageDescriptor:
    """Return a decoded descriptor; a descriptor that is not modelled is a fault.

    Args:
        lenient: whether an instruction for arrays of planes may access images with fewer dimensions, and volumes, as
            HIP's copies do (clr, blitcl.cpp; for layers of lines, rocblit.cpp, swapLayer).
    """
    words = resource.scalars()
    kind, wrong = _kind_of(w, (words[3] >> 28) - _FIRST_TYPE, dim, lenient=lenient)
    fields = (_fields_of_gfx9 if w.major == 9 else _fields_since_gfx10)(w, words, kind)
    stop(w, wrong | (fields.more != 0) | (fields.format >= image_format_count(w.major)), IMAGE)
    form = DataFormat.of(w, fields.format, of_image=True)
    extents = [
        fields.width + 1,
        w.select(_one_of(kind, FLAT_ALONG[1]), w.number(1), fields.height + 1),
        w.select(_one_of(kind, FLAT_ALONG[2]), w.number(1), fields.last + 1),
    ]
    mode = words[3] >> 20 & MODES - 1
    tiles = Tiles.of(w, mode, kind == VOLUME, form.bytes)
    stop(w, ~tiles.known, TILES)
    pitch = fields.pitch + 1
    other = (mode != 0) & (fields.pitch != 0) & (pitch != tiles.pitch(extents[0]))
    stop(w, fields.has_pitch & (((mode == 0) & (pitch < extents[0])) | other), IMAGE_PITCH)
    align = 128 if w.major >= 12 else 256
    least = ((extents[0] * form.bytes).to("u64") + (align - 1)) & (0xFFFFFFFFFFFFFFFF ^ (align - 1))
    row = w.select(fields.has_pitch, (pitch * form.bytes).to("u64"), least)
    pitches = [form.bytes.to("u64"), row, row * extents[1].to("u64")]
    base = (words[0].to("u64") | (words[1] & 0xFF).to("u64") << 32) << 8
    return ImageDescriptor(w, dim, kind, base, form, extents, pitches, selections(resource), mode, tiles)


# Coordinates ----------------------------------------------------------------------------------------------------------


def axes_of(dim: int) -> tuple[int, ...]:
    """Return the image axis of each of an instruction's coordinates."""
    return (0, 2) if dim == LINES else (0, 1, 2)[: COORDINATES[dim]]


def coordinates(
    image: ImageDescriptor, slots: Sequence[OperandSlot], *, level: bool, lacking: int
) -> tuple[list[TypedValue], TypedValue | None]:
    """Return an instruction's coordinates, one for each of `axes_of`, and the level.

    Args:
        slots: consecutive registers, or one register each.
        level: whether the instruction has a level.
        lacking: the coordinate along an axis that a GFX9 descriptor lacks.
    """
    w = image.w
    if w.major == 9:
        return _coordinates_of_gfx9(image, slots[0], level=level, lacking=lacking)
    count = COORDINATES[image.dim] + level
    registers = -(-count // 2) if w.modifiers.get("a16") else count
    if len(slots) > 1 and slots[1].present and registers > 1:
        rows = [slot.row(0) for slot in slots[:registers]]
    else:
        rows = [slots[0].row(index) for index in range(registers)]
    if w.modifiers.get("a16"):
        rows = [half for row in rows for half in (row & 0xFFFF, row >> 16)]
    return rows[: COORDINATES[image.dim]], rows[count - 1] if level else None


def _coordinates_of_gfx9(
    image: ImageDescriptor, slot: OperandSlot, *, level: bool, lacking: int
) -> tuple[list[TypedValue], TypedValue | None]:
    """Return the coordinates that the descriptor's type implies: X, then Y except for lines, then Z or the layer.

    If an instruction for arrays accesses an image that is no array, the layer must be 0.
    """
    w = image.w
    is_line, is_flat, is_lines = image.kind == LINE, image.is_one_of(LINE, PLANE), image.kind == LINES
    few = is_flat | is_lines
    count = w.select(is_line, w.number(1), w.select(few, w.number(2), 3))
    row = 4 * w.wave_size
    end = w.slot_value(slot.position) + (count + level) * row
    stop(w, end > layout.agprs(w.wave_size), IMAGE)
    rows = [slot.row(index) for index in range(3)]
    nothing = w.const("u32", lacking)
    if image.dim == PLANES:
        beyond = w.select(is_line, rows[1], w.select(image.kind == PLANE, rows[2], 0))
        stop(w, is_flat & (w.mask_bits((beyond != 0) & w.exec) != 0), IMAGE)
    y = w.select(is_line | is_lines, nothing, rows[1])
    z = w.select(is_flat, nothing, w.select(is_lines, rows[1], rows[2]))
    if not level:
        return [rows[0], y, z], None
    return [rows[0], y, z], w.select(is_line, rows[1], w.select(few, rows[2], slot.row(3)))
