"""Patch a kernel in a separate process, and print the CPU times in ms as JSON.

Run as ``first_patch.py BUNDLE OBJECT new|kept``, with LUTHIER_CACHE_DIR for compiled hooks. The hooks are those of
instr_count, before every instruction. `new`: LLVM compiles them, in a child process whose time counts.
"""

from __future__ import annotations

import gc
import json
import resource
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from luthier.module import ToolModule
    from luthier.tool.task import InstrumentationTask


def spent() -> float:
    """Return the CPU time of this process, and of its children, in ms."""
    return 1e3 * sum(
        usage.ru_utime + usage.ru_stime
        for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


def additions() -> float:
    """Return the CPU time of 100,000 additions in a loop of Python's, in ms: how fast the machine is at the moment."""
    best = float("inf")
    for _ in range(7):
        began = time.process_time()
        total = 0
        for number in range(100_000):
            total += number
        best = min(best, time.process_time() - began)
    return best * 1e3


def count_everything(task: InstrumentationTask, module: ToolModule, *, by_wave: bool = False) -> None:
    """Insert the hooks of instr_count, each as a hook."""
    task.hoist = False
    for instruction in task.instructions:
        if instruction.is_vector:
            task.insert_hook_before(instruction, module.count_vector, by_wave)
        else:
            task.insert_hook_before(instruction, module.count_scalar)


def main(bundle: str, path: str, hooks: str) -> None:
    """Import, load, patch; patch with the same hooks; with one that this process has not used."""
    gc.set_threshold(100_000)  # as the commands do
    started = spent()
    from luthier.module import ToolModule  # what imports take is one of the figures
    from luthier.objects import load_object
    from luthier.patch import patch_object
    from luthier.payload.isolation import in_lasting_child

    imported = spent()
    module = ToolModule.load(bundle)

    def whole() -> float:
        return spent() + (1e3 * in_lasting_child("the time", time.process_time) if hooks == "new" else 0)

    def patch(*, by_wave: bool = False) -> float:
        object = load_object(path)
        began = whole()
        patch_object(object, lambda task: count_everything(task, module, by_wave=by_wave))
        return whole() - began

    times = {"imports": imported - started, "first": patch(), "second": min(patch() for _ in range(5))}
    print(json.dumps({**times, "other": patch(by_wave=True), "additions": additions()}))


if __name__ == "__main__":
    main(*sys.argv[1:])
