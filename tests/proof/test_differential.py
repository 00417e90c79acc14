"""Every kind of hook, counter and edit in every kind of kernel: outputs equal, and what tools find is what a
step-by-step run of the original says.

Kernels of `kernels.hip` are compiled by two compilers at four levels for a target of each family; random ones come
besides. Each meets some of the probes, another selection for each build and target.
"""

from __future__ import annotations

import ctypes
import mmap
import random
import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from effort import EVERYTHING, sample, some
from luthier import ToolModule, open_device, patch_object
from luthier.emulator import EmulatedDevice, Module
from luthier.emulator.running.memory import AllocationTable, DeviceAllocation
from luthier.emulator.running.start import DYNAMIC_STACK
from luthier.errors import PatchError
from luthier.hazards.wait_states import check_hazards
from luthier.isa.targets import target_named
from luthier.lifting import lift
from luthier.objects import CodeObject, ObjectEditor, load_object
from luthier.tool.task import InstrumentationTask
from luthier.verify.launch_plan import LaunchPlan, read_plans
from msgspec.structs import replace
from random_kernels import WAVES, random_kernel

from .probe import Probe, walk
from .probes import PROBES

HERE = Path(__file__).parent
PLANS = read_plans(HERE / "kernels.toml")
TARGETS = ("gfx906", "gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1201")
BUILDS = [(compiler, level) for compiler in (15, 22) for level in ("-O0", "-O1", "-O2", "-O3")]
OLD = ("gfx906", "gfx90a", "gfx1030")
"""Targets that clang 15 knows."""
OF_ADDRESSES = ("place", "table", "_ZT")
"""Names of variables that hold addresses begin so."""
_MAP_NORESERVE = 0x4000
AT_ONCE = 5
"""Probes that one kernel meets."""
CASES = [
    pytest.param(target, compiler, level, wave, kernel, id=f"{target}{wave}-clang{compiler}{level}-{kernel}")
    for target in TARGETS
    for wave in ("", *(["-wave64"] if target_named(target).default_wave_size == 32 else []))
    for compiler, level in BUILDS
    for kernel in PLANS
    if compiler > 15 or (target in OLD and not wave)
]


@pytest.fixture(scope="session")
def module(make_module: Callable[..., ToolModule]) -> ToolModule:
    return make_module((HERE / "hooks.hip").read_text(), *TARGETS, both_wave_sizes=True)


@dataclass
class Launcher:
    """Launches of one plan, on one device, whose buffers are always at the same place."""

    device: EmulatedDevice
    plan: LaunchPlan

    def __post_init__(self) -> None:
        self.arrays = [one for one in self.plan.materialise() if isinstance(one, np.ndarray)]
        self.placed = [
            self.device.allocate(one.nbytes) if isinstance(one, np.ndarray) else one for one in self.plan.materialise()
        ]
        self.memories = [one for one in self.placed if not isinstance(one, int | float | np.generic)]

    @property
    def buffers(self) -> list[tuple[int, int]]:
        """First address and end."""
        return [
            (memory.address, memory.address + array.nbytes)
            for memory, array in zip(self.memories, self.arrays, strict=True)
        ]

    def __call__(self, data: bytes, trace: Any = None) -> tuple[Module, list[bytes]]:
        """The module after a launch, and what is in the buffers and in the application's variables then."""
        for memory, array in zip(self.memories, self.arrays, strict=True):
            memory.write(array)
        module = self.device.load(data)
        plan = self.plan
        module.kernel(plan.kernel).launch(
            *self.placed, grid=plan.grid, block=plan.block, dynamic_lds=plan.dynamic_lds, trace=trace
        )
        return module, [memory.read() for memory in self.memories]


class Elsewhere:
    """Memory whose addresses before and after `move` differ in both halves."""

    def __init__(self, memory: AllocationTable) -> None:
        self._memory = memory
        # Twice as much as is moved by: pages that are not touched cost nothing.
        self._arena = mmap.mmap(-1, 8 << 30, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE)
        self._next = ctypes.addressof(ctypes.c_char.from_buffer(self._arena))

    def move(self) -> None:
        self._next += (1 << 32) + (1 << 20)

    def allocate(self, size: int, label: str = "buffer", align: int = 256) -> DeviceAllocation:
        address = -(-self._next // align) * align
        self._next = address + size + 256
        return self._memory.register(address, size, label, self._arena)


def check(object: CodeObject, plan: LaunchPlan, chosen: list[type[Probe]], module: ToolModule, seed: int) -> None:
    device = open_device(f"emu:{object.target.target.name}", threads=1, check=["waits", "hazards"])
    assert isinstance(device, EmulatedDevice)
    launch = Launcher(device, plan)
    elsewhere = Elsewhere(device.memory)
    device.memory.allocate = elsewhere.allocate  # type: ignore[method-assign]
    lifted = lift(object, plan.kernel)
    hazards = hazards_of(object, plan.kernel)
    probes = [probe(module, plan, launch.buffers, random.Random(f"{seed}/{probe.__name__}")) for probe in chosen]
    for probe in probes:
        probe.choose(InstrumentationTask(lifted))
    launch(roomier(object, plan.kernel), walk(lifted, probes, 0))
    met = {one.rule for one in device.findings}
    # What the next launch allocates, its arguments for one, is to be elsewhere: addresses are not compared.
    elsewhere.move()
    for probe in probes:
        probe.again()
    original, outputs = launch(object.data, walk(lifted, probes, 0x10203))
    variables = [one.name for one in object.symbols if one.type == "object" and one.dynamic and one.name[-3:] != ".kd"]
    for probe in probes:

        def instrument(task: InstrumentationTask, probe: Probe = probe) -> None:
            if probe.budget is not None:
                task.counter_budget = probe.budget
            probe.insert(task)

        name = type(probe).__name__
        try:
            patched = patch_object(
                object, instrument, [plan.kernel], strict=probe.strict, hoist=probe.hoist, most_stack=DYNAMIC_STACK
            )
        except PatchError as problem:
            if probe.refusal and re.search(probe.refusal, str(problem)):
                continue
            raise
        probe.patched(patched)
        loaded, after = launch(patched.data)
        assert after == outputs, name
        findings = [one for one in device.findings if one.rule not in met]
        assert not findings, name
        assert hazards_of(load_object(patched.data), plan.kernel) <= hazards, name
        for variable in variables:
            if not variable.startswith(OF_ADDRESSES):
                assert loaded.variable(variable).read() == original.variable(variable).read(), (name, variable)
        truth = probe.truth()
        assert probe.found(loaded, patched) == truth, name


def hazards_of(object: CodeObject, kernel: str) -> set[str]:
    """Kinds of hazards on any path of a kernel."""
    return {finding.hazard for finding in check_hazards(lift(object, kernel), unneeded=False).findings}


def roomier(object: CodeObject, kernel: str) -> bytes:
    """Return the object with more private memory for a kernel that uses it, as in patched objects."""
    descriptor = object.kernels[kernel]
    editor = ObjectEditor(object)
    if size := descriptor.descriptor.private_segment_fixed_size:
        larger = replace(descriptor.descriptor, private_segment_fixed_size=size + (17 << 10))
        editor.write(descriptor.descriptor_address, larger.encode())
    return editor.finish()


def some_probes(name: str) -> list[type[Probe]]:
    return random.Random(zlib.crc32(name.encode())).sample(PROBES, AT_ONCE)


@pytest.mark.rows(5)
@pytest.mark.parametrize(("target", "compiler", "level", "wave", "kernel"), CASES)
def test_compiled(
    compile_object: Callable[..., Path],
    module: ToolModule,
    target: str,
    compiler: int,
    level: str,
    wave: str,
    kernel: str,
) -> None:
    flags = [level, *(["-mwavefrontsize64"] if wave else [])]
    object = load_object(compile_object(HERE / "kernels.hip", target, *flags, clang=f"clang-{compiler}"))
    case = f"{target}{wave} {compiler} {level} {kernel}"
    check(object, PLANS[kernel], some_probes(case), module, zlib.crc32(case.encode()))


def test_hooks_called_all_over_a_loop_with_a_switch(compile_object: Callable[..., Path], module: ToolModule) -> None:
    """The case with the most work for lifting again."""
    test_compiled(compile_object, module, "gfx906", 22, "-O3", "", "interpret")


RANDOM = range(1000, 1340)
PARTS = 17
"""In which the random kernels of a target are tried."""


@pytest.mark.rows(1)
@pytest.mark.parametrize("part", some(range(PARTS), 6))
@pytest.mark.parametrize(
    ("target", "wave_size"), [(target, size) for target in TARGETS for size in target_named(target).wave_sizes]
)
def test_random(module: ToolModule, target: str, wave_size: int, part: int) -> None:
    """Kernels of random control flow, calls among them, registers all in use in some."""
    for seed in sample(RANDOM[part::PARTS], 15, part):
        object = random_kernel(seed, target, wave_size, calls=seed % 2 == 0, saturated=seed % 5 == 0)
        lanes = WAVES * wave_size
        plan = LaunchPlan(
            "k", (WAVES, 1, 1), (wave_size, 1, 1), ({"buffer": "uint32", "count": lanes, "fill": "zero"},)
        )
        chosen = random.Random(f"{seed} {wave_size}").sample(PROBES, 2 if EVERYTHING else 1)
        try:
            check(object, plan, chosen, module, seed)
        except BaseException as problem:
            problem.add_note(f"seed {seed}")
            raise
