"""Parts of the self-test that run in separate processes, because they may crash.

``python -m luthier_build.selftest.apart program DEVICES TARGET COMMAND…`` runs a program; ``counting`` and ``hooked``
instead of ``program`` run it under a tool. ``gpus NAME…`` describes GPUs, all without names. ``kernel NAME OBJECT
KERNEL [MODULE]`` launches a kernel on a GPU, under the hooks of a module. The last line of the output is JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import luthier
from luthier import ToolModule, load_object
from luthier.devices.hip import gpu_names
from luthier.errors import LuthierError
from luthier.run import devices_for, results, run_program
from luthier.run.executed import Executed
from luthier.run.instrumentation import Instrumentation
from luthier.run.selection import Selection
from luthier.terminal import say_text
from luthier.tool import ToolGroup

from luthier_build.selftest import devices
from luthier_build.selftest.tools import CountingTool, Hooked, compile_hook


def main(arguments: Sequence[str]) -> int:
    """Run the part named by the arguments and return the exit status."""
    what, *rest = arguments
    try:
        parts: dict[str, Callable[..., dict[str, Any]]] = {"gpus": _gpus, "kernel": _kernel}
        report = parts.get(what, partial(_program, what))(*rest)
    except LuthierError as problem:
        say_text(problem, file=sys.stderr)
        return 1
    say_text(json.dumps(report))
    return 0


def _gpus(*names: str) -> dict[str, Any]:
    """Return the target of each GPU by its name, or the error that it gives."""
    targets = {}
    for name in names or gpu_names():
        try:
            targets[name] = {"target": str(luthier.open_device(name).target)}
        except LuthierError as problem:
            targets[name] = {"error": str(problem)}
    return targets


def _kernel(name: str, object: str, kernel: str, *modules: str) -> dict[str, Any]:
    hooks = ToolModule.load(Path(modules[0])) if modules else None
    opened = luthier.open_device(name)
    return {"detail": devices.beside_emulated(opened, load_object(object), kernel, hooks)}


def _program(what: str, names: str, target: str, *command: str) -> dict[str, Any]:
    gpus = devices_for(names, command)
    executed = Executed()
    if what == "program":
        code = run_program(command, gpus, executed=executed)
        counted = sum(times for _, counts in executed.objects() for times, _ in counts.values())
        return {"code": code, "counted": counted + executed.elsewhere}
    tool = CountingTool() if what == "counting" else Hooked(compile_hook(target))
    instrumentation = Instrumentation(ToolGroup([tool]), Selection())
    instrumentation.begin()
    code = run_program(command, gpus, instrumentation)
    instrumentation.end()
    rows = [row for _, tables in results.tables(instrumentation) for table in tables for row in table.rows]
    return {
        "code": code,
        "counted": sum(row[-1] for row in rows if isinstance(row[-1], int)),
        "faults": instrumentation.faults,
        "instrumented": {kernel.name: kernel.instrumented for kernel in results.kernels(instrumentation)},
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
