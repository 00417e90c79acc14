"""Loads and stores of images in rows and in tiles, by integer coordinates."""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence

from msgspec import Struct

from luthier.emulator.ir.declare import OperationTable, Unsupported
from luthier.emulator.ir.memory_code import check_global
from luthier.emulator.ir.values import TypedValue
from luthier.emulator.ir.wave import OperandSlot, WaveBuilder
from luthier.emulator.operations.buffer_typed import arranged, read_words, result_rows, selected, write_words
from luthier.emulator.operations.image_descriptors import (
    FLAT_ALONG,
    PLANES,
    ImageDescriptor,
    axes_of,
    coordinates,
    dimension,
    image_of,
    stop,
)
from luthier.emulator.questions import BEYOND_IMAGE, IMAGE

operations = OperationTable()

STATIC = ("dmask", "dim", "da", "a16", "tfe", "lwe", "d16", "r128")


class Along(Struct, frozen=True):
    """One coordinate's part of the positions of elements."""

    distance: TypedValue
    """Bytes from the start of an image in rows, u64."""
    offset: TypedValue
    """Offset in a block of an image in tiles, u32, to exclusive-or."""
    block: TypedValue
    """The block's number, u64, to add."""
    inside: TypedValue

    @classmethod
    def of(cls, image: ImageDescriptor, axis: int, coordinate: TypedValue) -> Along:
        """Return the part of a coordinate, a u32."""
        w = image.w
        distance = coordinate.to("u64") * w.splat(image.pitches[axis])
        offset, block = image.tiles.along(axis, coordinate, image.extents)
        return cls(distance, offset, block, coordinate < w.splat(image.extents[axis]))


def place_of(image: ImageDescriptor, places: Sequence[Along]) -> tuple[TypedValue, TypedValue]:
    """Return the addresses of elements, and the mask of elements in the image."""
    w = image.w
    inside = functools.reduce(operator.and_, (place.inside for place in places), w.exec)
    distance = functools.reduce(operator.add, (place.distance for place in places))
    offset = functools.reduce(operator.xor, (place.offset for place in places))
    block = functools.reduce(operator.add, (place.block for place in places))
    tiled = image.tiles.address(image.base, offset, block)
    return w.select(image.mode == 0, w.splat(image.base) + distance, tiled), inside


def places_of(image: ImageDescriptor, at: Sequence[TypedValue]) -> list[Along]:
    """Return the parts of an instruction's coordinates."""
    w = image.w
    if image.dim == PLANES and w.major > 9:  # no source says what coordinates that the type lacks do
        for axis, kinds in FLAT_ALONG.items():
            stop(w, image.is_one_of(*kinds) & (w.mask_bits((at[axis] != 0) & w.exec) != 0), IMAGE)
    return [Along.of(image, axis, coordinate) for axis, coordinate in zip(axes_of(image.dim), at, strict=True)]


def fetch_components(
    image: ImageDescriptor, places: Sequence[Along], half: bool
) -> tuple[list[TypedValue], TypedValue]:
    """Return the four components of elements in registers' format (0 outside the image), and the mask inside."""
    w = image.w
    addresses, inside = place_of(image, places)
    hosts = check_global(w, addresses, image.form.bytes, flat=False, mask=inside)
    words = read_words(w, hosts, inside, image.form)
    return [w.select(inside, image.form.read(words, index, half), 0) for index in range(4)], inside


def write_result(image: ImageDescriptor, result: OperandSlot, components: list[TypedValue], half: bool) -> None:
    """Write the components that DMASK chooses, arranged by the descriptor."""
    w = image.w
    chosen = [index for index in range(4) if w.modifiers.get("dmask", 0) >> index & 1]
    values = [selected(image.form, components, image.selections[index], half) for index in chosen]
    for index, row in enumerate(result_rows(w, result, values, "pairs" if half else "")):
        result.store_row(index, row, w.exec)


def _check_level(w: WaveBuilder, level: TypedValue) -> None:
    stop(w, w.mask_bits((level != 0) & w.exec) != 0, IMAGE)


def _places(image: ImageDescriptor, slots: Sequence[OperandSlot], *, level: bool) -> list[Along]:
    positions, number = coordinates(image, slots, level=level, lacking=0)
    if number is not None:
        _check_level(image.w, number)
    return places_of(image, positions)


def _load(
    w: WaveBuilder, result: OperandSlot, slots: Sequence[OperandSlot], resource: OperandSlot, *, level: bool
) -> None:
    dim, half = dimension(w), bool(w.modifiers.get("d16"))
    image = image_of(w, resource, dim, lenient=True)
    if half:
        image.form.refuse_narrowing()
    components, inside = fetch_components(image, _places(image, slots, level=level), half)
    constant = w.number(0) != 0
    for index in range(4):
        if w.modifiers.get("dmask", 0) >> index & 1:
            constant = constant | (image.selections[index] == 1)
    stop(w, constant & (w.mask_bits(inside ^ w.exec) != 0), BEYOND_IMAGE)
    write_result(image, result, components, half)


def _store(
    w: WaveBuilder, data: OperandSlot, slots: Sequence[OperandSlot], resource: OperandSlot, *, level: bool
) -> None:
    dim, half = dimension(w), bool(w.modifiers.get("d16"))
    image = image_of(w, resource, dim, lenient=True)
    image.form.refuse_scaled()
    mask = w.modifiers.get("dmask", 0)
    if not mask & 1:
        raise Unsupported(f"{w.variant.operation} without the first component is not modelled")
    given: dict[int, TypedValue] = {}
    for index in range(4):
        if mask >> index & 1:
            place = len(given)
            given[index] = image.form.widen(data.row(place // 2) >> 16 * (place % 2)) if half else data.row(place)
    # LLVM's features default-component-zero and default-component-broadcast.
    missing = given[0] if w.major >= 12 else w.const("u32", 0)
    values = arranged(image.form, [given.get(index, missing) for index in range(4)], image.selections)
    addresses, inside = place_of(image, _places(image, slots, level=level))
    hosts = check_global(w, addresses, image.form.bytes, flat=False, mask=inside)
    write_words(w, hosts, inside, image.form, image.form.write(values))


def _declare(addresses: Sequence[str], resource: str, **generations: tuple[int, ...]) -> None:
    """Declare the operations of several generations.

    Args:
        addresses: operands with coordinates: the first of up to four consecutive registers, or one register each.
        resource: the operand with the descriptor.
    """
    settings = {"exact": False, "static": STATIC, "generations": True, "processors": True, **generations}
    places = " ".join(f"{name}:u32x{1 if index else 4}" for index, name in enumerate(addresses))
    for suffix in ("", "_mip"):

        @operations.wave(f"image_load{suffix}", f"{places} {resource}:u32x8 -> vdata:u32x4", **settings)
        def load(w: WaveBuilder, d: OperandSlot, *given: OperandSlot, level: bool = bool(suffix)) -> None:
            """D = components of an element, 0 outside the image."""
            _load(w, d, given[:-1], given[-1], level=level)

        @operations.wave(f"image_store{suffix}", f"{places} {resource}:u32x8 vdata:u32x4 ->", **settings)
        def store(w: WaveBuilder, *given: OperandSlot, level: bool = bool(suffix)) -> None:
            """An element = components; nothing is stored outside the image."""
            _store(w, given[-1], given[:-2], given[-2], level=level)


IN_A_ROW, EACH = ("vaddr",), tuple(f"vaddr{index}" for index in range(4))
"""Operands with coordinates: on GFX9, and on later generations, whose instructions may name each register."""
_declare(IN_A_ROW, "srsrc", since=(9,), until=(10,))
_declare(EACH, "srsrc", since=(10,), until=(12,))
_declare(EACH, "rsrc", since=(12,))
