"""Loads and stores of images in rows and in tiles (GFX10.3, GFX11, GFX12), by integer coordinates.

Sources: ROCr's resource descriptors (image/resource_nv.h, resource_gfx11.h, resource_gfx12.h, PopulateImageSrd of the
image managers); AMD's rocjitsu (vm/amdgpu/image_address.h) for how far apart rows of arrays and volumes are. Formats
have the numbers of those of typed buffers. Descriptors with more than ROCr's are a fault.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence

from msgspec import Struct

from luthier.emulator.ir.declare import OperationTable, Unsupported
from luthier.emulator.ir.memory_code import check_global, unanswered
from luthier.emulator.ir.values import Value
from luthier.emulator.ir.wave import Slot, WaveBuilder
from luthier.emulator.operations.buffer_formats import IMAGE_FORMATS, DataFormat
from luthier.emulator.operations.buffer_typed import (
    arranged,
    read_words,
    result_rows,
    selected,
    selections,
    write_words,
)
from luthier.emulator.operations.image_tiles import MODES, Tiles
from luthier.emulator.questions import BEYOND_IMAGE, IMAGE, IMAGE_PITCH, TILES

operations = OperationTable()

LINE, PLANE, VOLUME, _, LINES, PLANES = range(6)
"""The instruction's DIM (LLVM, MIMGDim): the descriptor's type is 8 more."""
COORDINATES = {LINE: 1, PLANE: 2, VOLUME: 3, LINES: 2, PLANES: 3}
_FIRST_TYPE = 8
STATIC = ("dmask", "dim", "a16", "tfe", "lwe", "d16", "r128")
_LEFT_OUT = ("tfe", "lwe", "r128")


class Image(Struct, frozen=True):
    """An image's descriptor, scalars of u32."""

    w: WaveBuilder
    dim: int
    """The instruction's."""
    kind: Value
    """The descriptor's type, counted as the instruction's are."""
    base: Value
    form: DataFormat
    extents: list[Value]
    """Width, height and depth or layers, as u32; 1 where it has none."""
    pitches: list[Value]
    """Bytes from one element to the next along each, as u64, of an image in rows."""
    selections: list[Value]
    mode: Value
    """SW_MODE: 0 for rows."""
    tiles: Tiles


def stop(w: WaveBuilder, arises: Value, question: str) -> None:
    """Stop a wave of which lanes are active for a question."""
    unanswered(w, arises & (w.exec_bits != 0), question)


def dimension(w: WaveBuilder) -> int:
    """Return the instruction's DIM.

    Raises:
        Unsupported: it is none that is modelled, or the instruction has modifiers that are not.
    """
    if w.major == 10 and not w.processor.startswith("gfx103"):
        raise Unsupported(f"{w.variant.operation}: descriptors of images before GFX10.3 are not modelled")
    for key in _LEFT_OUT:
        if w.modifiers.get(key):
            raise Unsupported(f"{w.variant.operation} with {key}, which is not modelled")
    found = w.modifiers.get("dim", 0)
    if found not in COORDINATES:
        raise Unsupported(f"{w.variant.operation} of cubes or samples, which are not modelled")
    return found


def image_of(w: WaveBuilder, resource: Slot, dim: int, *, others: bool = False) -> Image:
    """Return what a descriptor says; what is not modelled is a fault.

    Args:
        others: whether an instruction for arrays of planes may name what has fewer dimensions, and volumes, too, as
            HIP's copies do (clr, blitcl.cpp; where layers of lines go, rocblit.cpp, swapLayer).
    """
    words = resource.scalars()
    newest = w.major >= 12
    levels = [words[1] >> 25 & 31, words[3] >> 15 & 31] if newest else [words[3] >> 12 & 15, words[3] >> 16 & 15]
    number = words[1] >> 17 & 0xFF if newest else words[1] >> 20 & (0x1FF if w.major == 10 else 0xFF)
    more = levels[0] | levels[1] | (words[4] >> 16 & 0x1FFF) | words[5] | words[6] | words[7]
    kind = w.number(dim)
    wrong = (words[3] >> 28) != _FIRST_TYPE + dim
    if others and dim == PLANES:
        kind = (words[3] >> 28) - _FIRST_TYPE
        wrong = wrong & (kind > VOLUME) & (kind != LINES)
    stop(w, wrong | (more != 0) | (number >= IMAGE_FORMATS), IMAGE)
    form = DataFormat.of(w, number, of_image=True)
    most = 0xFFFF if newest else 0x3FFF
    last = words[4] & (0x3FFF if newest else 0x1FFF)
    is_line, alone = (kind == LINE) | (kind == LINES), (kind == LINE) | (kind == PLANE)
    extents = [
        (words[1] >> 30 | (words[2] << 2 & most)) + 1,
        w.select(is_line, w.number(1), (words[2] >> 14 & most) + 1),
        w.select(alone, w.number(1), last + 1),
    ]
    mode = words[3] >> 20 & MODES - 1
    tiles = Tiles.of(w, mode, kind == VOLUME, form.bytes)
    stop(w, ~tiles.known, TILES)
    pitch = words[4] & (0xFFFF if newest else 0x3FFF)
    other = (mode != 0) & (pitch != 0) & (pitch + 1 != tiles.pitch(extents[0]))
    stop(w, alone & (((mode == 0) & (pitch + 1 < extents[0])) | other), IMAGE_PITCH)
    align = 128 if newest else 256
    least = ((extents[0] * form.bytes).to("u64") + (align - 1)) & (0xFFFFFFFFFFFFFFFF ^ (align - 1))
    row = w.select(alone, ((pitch + 1) * form.bytes).to("u64"), least)
    pitches = [form.bytes.to("u64"), row, row * extents[1].to("u64")]
    base = (words[0].to("u64") | (words[1] & 0xFF).to("u64") << 32) << 8
    return Image(w, dim, kind, base, form, extents, pitches, selections(resource), mode, tiles)


def coordinates(w: WaveBuilder, slots: Sequence[Slot], count: int) -> list[Value]:
    """Return coordinates: in registers of their own, in some in a row, or two of 16 bits in each."""
    registers = -(-count // 2) if w.modifiers.get("a16") else count
    if len(slots) > 1 and slots[1].present and registers > 1:
        rows = [slot.row(0) for slot in slots[:registers]]
    else:
        rows = [slots[0].row(index) for index in range(registers)]
    if w.modifiers.get("a16"):
        rows = [half for row in rows for half in (row & 0xFFFF, row >> 16)]
    return rows[:count]


class Along(Struct, frozen=True):
    """The part of elements' places that is one coordinate's."""

    distance: Value
    """Bytes from the beginning of an image in rows, as u64."""
    offset: Value
    """In a block of an image in tiles, as u32, to be exclusive-ored."""
    block: Value
    """The block's number, as u64."""
    inside: Value

    @classmethod
    def of(cls, image: Image, axis: int, coordinate: Value) -> Along:
        """Look at a coordinate, of u32."""
        w = image.w
        distance = coordinate.to("u64") * w.splat(image.pitches[axis])
        offset, block = image.tiles.along(axis, coordinate, image.extents)
        return cls(distance, offset, block, coordinate < w.splat(image.extents[axis]))


def axes_of(dim: int) -> tuple[int, ...]:
    """Return the axis of an image that each of an instruction's coordinates goes along."""
    return (0, 2) if dim == LINES else (0, 1, 2)[: COORDINATES[dim]]


def place_of(image: Image, places: Sequence[Along]) -> tuple[Value, Value]:
    """Return the addresses of elements, and which of them are in the image."""
    w = image.w
    inside = functools.reduce(operator.and_, (place.inside for place in places), w.exec)
    distance = functools.reduce(operator.add, (place.distance for place in places))
    offset = functools.reduce(operator.xor, (place.offset for place in places))
    block = functools.reduce(operator.add, (place.block for place in places))
    tiled = image.tiles.address(image.base, offset, block)
    return w.select(image.mode == 0, w.splat(image.base) + distance, tiled), inside


def places_of(image: Image, at: Sequence[Value]) -> list[Along]:
    """Look at an instruction's coordinates."""
    w = image.w
    if image.dim == PLANES:  # what coordinates do that the descriptor's type lacks, no source says
        for lacking, coordinate in (((LINE, LINES), at[1]), ((LINE, PLANE), at[2])):
            lacks = (image.kind == lacking[0]) | (image.kind == lacking[1])
            stop(w, lacks & (w.mask_bits((coordinate != 0) & w.exec) != 0), IMAGE)
    return [Along.of(image, axis, coordinate) for axis, coordinate in zip(axes_of(image.dim), at, strict=True)]


def fetch_components(image: Image, places: Sequence[Along], half: bool) -> tuple[list[Value], Value]:
    """Return the four components of elements as registers hold them, 0 outside of the image, and which are inside."""
    w = image.w
    addresses, inside = place_of(image, places)
    hosts = check_global(w, addresses, image.form.bytes, flat=False, mask=inside)
    words = read_words(w, hosts, inside, image.form)
    return [w.select(inside, image.form.read(words, index, half), 0) for index in range(4)], inside


def write_result(image: Image, result: Slot, components: list[Value], half: bool) -> None:
    """Write the components that DMASK chooses, as the descriptor selects them."""
    w = image.w
    chosen = [index for index in range(4) if w.modifiers.get("dmask", 0) >> index & 1]
    values = [selected(image.form, components, image.selections[index], half) for index in chosen]
    for index, row in enumerate(result_rows(w, result, values, "pairs" if half else "")):
        result.store_row(index, row, w.exec)


def _check_level(w: WaveBuilder, level: Value) -> None:
    stop(w, w.mask_bits((level != 0) & w.exec) != 0, IMAGE)


def _addresses(w: WaveBuilder, slots: Sequence[Slot], dim: int, *, level: bool) -> list[Value]:
    count = COORDINATES[dim]
    found = coordinates(w, slots, count + level)
    if level:
        _check_level(w, found.pop())
    return found


def _load(w: WaveBuilder, result: Slot, slots: Sequence[Slot], resource: Slot, *, level: bool) -> None:
    dim, half = dimension(w), bool(w.modifiers.get("d16"))
    image = image_of(w, resource, dim, others=True)
    if half:
        image.form.refuse_narrowing()
    components, inside = fetch_components(image, places_of(image, _addresses(w, slots, dim, level=level)), half)
    constant = w.number(0) != 0
    for index in range(4):
        if w.modifiers.get("dmask", 0) >> index & 1:
            constant = constant | (image.selections[index] == 1)
    stop(w, constant & (w.mask_bits(inside ^ w.exec) != 0), BEYOND_IMAGE)
    write_result(image, result, components, half)


def _store(w: WaveBuilder, data: Slot, slots: Sequence[Slot], resource: Slot, *, level: bool) -> None:
    dim, half = dimension(w), bool(w.modifiers.get("d16"))
    image = image_of(w, resource, dim, others=True)
    image.form.refuse_scaled()
    mask = w.modifiers.get("dmask", 0)
    if not mask & 1:
        raise Unsupported(f"{w.variant.operation} without the first component, which is not modelled")
    given: dict[int, Value] = {}
    for index in range(4):
        if mask >> index & 1:
            place = len(given)
            given[index] = image.form.widen(data.row(place // 2) >> 16 * (place % 2)) if half else data.row(place)
    # LLVM's features default-component-zero and default-component-broadcast.
    missing = given[0] if w.major >= 12 else w.const("u32", 0)
    values = arranged(image.form, [given.get(index, missing) for index in range(4)], image.selections)
    addresses, inside = place_of(image, places_of(image, _addresses(w, slots, dim, level=level)))
    hosts = check_global(w, addresses, image.form.bytes, flat=False, mask=inside)
    write_words(w, hosts, inside, image.form, image.form.write(values))


def _declare(resource: str, generations: dict[str, tuple[int, ...]]) -> None:
    settings = {"exact": False, "static": STATIC, "generations": True, "processors": True, **generations}
    places = "vaddr0:u32x4 vaddr1:u32 vaddr2:u32 vaddr3:u32"
    for suffix in ("", "_mip"):

        @operations.wave(f"image_load{suffix}", f"{places} {resource}:u32x8 -> vdata:u32x4", **settings)
        def load(
            w: WaveBuilder, d: Slot, a: Slot, b: Slot, c: Slot, e: Slot, r: Slot, level: bool = bool(suffix)
        ) -> None:
            """D = components of an element, 0 outside of the image."""
            _load(w, d, (a, b, c, e), r, level=level)

        @operations.wave(f"image_store{suffix}", f"{places} {resource}:u32x8 vdata:u32x4 ->", **settings)
        def store(
            w: WaveBuilder, a: Slot, b: Slot, c: Slot, e: Slot, r: Slot, d: Slot, level: bool = bool(suffix)
        ) -> None:
            """An element = components; outside of the image nothing."""
            _store(w, d, (a, b, c, e), r, level=level)


_declare("srsrc", {"since": (10,), "until": (12,)})
_declare("rsrc", {"since": (12,)})
