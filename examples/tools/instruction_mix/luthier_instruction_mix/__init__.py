"""The make-up of a kernel when it runs: instructions by class, and floating-point and matrix operations by type.

There is no hook at any instruction: how often blocks run follows from a few counters in registers, and what is in the
blocks is known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import get_args

from luthier import InstrumentationTask, KernelCounts, Operations, Table, Tool
from luthier.lifting.instructions.operations import OperationClass

CLASSES = get_args(OperationClass)


@dataclass
class Contents:
    """Contents of a kernel, by instruction index."""

    classes: dict[int, str]
    operations: dict[int, list[Operations]]


class InstructionMix(Tool):
    """Wave-instructions by class, and operations by type."""

    @dataclass(frozen=True)
    class Options:
        """Options: what is counted."""

        operations: bool = True
        """Count floating-point and matrix operations, too: lanes are counted where there are such, which costs more."""

    def __init__(self, **options: object) -> None:
        super().__init__(**options)
        self.kernels: dict[tuple[str, int, int], Contents] = {}
        """By name, first address and number of instructions: kernels of several objects may have one name."""

    def instrument(self, task: InstrumentationTask) -> None:
        """Request counts."""
        contents = Contents({}, {})
        for instruction in task.instructions:
            contents.classes[instruction.index] = instruction.operation_class
            if self.options.operations and (operations := instruction.operations):
                contents.operations[instruction.index] = operations
        addresses = task.lifted.code.addresses
        self.kernels[task.lifted.kernel.name, int(addresses[0]), len(addresses)] = contents
        task.count(task.instructions)
        lanes = [index for index, all in contents.operations.items() if any(one.per == "lane" for one in all)]
        if lanes:
            task.count(lanes, per="lane")

    def tables(self, counts: KernelCounts) -> Iterable[Table]:
        """Yield the mix of one kernel."""
        counters = counts.counters
        contents = self.kernels.get((counters.kernel, int(counters.addresses[0]), len(counters.addresses)))
        if contents is None:
            return
        mix: Counter[str] = Counter()
        for index, name in contents.classes.items():
            mix[name] += int(counts.executions[index])
        total = sum(mix.values())
        rows = [(name, mix[name], round(100 * mix[name] / total, 2)) for name in CLASSES if mix[name]]
        yield Table(counters.kernel, ("class", "executed", "%"), [*rows, ("all", total, 100.0)] if total else [])
        done: Counter[tuple[str, str]] = Counter()
        for index, operations in contents.operations.items():
            for operation in operations:
                times = counts.active_lanes[index] if operation.per == "lane" else counts.executions[index]
                unit = "matrix" if operation.matrix else "vector" if operation.per == "lane" else "scalar"
                done[unit, operation.type] += operation.count * int(times)
        if done:
            yield Table(
                f"{counters.kernel}: operations",
                ("unit", "type", "operations"),
                [(*key, count) for key, count in sorted(done.items()) if count],
            )
