"""Runs a program under a tool that has waves and lanes of everything counted, and leaves a run directory.

Use: record_mix.py FOLDER DEVICE PROGRAM
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from luthier import InstrumentationTask, KernelCounts, Table, Tool
from luthier.run import parse_devices, results, run_program
from luthier.run.instrumentation import Instrumentation
from luthier.run.record import Recorder
from luthier.run.selection import Selection
from luthier.tool import ToolGroup


class Lanes(Tool):
    """Counts, and reports blocks by address."""

    name = "lanes"

    def instrument(self, task: InstrumentationTask) -> None:
        task.count(task.instructions)
        task.count(task.instructions, per="lane")

    def tables(self, counts: KernelCounts) -> Iterable[Table]:
        rows = [(row.block, hex(row.address), row.executions) for row in counts.block_rows()]
        yield Table(counts.counters.kernel, ("block", "address", "entered"), rows)


if __name__ == "__main__":
    folder, device, *command = sys.argv[1:]
    recorder = Recorder(Path(folder))
    instrumentation = Instrumentation(ToolGroup([Lanes()]), Selection(), recorder)
    instrumentation.begin()
    status = run_program(command, parse_devices(device), instrumentation)
    instrumentation.end()
    reported = list(results.tables(instrumentation))
    recorder.finish(instrumentation, results.summary(instrumentation, command, status, reported, devices=[device]))
    sys.exit(status)
