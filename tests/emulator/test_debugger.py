"""Debug sessions: steps, breakpoints, registers, memory; and recorded traces."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from luthier.devices import open_device
from luthier.emulator import DebugSession, KernelHandle, Module, TraceRecorder, WaveStep
from luthier.errors import DeviceError, EmulationError
from numpy.typing import NDArray

TARGETS = ("gfx90a", "gfx942", "gfx1100", "gfx1200")


@pytest.fixture(scope="module", params=TARGETS)
def plain(request: pytest.FixtureRequest, build_kernels: Callable[[str, str], Path]) -> Module:
    return open_device(f"emu:{request.param}", threads=2).load(build_kernels("plain", request.param))


@pytest.fixture(scope="module")
def groups(plain: Module, build_kernels: Callable[[str, str], Path]) -> Module:
    return plain.device.load(build_kernels("groups", plain.device.target.target.name))


@pytest.fixture
def vector_add(plain: Module) -> KernelHandle:
    return plain.kernel("vector_add")


def debug_add(kernel: KernelHandle, block: int = 64, grid: int = 1) -> tuple[DebugSession, NDArray[np.float32]]:
    n = block * grid
    a, b, c = np.arange(n, dtype=np.float32), np.full(n, 10, np.float32), np.zeros(n, np.float32)
    return kernel.module.device.debug(kernel, a, b, c, n, grid=grid, block=block), c


@pytest.mark.rows(1)
def test_every_instruction_in_order(vector_add: KernelHandle) -> None:
    session, c = debug_add(vector_add)
    code = vector_add.module.code(vector_add.kernel.wave_size)
    with session:
        assert session.where is not None
        assert session.where.address == vector_add.kernel.entry
        seen = 1
        before = session.where
        while (step := session.step()) is not None:
            # The kernel has one branch, forwards; a wave ends before the next one begins.
            assert step.wave != before.wave or step.address > before.address
            assert step.text == code.text(code.record_at(step.address) or 0)
            before, seen = step, seen + 1
        assert before.text.startswith("s_endpgm")
    assert np.array_equal(c, np.arange(64) + 10)
    assert session.stats is not None
    assert seen == session.stats.instructions
    assert session.finish() is session.stats
    assert "ended" in repr(session)


def test_many_steps_at_once(vector_add: KernelHandle) -> None:
    first, _ = debug_add(vector_add)
    with first:
        for _ in range(5):
            first.step()
        assert first.where is not None
        expected = first.where.address
    second, _ = debug_add(vector_add)
    with second:
        step = second.step(5)
        assert step is not None
        assert step.address == expected
        with pytest.raises(DeviceError, match="steps must be at least 1, not 0"):
            second.step(0)


def store_offset(kernel: KernelHandle) -> int:
    """Return the offset of the kernel's store from its entry."""
    code = kernel.module.code(kernel.kernel.wave_size)
    record = code.record_at(kernel.kernel.entry)
    assert record is not None
    while "_store_" not in code.text(record):
        record += 1
    return code.address_of(record) - kernel.kernel.entry


def test_breakpoints(vector_add: KernelHandle) -> None:
    session, c = debug_add(vector_add, grid=3)
    with session:
        address = session.break_at(offset=store_offset(vector_add))
        assert session.breakpoints == {address}
        assert session.break_at(address) == address
        hits = []
        while (step := session.run()) is not None:
            assert step.address == address
            assert "_store_" in step.text
            hits.append((step.workgroup, step.wave))
        waves = 64 // vector_add.kernel.wave_size
        assert hits == [(group, wave) for group in range(3) for wave in range(waves)]
    assert np.array_equal(c, np.arange(192) + 10)
    session, _ = debug_add(vector_add)
    with session:
        session.break_at(offset=store_offset(vector_add))
        session.clear(offset=store_offset(vector_add))
        session.break_at(vector_add.kernel.entry)
        session.clear()
        assert session.run() is None


def test_breakpoints_that_are_none(vector_add: KernelHandle) -> None:
    session, _ = debug_add(vector_add)
    with session:
        with pytest.raises(DeviceError, match="no instruction begins at 0x"):
            session.break_at(offset=2)
        with pytest.raises(DeviceError, match="no instruction begins at 0x1"):
            session.break_at(1)
        with pytest.raises(DeviceError, match="either an address or an offset"):
            session.break_at()


def test_run_until(vector_add: KernelHandle) -> None:
    session, _ = debug_add(vector_add)
    with session:
        step = session.run(lambda step: step.text.startswith("global_load"))
        assert step is not None
        assert step.text.startswith("global_load")

        def wrong(step: WaveStep) -> bool:
            raise ValueError("mine")

        with pytest.raises(ValueError, match="mine"):
            session.run(wrong)
    debug_add(vector_add)[0].close()


def test_registers_and_memory(vector_add: KernelHandle) -> None:
    session, c = debug_add(vector_add)
    with session:
        session.break_at(offset=store_offset(vector_add))
        step = session.run()
        assert step is not None
        registers = session.registers
        lanes = registers.wave_size
        assert registers.exec == (1 << lanes) - 1
        data = int(step.text.split(", v")[1].split(",")[0])
        assert np.array_equal(registers.vgpr(data, dtype=np.float32), np.arange(lanes) + 10)
        dump = registers.dump(vgprs=data + 1)
        assert "EXEC 0x" in dump
        assert "VCC 0x" in dump
        assert "SCC" in dump
        assert "M0 0x" in dump
        assert f"v{data}: 41200000 41300000" in dump  # 10.0 11.0
        registers.set_vgpr(data, np.full(lanes, 1.5, np.float32).view(np.uint32))
        session.step()
        session.clear()
    assert np.all(c[:lanes] == 1.5)
    buffer = vector_add.module.device.allocate(4 * 64)
    ones = np.ones(64, np.float32)
    with vector_add.module.device.debug(vector_add, ones, ones, buffer, 64, block=64) as session:
        session.break_at(offset=store_offset(vector_add))
        session.run()
        assert session.memory(buffer.address, 4) == bytes(4)
        session.step()
        assert np.frombuffer(session.memory(buffer.address, 4), np.float32)[0] == 2
        with pytest.raises(DeviceError, match="before its end"):
            session.memory(buffer.address, 1000)
    buffer.free()


def test_scalar_registers(vector_add: KernelHandle) -> None:
    session, _ = debug_add(vector_add)
    with session:
        session.registers.set_sgpr(0, 0x1234567_89ABCDEF, 2)
        assert session.registers.sgpr(0, 2) == 0x1234567_89ABCDEF
        assert session.registers.sgpr(1) == 0x1234567
        assert "s1=0x1234567" in session.registers.dump()


def test_waves_at_barriers(groups: Module) -> None:
    """The instruction after a barrier is shown like any other, and a waiting wave says so."""
    data = np.arange(256, dtype=np.float32)
    sums = np.zeros(1, np.float32)
    recorder = TraceRecorder()
    stats = groups.kernel("reduction").launch(data, sums, 256, block=256, trace=recorder)
    assert sums[0] == data.sum()
    counted: dict[int, int] = {}
    for entry in recorder.entries:
        counted[entry.address] = counted.get(entry.address, 0) + 1
    assert counted == dict(zip(stats.by_address.addresses.tolist(), stats.by_address.executions.tolist(), strict=True))
    plain = groups.kernel("reduction").launch(data, sums, 256, block=256)
    assert plain.opcodes == stats.opcodes
    with groups.device.debug(groups.kernel("reduction"), data, sums, 256, block=256) as session:
        session.run(lambda step: "s_barrier" in step.text)
        step = session.run(lambda step: step.wave == 1)
        assert step is not None
        if groups.device.target.target.name != "gfx1200":
            assert any("waits at a barrier" in line for line in session.waves())
        assert len(session.waves()) == session.wave_count == 256 // step.registers.wave_size
        assert "wave 1 runs at 0x" in session.waves()[1]
        lanes = step.registers.wave_size
        partial = session.lds()[:1024].view(np.float32)
        assert np.array_equal(partial[:lanes], data[:lanes])
        assert session.wave(0).wave_size == lanes
        with pytest.raises(DeviceError, match="has no wave 99, only"):
            session.wave(99)


def test_one_wave_among_many(groups: Module) -> None:
    data = np.arange(256, dtype=np.float32)
    with groups.device.debug(groups.kernel("reduction"), data, np.zeros(1, np.float32), 256, block=256) as session:
        session.run(lambda step: step.wave == 1)
        addresses = []
        while session.where is not None:
            addresses.append(session.where.address)
            assert session.where.wave == 1
            session.step_wave()
    recorder = TraceRecorder()
    groups.kernel("reduction").launch(data, np.zeros(1, np.float32), 256, block=256, trace=recorder)
    assert addresses == [entry.address for entry in recorder.entries if entry.wave == 1]


@pytest.mark.rows(2)
def test_spinning_waves_get_their_turns(groups: Module) -> None:
    """Programs behave the same under a debugger, though every instruction returns to Python."""
    flag, out = np.zeros(1, np.uint32), np.zeros(1, np.uint32)
    with groups.device.debug(groups.kernel("spin"), flag, out, block=256) as session:
        session.finish()
    assert out[0] == 1


def test_runaway_under_a_debugger(groups: Module) -> None:
    device = groups.device
    device.step_limit, before = 20, device.step_limit
    try:
        session = device.debug(groups.kernel("forever"), np.zeros(1, np.uint32), block=64)
        with session, pytest.raises(EmulationError, match="does not end"):
            session.finish()
    finally:
        device.step_limit = before
    with pytest.raises(DeviceError, match="the kernel has ended"):
        session.step()


def test_a_fault_ends_the_session(groups: Module) -> None:
    kernel = groups.kernel("wild")
    with groups.device.debug(kernel, 0, 0, block=64) as session:
        with pytest.raises(EmulationError, match="a null pointer"):
            session.finish()
        assert session.where is None
        with pytest.raises(DeviceError, match="the kernel has ended"):
            session.registers  # noqa: B018
    buffer = groups.device.allocate(256)
    kernel.launch(buffer, 0, block=64)
    assert np.all(buffer.read(np.int32) == 1)


def test_one_session_at_a_time(vector_add: KernelHandle) -> None:
    session, _ = debug_add(vector_add)
    with session:
        with pytest.raises(DeviceError, match="another debug session is open"):
            debug_add(vector_add)
        ones = np.ones(64, np.float32)
        with pytest.raises(DeviceError, match="a debug session is open on this device"):
            vector_add.launch(ones, ones, ones.copy(), 64, block=64)
    with pytest.raises(DeviceError, match="closed before the kernel ended"):
        session.finish()
    session.close()
    ones, c = np.ones(64, np.float32), np.zeros(64, np.float32)
    vector_add.launch(ones, ones.copy(), c, 64, block=64)
    assert np.all(c == 2)


def test_refused_launches(vector_add: KernelHandle) -> None:
    device = vector_add.module.device
    with pytest.raises(DeviceError, match="arguments"):
        device.debug(vector_add, 1)
    with pytest.raises(DeviceError, match="loaded on another device"):
        open_device(f"emu:{device.target.target.name}").debug(vector_add)
    debug_add(vector_add)[0].close()


def test_recorded_trace(vector_add: KernelHandle) -> None:
    n = 100
    a, b, c = (np.ones(n, np.float32) for _ in range(3))
    recorder = TraceRecorder()
    stats = vector_add.launch(a, b, c, n, grid=2, block=64, trace=recorder)
    assert len(recorder.entries) == stats.instructions
    first = recorder.entries[0]
    assert (first.workgroup, first.wave, first.address) == (0, 0, vector_add.kernel.entry)
    store = next(entry for entry in reversed(recorder.entries) if "_store_" in entry.text)
    assert store.exec == (1 << (n - 64) % vector_add.kernel.wave_size) - 1
    assert store.exec.bit_count() == (n - 64) % vector_add.kernel.wave_size
    short = TraceRecorder(limit=3)
    vector_add.launch(a, b, c, n, grid=2, block=64, trace=short)
    assert short.entries == recorder.entries[:3]
