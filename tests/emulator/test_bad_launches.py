"""Whatever a kernel or a launch does wrong is one error that says all, and the device works afterwards."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from luthier.devices import open_device
from luthier.emulator import Module
from luthier.errors import DeviceError, EmulationError

TARGETS = ("gfx906", "gfx942", "gfx1030", "gfx1100", "gfx1200")


@pytest.fixture(scope="module", params=TARGETS)
def bad(request: pytest.FixtureRequest, build_kernels: Callable[[str, str], Path]) -> Module:
    device = open_device(f"emu:{request.param}", threads=2)
    device.step_limit = 100
    return device.load(build_kernels("bad", request.param))


@pytest.fixture(autouse=True)
def device_stays_usable(bad: Module) -> Iterator[None]:
    """After every test an ordinary kernel runs and is right, and no memory was lost."""
    before = len(bad.device.memory.table()[0])
    yield
    out = np.zeros(64, np.int32)
    bad.kernel("small_groups").launch(out, block=64)
    assert np.all(out == 5)
    used = [row for row in bad.device.memory.table()[0].tolist() if row[1]]
    assert len(used) <= before


def fails(module: Module, kernel: str, *arguments: Any, **sizes: Any) -> EmulationError:
    """The error of a launch: it names kernel, target, instruction and its text."""
    with pytest.raises(EmulationError) as caught:
        module.kernel(kernel).launch(*arguments, **sizes)
    error = caught.value
    assert error.kernel == kernel
    assert error.target is not None
    assert error.target.startswith(module.device.target.target.name)
    if error.offset is not None:
        code = module.code(module.kernel(kernel).kernel.wave_size)
        record = code.record_at(error.offset)
        assert record is not None
        assert f"{error.offset:#x} ({code.text(record)})" in error.message
    return error


FAR = "far from all allocations"
WILD = {
    0: "a null pointer;",
    64: "a null pointer plus 64;",
    0x12_3456_789A: FAR,
    (1 << 64) - 256: "a null pointer minus 256;",
    0xDEAD_BEEF_0000_0000: FAR,
}


@pytest.mark.rows(3)
@pytest.mark.parametrize("address", WILD)
def test_wild_pointers(bad: Module, address: int) -> None:
    error = fails(bad, "small_groups", address, block=64)
    assert error.offset is not None
    assert f"access to 4 bytes at address {address:#x}, lane 0: {WILD[address]}" in error.message
    assert "wave 0 of work-group 0" in error.message


def test_an_array_smaller_than_the_launch(bad: Module) -> None:
    error = fails(bad, "small_groups", np.zeros(50, np.int32), block=64)
    assert "lane 50" in error.message or "lane 18" in error.message  # of 64 or of 32 lanes
    assert "0 bytes past the end of argument array of 200 bytes" in error.message


def test_an_empty_array(bad: Module) -> None:
    assert "small_groups" in str(fails(bad, "small_groups", np.zeros(0, np.int32), block=64))


def test_an_array_is_not_changed_by_a_launch_that_fails(bad: Module) -> None:
    array = np.zeros(50, np.int32)
    fails(bad, "small_groups", array, block=64)
    assert np.all(array == 0)


def test_misaligned_atomics(bad: Module) -> None:
    buffer = bad.device.allocate(1024)
    error = fails(bad, "misaligned", buffer.address + 2, block=64)
    assert f"misaligned for an atomic operation, at {buffer.address + 2:#x}, lane 0" in error.message
    assert "atomic" in error.message
    buffer.free()


def test_misaligned_lds(bad: Module) -> None:
    error = fails(bad, "misaligned_lds", np.zeros(64, np.int32), 2, block=64)
    assert "misaligned" in error.message
    assert "(ds_add" in error.message


def test_past_the_end_of_the_stack(bad: Module) -> None:
    error = fails(bad, "deep_stack", np.zeros(64, np.int32), 1 << 20, block=64)
    assert "lane 0" in error.message


def test_an_undecodable_word(bad: Module) -> None:
    error = fails(bad, "undecodable", np.zeros(64, np.int32), block=64)
    assert "cannot execute the instruction at" in error.message
    assert "undecodable" in error.message


def test_an_unimplemented_operation(bad: Module) -> None:
    if bad.device.target.target.name != "gfx1030":
        bad.kernel("unimplemented").launch(np.zeros(64, np.int32), block=64)
        return
    refused = bad.kernel("unimplemented").refused()
    error = fails(bad, "unimplemented", np.zeros(64, np.int32), block=64)
    assert error.offset in refused
    assert refused[error.offset] in error.message
    assert "(image_get_resinfo v[0:3]" in error.message
    assert "no operation image_get_resinfo" in error.message


def test_a_missing_barrier_partner(bad: Module) -> None:
    error = fails(bad, "missing_partner", np.zeros(2, np.uint32), grid=2, block=256)
    lines = error.message.splitlines()
    waves = 256 // bad.kernel("missing_partner").kernel.wave_size
    assert "does not end" in lines[0]
    assert len(lines) > 1 + waves
    # On a busy machine, one thread reaches the limit of steps before another begins the second group.
    assert re.match(r"  [12] of 2 work-groups have begun, 0 have ended", lines[1 + waves])
    for line in lines[1:waves]:
        assert "waits at a barrier at 0x" in line or "s_barrier_wait" in line
    assert f"wave {waves - 1} runs at 0x" in lines[waves]
    assert "EXEC 0x" in lines[waves]


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"block": 65}, "a work-group of 65 work-items; the kernel allows at most 64"),
        ({"block": (8, 8, 2)}, "a work-group of 128 work-items; the kernel allows at most 64"),
        ({"block": 0}, "three positive numbers"),
        ({"grid": (1, 0), "block": 64}, "three positive numbers"),
        ({"grid": -1, "block": 64}, "three positive numbers"),
        ({"grid": 1 << 40, "block": 64}, "three positive numbers"),
        ({"grid": 1 << 28, "block": 64}, "work-items in a dimension"),
        ({"grid": 1.5, "block": 64}, "whole numbers, not 1.5"),
        ({"grid": "ab", "block": 64}, "whole numbers, not 'ab'"),
        ({"grid": None, "block": 64}, "whole numbers, not None"),
        ({"grid": (), "block": 64}, "one to three numbers"),
        ({"block": (1, 1, 1, 64)}, "one to three numbers"),
        ({"block": 64, "dynamic_lds": 1 << 20}, "bytes of LDS; gfx"),
        ({"block": 64, "dynamic_lds": -1}, "bytes of LDS"),
        ({"block": 64, "dynamic_lds": 0.5}, "a number of bytes, not 0.5"),
    ],
)
def test_sizes_no_device_takes(bad: Module, sizes: dict[str, Any], message: str) -> None:
    with pytest.raises(DeviceError, match=message):
        bad.kernel("small_groups").launch(np.zeros(64, np.int32), **sizes)


_GOOD = (0, 1.0, 2.0, 3, 4)


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (0, 1.0, "a pointer and cannot hold a float"),
        (0, "text", "cannot be 'text', a str"),
        (0, None, "cannot be None, a NoneType"),
        (0, 1 << 64, "cannot hold"),
        (1, 1e300, "4 bytes and cannot hold 1e.300"),
        (1, np.float64(1.0), "takes 4 bytes, not 8"),
        (1, 1j, "cannot be 1j, a complex"),
        (2, [1.0], "a list"),
        (3, 1 << 16, "2 bytes and cannot hold 65536"),
        (3, -40000, "2 bytes and cannot hold -40000"),
        (3, np.zeros(4, np.int32), "2 bytes and cannot hold"),
        (4, b"1234", "takes 8 bytes, not 4"),
    ],
)
def test_arguments_that_do_not_fit(bad: Module, place: int, value: Any, message: str) -> None:
    arguments = list(_GOOD)
    arguments[place] = value
    with pytest.raises(DeviceError, match=message) as caught:
        bad.kernel("kinds").launch(*arguments, block=64)
    assert caught.value.kernel == "kinds"


def test_wrong_number_of_arguments(bad: Module) -> None:
    for arguments in ((), _GOOD[:4], (*_GOOD, 5)):
        with pytest.raises(DeviceError, match="takes 5 arguments"):
            bad.kernel("kinds").launch(*arguments, block=64)


def test_raw_arguments_of_the_wrong_size(bad: Module) -> None:
    out = bad.device.allocate(256)
    raw = bytearray(40)
    raw[:8] = out.address.to_bytes(8, "little")
    raw[32:40] = (7).to_bytes(8, "little")
    for wrong in (b"", bytes(39), bytes(5000)):
        with pytest.raises(DeviceError, match=f"takes 40 bytes of arguments, .* not {len(wrong)}"):
            bad.kernel("kinds").launch(wrong, block=64)
    bad.kernel("kinds").launch(bytes(raw), block=64)
    assert np.all(out.read(np.int32) == 7)
    out.free()


def test_freed_buffers_and_unloaded_modules(bad: Module, build_kernels: Callable[[str, str], Path]) -> None:
    buffer = bad.device.allocate(64)
    buffer.free()
    with pytest.raises(DeviceError, match="the buffer was freed"):
        bad.kernel("small_groups").launch(buffer, block=64)
    with pytest.raises(DeviceError, match="the buffer was freed"):
        buffer.free()
    other = bad.device.load(build_kernels("bad", bad.device.target.target.name))
    kernel = other.kernel("small_groups")
    other.unload()
    with pytest.raises(DeviceError, match="unloaded"):
        kernel.launch(np.zeros(64, np.int32), block=64)
