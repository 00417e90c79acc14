"""Loads and stores of images, against Python's numbers, for formats and geometries as data (`image_cases`)."""

from __future__ import annotations

import itertools
import re
from contextlib import nullcontext

import numpy as np
import pytest
from image_cases import DIMENSIONS, FORMATS, LANES, TARGETS, Image, allocated, executed, is_gfx9
from kept import ROOT
from luthier.emulator.inspection.bench import WaveState, run_assembly
from luthier.emulator.operations.image_tiles import SIZES, equations
from luthier.errors import EmulationError
from numpy.typing import NDArray

EXTENTS = {"1D": (37,), "2D": (19, 7), "3D": (9, 5, 3), "1D_ARRAY": (21, 4), "2D_ARRAY": (9, 5, 3)}
RNG = np.random.default_rng(8)
Registers = dict[int, NDArray[np.uint32]]


def places(image: Image, *, outside: bool = True) -> list[tuple[int, ...]]:
    """Coordinates of the lanes: no two the same, some outside of the image."""
    within = list(itertools.product(*(range(extent) for extent in image.extents)))
    chosen = [within[index] for index in RNG.permutation(len(within))[:LANES]]
    if outside:
        for lane in range(len(image.extents)):
            at = list(chosen[lane])
            at[lane] = image.extents[lane] if lane else 0xFFFFFFFF
            chosen[lane] = tuple(at)
    return chosen


def addresses(image: Image, at: list[tuple[int, ...]], *, apart: bool) -> tuple[Registers, str]:
    """Coordinates in registers from v20 on, or every third one; and how the instruction names them."""
    step = 3 if apart else 1
    names = [f"v{20 + step * index}" for index in range(len(image.extents))]
    given = {
        20 + step * index: np.array([place[index] for place in at], np.uint64).astype(np.uint32)
        for index in range(len(image.extents))
    }
    assert not (apart and is_gfx9(image.target))
    if len(names) == 1:
        return given, names[0]
    if apart or image.target == "gfx1201":
        return given, f"[{', '.join(names)}]"
    return given, f"v[20:{20 + len(names) - 1}]"


def run(image: Image, verb: str, data: str, rest: str, given: Registers, memory, address: int) -> WaveState:
    unorm = "" if image.target == "gfx1201" else " unorm"
    names, options = rest.split("|")
    mask, *more = options.split()
    text = f"{verb} {data}, {names}, s[8:15] {mask} dim:SQ_RSRC_IMG_{image.dim}{unorm} {' '.join(more)}"
    words = {8 + place: word for place, word in enumerate(image.words(address))}
    return executed(image.target, text, given, words, memory)


def span(count: int) -> str:
    return f"v[0:{count - 1}]" if count > 1 else "v0"


def check_load(image: Image, *, mask: int = 15, apart: bool = False, outside: bool = True) -> None:
    memory, place = allocated(image, 1)
    at = places(image, outside=outside)
    given, names = addresses(image, at, apart=apart)
    count = mask.bit_count()
    state = run(image, "image_load", span(count), f"{names}|dmask:{mask:#x}", given, memory, place.address)
    chosen = [component for component in range(4) if mask >> component & 1]
    for lane in range(LANES):
        start = image.place(at[lane])
        numbers = [] if start is None else image.components(place.view()[start : start + image.size].tobytes())
        for index, component in enumerate(chosen):
            select = image.selections[component]
            number = select if select < 2 else numbers[select - 4] if numbers else 0
            actual = int(state.vgpr(index)[lane])
            assert actual == image.register(number), (lane, at[lane], component)


def check_store(image: Image, *, mask: int = 15, apart: bool = False) -> None:
    memory, place = allocated(image, 2)
    before = place.view().copy()
    at = places(image)
    given, names = addresses(image, at, apart=apart)
    count = mask.bit_count()
    for index in range(count):
        if image.is_integer:
            given[index] = RNG.integers(0, 1 << 32, LANES, np.uint32)
            given[index][::3] = RNG.integers(0, 200, len(given[index][::3]))
        else:
            given[index] = (RNG.normal(size=LANES) * 0.7).astype(np.float32).view(np.uint32)
    given[0][5] = 0x7FC00000
    run(image, "image_store", span(count), f"{names}|dmask:{mask:#x}", given, memory, place.address)
    missing = 0 if image.target != "gfx1201" else None
    for lane in range(LANES):
        start = image.place(at[lane])
        if start is not None:
            registers = [int(given[index][lane]) for index in range(count)]
            registers += [registers[0] if missing is None else missing] * (4 - count)
            # The tests' selections are permutations, so their inverse gives the image's order.
            ordered = [registers[image.selections.index(4 + index)] for index in range(FORMATS[image.form][3])]
            before[start : start + image.size] = np.frombuffer(image.encoded(ordered), np.uint8)
    np.testing.assert_array_equal(place.view(), before)


def selections(form: str) -> tuple[int, ...]:
    """As in ROCr, for channels R, RG and RGBA: missing components are 0, except for a last one of 1."""
    return {1: (4, 0, 0, 0), 2: (4, 5, 0, 0), 4: (4, 5, 6, 7)}[FORMATS[form][3]]


@pytest.mark.rows(16)
@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("target", TARGETS)
def test_formats(target: str, form: str) -> None:
    image = Image(target, form, "2D", EXTENTS["2D"], 24, selections(form))
    check_load(image)
    if not form.endswith("SRGB"):
        check_store(image)


@pytest.mark.parametrize("target", TARGETS)
def test_srgb_is_not_stored(target: str) -> None:
    with pytest.raises(EmulationError, match="can be loaded but not stored"):
        check_store(Image(target, "8_8_8_8_SRGB", "2D", EXTENTS["2D"]))


@pytest.mark.rows(2)
@pytest.mark.parametrize("dim", DIMENSIONS)
@pytest.mark.parametrize(
    ("target", "apart"),
    [(target, apart) for target in (*TARGETS, "gfx90a") for apart in (False, True) if not (apart and is_gfx9(target))],
)
def test_geometries(target: str, dim: str, apart: bool) -> None:
    for form in ("8_8_8_8_UNORM", "16_UINT", "32_32_32_32_FLOAT"):
        image = Image(target, form, dim, EXTENTS[dim], selections=selections(form))
        check_load(image, apart=apart)
        check_store(image, apart=apart)


SIZED = ("8_UINT", "8_8_UNORM", "32_FLOAT", "32_32_UINT", "32_32_32_32_FLOAT")
"""A format for each size of elements."""


SHAPES = [("2D", (300, 70)), ("2D_ARRAY", (70, 45, 5)), ("3D", (40, 33, 9))]
LATER = [pytest.param(name, marks=pytest.mark.thorough) for name in ("gfx902", "gfx1032", "gfx1036", "gfx1103")]


@pytest.mark.parametrize("target", [*TARGETS, *LATER])
def test_tiles(target: str) -> None:
    """For each mode and element size, an image that is larger than most blocks."""
    shapes = itertools.cycle(SHAPES)
    for (mode, size), equation in equations(target).items():
        dim, extents = ("3D", (37, 23, 19)) if equation.block[2] else next(shapes)
        image = Image(target, SIZED[size], dim, extents, selections=selections(SIZED[size]), mode=mode)
        check_load(image)
        check_store(image)


NOT_OF_TARGETS = (
    "gfx902",
    "gfx904",
    "gfx909",
    "gfx1012",
    "gfx1031",
    "gfx1033",
    "gfx1036",
    "gfx1101",
    "gfx1102",
    "gfx1103",
)


@pytest.mark.parametrize("target", [*TARGETS, *NOT_OF_TARGETS])
def test_each_element_has_a_place_of_its_own(target: str) -> None:
    """In a block, coordinate bits change independent address bits, and all of them."""
    tiles = equations(target)
    assert len(tiles) >= 4 * SIZES
    for (_, size), equation in tiles.items():
        inside = [(axis, bit) for axis, bits in enumerate(equation.block) for bit in range(bits)]
        assert len(inside) + size == len(equation.bits)
        kept: list[int] = []
        for source in inside:
            turned = sum(1 << number for number, sources in enumerate(equation.bits) if source in sources)
            assert turned % (1 << size) == 0
            for other in kept:
                turned = min(turned, turned ^ other)
            assert turned, (equation, source)
            kept.append(turned)
            kept.sort(reverse=True)


def test_tiles_as_others_have_them() -> None:
    """AMD's rocjitsu (vm/amdgpu/image_address.h, gfx11_image_offset): GFX12's 4 KiB, with four bits exclusive-ored."""
    ours, theirs = equations("gfx1100"), equations("gfx1201")
    for size in range(SIZES):
        x, y, _ = ours[22, size].block
        also = {8: (0, x + 1), 9: (1, y + 1), 10: (0, x), 11: (1, y)}
        planes = [frozenset(source for source in bit if source[0] < 2) for bit in ours[22, size].bits]
        assert planes == [
            bit | ({also[number]} if number in also else set()) for number, bit in enumerate(theirs[2, size].bits)
        ]


ADDRESSES = [
    ("gfx900", 22, 1, (125, 482, 24), (398, 741, 33), 0x102A5AA),
    ("gfx900", 26, 4, (131, 458, 21), (309, 881, 38), 0x5E33ED0),
    ("gfx900", 20, 0, (913, 570, 5), (916, 925, 31), 0x827699),
    ("gfx900", 24, 2, (294, 915, 18), (316, 980, 22), 0x25795D8),
    ("gfx902", 22, 0, (265, 523, 15), (694, 730, 21), 0x8183D9),
    ("gfx902", 26, 3, (533, 19, 32), (635, 392, 37), 0x46419D8),
    ("gfx902", 20, 3, (230, 237, 21), (358, 903, 33), 0x2CEFE70),
    ("gfx902", 24, 3, (320, 294, 11), (340, 308, 31), 0xD02AA0),
    ("gfx904", 22, 3, (42, 406, 17), (877, 468, 20), 0x3A85CA0),
    ("gfx904", 26, 1, (111, 275, 16), (385, 322, 29), 0x6401BE),
    ("gfx904", 20, 0, (913, 570, 5), (916, 925, 31), 0x827299),
    ("gfx904", 24, 3, (320, 294, 11), (340, 308, 31), 0xD037A0),
    ("gfx909", 22, 0, (265, 523, 15), (694, 730, 21), 0x818FD9),
    ("gfx909", 26, 3, (533, 19, 32), (635, 392, 37), 0x46410D8),
    ("gfx909", 20, 3, (230, 237, 21), (358, 903, 33), 0x2CEF870),
    ("gfx909", 24, 4, (719, 5, 4), (782, 354, 31), 0x2C9230),
    ("gfx1010", 2, 0, (265, 523, 15), (694, 730, 21), 0x7C28D9),
    ("gfx1010", 22, 3, (533, 19, 32), (635, 392, 37), 0x3EA40D8),
    ("gfx1010", 27, 2, (168, 238, 28), (982, 321, 34), 0x2A95760),
    ("gfx1010", 21, 1, (474, 221, 30), (660, 451, 31), 0xDD9DD8),
    ("gfx1010", 25, 4, (466, 40, 17), (953, 421, 34), 0x6E94510),
    ("gfx1012", 2, 0, (265, 523, 15), (694, 730, 21), 0x7C28D9),
    ("gfx1012", 22, 2, (150, 186, 5), (614, 771, 31), 0xA2CEA8),
    ("gfx1012", 27, 0, (913, 570, 5), (916, 925, 31), 0x5B8089),
    ("gfx1012", 21, 0, (393, 96, 17), (516, 472, 34), 0x4BC005),
    ("gfx1012", 25, 0, (316, 495, 11), (937, 540, 21), 0xE59E7C),
    ("gfx1030", 2, 0, (481, 262, 16), (565, 310, 32), 0x2F5E29),
    ("gfx1030", 22, 4, (416, 177, 14), (673, 381, 26), 0x3A63C20),
    ("gfx1030", 27, 0, (68, 46, 22), (820, 320, 26), 0xB098E4),
    ("gfx1030", 21, 0, (224, 914, 0), (479, 973, 31), 0x6BC120),
    ("gfx1030", 25, 2, (601, 620, 21), (867, 746, 27), 0x4C69114),
    ("gfx1031", 2, 1, (125, 33, 17), (640, 971, 30), 0x144B79A),
    ("gfx1031", 22, 3, (197, 252, 7), (665, 635, 23), 0x1839048),
    ("gfx1031", 27, 0, (134, 93, 5), (593, 315, 22), 0x1E30D6),
    ("gfx1031", 21, 0, (40, 606, 16), (423, 727, 29), 0x8C3E20),
    ("gfx1031", 25, 2, (349, 67, 2), (533, 968, 28), 0x2C97AC),
    ("gfx1034", 2, 0, (193, 494, 4), (444, 687, 23), 0x1624A9),
    ("gfx1034", 22, 3, (80, 452, 18), (433, 479, 23), 0x1F12900),
    ("gfx1034", 27, 2, (452, 135, 28), (634, 591, 29), 0x2C441F0),
    ("gfx1034", 21, 2, (304, 634, 1), (643, 646, 39), 0xC7DA30),
    ("gfx1034", 25, 1, (104, 49, 19), (706, 470, 31), 0x1A701C),
    ("gfx1036", 2, 2, (601, 395, 10), (636, 424, 22), 0xB53B34),
    ("gfx1036", 22, 1, (121, 111, 9), (797, 716, 20), 0xAABBF2),
    ("gfx1036", 27, 2, (183, 247, 18), (326, 967, 34), 0x1B478FC),
    ("gfx1036", 21, 3, (206, 47, 11), (380, 745, 31), 0x12A9AF0),
    ("gfx1036", 25, 2, (44, 116, 3), (377, 341, 21), 0x255290),
    ("gfx1100", 2, 4, (647, 375, 9), (921, 441, 23), 0x3D9FDF0),
    ("gfx1100", 22, 0, (858, 44, 8), (865, 425, 37), 0x31D3E2),
    ("gfx1100", 27, 4, (31, 556, 10), (310, 769, 34), 0x2B2F350),
    ("gfx1100", 31, 2, (307, 756, 15), (734, 765, 26), 0x23A1E94),
    ("gfx1100", 21, 3, (434, 898, 18), (576, 983, 35), 0x64E66C0),
    ("gfx1100", 25, 1, (249, 535, 9), (434, 885, 36), 0xE7C84E),
    ("gfx1100", 29, 1, (137, 470, 25), (707, 768, 30), 0x2947746),
    ("gfx1101", 2, 3, (302, 135, 16), (357, 695, 38), 0x1EF52F0),
    ("gfx1101", 22, 0, (83, 79, 15), (418, 776, 35), 0x55D1B7),
    ("gfx1101", 27, 0, (136, 686, 6), (487, 800, 38), 0x346AF0),
    ("gfx1101", 31, 1, (843, 524, 19), (848, 571, 22), 0x1DFF7CA),
    ("gfx1101", 21, 3, (220, 255, 8), (333, 310, 33), 0xB97910),
    ("gfx1101", 25, 4, (108, 348, 25), (317, 580, 29), 0x48EF820),
    ("gfx1101", 29, 0, (32, 192, 23), (419, 727, 27), 0x54ACA4),
    ("gfx1102", 2, 2, (873, 372, 15), (913, 991, 28), 0x358A384),
    ("gfx1102", 22, 4, (729, 38, 22), (906, 416, 34), 0x7FFBF90),
    ("gfx1102", 27, 2, (392, 579, 17), (435, 603, 36), 0x1678D28),
    ("gfx1102", 31, 4, (186, 365, 13), (543, 681, 22), 0x6463560),
    ("gfx1102", 21, 3, (533, 298, 16), (788, 495, 37), 0x3E85108),
    ("gfx1102", 25, 2, (180, 484, 25), (353, 748, 29), 0x1D9A120),
    ("gfx1102", 29, 0, (529, 89, 12), (746, 363, 32), 0x505E89),
    ("gfx1103", 2, 2, (82, 19, 18), (854, 357, 37), 0x1536E38),
    ("gfx1103", 22, 1, (403, 163, 7), (999, 548, 29), 0x83611E),
    ("gfx1103", 27, 3, (19, 252, 25), (686, 464, 32), 0x4C27428),
    ("gfx1103", 31, 0, (444, 440, 17), (533, 637, 32), 0x11365C8),
    ("gfx1103", 21, 0, (508, 318, 13), (671, 637, 22), 0x33DED4),
    ("gfx1103", 25, 0, (201, 611, 22), (434, 830, 36), 0x8823B9),
    ("gfx1103", 29, 0, (390, 416, 22), (578, 436, 30), 0x10A21E2),
    ("gfx1201", 1, 2, (188, 3, 20), (599, 499, 31), 0x1713B68),
    ("gfx1201", 2, 2, (321, 624, 6), (500, 853, 35), 0xB5A404),
    ("gfx1201", 3, 0, (170, 634, 6), (920, 778, 26), 0x689DD2),
    ("gfx1201", 4, 3, (284, 25, 27), (688, 804, 29), 0x8E01E50),
    ("gfx1201", 5, 2, (360, 233, 14), (430, 313, 34), 0x759C88),
    ("gfx1201", 6, 0, (127, 105, 4), (507, 344, 33), 0x199ACB),
    ("gfx1201", 7, 4, (100, 127, 17), (880, 498, 27), 0x2AF5960),
]
"""What AddrLib says: target, SW_MODE, logarithm of an element's bytes, its place, the extents, and the address."""


@pytest.mark.parametrize(("target", "mode", "size", "at", "extents", "address"), ADDRESSES)
def test_addresses(
    target: str, mode: int, size: int, at: tuple[int, ...], extents: tuple[int, ...], address: int
) -> None:
    dim = "3D" if equations(target)[mode, size].block[2] else "2D_ARRAY"
    assert Image(target, SIZED[size], dim, extents, mode=mode).place(at) == address


def test_processors_with_the_same_memory_have_the_same_tiles() -> None:
    """The virtual device reports its memory layout (GB_ADDR_CONFIG) to ROCr, which makes the descriptors."""
    chips = re.findall(r"\{\"(gfx\w+)\", [^}]*, (0x[\w']+)\}", (ROOT / "runtime/native/kfd_shim/chips.h").read_text())
    targets_by_tiles: dict[tuple[str, str], list[str]] = {}
    for chip, layout in chips:
        if equations(chip):
            targets_by_tiles.setdefault((chip[:5], layout), []).append(chip)
    assert sum(map(len, targets_by_tiles.values())) == 29
    assert len(targets_by_tiles) == 16
    different = {frozenset(equations(names[0]).items()) for names in targets_by_tiles.values()}
    assert len(different) == 15  # two of GFX9 differ in what images do not depend on
    for names in targets_by_tiles.values():
        assert all(equations(name) == equations(names[0]) for name in names), names


AS_PLANES = {"1D": (0,), "2D": (0, 1), "3D": (0, 1, 2), "1D_ARRAY": (0, 2)}
"""By shape: which coordinates of an array of planes are the image's; on GFX9 the second one of lines is the layer."""


@pytest.mark.parametrize("dim", AS_PLANES)
@pytest.mark.parametrize("target", TARGETS)
def test_hip_copies_images_of_every_shape_as_arrays_of_planes(target: str, dim: str) -> None:
    axes = (0, 1) if dim == "1D_ARRAY" and is_gfx9(target) else AS_PLANES[dim]
    for mode in (0, 22 if is_gfx9(target) else 2) if dim == "2D" else (0,):
        image = Image(target, "32_UINT", dim, EXTENTS[dim], selections=(4, 0, 0, 0), mode=mode)
        check_as_planes(image, axes, list(itertools.islice(itertools.product(*map(range, image.extents)), 32)))
    lacks = [axis for axis in range(3) if axis not in axes]
    if lacks and not (dim == "1D_ARRAY" and is_gfx9(target)):
        with pytest.raises(EmulationError, match="another geometry"):
            check_as_planes(image, (lacks[0],), [(1,)] * 32)


def check_as_planes(image: Image, axes: tuple[int, ...], at: list[tuple[int, ...]]) -> None:
    """Load elements by coordinates along some axes; the other coordinates are 0."""
    memory, place = allocated(image, 11)
    given = {20 + axis: np.zeros(32, np.uint32) for axis in range(3)}
    given |= {20 + axis: np.array([one[index] for one in at], np.uint32) for index, axis in enumerate(axes)}
    words = {8 + index: word for index, word in enumerate(image.words(place.address))}
    names = "[v20, v21, v22]" if image.target == "gfx1201" else "v[20:22]"
    text = f"image_load v0, {names}, s[8:15] dmask:0x1 dim:SQ_RSRC_IMG_2D_ARRAY"
    state = executed(image.target, text, given, words, memory)
    contents = place.view().view(np.uint32)
    starts = [image.place(one) for one in at]
    expected = [contents[start // 4] for start in starts if start is not None]
    np.testing.assert_array_equal(state.vgpr(0)[:LANES], expected)


def test_bases_of_tiles() -> None:
    """The part of a base below a block permutes elements in their block (rocjitsu, gfx12_image_address)."""
    image = Image("gfx1201", "32_UINT", "2D", (40, 40), selections=(4, 0, 0, 0), mode=2)
    memory, place = allocated(image, 7)
    at = np.arange(32, dtype=np.uint32)
    words = {8 + index: word for index, word in enumerate(image.words(place.address + 0x300))}
    text = "image_load v0, [v20, v21], s[8:15] dmask:0x1 dim:SQ_RSRC_IMG_2D"
    state = executed("gfx1201", text, {20: at, 21: at[::-1].copy()}, words, memory)
    contents = place.view().view(np.uint32)
    expected = [contents[(image.place((x, 31 - x)) ^ 0x300) // 4] for x in range(32)]
    np.testing.assert_array_equal(state.vgpr(0), expected)


@pytest.mark.parametrize(
    ("target", "dim", "mode"),
    [
        ("gfx906", "2D", 25),
        ("gfx906", "2D", 24),
        ("gfx1010", "2D", 26),
        ("gfx1030", "2D", 26),
        ("gfx1030", "2D", 31),
        ("gfx1100", "2D", 21),
        ("gfx1201", "2D_ARRAY", 5),
        ("gfx1201", "3D", 8),
    ],
)
def test_tiles_that_are_not_modelled(target: str, dim: str, mode: int) -> None:
    """Also those of volumes, where there is none."""
    image = Image(target, "32_UINT", dim, EXTENTS[dim], selections=(4, 0, 0, 0))
    memory, place = allocated(image, 4)
    scalars = {8 + index: word | mode * (index == 3) << 20 for index, word in enumerate(image.words(place.address))}
    names = [f"v{20 + index}" for index in range(len(image.extents))]
    given = f"[{', '.join(names)}]" if target == "gfx1201" else f"v[20:{19 + len(names)}]"
    text = f"image_load v0, {given}, s[8:15] dmask:0x1 dim:SQ_RSRC_IMG_{dim}"
    with pytest.raises(EmulationError, match="an image in tiles"):
        executed(target, text, {20: 0, 21: 0, 22: 0}, scalars, memory)


@pytest.mark.parametrize(("pitch", "fits"), [(1, True), (64, True), (40, False), (96, False)])
def test_rows_of_tiles_are_next_to_each_other(pitch: int, fits: bool) -> None:
    """Some make descriptors without a pitch, so that its field is 0."""
    image = Image("gfx1030", "32_UINT", "2D", (40, 40), pitch=pitch, selections=(4, 0, 0, 0), mode=22)
    with nullcontext() if fits else pytest.raises(EmulationError, match="in tiles that are not adjacent"):
        check_load(image)


def test_elements_of_12_bytes_have_no_tiles() -> None:
    image = Image("gfx1100", "32_UINT", "2D", EXTENTS["2D"])
    memory, place = allocated(image, 4)
    words = image.words(place.address)
    words[1] = words[1] & ~(0xFF << 20) | 58 << 20  # 32_32_32 UINT
    scalars = {8 + index: word | 27 * (index == 3) << 20 for index, word in enumerate(words)}
    text = "image_load v[0:2], v[20:21], s[8:15] dmask:0x7 dim:SQ_RSRC_IMG_2D"
    with pytest.raises(EmulationError, match="an image in tiles"):
        executed("gfx1100", text, {20: 0, 21: 0}, scalars, memory)


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", TARGETS)
def test_components(target: str) -> None:
    """DMASK chooses; DST_SEL exchanges, and has constants, which are not 0 outside of the image: refused there."""
    for mask in range(1, 16):
        check_load(Image(target, "16_16_16_16_SNORM", "2D", (19, 7)), mask=mask)
    for mask in (1, 3, 7):
        check_store(Image(target, "8_8_8_8_UINT", "2D", (19, 7)), mask=mask)
    exchanged = Image(target, "8_8_8_8_UNORM", "2D", (19, 7), selections=(6, 5, 4, 7))
    check_load(exchanged)
    check_store(exchanged)
    opaque = Image(target, "8_8_UNORM", "2D", (19, 7), selections=(4, 5, 0, 1))
    check_load(opaque, outside=False)
    with pytest.raises(EmulationError, match="outside of an image"):
        check_load(opaque)


@pytest.mark.rows(2)
@pytest.mark.parametrize("target", TARGETS)
def test_halves(target: str) -> None:
    """Coordinates, which are not modelled on GFX9, and data of 16 bits."""
    image = Image(target, "16_16_16_16_FLOAT", "3D", EXTENTS["3D"])
    memory, place = allocated(image, 3)
    at = places(image, outside=False)
    pairs = np.array(at, np.uint32)
    given = {20: pairs[:, 0] | pairs[:, 1] << np.uint32(16), 21: pairs[:, 2] | np.uint32(0xABCD0000)}
    names, options = "[v20, v21]" if target == "gfx1201" else "v[20:21]", "dmask:0xf a16 d16"
    if is_gfx9(target):
        given, names, options = {20 + axis: pairs[:, axis] for axis in range(3)}, "v[20:22]", "dmask:0xf d16"
    state = run(image, "image_load", span(2), f"{names}|{options}", given, memory, place.address)
    for lane in range(LANES):
        start = image.place(at[lane])
        raw = place.view()[start : start + 8].tobytes()
        assert int(state.vgpr(0)[lane]) | int(state.vgpr(1)[lane]) << 32 == int.from_bytes(raw, "little")
    given[0], given[1] = state.vgpr(1)[:LANES], state.vgpr(0)[:LANES]
    before = place.view().copy()
    run(image, "image_store", span(2), f"{names}|{options}", given, memory, place.address)
    for lane in range(LANES):
        start = image.place(at[lane])
        before[start : start + 8] = np.concatenate([before[start + 4 : start + 8], before[start : start + 4]])
    np.testing.assert_array_equal(place.view(), before)


@pytest.mark.parametrize(
    ("target", "mask", "cleared"),
    [("gfx906", 0b100, True), ("gfx90a", 0b1101, True), ("gfx90a:sramecc-", 0b1101, False), ("gfx1030", 0b100, False)],
)
def test_the_other_half_under_sramecc(target: str, mask: int, cleared: bool) -> None:
    """A load of an odd number of halves clears it (CDNA4's document, 9.1.6)."""
    image = Image(target, "16_16_16_16_FLOAT", "2D", EXTENTS["2D"])
    memory, place = allocated(image, 5)
    at = places(image, outside=False)
    old = RNG.integers(1, 1 << 32, (2, LANES), np.uint32)
    given = {20 + axis: np.array(at, np.uint32)[:, axis] for axis in range(2)} | {0: old[0], 1: old[1]}
    count = mask.bit_count()
    registers = (count + 1) // 2
    state = run(image, "image_load", span(registers), f"v[20:21]|dmask:{mask:#x} d16", given, memory, place.address)
    for lane in range(LANES):
        halves = place.view()[image.place(at[lane]) :][:8].tobytes()
        data = b"".join(halves[2 * index :][:2] for index in range(4) if mask >> index & 1)
        if count % 2:
            data += bytes(2) if cleared else old[count // 2, lane].tobytes()[2:]
        assert b"".join(state.vgpr(index)[lane].tobytes() for index in range(registers)) == data


@pytest.mark.parametrize("target", TARGETS)
def test_levels(target: str) -> None:
    """There is one; another is refused."""
    image = Image(target, "32_UINT", "2D", (19, 7), selections=(4, 0, 0, 0))
    memory, place = allocated(image, 4)
    names = "[v20, v21, v22]" if target == "gfx1201" else "v[20:22]"
    given = {20: np.arange(32, dtype=np.uint32) % 19, 21: np.full(32, 3, np.uint32), 22: np.zeros(32, np.uint32)}
    state = run(image, "image_load_mip", "v0", f"{names}|dmask:0x1", given, memory, place.address)
    row = image.pitches[1] // 4
    np.testing.assert_array_equal(state.vgpr(0)[:LANES], place.view().view(np.uint32)[3 * row + np.arange(LANES) % 19])
    given[22][7] = 1
    with pytest.raises(EmulationError, match="an image with levels"):
        run(image, "image_load_mip", "v0", f"{names}|dmask:0x1", given, memory, place.address)


_MORE = [
    (3, 5 << 20, "an image in tiles"),
    (3, 1 << 16, "an image with levels"),
    (3, 1 << 30, "an image with levels"),
    (6, 1 << 3, "an image with levels"),
]
_SINCE_GFX10 = (4, 1 << 16, "an image with levels")
_ROWS = "a row pitch below its width"


@pytest.mark.parametrize(
    ("target", "word", "bits", "message"),
    [
        *((target, *more) for target in TARGETS for more in _MORE),
        *((target, *_SINCE_GFX10) for target in TARGETS if not is_gfx9(target)),
        *((target, 4, -5, _ROWS) for target in ("gfx1030", "gfx1100", "gfx1201")),
        ("gfx906", 5, 1, "an image with levels"),
        ("gfx906", 1, 1 << 8, "an image with levels"),
        ("gfx906", 4, -(50 << 13), _ROWS),
        ("gfx906", 1, 2 << 26, "no data format"),
        ("gfx906", 1, 1 << 24, "no data format"),
        ("gfx1010", 4, 18, _ROWS),
    ],
)
def test_what_is_not_modelled_stops(target: str, word: int, bits: int, message: str) -> None:
    image = Image(target, "32_UINT", "2D", (19, 7), selections=(4, 0, 0, 0))
    memory, place = allocated(image, 4)
    words = image.words(place.address)
    words[word] += bits
    names = "[v20, v21]" if target == "gfx1201" else "v[20:21]"
    text = f"image_load v0, {names}, s[8:15] dmask:0x1 dim:SQ_RSRC_IMG_2D"
    scalars = {8 + index: value for index, value in enumerate(words)}
    with pytest.raises(EmulationError, match=message):
        executed(target, text, {20: 0, 21: 0}, scalars, memory)
    executed(target, text, {20: 0, 21: 0}, scalars, memory, exec=0)


@pytest.mark.parametrize(
    ("target", "text", "message"),
    [
        ("gfx906", "image_load v0, v[20:21], s[8:15] dmask:0x1 unorm a16", "with r128"),
        ("gfx1100", "image_load v[0:1], v[20:21], s[8:15] dmask:0x1 dim:SQ_RSRC_IMG_2D tfe", "with tfe"),
        ("gfx1100", "image_load v0, v[20:22], s[8:15] dmask:0x1 dim:SQ_RSRC_IMG_CUBE", "cubes or samples"),
        ("gfx1100", "image_store v0, v[20:21], s[8:15] dmask:0x2 dim:SQ_RSRC_IMG_2D", "without the first component"),
    ],
)
def test_forms_that_are_not_modelled(target: str, text: str, message: str) -> None:
    with pytest.raises(EmulationError, match=message):
        run_assembly(target, text, {20: 0, 21: 0})
