"""Measures how well vector memory instructions coalesce: the cache lines that each request of a wave touches."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from luthier import Immediate, Instruction, InstrumentationTask, Run, SiteSums, Table, Tool, ToolModule
from luthier.errors import ToolError
from luthier.tool.site_sums import chosen, most_first, ratio

DEVICE = ToolModule.from_package(__name__, "device")
SPACES = ("global", "flat", "buffer")
KINDS = ("load", "store", "atomic")
COLUMNS = ("requests", "lanes", "lines")


@dataclass(frozen=True)
class Shape:
    """Properties of the accesses at a site."""

    size: int
    """Bytes per lane."""
    line: int
    """Bytes of a cache line."""


class Coalescing(Tool):
    """Adds up requests, lanes and lines for each instruction."""

    @dataclass(frozen=True)
    class Options:
        """Options: what is measured and shown."""

        line: int = 0
        """Bytes of a cache line, a power of two; 0: the target's, of loads a line of the first-level vector cache, of
        stores a request to L2."""
        spaces: str = "global+flat+buffer"
        """Any of these three, joined by +."""
        kinds: str = "load+store+atomic"
        """Any of these three, joined by +."""
        top: int = 20
        """Instructions to show, most lines first; 0: all."""

    def __init__(self, **options: object) -> None:
        super().__init__(**options)
        line = self.options.line
        if line and (line < 16 or line & (line - 1)):
            raise ToolError(f"option line of coalescing must be 0 or a power of two from 16 on, not {line}")
        self.spaces = chosen(self.options.spaces, SPACES, "option spaces of coalescing")
        self.kinds = chosen(self.options.kinds, KINDS, "option kinds of coalescing")
        self.sums = SiteSums(DEVICE, "requests", len(COLUMNS))

    def instrument(self, task: InstrumentationTask) -> None:
        """Insert the hook before every vector memory instruction of the requested kinds."""
        target = task.lifted.target
        for instruction in task.instructions:
            access = instruction.memory
            if access is not None and access.space in self.spaces and access.kind in self.kinds:
                known = target.vector_store_line if access.kind == "store" else target.vector_cache_line
                self._measure(task, instruction, self.options.line or known)

    def _measure(self, task: InstrumentationTask, instruction: Instruction, line: int) -> None:
        def insert(number: Immediate) -> None:
            size = task.access_size(instruction)
            address = task.effective_address(instruction)
            task.insert_hook_before(instruction, DEVICE.request, address, number, size, line.bit_length() - 1)

        access = instruction.memory
        assert access is not None
        self.sums.add(task, instruction, insert, Shape(access.size or 0, line))

    def report(self, run: Run) -> Iterable[Table]:
        """Yield each kernel, then the instructions that touch the most lines."""
        measured = self.sums.read(run)
        kernels: defaultdict[str, list[int]] = defaultdict(lambda: [0] * 5)
        for site, sums in measured:
            requests, lanes, lines = map(int, sums)
            row = (requests, lanes, lines, lanes * site.facts.size, lines * site.facts.line)
            kernels[site.kernel] = [a + b for a, b in zip(kernels[site.kernel], row, strict=True)]
        yield Table(
            "coalescing",
            ("kernel", "requests", "bytes", "lines", "lines/request", "efficiency %"),
            [
                (name, requests, used, lines, ratio(lines, requests), ratio(100 * used, touched, 1))
                for name, (requests, _, lines, used, touched) in kernels.items()
            ],
        )
        yield Table(
            "most cache lines",
            (
                "kernel",
                "source",
                "address",
                "instruction",
                "requests",
                "lanes",
                "lines",
                "lines/request",
                "efficiency %",
            ),
            [
                (
                    site.kernel,
                    site.source,
                    hex(site.address),
                    site.text,
                    *map(int, sums),
                    ratio(int(sums[2]), int(sums[0])),
                    ratio(100 * int(sums[1]) * site.facts.size, int(sums[2]) * site.facts.line, 1),
                )
                for site, sums in most_first(measured, 2, self.options.top)
            ],
        )
        yield from self.sums.tables()
