"""Single steps, breakpoints and register dumps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from luthier.devices import open_device
from luthier.emulator import KernelHandle, WaveStep


@pytest.fixture(scope="module", params=["gfx942", "gfx1100"])
def vector_add(request: pytest.FixtureRequest, build_kernels: Callable[[str, str], Path]) -> KernelHandle:
    return open_device(f"emu:{request.param}").load(build_kernels("plain", request.param)).kernel("vector_add")


@pytest.mark.rows(1)
def test_trace_sees_every_instruction_once(vector_add: KernelHandle) -> None:
    a, b, c = (np.full(200, value, np.float32) for value in (1, 2, 0))
    seen: dict[int, int] = {}

    def trace(step: WaveStep) -> None:
        seen[step.address] = seen.get(step.address, 0) + 1

    traced = vector_add.launch(a, b, c, 200, grid=2, block=128, trace=trace)
    assert np.all(c == 3)
    assert list(traced.by_address.addresses) == sorted(seen)
    assert [seen[address] for address in sorted(seen)] == traced.by_address.executions.tolist()
    plain = vector_add.launch(a, b, c, 200, grid=2, block=128)
    assert plain.opcodes == traced.opcodes
    assert plain.by_address.active_lanes.tolist() == traced.by_address.active_lanes.tolist()


def test_first_step_is_the_entry(vector_add: KernelHandle) -> None:
    a, b, c = (np.ones(64, np.float32) for _ in range(3))
    steps: list[WaveStep] = []

    def trace(step: WaveStep) -> bool:
        steps.append(step)
        return False  # ends the launch

    vector_add.launch(a, b, c, 64, grid=1, block=64, trace=trace)
    assert len(steps) == 1
    assert steps[0].address == vector_add.kernel.entry
    assert "work-group 0 wave 0" in str(steps[0])


def test_breakpoint_shows_and_changes_registers(vector_add: KernelHandle) -> None:
    a, b = np.arange(64, dtype=np.float32), np.full(64, 10, np.float32)
    c = np.zeros(64, np.float32)
    addresses = vector_add.launch(a, b, c, 64, grid=1, block=64).by_address
    code = vector_add.module.code(vector_add.kernel.wave_size)
    texts = {int(address): code.text(code.record_at(int(address)) or 0) for address in addresses.addresses}
    store = next(address for address, text in texts.items() if text.startswith("global_store"))
    data = int(texts[store].split(", v")[1].split(",")[0])
    stops = []

    def trace(step: WaveStep) -> None:
        stops.append(step.address)
        sums = step.registers.vgpr(data, dtype=np.float32)
        assert sums[3] == 10 + 3 + 32 * step.wave * (step.registers.wave_size == 32)
        assert f"v{data}:" in step.registers.dump(vgprs=data + 1)
        assert "EXEC 0x" in step.registers.dump()
        step.registers.set_vgpr(data, np.full(step.registers.wave_size, 7, np.float32).view(np.uint32))

    vector_add.launch(a, b, c, 64, grid=1, block=64, trace=trace, breakpoints=[store])
    assert set(stops) == {store}
    assert np.all(c == 7)
