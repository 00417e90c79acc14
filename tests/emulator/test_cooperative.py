"""Work-groups that wait for each other, in cooperative and in other launches."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from luthier.devices import open_device
from luthier.emulator import Module
from luthier.errors import DeviceError, EmulationError

TARGETS = ["gfx906", "gfx908", "gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1151", "gfx1201"]


@pytest.fixture(scope="module", params=TARGETS)
def module(request: pytest.FixtureRequest, build_kernels: Callable[[str, str], Path]) -> Module:
    return open_device(f"emu:{request.param}", threads=2).load(build_kernels("cooperative", request.param))


def moved(cells: np.ndarray, steps: int) -> np.ndarray:
    """Return the kernels' result: each group's cells rotate, one more in each step."""
    return np.roll(cells, steps, axis=0) + steps


@pytest.mark.rows(1)
def test_barrier_made_of_atomics(module: Module) -> None:
    cells = np.arange(7 * 128, dtype=np.uint32).reshape(7, 128)
    actual, sync = cells.copy(), np.zeros(2, np.uint32)
    stats = module.kernel("software").launch(actual, sync, 5, grid=7, block=128, cooperative=True)
    assert np.array_equal(actual, moved(cells, 5))
    assert sync[1] == 10
    assert stats.waves == 7 * 128 // module.object.kernels["software"].wave_size


@pytest.mark.rows(2)
def test_barrier_of_the_hardware(module: Module) -> None:
    if "hardware" not in module.object.kernels:
        return  # not compiled for the target
    cells = np.arange(5 * 128, dtype=np.uint32).reshape(5, 128)
    actual = cells.copy()
    stats = module.kernel("hardware").launch(actual, 3, grid=5, block=128, cooperative=True)
    assert np.array_equal(actual, moved(cells, 3))
    assert stats.opcodes["ds_gws_barrier"] == 6 * stats.waves


def test_barrier_of_the_hardware_without_a_cooperative_launch(module: Module) -> None:
    if "hardware" not in module.object.kernels:
        return  # not compiled for the target
    with pytest.raises(EmulationError, match="deadlock"):
        module.kernel("hardware").launch(np.zeros(5 * 128, np.uint32), 3, grid=5, block=128)


def test_barrier_of_cooperative_groups(module: Module) -> None:
    """One wave of a work-group waits at the grid's barrier, the others at the work-group's."""
    if "groups" not in module.object.kernels:
        assert module.device.target.target.major == 12  # without the instruction
        return
    cells = np.arange(6 * 256, dtype=np.uint32).reshape(6, 256)
    actual = cells.copy()
    stats = module.kernel("groups").launch(actual, 4, grid=6, block=256, cooperative=True)
    assert np.array_equal(actual, moved(cells, 4))
    assert stats.opcodes["ds_gws_barrier"] == 8 * 6


def test_too_many_groups(module: Module) -> None:
    """Groups of one wave each: the device has 32 SIMDs, or 16 and half of the registers."""
    held, block = held_at_once(module, 1), module.object.kernels["software"].wave_size
    with pytest.raises(DeviceError, match=f"of {held + 1} work-groups; at most {held} are resident"):
        module.kernel("software").launch(np.zeros(1), np.zeros(1), 1, grid=held + 1, block=block, cooperative=True)


def held_at_once(module: Module, waves: int) -> int:
    """Work-groups of the kernel `software` on all compute units, which have two or four SIMDs."""
    kernel, target = module.object.kernels["software"], module.device.target.target
    simd_waves = target.occupancy(kernel.descriptor.vgprs, kernel.wave_size)
    return 8 * target.simds_per_cu * simd_waves // waves


@pytest.mark.parametrize("groups", [3, 8, 64])
def test_a_plain_launch_of_groups_that_wait_for_each_other(module: Module, groups: int) -> None:
    cells = np.arange(groups * 128, dtype=np.uint32).reshape(groups, 128)
    actual, sync = cells.copy(), np.zeros(2, np.uint32)
    module.kernel("software").launch(actual, sync, 3, grid=groups, block=128)
    assert np.array_equal(actual, moved(cells, 3))
    assert sync[1] == 6


@pytest.mark.rows(6)  # patient groups look 2**24 times before others begin: more than a second on each target
@pytest.mark.parametrize("how", ["backwards", "patient"])
def test_groups_that_wait_for_those_that_begin_last(module: Module, how: str) -> None:
    """The groups never sleep; waiting ones count their polls."""
    done = np.zeros(65, np.uint32)
    done[64] = 1
    module.kernel(how).launch(done, grid=64, block=64)
    assert done.all()


def test_more_groups_than_the_device_holds(build_kernels: Callable[[str, str], Path]) -> None:
    """As on hardware, the launch never ends, but the reason is reported."""
    device = open_device("emu:gfx90a", threads=2)
    device.step_limit = 1 << 8
    module = device.load(build_kernels("cooperative", "gfx90a"))
    held = held_at_once(module, 2)
    with pytest.raises(EmulationError, match="does not end") as problem:
        module.kernel("software").launch(np.zeros(999 * 128, np.uint32), np.zeros(2, np.uint32), 1, grid=999, block=128)
    message = str(problem.value)
    assert f"{held} of 999 work-groups have begun, 0 have ended" in message
    assert f"waves of {held} work-groups loop at " in message
    assert f"{999 - held} cannot begin before others end, since the device holds {held} " in message
    assert "all running work-groups loop with unchanged registers" in message


def test_groups_that_wait_for_nobody_take_no_turns(module: Module) -> None:
    """Slow work-groups end before others begin: at most one for each thread is running."""
    begun, most = np.zeros(1, np.uint32), np.zeros(1, np.uint32)
    module.kernel("busy").launch(begun, most, 1_000_000, grid=8, block=64)
    assert (begun[0], most[0] <= 2) == (0, True)


@pytest.mark.parametrize("apart", [1, -1])
@pytest.mark.parametrize("bits", [64, 128])
def test_no_half_of_a_store_is_seen(module: Module, bits: int, apart: int) -> None:
    """A flag and a value in one word are how work-groups tell each other sums (decoupled look-back)."""
    words, torn = np.zeros(128 * bits // 32, np.uint32), np.zeros(1, np.uint32)
    stats = module.kernel(f"exchange{bits}").launch(words, torn, apart, 20000, grid=2, block=64, cooperative=True)
    loads = [name for name in stats.opcodes if name.endswith((f"_load_dwordx{bits // 32}", f"_load_b{bits}"))]
    assert max(stats.opcodes[name] for name in loads if not name.startswith("s_")) >= 20000  # neither half alone
    assert not torn[0]
