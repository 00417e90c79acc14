"""Samples of images, nearest and linear, against OpenCL's rules in fractions, element by element."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from image_cases import DIMENSIONS, LANES, TARGETS, Image, allocated, executed, is_gfx9
from luthier.emulator.inspection.bench import WaveState
from luthier.errors import EmulationError
from numpy.typing import NDArray

WRAP, MIRROR, CLAMP, BORDER = 0, 1, 2, 6
EXTENTS = {"1D": (13,), "2D": (9, 6), "3D": (5, 4, 3), "1D_ARRAY": (13, 4), "2D_ARRAY": (9, 6, 3)}
RNG = np.random.default_rng(9)


def taken(index: int, extent: int, mode: int) -> int:
    """The element that stands for an index; -1 is the border."""
    if mode == CLAMP:
        return min(max(index, 0), extent - 1)
    if mode == WRAP:
        return index % extent
    if mode == MIRROR:
        turn = index % (2 * extent)
        return turn if turn < extent else 2 * extent - 1 - turn
    return index if 0 <= index < extent else -1


def between(place: Fraction) -> Fraction:
    """A place counted from the middle of the first element, in 256 steps from one to the next."""
    return Fraction(round((place - Fraction(1, 2)) * 256), 256)


def sampled(image: Image, contents: bytes, at: list[float], modes: list[int], whole: bool, linear: bool) -> list[float]:
    axes = len(modes)
    ways = []
    for number, extent, mode in zip(at[:axes], image.extents, modes, strict=False):
        place = Fraction(number) * (1 if whole else extent)
        if linear:
            place = between(place)
        index = math.floor(place)
        weight = place - index if linear else Fraction(0)
        ways.append([(taken(index, extent, mode), 1 - weight), (taken(index + 1, extent, mode), weight)])
    layers = [min(max(round(Fraction(number)), 0), image.extents[-1] - 1) for number in at[axes:]]
    total = [Fraction(0)] * 4
    for corner in itertools.product(*ways):
        share = math.prod(weight for _, weight in corner)
        start = image.place((*(index for index, _ in corner), *layers))
        if share and start is not None:
            for component, number in enumerate(image.components(contents[start : start + image.size])):
                total[component] += share * Fraction(number)
    return [float(number) for number in total]


def sampler(target: str, modes: list[int], whole: bool, linear: bool) -> list[int]:
    """As ROCr packs it."""
    first = sum(mode << 3 * axis for axis, mode in enumerate(modes)) | whole << 15
    levels = 4095 << (13 if target == "gfx1201" else 12)
    return [first, levels, linear << 20 | linear << 22, 0]


def coordinates(image: Image, axes: int, whole: bool) -> NDArray[np.float32]:
    """Return the lanes' coordinates, some beyond the image, some in the centres of elements and between them."""
    extents = np.array(image.extents[:axes], np.float64)
    values = RNG.uniform(-1.4, 2.4, (LANES, axes)) * (extents if whole else 1)
    halves = RNG.integers(0, 8, (8, axes)) * 0.5
    values[:8] = halves if whole else halves / 8
    layers = RNG.uniform(-1, image.extents[-1] + 1, (LANES, len(image.extents) - axes))
    return np.concatenate([values, layers], axis=1).astype(np.float32)


def words_of(image: Image, address: int, modes: list[int], whole: bool, linear: bool) -> dict[int, int]:
    scalars = {8 + place: word for place, word in enumerate(image.words(address))}
    return scalars | {16 + place: word for place, word in enumerate(sampler(image.target, modes, whole, linear))}


def text_of(image: Image, verb: str, count: int) -> str:
    names = [f"v{20 + index}" for index in range(count)]
    given = names[0] if count == 1 else f"[{', '.join(names)}]"
    return f"{verb} v[0:3], {given}, s[8:15], s[16:19] dmask:0xf dim:SQ_RSRC_IMG_{image.dim}"


def check(image: Image, modes: list[int], *, whole: bool, linear: bool, verb: str = "image_sample_lz") -> None:
    memory, place = allocated(image, 5)
    at = coordinates(image, len(modes), whole)
    given = {20 + index: at[:, index].copy() for index in range(at.shape[1])}
    count = at.shape[1]
    if verb.endswith("_l"):
        given[20 + count] = np.full(LANES, 2.5, np.float32)
        count += 1
    scalars = words_of(image, place.address, modes, whole, linear)
    text = text_of(image, verb, count)
    state = executed(image.target, text, given, scalars, memory)
    contents = place.view().tobytes()
    for lane in range(LANES):
        numbers = sampled(image, contents, [float(x) for x in at[lane]], modes, whole, linear)
        for component in range(4):
            actual = state.vgpr(component, dtype=np.float32)[lane]
            assert actual == pytest.approx(numbers[component], rel=1e-6, abs=1e-7), (lane, at[lane], component)


@pytest.mark.rows(8)
@pytest.mark.parametrize("linear", [False, True])
@pytest.mark.parametrize("mode", [WRAP, MIRROR, CLAMP, BORDER])
@pytest.mark.parametrize("target", TARGETS)
def test_planes(target: str, mode: int, linear: bool) -> None:
    other = CLAMP if mode != CLAMP else WRAP
    for form in ("8_8_8_8_UNORM", "32_32_32_32_FLOAT"):
        check(Image(target, form, "2D", EXTENTS["2D"], 12), [mode, other], whole=False, linear=linear)
    if mode in (CLAMP, BORDER):
        check(Image(target, "16_16_16_16_SNORM", "2D", EXTENTS["2D"]), [mode, mode], whole=True, linear=linear)


@pytest.mark.rows(1)
@pytest.mark.parametrize("verb", ["image_sample", "image_sample_l"])
@pytest.mark.parametrize("dim", DIMENSIONS)
@pytest.mark.parametrize("target", TARGETS)
def test_geometries(target: str, dim: str, verb: str) -> None:
    image = Image(target, "16_16_16_16_FLOAT", dim, EXTENTS[dim])
    axes = len(image.extents) - dim.endswith("ARRAY")
    for linear in (False, True):
        check(image, [CLAMP, BORDER, WRAP][:axes], whole=False, linear=linear, verb=verb)


@pytest.mark.parametrize("target", ["gfx906", "gfx1030", "gfx1201"])
def test_srgb(target: str) -> None:
    """Elements are made linear before they are filtered."""
    check(Image(target, "8_8_8_8_SRGB", "2D", EXTENTS["2D"]), [WRAP, BORDER], whole=False, linear=True)


@pytest.mark.parametrize(
    ("target", "verb", "dim", "component"),
    [
        ("gfx906", "image_gather4_l", "2D", 2),
        pytest.param("gfx906", "image_gather4_lz", "2D_ARRAY", 1, marks=pytest.mark.thorough),
        ("gfx1030", "image_gather4_lz", "2D", 0),
        ("gfx1100", "image_gather4", "2D_ARRAY", 1),
        ("gfx1201", "image_gather4_l", "2D", 3),
        pytest.param("gfx1201", "image_gather4_lz", "2D_ARRAY", 2, marks=pytest.mark.thorough),
        pytest.param("gfx1030", "image_gather4_l", "2D_ARRAY", 3, marks=pytest.mark.thorough),
    ],
)
def test_gathered(target: str, verb: str, dim: str, component: int) -> None:
    """A component of the four elements that a filter would take, whatever the sampler's filter."""
    image = Image(target, "16_16_16_16_UINT", dim, EXTENTS[dim])
    memory, place = allocated(image, 5)
    at = coordinates(image, 2, False)
    given = {20 + index: at[:, index].copy() for index in range(at.shape[1])}
    if verb.endswith("_l"):
        given[20 + at.shape[1]] = np.zeros(LANES, np.float32)
    scalars = words_of(image, place.address, [CLAMP, BORDER], False, False)
    text = text_of(image, verb, len(given)).replace("dmask:0xf", f"dmask:{1 << component:#x}")
    state = executed(image.target, text, given, scalars, memory)
    contents = place.view().view(np.uint16)
    for lane in range(LANES):
        layer = [min(max(round(float(number)), 0), image.extents[-1] - 1) for number in at[lane, 2:]]
        low = [math.floor(between(Fraction(float(at[lane, axis])) * image.extents[axis])) for axis in (0, 1)]
        for result, (right, above) in enumerate(((0, 1), (1, 1), (1, 0), (0, 0))):
            x, y = taken(low[0] + right, image.extents[0], CLAMP), taken(low[1] + above, image.extents[1], BORDER)
            start = image.place((x, y, *layer))
            expected = 0 if start is None else contents[start // 2 + component]
            assert state.vgpr(result)[lane] == expected, (lane, at[lane], result)


def halves(state: WaveState, count: int) -> NDArray[np.float16]:
    """Return components of 16 bits, two a register, by lane."""
    pairs = np.stack([state.vgpr(index)[:LANES] for index in range(count // 2)], axis=1)
    return pairs.view(np.float16)


@pytest.mark.rows(4)
@pytest.mark.parametrize("linear", [False, True])
@pytest.mark.parametrize("dim", ["2D", "2D_ARRAY", "3D"])
@pytest.mark.parametrize("target", [target for target in TARGETS if not is_gfx9(target)])
def test_sixteen_bits(target: str, dim: str, linear: bool) -> None:
    """Coordinates two a register, and results likewise; the linear ones within a rounding of the mean."""
    for form in ("8_8_8_8_UNORM", "32_32_32_32_FLOAT"):
        image = Image(target, form, dim, EXTENTS[dim])
        axes = len(image.extents) - dim.endswith("ARRAY")
        modes = [CLAMP, BORDER, WRAP][:axes]
        memory, place = allocated(image, 5)
        at = coordinates(image, axes, False).astype(np.float16)
        padded = np.concatenate([at, np.full((LANES, at.shape[1] % 2), 7, np.float16)], axis=1)
        pairs = np.ascontiguousarray(padded).view(np.uint32)
        given = {20 + index: pairs[:, index].copy() for index in range(pairs.shape[1])}
        scalars = words_of(image, place.address, modes, False, linear)
        text = text_of(image, "image_sample_lz", len(given)).replace("v[0:3]", "v[0:1]") + " a16 d16"
        actual = halves(executed(target, text, given, scalars, memory), 4)
        contents = place.view().tobytes()
        for lane in range(LANES):
            numbers = sampled(image, contents, [float(x) for x in at[lane]], modes, False, linear)
            if linear or form == "8_8_8_8_UNORM":
                assert actual[lane] == pytest.approx(np.array(numbers).astype(np.float16), rel=2**-10, abs=1e-7)
            else:  # floats of 32 bits are cut
                assert (np.abs(actual[lane]) <= np.abs(numbers)).all()
                assert actual[lane] == pytest.approx(np.array(numbers), rel=2**-10, abs=1e-7)


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", ["gfx906", "gfx1030", "gfx1201"])
def test_gathered_halves(target: str) -> None:
    image = Image(target, "16_16_16_16_FLOAT", "2D", EXTENTS["2D"])
    memory, place = allocated(image, 5)
    at = coordinates(image, 2, False)
    given = {20: at[:, 0].copy(), 21: at[:, 1].copy()}
    scalars = words_of(image, place.address, [CLAMP, CLAMP], False, False)
    text = text_of(image, "image_gather4_lz", 2).replace("dmask:0xf", "dmask:0x2")
    whole = executed(target, text, given, scalars, memory)
    packed = executed(target, text.replace("v[0:3]", "v[0:1]") + " d16", given, scalars, memory)
    expected = np.stack([whole.vgpr(index, dtype=np.float32)[:LANES] for index in range(4)], axis=1)
    np.testing.assert_array_equal(halves(packed, 4), expected.astype(np.float16))


def test_integers_of_32_bits_have_no_halves() -> None:
    image = Image("gfx1100", "32_32_32_32_UINT", "2D", EXTENTS["2D"])
    memory, place = allocated(image, 6)
    scalars = words_of(image, place.address, [WRAP, CLAMP], False, False)
    text = text_of(image, "image_sample_lz", 2).replace("v[0:3]", "v[0:1]") + " d16"
    with pytest.raises(EmulationError, match="16 bits"):
        executed("gfx1100", text, {20: 0, 21: 0}, scalars, memory)


@pytest.mark.parametrize("target", TARGETS)
def test_integers(target: str) -> None:
    """The element itself, whatever its bits."""
    image = Image(target, "32_32_32_32_UINT", "2D", EXTENTS["2D"])
    memory, place = allocated(image, 6)
    x, y = np.arange(LANES) % 9, np.arange(LANES) % 6
    given = {20: x.astype(np.float32) + np.float32(0.25), 21: y.astype(np.float32) + np.float32(0.75)}
    scalars = words_of(image, place.address, [CLAMP, CLAMP], True, False)
    text = text_of(image, "image_sample_lz", 2)
    state = executed(target, text, given, scalars, memory)
    expected = place.view()[: image.bytes].view(np.uint32).reshape(6, -1, 4)[y, x]
    np.testing.assert_array_equal(np.stack([state.vgpr(index)[:LANES] for index in range(4)], axis=1), expected)


@pytest.mark.parametrize(
    ("word", "bits"),
    [(0, 3), (0, 1 << 18), (2, 2 << 20), (2, 1 << 22), (2, 1 << 24), (3, 1 << 30), (1, 5), (0, 1 << 15)],
)
def test_samplers_that_are_not_modelled(word: int, bits: int) -> None:
    image = Image("gfx1100", "8_8_8_8_UNORM", "2D", EXTENTS["2D"])
    memory, place = allocated(image, 6)
    scalars = words_of(image, place.address, [WRAP, CLAMP], False, False)
    scalars[16 + word] |= bits
    text = text_of(image, "image_sample_lz", 2)
    with pytest.raises(EmulationError, match="a sampler that"):
        executed("gfx1100", text, {20: 0, 21: 0}, scalars, memory)


@pytest.mark.parametrize(
    ("target", "mode"), [("gfx906", 24), ("gfx1010", 25), ("gfx1030", 25), ("gfx1100", 27), ("gfx1201", 6)]
)
def test_volumes_in_tiles(target: str, mode: int) -> None:
    image = Image(target, "16_16_16_16_FLOAT", "3D", (37, 20, 18), mode=mode)
    check(image, [CLAMP, WRAP, MIRROR], whole=False, linear=True)


def test_integers_are_not_filtered() -> None:
    image = Image("gfx1201", "8_8_8_8_UINT", "2D", EXTENTS["2D"])
    memory, place = allocated(image, 6)
    scalars = words_of(image, place.address, [CLAMP] * 2, False, True)
    text = text_of(image, "image_sample_lz", 2)
    with pytest.raises(EmulationError, match="a sampler that"):
        executed("gfx1201", text, {20: 0, 21: 0}, scalars, memory)
