"""Compiled kernels on the emulated device: overwriting what liveness reports dead does not change their output."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from kept import ROOT
from luthier import open_device
from luthier.emulator import EmulatedDevice
from luthier.emulator.inspection.debug import WaveStep
from luthier.errors import DeviceError
from luthier.isa import registers as r
from luthier.isa.registers import FLAT_SCRATCH_SGPR
from luthier.lifting import LiftedRepresentation, Live, lift
from luthier.objects import CodeObject, load_object
from luthier.verify.launch_plan import LaunchPlan, read_plans

HIP = ROOT / "tests" / "proof" / "kernels.hip"
PLANS = read_plans(HIP.parent / "kernels.toml")
TARGETS = ("gfx906", "gfx90a", "gfx942", "gfx1030", "gfx1030 wave64", "gfx1100", "gfx1100 wave64", "gfx1201")
SHARE = 0.05
"""At how many of all steps registers are overwritten."""
MOST = 150
"""The most such steps of one launch."""

CompileObject = Callable[..., Path]


class Overwriting:
    """A trace that overwrites dead registers at random steps.

    Args:
        lifted: the kernel.
        seed: of the random numbers.
        live: what is live before an instruction; by default what its liveness says.
    """

    def __init__(
        self, lifted: LiftedRepresentation, seed: int, live: Callable[[Live], Live] = lambda live: live
    ) -> None:
        self._lifted, self._live = lifted, live
        self._index_of = {address: index for index, address in enumerate(lifted.columns.address)}
        descriptor = lifted.kernel.descriptor
        vcc = [r.VCC_LO, r.VCC_HI][: lifted.wave_size // 32]
        self._scalars = [*range(min(descriptor.sgprs, FLAT_SCRATCH_SGPR)), *vcc]
        self._vectors = range(descriptor.architected_vgprs)
        self._rng, self._noise = random.Random(seed), np.random.default_rng(seed)
        self.overwritten = 0
        """Registers."""
        self.steps = 0

    def __call__(self, step: WaveStep) -> None:
        if self.steps >= MOST or self._rng.random() > SHARE:
            return
        self.steps += 1
        live = self._live(self._lifted.liveness.live_before(self._index_of[step.address]))
        registers, size = step.registers, self._lifted.wave_size
        for unit in self._scalars:
            if not live.active_bits >> unit & 1:
                registers.set_sgpr(unit, self._rng.getrandbits(32))
                self.overwritten += 1
        active = np.array([registers.exec >> lane & 1 for lane in range(size)], bool)
        for number in self._vectors:
            unit = r.VGPR_FIRST + number
            dead = active & (not live.active_bits >> unit & 1) | ~active & (not live.inactive_bits >> unit & 1)
            if dead.any():
                noise = self._noise.integers(0, 1 << 32, size, np.uint32)
                registers.set_vgpr(number, np.where(dead, noise, registers.vgpr(number)))
                self.overwritten += 1


def outputs(object: CodeObject, plan: LaunchPlan, trace: Callable[[WaveStep], None] | None = None) -> list[bytes]:
    """Return what is in the buffers after a launch."""
    device = open_device(f"emu:{object.target.target.name}", threads=1)
    assert isinstance(device, EmulatedDevice)
    given, memories = [], []
    for argument in plan.materialise():
        if isinstance(argument, np.ndarray):
            memories.append(device.allocate(argument.nbytes))
            memories[-1].write(argument)
        given.append(memories[-1] if isinstance(argument, np.ndarray) else argument)
    kernel = device.load(object.data).kernel(plan.kernel)
    kernel.launch(*given, grid=plan.grid, block=plan.block, dynamic_lds=plan.dynamic_lds, trace=trace)
    return [memory.read() for memory in memories]


def compiled_for(compile_object: CompileObject, target: str, level: str) -> CodeObject:
    name, _, wave = target.partition(" ")
    return load_object(compile_object(HIP, name, level, *(["-mwavefrontsize64"] if wave else [])))


@pytest.mark.rows(1)
@pytest.mark.parametrize("level", ["-O1", "-O3"])
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kernel", PLANS)
def test_overwriting_the_dead_changes_nothing(
    kernel: str, target: str, level: str, compile_object: CompileObject
) -> None:
    object, plan = compiled_for(compile_object, target, level), PLANS[kernel]
    trace = Overwriting(lift(object, kernel), 1)
    expected = outputs(object, plan)
    assert outputs(object, plan, trace) == expected
    assert trace.overwritten


FORGETFUL: dict[str, Callable[[Live], Live]] = {
    "inactive lanes": lambda live: Live(live.active_bits, 0),
    "scalars": lambda live: Live(live.active_bits & r.VECTOR_MASK, live.inactive_bits),
    "vectors": lambda live: Live(live.active_bits & r.SCALAR_MASK, live.inactive_bits),
}


@pytest.mark.rows(5)
@pytest.mark.parametrize("target", ["gfx90a", "gfx1100"])
@pytest.mark.parametrize("forgotten", FORGETFUL)
def test_overwriting_the_live_shows(forgotten: str, target: str, compile_object: CompileObject) -> None:
    object, plan = compiled_for(compile_object, target, "-O3"), PLANS["scan"]
    expected = outputs(object, plan)
    trace = Overwriting(lift(object, plan.kernel), 1, FORGETFUL[forgotten])
    with contextlib.suppress(DeviceError):  # or the kernel does what it must not
        assert outputs(object, plan, trace) != expected
