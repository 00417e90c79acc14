"""Misuse of a device: interrupts, many threads, missing memory, code that it cannot run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from luthier.devices import open_device
from luthier.emulator import EmulatedDevice, Module
from luthier.errors import DeviceError, EmulationError, LuthierError, ObjectError
from luthier.objects import ObjectEditor, load_object
from msgspec.structs import replace

TARGETS = ("gfx906", "gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1103", "gfx1151", "gfx1201")


@pytest.fixture(scope="module", params=TARGETS)
def bad(request: pytest.FixtureRequest, build_kernels: Callable[[str, str], Path]) -> Module:
    device = open_device(f"emu:{request.param}", threads=2)
    device.step_limit = 50
    return device.load(build_kernels("bad", request.param))


def works(device: EmulatedDevice, module: Module) -> None:
    out = np.zeros(64, np.int32)
    module.kernel("small_groups").launch(out, block=64)
    assert np.all(out == 5)


@pytest.mark.rows(2)
@pytest.mark.parametrize("kernel", ["endless_barriers", "endless_jumps", "endless_sleep"])
def test_kernels_that_never_end(bad: Module, kernel: str) -> None:
    began = time.perf_counter()
    with pytest.raises(EmulationError, match="does not end") as caught:
        bad.kernel(kernel).launch(np.zeros(4, np.int32), grid=3, block=256)
    assert time.perf_counter() - began < 20  # about half a second
    waves = 256 // bad.kernel(kernel).kernel.wave_size
    assert len(caught.value.waves) == waves
    assert any(line.startswith("wave 1 ") and " at 0x" in line for line in caught.value.waves)
    works(bad.device, bad)


def test_a_wave_may_sleep_for_long(bad: Module) -> None:
    """Other work-groups, for which it waits, may run on a slower thread."""
    out = np.zeros(4, np.int32)
    bad.kernel("long_sleep").launch(out, 20 * bad.device.step_limit, block=64)
    assert out[0] == 20 * bad.device.step_limit


def test_a_jump_into_the_middle_of_an_instruction(bad: Module) -> None:
    with pytest.raises(EmulationError, match=r"jump to 0x.*, where no instruction of the object begins") as caught:
        bad.kernel("into_the_middle").launch(np.zeros(4, np.int32), block=64)
    assert "s_setpc_b64" in caught.value.message
    works(bad.device, bad)


def test_a_fault_tells_registers_and_waves(bad: Module) -> None:
    with pytest.raises(EmulationError) as caught:
        bad.kernel("small_groups").launch(0x1234_0000, block=40)
    error = caught.value
    assert f"EXEC {(1 << min(40, bad.kernel('small_groups').kernel.wave_size)) - 1:#x}" in error.registers
    assert "12340000" in error.registers.replace("0x", "")
    assert "v0: 0 " in error.registers or "v1: " in error.registers
    assert len(error.waves) == -(-40 // bad.kernel("small_groups").kernel.wave_size)
    assert "runs at" in error.waves[0]


def test_code_of_every_other_target_is_refused(build_kernels: Callable[[str, str], Path]) -> None:
    objects = {target: load_object(build_kernels("bad", target)) for target in TARGETS}
    for target in TARGETS:
        device = open_device(f"emu:{target}", threads=1)
        for other, code in objects.items():
            if other == target:
                works(device, device.load(code))
                continue
            with pytest.raises(ObjectError, match=f"code for {other}.* on a device that is {target}"):
                device.load(code)
            with pytest.raises(LuthierError, match=other):
                device.load(code.data)


# Descriptors and sizes ----------------------------------------------------------------------------------------------


def altered(module: Module, kernel: str, **fields: int) -> Module:
    """The object with other fields in a kernel's descriptor, loaded on the same device."""
    code = module.object
    original = code.kernels[kernel]
    editor = ObjectEditor(code)
    editor.write(original.descriptor_address, replace(original.descriptor, **fields).encode())
    return module.device.load(editor.finish())


def test_more_inputs_than_user_registers(bad: Module) -> None:
    changed = altered(bad, "small_groups", user_sgpr_count=1, enable_sgpr_dispatch_ptr=1)
    with pytest.raises(DeviceError, match=r"1 user SGPRs; \w+ needs s"):
        changed.kernel("small_groups").launch(np.zeros(64, np.int32), block=64)
    changed.unload()


def test_more_registers_than_fit(bad: Module) -> None:
    """All waves of the largest work-group are resident together."""
    device = bad.device
    changed = altered(bad, "count_down", granulated_workitem_vgpr_count=31 if device.target.target.major > 9 else 63)
    kernel = changed.kernel("count_down")
    waves = 1024 // kernel.kernel.wave_size // 4
    with pytest.raises(DeviceError, match=rf"needs {waves} waves on each of four SIMDs; with \d+ VGPRs [1-7] fit"):
        kernel.launch(np.zeros(1024, np.int32), 1, block=1024)
    kernel.launch(np.zeros(64, np.int32), 1, block=64)
    changed.unload()


def test_more_scratch_than_there_is(bad: Module) -> None:
    code = bad.object
    most = {9: 131056, 10: 262112, 11: 262128, 12: 2097136}[bad.device.target.target.major]
    for size, message in ((most + 16, f"{most + 16} bytes of scratch a work-item; .* has {most} "), (most, None)):
        kernel = bad.kernel("deep_stack")
        object.__setattr__(kernel, "kernel", replace(code.kernels["deep_stack"], private_segment_fixed_size=size))
        if message is None:
            kernel.launch(np.zeros(64, np.int32), 2, block=64)
            continue
        with pytest.raises(DeviceError, match=message):
            kernel.launch(np.zeros(64, np.int32), 2, block=64)


def test_group_ids_of_16_bits(bad: Module) -> None:
    kernel, limited = bad.kernel("small_groups"), bad.device.target.target.architected_sgprs
    for grid in ((1, 65537), (1, 1, 65537)):
        if limited:
            with pytest.raises(DeviceError, match="have 16 bits each"):
                kernel.launch(np.zeros(64, np.int32), grid=grid, block=64)
        else:
            kernel.launch(np.zeros(64, np.int32), grid=grid, block=64)


# Memory -------------------------------------------------------------------------------------------------------------


def test_more_memory_than_there_is(bad: Module) -> None:
    device = bad.device
    for size in (-1, 1 << 45, 1 << 62, 1 << 70):
        with pytest.raises(DeviceError, match="cannot allocate"):
            device.allocate(size)
    held = []

    def exhaust() -> None:
        for _ in range(1000):  # nothing of it is touched
            held.append(device.allocate(1 << 32))

    with pytest.raises(DeviceError, match=r"cannot allocate \d+ bytes of device memory: \d+ of \d+ bytes are in use"):
        exhaust()
    with pytest.raises(DeviceError, match="cannot allocate"):
        device.allocate(1 << 32)
    for buffer in held:
        buffer.free()
    works(device, bad)


def test_variables_and_kernels_of_an_unloaded_module(bad: Module, build_kernels: Callable[[str, str], Path]) -> None:
    module = bad.device.load(build_kernels("bad", bad.device.target.target.name))
    kept = module.variable("kept")
    assert kept.read(int) == 3
    module.unload()
    for use in (lambda: kept.read(), lambda: kept.write(4)):
        with pytest.raises(DeviceError, match="the module of variable kept was unloaded"):
            use()
    module.unload()  # again does nothing
    works(bad.device, bad)


@pytest.mark.rows(7)
def test_memory_taken_away_during_a_launch(bad: Module, build_kernels: Callable[[str, str], Path]) -> None:
    """Memory of a running launch stays until it ends."""
    device = open_device(f"emu:{bad.device.target.target.name}", threads=2)
    module = device.load(build_kernels("bad", device.target.target.name))
    buffer = device.allocate(1 << 20)
    kernel = module.kernel("count_down")
    kernel.launch(buffer, 1, block=64)
    failed: list[BaseException] = []

    def run() -> None:
        try:
            kernel.launch(buffer, 200_000, grid=2, block=64)
        except BaseException as problem:
            failed.append(problem)

    thread = threading.Thread(target=run)
    thread.start()
    time.sleep(0.05)
    buffer.free()
    module.unload()
    other = [device.allocate(1 << 20) for _ in range(4)]  # takes the place, if it was given back
    thread.join()
    assert not failed or "was freed" in str(failed[0]) or "unloaded" in str(failed[0])  # it may have been late
    assert not any(np.any(more.read(np.uint8)) for more in other)
    with pytest.raises(DeviceError, match="unloaded"):
        kernel.launch(other[0], 1, block=64)


def test_registers_that_do_not_exist(bad: Module) -> None:
    with bad.device.debug(bad.kernel("small_groups"), np.zeros(64, np.int32), block=64) as session:
        registers = session.registers
        for use in (
            lambda: registers.sgpr(128),
            lambda: registers.sgpr(-1),
            lambda: registers.sgpr(127, 2),
            lambda: registers.set_sgpr(200, 1),
            lambda: registers.vgpr(256),
            lambda: registers.vgpr(255, dtype=np.float64),
            lambda: registers.set_vgpr(256, 1),
            lambda: registers.agpr(-1),
        ):
            with pytest.raises(DeviceError, match="registers from number"):
                use()
        session.finish()
    works(bad.device, bad)


# Threads and interrupts ---------------------------------------------------------------------------------------------


def test_launches_from_many_threads(build_kernels: Callable[[str, str], Path]) -> None:
    """On one device, and on two of different targets; some fail."""
    modules = [
        open_device(f"emu:{target}", threads=2).load(build_kernels("bad", target))
        for target in ("gfx942", "gfx1201", "gfx942")
    ]
    problems: list[str] = []

    def run(number: int) -> None:
        module = modules[number % 3]
        for turn in range(20):
            out = np.zeros(64, np.int32)
            if (number + turn) % 4 == 0:
                try:
                    module.kernel("small_groups").launch(np.zeros(9, np.int32), block=64)
                    problems.append("no fault")
                except EmulationError as error:
                    if "argument array of 36 bytes" not in error.message:
                        problems.append(error.message)
            stats = module.kernel("count_down").launch(out, 3 + number, grid=2, block=64)
            if not np.all(out == 1) or stats.workgroups != 2:
                problems.append(f"{number}: {out}")

    threads = [threading.Thread(target=run, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []


_INTERRUPTED = """
import sys, threading, time
import numpy as np
import luthier
device = luthier.open_device("emu:" + sys.argv[1], threads=2)
device.step_limit = 1 << 40
module = device.load(sys.argv[2])
module.kernel("small_groups").launch(np.zeros(64, np.int32), block=64)
print("ready", flush=True)
began = time.perf_counter()
try:
    module.kernel(sys.argv[3]).launch(np.zeros(4, np.int32), grid=8, block=128)
except KeyboardInterrupt:
    print("interrupted after", time.perf_counter() - began, flush=True)
out = np.zeros(64, np.int32)
module.kernel("small_groups").launch(out, block=64)
print("usable", bool(np.all(out == 5)), flush=True)
"""


@pytest.mark.rows(1)
@pytest.mark.parametrize("kernel", ["endless_barriers", "endless_jumps", "endless_sleep"])
@pytest.mark.parametrize("target", ["gfx942", "gfx1201"])
def test_interrupt(target: str, kernel: str, build_kernels: Callable[[str, str], Path]) -> None:
    """Ctrl-C ends a launch soon, and the device works afterwards."""
    command = [sys.executable, "-c", _INTERRUPTED, target, str(build_kernels("bad", target)), kernel]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ))
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "ready\n"
        time.sleep(1.0)
        process.send_signal(signal.SIGINT)
        rest, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 0, errors
    lines = rest.splitlines()
    assert lines[0].startswith("interrupted after")
    assert float(lines[0].split()[-1]) < 10
    assert lines[1] == "usable True"
    assert "Traceback" not in errors
