"""Cost of counting: wave-instructions of patched kernels divided by those of the originals, on the emulated device.

The kernels are those of the tests, at two optimization levels. Counters in registers are compared with a plain hook
before every instruction. "Long waves" are waves of 1,000 or more instructions. Kernels that call by pointers are
separate: loops that do little else, and small ones.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from math import prod
from pathlib import Path

from luthier.devices import open_device
from luthier.isa.targets import TargetId
from luthier.module import Hook, ToolModule
from luthier.objects import CodeObject, load_object
from luthier.patch import patch_object
from luthier.payload.cache import template_for
from luthier.support.processes import run
from luthier.tool.counts import Cell
from luthier.tool.task import InstrumentationTask
from luthier.verify.launch_plan import LaunchPlan, read_plans
from run import Row

from luthier_build.compile import compile_device
from luthier_build.toolchain import Toolchain
from luthier_build.workspace import build_folder

ROOT = Path(__file__).parents[1]
TARGETS = ("gfx90a", "gfx1201")
N = 400
LONG = 1000


DEVICE = """
#include <hip/hip_runtime.h>
#include <luthier/luthier.h>
MARK_LUTHIER_DEVICE_MODULE
__device__ uint64_t executed_in_all = 0;
__device__ uint32_t executed_modulo = 0;
LUTHIER_HOOK_ANNOTATE count_one() { luthier::sAtomicAdd<uint64_t>(&executed_in_all, 1); }
LUTHIER_HOOK_ANNOTATE count_narrow() { luthier::sAtomicAdd<uint32_t>(&executed_modulo, 1); }
LUTHIER_HOOK_ANNOTATE count_lanes() { atomicAdd(&executed_modulo, 1u); }
"""


def _module(folder: Path) -> ToolModule:
    """Return a module of a variable and a hook that counts into it."""
    source = folder / "device.hip"
    source.write_text(DEVICE)
    with build_folder(folder / "tool") as held:
        return ToolModule.load(compile_device([source], TARGETS, folder=held, report=lambda line: None).bundle)


def _buffer(kind: str, count: int, fill: str = "random") -> dict[str, object]:
    return {"buffer": kind, "count": count, "fill": fill}


PLAIN = {
    "vector_add": (_buffer("float32", N), _buffer("float32", N), _buffer("float32", N), N),
    "collatz": (_buffer("uint32", N, "arange"), _buffer("uint32", N), N),
    "call_function": (_buffer("int32", N), _buffer("int32", N), _buffer("int32", N), N),
    "stack": (_buffer("uint32", N), _buffer("uint32", N), N),
    "integers": (_buffer("int32", N), _buffer("int32", N), _buffer("uint32", 24 * N), N),
    "floats": (_buffer("float32", N), _buffer("float32", N), _buffer("float32", 20 * N), N),
    "doubles": (_buffer("float64", N), _buffer("float64", N), _buffer("float64", 12 * N), N),
}
GROUPS = {
    "reduction": (_buffer("float32", N), _buffer("float32", 4), N),
    "lanes": (_buffer("int32", N), _buffer("int32", N), N),
    "ids": (_buffer("uint32", 4 * 128),),
    "variables": (_buffer("int32", 4 * 128),),
}
SOLVED = ("sum, completed by its reader", "plain hook, completed by its reader")
"""Tools whose sums are completed when the variable is read, as under `luthier run`."""
HOISTED = ("profile, executions", "profile, waves counted", "sum in memory", "profile, active lanes", *SOLVED)
SPLICED = {
    "plain hook, not hoisted": "count_one",
    "hook that stays": "count_narrow",
    "the same for each lane": "count_lanes",
}
"""Tools with real hooks, whose added instructions are compared with LLVM's code for the hooks."""
TOOLS = (*HOISTED, *SPLICED)
ROUNDS = {"divergent pointer": (), "uniform pointer": ("-DUNIFORM",), "15 functions": ("-DMANY",)}
POINTER_TARGETS = ("gfx90a", "gfx1030", "gfx1100", "gfx1201")
POINTER_AIM = 1.25
PEER = "plain hook, not hoisted"


def _count(module: ToolModule) -> dict[str, Callable[[InstrumentationTask], None]]:
    def sum_up(task: InstrumentationTask) -> None:
        task.count(task.instructions, into=Cell(module, "executed_in_all"))

    def counted(task: InstrumentationTask) -> None:
        task.waves_given = False
        task.count(task.instructions)

    def hook(name: str, *, hoist: bool) -> Callable[[InstrumentationTask], None]:
        def instrument(task: InstrumentationTask) -> None:
            task.hoist = hoist
            for instruction in task.instructions:
                task.insert_hook_before(instruction, module.hook(name))

        return instrument

    tools: list[Callable[[InstrumentationTask], None]] = [
        lambda task: task.count(task.instructions) and None,
        counted,
        sum_up,
        lambda task: task.count(task.instructions, per="lane") and None,
        sum_up,
        hook("count_one", hoist=True),
        *(hook(name, hoist=False) for name in SPLICED.values()),
    ]
    return dict(zip(TOOLS, tools, strict=True))


def _kernels(target: str, folder: Path) -> Iterator[tuple[CodeObject, LaunchPlan]]:
    """Yield kernels with launches."""
    sources = [(ROOT / "tests/emulator/kernels" / f"{name}.hip", table) for name, table in _tables().items()]
    for path, plans in [*sources, *_applications()]:
        for level in ("-O1", "-O3"):
            object = _compiled(path, target, folder, level)
            yield from ((object, plan) for plan in plans)


def _compiled(path: Path, target: str, folder: Path, *flags: str) -> CodeObject:
    """Return the code object of a source."""
    toolchain = Toolchain.find()
    output = folder / f"{path.stem}{''.join(flags)}-{target}.hsaco"
    device = ["--offload-device-only", "--no-gpu-bundle-output", f"-I{path.parent}", *flags]
    run([toolchain.clang, *toolchain.device_flags(target), *device, path, "-o", output])
    return load_object(output)


def _by_pointers(target: str, folder: Path) -> Iterator[tuple[str, CodeObject, LaunchPlan]]:
    """Yield kernels that call by pointers, with a description of each."""
    buffers = _buffer("uint32", 64, "zero"), _buffer("uint32", 64)
    for level in ("-O0", "-O3"):
        for what, flags in ROUNDS.items():
            object = _compiled(ROOT / "tests/count/rounds.hip", target, folder, level, *flags)
            yield f"loop, {what}, {level}", object, LaunchPlan("rounds", (1, 1, 1), (64, 1, 1), (*buffers, 50))
        object = _compiled(ROOT / "tests/instrument/pointers.hip", target, folder, level)
        for name in ("objects", "table", "exchanged"):
            yield f"small, {name}, {level}", object, LaunchPlan(name, (1, 1, 1), (64, 1, 1), buffers)


def _tables() -> dict[str, list[LaunchPlan]]:
    return {
        file: [LaunchPlan(name, (4, 1, 1), (128, 1, 1), arguments) for name, arguments in table.items()]
        for file, table in (("plain", PLAIN), ("groups", GROUPS))
    }


def _applications() -> list[tuple[Path, list[LaunchPlan]]]:
    folder = ROOT / "examples" / "apps"
    return [(folder / f"{name}.hip", [plan]) for name, plan in read_plans(folder / "launch.toml").items()]


def _executed(object: CodeObject, data: bytes, plan: LaunchPlan) -> tuple[int, int]:
    """Return the wave-instructions and waves of one launch."""
    device = open_device(f"emu:{object.target.target.name}")
    kernel = device.load(data).kernel(plan.kernel)
    kernel.launch(*plan.materialise(), grid=plan.grid, block=plan.block, dynamic_lds=plan.dynamic_lds)
    return device.stats.instructions, device.stats.waves


def _body(hook: Hook, target: str) -> int:
    """Return the number of instructions that LLVM makes of a hook, without the waits that functions begin with."""
    id = TargetId.parse(target)
    template = template_for(hook, (), id, id.target.default_wave_size)
    return len(template.code) - template.waits


def measure() -> Iterable[Row]:
    """Count in every kernel with every tool."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        module = _module(folder)
        tools = _count(module)
        for target in TARGETS:
            ratios: dict[str, list[float]] = {tool: [] for tool in TOOLS}
            added: dict[str, list[float]] = {tool: [] for tool in TOOLS}
            long: list[int] = []
            for object, plan in _kernels(target, folder):
                before, waves = _executed(object, object.data, plan)
                for tool, instrument in tools.items():
                    patched = patch_object(object, instrument, [plan.kernel], solve_sums=tool in SOLVED)
                    executed = _executed(object, patched.data, plan)[0]
                    ratios[tool].append(executed / before)
                    added[tool].append((executed - before) / before)
                if before >= LONG * waves:
                    long.append(len(ratios[tool]) - 1)
            hook = ratios[PEER]
            for tool in TOOLS:
                for what, chosen in (("all", list(range(len(hook)))), ("long waves", long)):
                    mean, peer = (
                        prod(column[at] for at in chosen) ** (1 / len(chosen)) for column in (ratios[tool], hook)
                    )
                    yield Row(f"{tool}, {target}, {len(chosen)} kernels ({what})", mean, "x", PEER, peer)
                yield Row(f"{tool}, {target}, worst", max(ratios[tool]), "x", PEER, max(hook))
            for tool, name in SPLICED.items():
                body = _body(module.hook(name), target)
                mean = sum(added[tool]) / len(added[tool])
                yield Row(f"{tool}, {target}, instructions a site", mean, "", "compiled body, without its waits", body)
        for target in POINTER_TARGETS:
            for what, object, plan in _by_pointers(target, folder):
                patched = patch_object(object, tools[HOISTED[0]], [plan.kernel], strict=True)
                ratio = _executed(object, patched.data, plan)[0] / _executed(object, object.data, plan)[0]
                yield Row(f"profile, calls by pointers, {target}, {what}", ratio, "x", "aim", POINTER_AIM)
