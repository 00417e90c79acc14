"""Steps on a device opened in this process: an emulated device, or a GPU through HIP."""

from __future__ import annotations

from typing import Any

import luthier
import numpy as np
from luthier import InstrumentationTask, Tool, lift
from luthier.patch import patch_object
from luthier.verify import verify_kernel
from luthier.verify.launch_plan import LaunchPlan
from numpy.typing import NDArray

from luthier_build.selftest import kernel
from luthier_build.selftest.steps import SelftestStep, check
from luthier_build.selftest.tools import CountingTool, Hooked, compile_hook


def emulated(name: str) -> list[SelftestStep]:
    """Return the steps for ``emu:TARGET``."""
    target = name.partition(":")[2]
    return [
        SelftestStep(name, "lift", lambda: lifted(target)),
        SelftestStep(name, "original", lambda: original(name, target)),
        SelftestStep(name, "counters", lambda: verified(target, CountingTool())),
        SelftestStep(name, "hooks", lambda: verified(target, Hooked(compile_hook(target)))),
    ]


def lifted(target: str) -> str:
    """Lift the kernel and check the number of its blocks."""
    representation = lift(kernel.code_object(target), kernel.NAME)
    check(len(representation.blocks) == 5, f"the kernel has {len(representation.blocks)} blocks, not 5")
    return f"{len(representation.blocks)} blocks, as in its source"


def original(name: str, target: str) -> str:
    """Run the original kernel."""
    launch(luthier.open_device(name), kernel.code_object(target).data)
    return f"{kernel.GROUPS} work-groups of {kernel.ITEMS}, result as computed by NumPy"


def verified(target: str, tool: Tool) -> str:
    """Run the original and the instrumented kernel; results must be equal, and counts those of the emulated device."""
    plan = LaunchPlan(
        kernel.NAME,
        grid=(kernel.GROUPS, 1, 1),
        block=(kernel.ITEMS, 1, 1),
        arguments=({"buffer": "uint32", "count": kernel.ITEMS}, kernel.TURNS),
    )
    verdict = verify_kernel(kernel.code_object(target), tool, plan)
    check(not verdict.problems, "; ".join(verdict.problems))
    check(verdict.complete, "the tool did not cover the whole kernel")
    counted = sum(int(row[0] or 0) for table in verdict.tables for row in table.rows) or sum(verdict.counters.values())
    before, after = verdict.instructions
    check(counted == before, f"{counted} instructions counted; the emulated device executes {before}")
    return f"{counted} instructions counted, as executed; {after} executed with the tool, results equal"


def counted_on(device: Any) -> str:
    """Run the original kernel and one with counters on a device that does not count instructions.

    Results must be equal, and counts those of the emulated device.
    """
    target = device.target.target.name
    object = kernel.code_object(target)
    launch(device, object.data)
    tool, tasks = CountingTool(), []

    def instrument(task: InstrumentationTask) -> None:
        tasks.append(task)
        tool.instrument(task)

    patched = patch_object(object, instrument, [kernel.NAME])
    module = launch(device, patched.data)
    waves = kernel.GROUPS * -(-kernel.ITEMS // object.kernels[kernel.NAME].wave_size)
    counted = sum(patched.counters[kernel.NAME].read(module, waves).opcodes.values())
    beside = luthier.open_device(f"emu:{target}")
    launch(beside, object.data)
    wanted = beside.stats.instructions
    check(counted == wanted, f"{counted} instructions counted; the emulated device executes {wanted}")
    return f"{counted} instructions counted, as many as the emulated device executes; results equal"


def launch(device: Any, data: bytes) -> Any:
    """Run the kernel of an object on a device and return the loaded module.

    Raises:
        LuthierError: the kernel cannot run, or the result is wrong.
    """
    module = device.load(data)
    out = np.zeros(kernel.ITEMS, np.uint32)
    module.kernel(kernel.NAME).launch(out, np.uint32(kernel.TURNS), grid=kernel.GROUPS, block=kernel.ITEMS)
    compare(out)
    return module


def compare(out: NDArray[np.uint32]) -> None:
    """Compare a result with the expected one.

    Raises:
        LuthierError: they differ.
    """
    wrong = np.flatnonzero(out != kernel.expected())
    if len(wrong):
        first = int(wrong[0])
        what = f"{out[first]:#x}, not {kernel.expected()[first]:#x}"
        check(False, f"{len(wrong)} of {len(out)} numbers are wrong, the first at item {first}: {what}")
