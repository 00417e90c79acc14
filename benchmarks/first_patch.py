"""Patches a kernel twice, in a process of its own, and prints what that took in ms of CPU time, as JSON.

Run as ``first_patch.py BUNDLE OBJECT``, with LUTHIER_CACHE_DIR for what is kept of the hooks: those of instr_count,
before every instruction.
"""

from __future__ import annotations

import gc
import json
import resource
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from luthier.module import ToolModule
    from luthier.task import InstrumentationTask


def spent() -> float:
    """CPU time of this process, and of its children, in ms."""
    return 1e3 * sum(
        usage.ru_utime + usage.ru_stime
        for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


def count_everything(task: InstrumentationTask, module: ToolModule) -> None:
    """What instr_count does, each hook as such."""
    task.hoist = False
    for instruction in task.instructions:
        if instruction.is_vector:
            task.insert_hook_before(instruction, module.count_vector, False)
        else:
            task.insert_hook_before(instruction, module.count_scalar)


def main(bundle: str, path: str) -> None:
    """Import, load, patch, patch again."""
    gc.set_threshold(100_000)  # as the commands do
    started = spent()
    from luthier.module import ToolModule  # what imports take is one of the figures
    from luthier.objects import load_object
    from luthier.patch import patch_object

    imported = spent()
    module = ToolModule.load(bundle)

    def instrument(task: InstrumentationTask) -> None:
        count_everything(task, module)

    patch_object(load_object(path), instrument)
    first = spent()
    patch_object(load_object(path), instrument)
    print(json.dumps({"imports": imported - started, "first": first - imported, "second": spent() - first}))


if __name__ == "__main__":
    main(*sys.argv[1:])
