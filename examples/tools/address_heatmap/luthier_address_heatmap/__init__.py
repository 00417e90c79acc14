"""Counts accesses to memory by page or line, and by allocation of the program."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from luthier import ApiEvent, InstrumentationTask, Run, Table, Tool, ToolModule
from luthier.errors import HookError, ToolError
from luthier.tool.site_sums import chosen, ratio
from numpy.typing import NDArray

DEVICE = ToolModule.from_package(__name__, "device")
SPACES = ("global", "flat", "buffer")
KINDS = ("load", "store", "atomic")


@dataclass(frozen=True)
class Allocation:
    """Memory that the program allocated through HIP."""

    pid: int
    begin: int
    size: int
    made_by: str


class AddressHeatmap(Tool):
    """Counts accesses in a hash table on the device; allocations are those of HIP's API functions."""

    hip_events = ("hipMalloc*", "hipHostMalloc", "hipExtMallocWithFlags")

    @dataclass(frozen=True)
    class Options:
        """Options: what is counted and shown."""

        page: int = 4096
        """Bytes of a page, a power of two: 64 counts by cache line."""
        spaces: str = "global+flat+buffer"
        """Any of these three, joined by +."""
        top: int = 20
        """Pages to show, most accesses first; 0: all."""

    def __init__(self, **options: object) -> None:
        super().__init__(**options)
        page = self.options.page
        if page < 4 or page & (page - 1):
            raise ToolError(f"option page of address_heatmap must be a power of two from 4 on, not {page}")
        self.spaces = chosen(self.options.spaces, SPACES, "option spaces of address_heatmap")
        self.allocations: list[Allocation] = []
        self.unavailable: dict[tuple[str, str], int] = {}
        """Kernel and reason -> number of instructions without an available address."""

    def instrument(self, task: InstrumentationTask) -> None:
        """Put the hook before every vector memory instruction."""
        shift = self.options.page.bit_length() - 1
        for instruction in task.instructions:
            access = instruction.memory
            if access is None or access.space not in self.spaces:
                continue
            try:
                address = task.effective_address(instruction)
            except HookError as problem:
                key = task.lifted.kernel.name, problem.message
                self.unavailable[key] = self.unavailable.get(key, 0) + 1
                task.leave_out(problem.message)
                continue
            task.insert_hook_before(instruction, DEVICE.touch, address, shift, KINDS.index(access.kind))

    def at_hip_event(self, event: ApiEvent) -> None:
        """Record an allocation of the program."""
        size = next((event.arguments[name] for name in ("size", "sizeBytes", "width") if name in event.arguments), 0)
        if event.is_exit and event.result == 0 and event.outputs and size:
            begin = next(iter(event.outputs.values()))
            self.allocations.append(Allocation(event.pid, begin, size * event.arguments.get("height", 1), event.name))

    def report(self, run: Run) -> Iterable[Table]:
        """Yield accesses by allocation, then the most accessed pages."""
        page = self.options.page
        heat: dict[tuple[int, int], NDArray[np.uint64]] = {}
        for pages, counts in zip(run.variables("pages"), run.variables("accesses"), strict=True):
            numbers = pages.read(np.uint64)
            rows = counts.read(np.uint64).reshape(len(numbers), 3)
            for at in np.flatnonzero(numbers).tolist():
                key = pages.pid, (int(numbers[at]) - 1) * page
                heat[key] = heat.get(key, np.zeros(3, np.uint64)) + rows[at]
        yield from self._by_allocation(heat)
        hottest = sorted(heat.items(), key=lambda item: -int(item[1].sum()))[: self.options.top or None]
        total = sum(int(row.sum()) for row in heat.values())
        yield Table(
            f"pages of {page} bytes: {len(heat)}",
            ("process", "page", *(f"{kind}s" for kind in KINDS), "%"),
            [
                (pid, hex(address), *map(int, row), ratio(100 * int(row.sum()), total))
                for (pid, address), row in hottest
            ],
        )
        if left_out := run.total("left_out"):
            yield Table("no room for", ("accesses",), [(left_out,)])
        if self.unavailable:
            rows = [(*key, count) for key, count in self.unavailable.items()]
            yield Table("not counted", ("kernel", "reason", "instructions"), rows)

    def _by_allocation(self, heat: dict[tuple[int, int], NDArray[np.uint64]]) -> Iterable[Table]:
        """Yield accesses by allocation.

        A page belongs to the last allocation made over it; a page of several allocations belongs to the first.
        """
        pages_by_allocation: defaultdict[Allocation | None, list[tuple[int, NDArray[np.uint64]]]] = defaultdict(list)
        page = self.options.page
        for (pid, address), row in heat.items():
            holders = (
                one
                for one in reversed(self.allocations)
                if one.pid == pid and one.begin < address + page and address < one.begin + one.size
            )
            pages_by_allocation[next(holders, None)].append((address, row))
        if not self.allocations:
            return
        rows = []
        for allocation, pages in pages_by_allocation.items():
            sums = sum((row for _, row in pages), np.zeros(3, np.uint64))
            where: tuple[object, ...] = None, "elsewhere", None, ""
            share = None
            if allocation is not None:
                where = allocation.pid, hex(allocation.begin), allocation.size, allocation.made_by
                share = ratio(100 * len(pages) * page, -(-allocation.size // page) * page, 1)
            rows.append((*where, *map(int, sums), len(pages), share))
        rows.sort(key=lambda row: -sum(row[4:7]))
        columns = (
            *("process", "allocation", "bytes", "allocated by"),
            *(f"{kind}s" for kind in KINDS),
            *("pages touched", "touched %"),
        )
        yield Table("allocations", columns, rows)
