"""Steps on a device opened in this process: an emulated device, or a GPU through HIP."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import luthier
import numpy as np
from luthier import Tool, ToolModule, lift, patch_object, reported
from luthier.emulator.running.stats import LaunchStats
from luthier.errors import ToolError
from luthier.isa.sq_counters import sq_counters_of
from luthier.objects import CodeObject
from luthier.terminal import say
from luthier.tool import parse_tool
from luthier.verify import verify_kernel
from luthier.verify.launch_plan import LaunchPlan
from numpy.typing import NDArray

from luthier_build.selftest import kernel
from luthier_build.selftest.launches import LAUNCHES
from luthier_build.selftest.steps import SelftestStep, check
from luthier_build.selftest.tools import CountingTool, Hooked, compile_hook

_TOOLS = ("instr_count", "opcode_histogram", "block_profile", "divergence", "lds_bank_conflicts")


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


def beside_emulated(device: Any, object: CodeObject, name: str, hooks: ToolModule | None) -> str:
    """Run a kernel on a device that does not count, as it is and under tools, and the same on the emulated device.

    The arguments must be equal afterwards, and tables and counts those of the emulated device. Before each launch, a
    line on standard error names the kernel and the tool: if the kernel faults, it is the last one.

    Args:
        name: a kernel of `LAUNCHES`.
        hooks: the module of `Hooked`; None: hooks are not tried.
    """
    emulated = luthier.open_device(f"emu:{object.target.target.name}")
    wanted = arguments_after(emulated, object, name)
    executed = emulated.stats.instructions
    _announce(name, "unchanged")
    _compare(arguments_after(device, object, name), wanted)
    tools: list[Tool] = [CountingTool(), *([Hooked(hooks)] if hooks else []), *_installed()]
    for tool in tools:
        patched = patch_object(object, tool.instrument, [name])
        _announce(name, f"under {tool.name}")
        tables: list[Any] = []
        for place in (device, emulated):
            module = place.load(patched.data)
            _compare(arguments_after(place, object, name, module), wanted)
            if isinstance(tool, Hooked):
                tables.append([[int(module.variable("counter").read(np.uint64)[0])]])
            else:
                tables.append([list(table.rows) for table in reported(tool, module, patched)])
        check(tables[0] == tables[1], f"{tool.name} reports {tables[0]}; on the emulated device {tables[1]}")
        if isinstance(tool, CountingTool | Hooked):
            counted = tables[0][0][0] if isinstance(tool, Hooked) else tables[0][0][0][-1]
            check(counted == executed, f"{tool.name} counts {counted}; the emulated device executes {executed}")
    return f"{executed} instructions; unchanged and under {len(tools)} tools as on the emulated device"


def _installed() -> list[Tool]:
    """Return those of the shipped tools that are installed and whose tables depend on no address or clock."""
    tools = []
    for name in _TOOLS:
        with suppress(ToolError):
            tools.append(parse_tool(name))
    return tools


def _announce(name: str, how: str) -> None:
    say(f"kernel {name}, {how}", file=sys.stderr, flush=True)


def arguments_after(device: Any, object: CodeObject, name: str, module: Any = None) -> list[Any]:
    """Launch a kernel of `LAUNCHES` and return its arguments afterwards.

    Args:
        module: loaded module with the kernel; None: `object` is loaded.
    """
    chosen = LAUNCHES[name]
    arguments = chosen.arguments()
    (module or device.load(object.data)).kernel(name).launch(*arguments, grid=chosen.grid, block=chosen.block)
    return list(arguments)


def _compare(arguments: Sequence[Any], wanted: Sequence[Any]) -> None:
    for number, (argument, expected) in enumerate(zip(arguments, wanted, strict=True)):
        wrong = np.flatnonzero(np.asarray(argument) != np.asarray(expected))
        if len(wrong):
            first = int(wrong[0])
            what = f"{np.ravel(argument)[first]}, not {np.ravel(expected)[first]}"
            check(False, f"argument {number}: {len(wrong)} numbers are wrong, the first at {first}: {what}")


def sq_counters(stats: LaunchStats) -> Counter[str]:
    """Return the performance counters of a launch on an emulated device, summed over its waves."""
    assert stats.lift is not None, "these are counts of one launch"
    counters = Counter({"SQ_WAVES": stats.waves})
    for instruction in stats.lift().instructions:
        executions = stats.executions_at(instruction.address)
        counters.update(dict.fromkeys(sq_counters_of(instruction.mnemonic), executions))
    return counters


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
