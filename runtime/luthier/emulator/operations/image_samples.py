"""Samples of images at float coordinates: nearest, linear and gathered.

Sources: ROCr's sampler descriptors (image/resource_ai.h, resource_nv.h, resource_gfx11.h, resource_gfx12.h,
PopulateSamplerSrd and convertAddressMode of the image managers); OpenCL's and Direct3D's rules for the choice of
elements; Mesa (ac_descriptors.c, ac_build_sampler_descriptor) filters volumes without setting the filter of Z. Images
have one level, so its number and derivatives do not matter. Coordinates and means have 64 bits here, and fewer on
hardware. A descriptor that uses fields which ROCr does not use is a fault.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from luthier.emulator.ir.declare import OperationTable, Unsupported
from luthier.emulator.ir.values import TypedValue
from luthier.emulator.ir.wave import OperandSlot, WaveBuilder
from luthier.emulator.operations.buffer_typed import result_rows, selected
from luthier.emulator.operations.image_descriptors import (
    COORDINATES,
    LINES,
    PLANE,
    PLANES,
    VOLUME,
    ImageDescriptor,
    axes_of,
    coordinates,
    dimension,
    image_of,
    stop,
)
from luthier.emulator.operations.images import EACH, IN_A_ROW, STATIC, Along, fetch_components, write_result
from luthier.emulator.questions import IMAGE, SAMPLER

operations = OperationTable()

_WRAP, _MIRROR, _CLAMP, _BORDER = 0, 1, 2, 6
_COMPONENTS = (1, 2, 4, 8)
_FARTHEST = 1 << 30
_WEIGHTS = 256.0
"""Steps from one element to the next (AMD's rocjitsu, round_sample_fixed8; hip-tests, texture_reference.hh)."""
_UNNORMALISED = 1 << 15
_FILTERS = 0xF << 20
_MIDDLE = 0x3F000000
"""Bits of 0.5, the center of the only element along an axis that an image lacks, normalized or not."""


class _Sampler(Struct, frozen=True):
    modes: list[TypedValue]
    """By axis: the mode for coordinates outside the image."""
    unnormalised: TypedValue
    """Whether coordinates count elements."""
    linear: TypedValue


def _sampler_of(image: ImageDescriptor, slot: OperandSlot, axes: int) -> _Sampler:
    """Return a decoded descriptor; a descriptor that is not modelled is a fault."""
    w, words = image.w, slot.scalars()
    modes = [words[0] >> 3 * axis & 7 for axis in range(axes)]
    magnified, reduced = words[2] >> 20 & 3, words[2] >> 22 & 3
    linear = magnified == 1
    unnormalised = (words[0] & _UNNORMALISED) != 0
    if w.modifiers.get("unorm"):
        unnormalised = w.number(1) == 1
    least_level = 0x1FFF if w.major >= 12 else 0xFFF
    wrong = ((words[0] & (0xFFFFFFFF ^ _UNNORMALISED)) >> 9 != 0) | (magnified > 1) | (magnified != reduced)
    wrong = wrong | ((words[2] & (0xFFFFFFFF ^ _FILTERS)) != 0) | (words[3] != 0) | ((words[1] & least_level) != 0)
    for axis, mode in enumerate(modes):
        known = (mode == _CLAMP) | (mode == _BORDER) | (((mode == _WRAP) | (mode == _MIRROR)) & ~unnormalised)
        wrong = wrong | (image.extends_along(axis) & ~known)
    stop(w, wrong, SAMPLER)
    return _Sampler(modes, unnormalised, linear)


def _wrapped(w: WaveBuilder, index: TypedValue, extent: TypedValue) -> TypedValue:
    """Return an index, an i32, modulo an extent."""
    rest = w.wrap(w.ir.srem(index.llvm, extent.llvm), "i32")
    return w.select(rest < 0, rest + extent, rest)


def _taken(w: WaveBuilder, index: TypedValue, extent: TypedValue, mode: TypedValue) -> TypedValue:
    """Return the element, a u32, for an index; outside the image if the border applies."""
    wide = w.splat(extent.as_("i32"))
    clamped = w.minimum(w.maximum(index, 0), wide - 1)
    turn = _wrapped(w, index, wide + wide)
    mirrored = w.select(turn >= wide, wide + wide - 1 - turn, turn)
    element = w.select(mode == _CLAMP, clamped, index)
    element = w.select(mode == _WRAP, _wrapped(w, index, wide), element)
    return w.select(mode == _MIRROR, mirrored, element).as_("u32")


def _axis(
    w: WaveBuilder, coordinate: TypedValue, extent: TypedValue, mode: TypedValue, s: _Sampler
) -> tuple[list[TypedValue], TypedValue]:
    """Return the two elements on both sides of a coordinate along an axis, and the weight of the second one."""
    place = coordinate.as_("f32").to("f64")
    place = w.select(w.is_nan(place), 0.0, place)
    place = w.select(s.unnormalised, place, place * w.splat(extent.to("f64")))
    between = w.round_even((place - 0.5) * _WEIGHTS) * (1 / _WEIGHTS)
    place = w.select(s.linear, between, place)
    below = w.floor(place)
    weight = w.select(s.linear, place - below, 0.0)
    index = w.float_to_int(below, "i32")
    index = w.minimum(w.maximum(index, -_FARTHEST), _FARTHEST)
    return [_taken(w, index, extent, mode), _taken(w, index + 1, extent, mode)], weight


def _layer(w: WaveBuilder, coordinate: TypedValue, extent: TypedValue) -> TypedValue:
    """Return the layer nearest to a coordinate."""
    number = coordinate.as_("f32").to("f64")
    index = w.float_to_int(w.round_even(w.select(w.is_nan(number), 0.0, number)), "i32")
    return w.minimum(w.maximum(index, 0), w.splat(extent.as_("i32")) - 1).as_("u32")


def _between(w: WaveBuilder, first: TypedValue, second: TypedValue, weight: TypedValue) -> TypedValue:
    return w.select(weight == 0.0, first, first + (second - first) * weight)


def _sample(
    w: WaveBuilder,
    d: OperandSlot,
    slots: Sequence[OperandSlot],
    resource: OperandSlot,
    sampler: OperandSlot,
    *,
    level: bool,
) -> None:
    dim, half = dimension(w), bool(w.modifiers.get("d16"))
    image = image_of(w, resource, dim)
    if half:
        image.form.refuse_narrowing()
    count = COORDINATES[dim]
    axes = count - (dim in (LINES, PLANES))
    s = _sampler_of(image, sampler, axes)
    stop(w, image.form.is_integer & s.linear, SAMPLER)
    given = _places(image, slots, level=level)
    layers = [_layer(w, given[-1], image.extents[-1])] if axes < count else []
    texels = w.with_rounding(0, lambda _: _filtered(image, given[:axes], s, layers, half))
    write_result(image, d, texels, half)


def _places(image: ImageDescriptor, slots: Sequence[OperandSlot], *, level: bool) -> list[TypedValue]:
    """Return the coordinates as bits of floats."""
    given, _ = coordinates(image, slots, level=level, lacking=_MIDDLE)
    if image.w.modifiers.get("a16"):
        given = [one.to("u16").as_("f16").to("f32").as_("u32") for one in given]
    return given


def _corners(
    image: ImageDescriptor, given: Sequence[TypedValue], s: _Sampler, layers: Sequence[TypedValue]
) -> tuple[list[tuple[Along, ...]], list[TypedValue]]:
    """Return the elements around a position, with neighbours along X adjacent, and the weights by axis."""
    w = image.w
    axes = axes_of(image.dim)
    sides: list[list[Along]] = []
    weights = []
    for axis, coordinate, mode in zip(axes, given, s.modes, strict=False):
        elements, weight = _axis(w, coordinate, image.extents[axis], mode, s)
        sides.append([Along.of(image, axis, element) for element in elements])
        weights.append(weight)
    sides += [[Along.of(image, axes[-1], layer)] for layer in layers]
    return list(itertools.product(*reversed(sides))), weights


def _filtered(
    image: ImageDescriptor, given: Sequence[TypedValue], s: _Sampler, layers: Sequence[TypedValue], half: bool
) -> list[TypedValue]:
    """Return the four components in registers' format: an element, or the weighted mean of its neighbours."""
    w = image.w
    around, weights = _corners(image, given, s, layers)
    corners = [fetch_components(image, corner, False)[0] for corner in around]
    first = fetch_components(image, around[0], True)[0] if half else corners[0]
    result = []
    for component, nearest in enumerate(first):
        values = [corner[component].as_("f32").to("f64") for corner in corners]
        for weight in weights:
            values = [_between(w, values[i], values[i + 1], weight) for i in range(0, len(values), 2)]
        mean = values[0].to("f16").as_("u16").to("u32") if half else values[0].to("f32").as_("u32")
        result.append(w.select(s.linear, mean, nearest))
    return result


_GATHERED = (2, 3, 1, 0)
"""Corners in the order of the result: 0 and 1 along X, 2 and 3 next to them along Y."""


def _gather(
    w: WaveBuilder,
    d: OperandSlot,
    slots: Sequence[OperandSlot],
    resource: OperandSlot,
    sampler: OperandSlot,
    *,
    level: bool,
) -> None:
    dim, mask, half = dimension(w), w.modifiers.get("dmask", 0), bool(w.modifiers.get("d16"))
    planes = (VOLUME, PLANES) if w.major == 9 else (PLANE, PLANES)
    if dim not in planes or mask not in _COMPONENTS:
        raise Unsupported(f"{w.variant.operation} of lines, volumes or several components is not modelled")
    image = image_of(w, resource, dim)
    stop(w, ~image.is_one_of(PLANE, PLANES), IMAGE)
    if half:
        image.form.refuse_narrowing()
    s = replace(_sampler_of(image, sampler, 2), linear=w.number(1) == 1)
    given = _places(image, slots, level=level)
    layers = [_layer(w, given[-1], image.extents[-1])] if dim == PLANES else []
    around, _ = w.with_rounding(0, lambda _: _corners(image, given[:2], s, layers))
    corners = [fetch_components(image, corner, half)[0] for corner in around]
    selection = image.selections[_COMPONENTS.index(mask)]
    values = [selected(image.form, corners[corner], selection, half) for corner in _GATHERED]
    for index, row in enumerate(result_rows(w, d, values, "pairs" if half else "")):
        d.store_row(index, row, w.exec)


_MODELS = {"sample": _sample, "gather4": _gather}


def _declare(addresses: Sequence[str], resource: str, sampler: str, **generations: tuple[int, ...]) -> None:
    """Declare the operations of several generations, given the names of their operands."""
    places = " ".join(f"{name}:u32x{1 if index else 4}" for index, name in enumerate(addresses))
    for verb, suffix in itertools.product(_MODELS, ("", "_lz", "_l")):

        @operations.wave(
            f"image_{verb}{suffix}",
            f"{places} {resource}:u32x8 {sampler}:u32x4 -> vdata:u32x4",
            exact=False,
            static=(*STATIC, "unorm"),
            generations=True,
            processors=True,
            **generations,
        )
        def sample(
            w: WaveBuilder, d: OperandSlot, *given: OperandSlot, verb: str = verb, level: bool = suffix == "_l"
        ) -> None:
            """D = the image at coordinates: a sample, or one component of the four nearest elements."""
            _MODELS[verb](w, d, given[:-2], given[-2], given[-1], level=level)


_declare(IN_A_ROW, "srsrc", "ssamp", since=(9,), until=(10,))
_declare(EACH, "srsrc", "ssamp", since=(10,), until=(12,))
_declare(EACH, "rsrc", "samp", since=(12,))
