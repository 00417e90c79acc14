"""Parts of the self-test that run in separate processes, because they may crash.

``python -m luthier_build.selftest.apart program DEVICES COMMAND…`` runs a program on virtual devices; ``counting`` and
``hooked`` instead of ``program`` run it under a tool; ``gpu NAME`` uses a GPU. The last line of the output is JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

import luthier
from luthier.errors import LuthierError
from luthier.run import parse_devices, results, run_program
from luthier.run.executed import Executed
from luthier.run.instrumentation import Instrumentation
from luthier.run.selection import Selection
from luthier.terminal import say_text
from luthier.tool import ToolGroup

from luthier_build.selftest import devices
from luthier_build.selftest.tools import CountingTool, Hooked, compile_hook


def main(arguments: Sequence[str]) -> int:
    """Run the part named by the arguments and return the exit status."""
    what, device, *command = arguments
    try:
        report = _gpu(device) if what == "gpu" else _program(what, device, command)
    except LuthierError as problem:
        say_text(problem, file=sys.stderr)
        return 1
    say_text(json.dumps(report))
    return 0


def _gpu(name: str) -> dict[str, Any]:
    opened = luthier.open_device(name)
    return {"device": str(opened), "detail": devices.counted_on(opened)}


def _program(what: str, names: str, command: Sequence[str]) -> dict[str, Any]:
    gpus = parse_devices(names)
    executed = Executed()
    if what == "program":
        code = run_program(command, gpus, executed=executed)
        counted = sum(times for _, counts in executed.objects() for times, _ in counts.values())
        return {"code": code, "counted": counted + executed.elsewhere}
    tool = CountingTool() if what == "counting" else Hooked(compile_hook(gpus[0].target.target.name))
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
