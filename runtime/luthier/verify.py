"""Original and patched kernel, side by side on the emulated device: every output byte equal, every counter the
truth."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from luthier.devices import open_device
from luthier.emulator import EmulatedDevice, LaunchStats, Module
from luthier.errors import VerifyError
from luthier.launch_plan import LaunchPlan, default_plan
from luthier.objects import CodeObject, Symbol
from luthier.patch import KernelReport, patch_object
from luthier.task import InstrumentationTask
from luthier.tool import ExecutionCounts, Tool


@dataclass(frozen=True)
class KernelVerdict:
    """What verifying one kernel found. `problems` empty means proven equal for this launch."""

    kernel: str
    target: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    compared_bytes: int
    """Bytes of arguments and variables compared after the launch."""
    counters: Mapping[str, int]
    """Tool variables after the patched launch."""
    expected: Mapping[str, int]
    """What the emulator's own counts say they must be."""
    instructions: tuple[int, int]
    """Wave-instructions executed, original and patched."""
    patch: KernelReport | None
    """None when the tool inserted nothing."""
    problems: tuple[str, ...]

    @property
    def equal(self) -> bool:
        return not self.problems

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "equal": self.equal}


def verify_object(
    object: CodeObject,
    tool: Tool,
    kernels: Iterable[str] | None = None,
    plans: Mapping[str, LaunchPlan] | None = None,
    progress: Callable[[str], None] | None = None,
) -> list[KernelVerdict]:
    """Verify kernels of an object, one after the other.

    Args:
        object: the application's code object.
        tool: what to instrument it with.
        kernels: names; None is all.
        plans: how to launch them; a kernel without a plan gets made-up arguments.
        progress: called with each kernel's name.

    Raises:
        LuthierError: a kernel cannot be patched, launched or run. Differences are no exception but `problems`.
    """
    verdicts = []
    for name in object.kernels if kernels is None else kernels:
        if name not in object.kernels:
            raise VerifyError(f"no kernel {name!r}; there are {', '.join(object.kernels)}", object=object.name)
        if progress is not None:
            progress(name)
        plan = (plans or {}).get(name) or default_plan(object.kernels[name])
        verdicts.append(verify_kernel(object, tool, plan))
    return verdicts


def verify_kernel(object: CodeObject, tool: Tool, plan: LaunchPlan) -> KernelVerdict:
    """Verify one kernel under one launch."""
    tasks: list[InstrumentationTask] = []

    def instrument(task: InstrumentationTask) -> None:
        tasks.append(task)
        tool.instrument(task)

    patched = patch_object(object, instrument, [plan.kernel])
    device = open_device(f"emu:{object.target.target.name}")
    original = _launch(device, object.data, plan)
    instrumented = _launch(device, patched.data, plan)

    problems: list[str] = []
    compared = 0
    for index, (left, right) in enumerate(zip(original.arguments, instrumented.arguments, strict=True)):
        if isinstance(left, np.ndarray) and isinstance(right, np.ndarray):
            compared += left.nbytes
            problems += _differences(f"argument {index + 1}", left.tobytes(), right.tobytes())
    for symbol in object.symbols:
        if symbol.type == "object" and symbol.dynamic and symbol.size and not symbol.name.endswith(".kd"):
            before, after = (
                _without_addresses(object, symbol, run.module.variable(symbol.name).read())
                for run in (original, instrumented)
            )
            compared += len(before)
            problems += _differences(f"variable {symbol.name}", before, after)

    counts = _counts(tasks[0], original.stats)
    expected = tool.expected(tasks[0], counts)
    counters: dict[str, int] = {}
    for name in patched.report.variables:
        counters[name] = int.from_bytes(instrumented.module.variable(name).read(), "little")
    for name, value in expected.items():
        if name not in counters:
            problems.append(f"the tool expects a variable {name}, which the patched object does not define")
        elif counters[name] != value:
            problems.append(f"{name} is {counters[name]}, the emulator counted {value}")
    return KernelVerdict(
        plan.kernel,
        str(object.target),
        plan.grid,
        plan.block,
        compared,
        counters,
        dict(expected),
        (original.stats.instructions, instrumented.stats.instructions),
        patched.report.kernels[0] if patched.report.kernels else None,
        tuple(problems),
    )


@dataclass(frozen=True)
class _Run:
    module: Module
    arguments: list[Any]
    stats: LaunchStats


def _launch(device: EmulatedDevice, data: bytes, plan: LaunchPlan) -> _Run:
    module = device.load(data)
    arguments = plan.materialise()
    module.kernel(plan.kernel).launch(*arguments, grid=plan.grid, block=plan.block, dynamic_lds=plan.dynamic_lds)
    return _Run(module, arguments, device.stats)


def _without_addresses(object: CodeObject, symbol: Symbol, data: bytes) -> bytes:
    """A variable's bytes with those blanked that the loader relocated: the two objects lie at different addresses."""
    blanked = bytearray(data)
    for relocation in object.relocations:
        place = relocation.offset - symbol.address
        if 0 <= place < symbol.size:
            blanked[place : place + 8] = bytes(len(blanked[place : place + 8]))
    return bytes(blanked)


def _differences(what: str, left: bytes, right: bytes) -> list[str]:
    if left == right:
        return []
    a, b = np.frombuffer(left, np.uint8), np.frombuffer(right, np.uint8)
    different = np.flatnonzero(a != b) if len(a) == len(b) else np.array([min(len(a), len(b))])
    return [f"{what} differs in {len(different)} of {len(a)} bytes, first at byte {int(different[0])}"]


def _counts(task: InstrumentationTask, stats: LaunchStats) -> ExecutionCounts:
    """The emulator's counts by instruction index; an execution of code that was not lifted is no count of the
    kernel's."""
    addresses = task.lifted.code.addresses
    executions, lanes = np.zeros(len(addresses), np.int64), np.zeros(len(addresses), np.int64)
    index = np.searchsorted(addresses, stats.by_address.addresses)
    found = index < len(addresses)
    found[found] = addresses[index[found]] == stats.by_address.addresses[found]
    executions[index[found]] = stats.by_address.executions[found]
    lanes[index[found]] = stats.by_address.active_lanes[found]
    return ExecutionCounts(executions, lanes)
