"""HIP kernels compiled by clang, run on the emulated device, against the same source on the host and NumPy."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from luthier.devices import open_device
from luthier.emulator import Module
from numpy.typing import NDArray

pytestmark = pytest.mark.rows()

TARGETS = ("gfx90a", "gfx942", "gfx1100", "gfx1201", "gfx1250", "gfx1100 wave64")
WAVE64 = ("-mwavefrontsize64", "-U__AMDGCN_WAVEFRONT_SIZE", "-D__AMDGCN_WAVEFRONT_SIZE=64")
ITEMS = 300
EDGES = [0, 1, 2, 3, 5, 31, 32, 33, 255, 256, 65535, 65536, 0x7FFFFFFF, 0x80000000, 0x80000001, 0xFFFFFFFE, 0xFFFFFFFF]


@pytest.fixture(scope="module", params=TARGETS)
def target(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def plain(target: str, build_kernels: Callable[..., Path]) -> Module:
    return loaded("plain", target, build_kernels)


@pytest.fixture(scope="module")
def groups(target: str, build_kernels: Callable[..., Path]) -> Module:
    return loaded("groups", target, build_kernels)


def loaded(name: str, target: str, build_kernels: Callable[..., Path]) -> Module:
    """The kernels of a file on a new device; ``wave64`` after the target asks for waves of 64 lanes."""
    processor, _, wave = target.partition(" ")
    return open_device(f"emu:{processor}").load(build_kernels(name, processor, *(WAVE64 if wave else ())))


def inputs(name: str, random: np.random.Generator) -> tuple[list[NDArray[Any]], int, Any]:
    """Input arrays, results an item, and the result type of a plain kernel."""
    edges = np.array(EDGES, np.uint32)
    mixed = np.concatenate([edges, random.integers(0, 1 << 32, ITEMS - len(edges), np.uint32)])
    other = random.permutation(mixed)
    if name == "vector_add":
        return [random.random(ITEMS, np.float32), random.random(ITEMS, np.float32)], 1, np.float32
    if name == "collatz":
        return [np.arange(ITEMS, dtype=np.uint32)], 1, np.uint32
    if name == "stack":
        return [mixed], 1, np.uint32
    if name == "call_function":
        return [mixed.view(np.int32) >> 4, other.view(np.int32) >> 9], 1, np.int32
    if name == "integers":
        return [mixed.view(np.int32), other.view(np.int32)], 24, np.uint32
    if name == "floats":
        scale = np.exp2(random.integers(-20, 14, ITEMS)).astype(np.float32)
        x = (random.standard_normal(ITEMS).astype(np.float32) * scale).astype(np.float32)
        y = (random.standard_normal(ITEMS).astype(np.float32) * 100).astype(np.float32)
        x[:6] = [0.0, -0.0, 1.5, -2.5, 0.49999997, 8388609.0]
        return [x, y], 20, np.float32
    x64 = random.standard_normal(ITEMS) * np.exp2(random.integers(-30, 30, ITEMS))
    return [x64, random.standard_normal(ITEMS) * 1000], 12, np.float64


@pytest.mark.rows(1)
@pytest.mark.parametrize("name", ["vector_add", "collatz", "call_function", "stack", "integers", "floats", "doubles"])
def test_same_as_on_the_host(plain: Module, host_kernels: ctypes.CDLL, name: str) -> None:
    sources, results, dtype = inputs(name, np.random.default_rng(7))
    expected = np.zeros(ITEMS * results, dtype)
    function = getattr(host_kernels, name)
    pointers = [array.ctypes.data_as(ctypes.c_void_p) for array in (*sources, expected)]
    for item in range(ITEMS):
        host_kernels.set_item(item)
        function(*pointers, ITEMS)
    actual = np.zeros_like(expected)
    plain.kernel(name).launch(*sources, actual, ITEMS, grid=5, block=64)
    unequal = [index for index in range(actual.size) if actual[index].tobytes() != expected[index].tobytes()]
    wrong = [index for index in unequal if not (actual[index] != actual[index] and expected[index] != expected[index])]
    assert not wrong, [(index // results, index % results, actual[index], expected[index]) for index in wrong[:5]]


@pytest.mark.rows(1)
def test_no_instruction_is_refused(plain: Module, groups: Module) -> None:
    for module in (plain, groups):
        for name in module.object.kernels:
            assert module.kernel(name).refused() == {}


@pytest.mark.rows(1)
def test_reduction(groups: Module) -> None:
    data = np.random.default_rng(1).integers(0, 100, 2000).astype(np.float32)
    sums = np.zeros(8, np.float32)
    groups.kernel("reduction").launch(data, sums, 2000, grid=8, block=256)
    assert np.array_equal(sums, np.pad(data, (0, 48)).reshape(8, 256).sum(1))


def test_dynamic_lds(groups: Module) -> None:
    data = np.arange(300, dtype=np.uint32)
    out = np.zeros_like(data)
    groups.kernel("dynamic_reverse").launch(data, out, grid=3, block=100, dynamic_lds=400)
    assert np.array_equal(out, data.reshape(3, 100)[:, ::-1].ravel())


def test_atomics_with_return(groups: Module) -> None:
    data = np.random.default_rng(2).integers(0, 1000, 3000).astype(np.uint32)
    bins, order = np.zeros(16, np.uint32), np.zeros(3000, np.uint32)
    groups.kernel("histogram").launch(data, bins, order, 3000, grid=24, block=128)
    assert np.array_equal(bins, np.bincount(data % 16, minlength=16))
    for bucket in range(16):  # each value of the counter was returned exactly once
        assert np.array_equal(np.sort(order[data % 16 == bucket]), np.arange(bins[bucket]))


def test_atomics_without_return(groups: Module) -> None:
    n = 3000
    cells, wide, total = np.zeros(8, np.uint32), np.zeros(1, np.uint64), np.zeros(1, np.float32)
    groups.kernel("atomics").launch(cells, wide, total, n, grid=24, block=128)
    i = np.arange(n)
    expected = [
        i.sum(),
        ((i * 7919) % 10007).max(),
        2**32 - (n - 1),
        2**32 - 1,
        np.bitwise_xor.reduce(i),
        n % 100,
        3 * n,
    ]
    assert cells[:7].tolist() == [int(value) for value in expected]
    assert wide[0] == n << 33
    assert total[0] == n / 2


def test_work_item_ids_in_three_dimensions(groups: Module) -> None:
    grid, block = (2, 3, 2), (5, 3, 4)
    shape = tuple(g * b for g, b in zip(grid[::-1], block[::-1], strict=True))
    out = np.zeros(shape, np.uint32)
    groups.kernel("ids").launch(out, grid=grid, block=block)
    z, y, x = np.indices(shape)
    assert np.array_equal(out, (x | y << 8 | z << 16 | (grid[2] * 16 + block[1]) << 24).astype(np.uint32))


def test_cross_lane(groups: Module, target: str) -> None:
    n = 256
    data = np.random.default_rng(3).integers(0, 50, n).astype(np.int32)
    out = np.zeros(n, np.int32)
    groups.kernel("lanes").launch(data, out, n, grid=2, block=128)
    wave = 32 if target in ("gfx1100", "gfx1201", "gfx1250") else 64
    sums = np.repeat(data.reshape(-1, 32).sum(1), 32)
    moved = sums + np.arange(n) % 128
    up = np.where(np.arange(n) % 32 == 0, moved, np.roll(moved, 1))
    odd = np.repeat((data & 1).reshape(-1, wave).sum(1), wave)
    assert np.array_equal(out, sums * 1000 + up % 1000 + odd)


def test_variables(groups: Module) -> None:
    for name in ("counter", "managed_counter"):
        groups.variable(name).write(5)
    out = np.zeros(64, np.int32)
    groups.kernel("variables").launch(out, grid=2, block=64)
    assert groups.variable("counter").read(int) == 5 + 128
    assert groups.variable("managed_counter").read(int) == 5 + 2 * 16 * (2 + 3 + 5 + 7)
    assert groups.variable("factors").read(np.int32).tolist() == [2, 3, 5, 7]
    assert out.tolist() == [2, 3, 5, 7] * 16


def test_a_wave_that_spins_lets_others_run(groups: Module) -> None:
    flag, out = np.zeros(1, np.uint32), np.zeros(1, np.uint32)
    groups.kernel("spin").launch(flag, out, grid=1, block=256)
    assert out[0] == 1


def test_counts_add_up(groups: Module) -> None:
    stats = groups.kernel("reduction").launch(
        np.ones(2000, np.float32), np.zeros(8, np.float32), 2000, grid=8, block=256
    )
    counts = stats.by_address
    assert stats.instructions == sum(stats.opcodes.values()) == counts.executions.sum()
    assert stats.waves == stats.opcodes["s_endpgm"] == 8 * 256 // groups.object.kernels["reduction"].wave_size
    assert stats.workgroups == 8
    assert np.all(counts.active_lanes <= counts.executions * groups.object.kernels["reduction"].wave_size)
    assert np.all(np.diff(counts.addresses) > 0)
