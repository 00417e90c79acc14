"""Logs each launch: kernel, sizes, and the values of the kernel's arguments."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from luthier import InstrumentationTask, Launch, Run, Table, Tool


class LaunchLog(Tool):
    """Notes each launch, and what the program gives it."""

    @dataclass(frozen=True)
    class Options:
        """Options: what is logged."""

        top: int = 100
        """Show so many launches, the first ones; 0: all."""

    def __init__(self, **options: object) -> None:
        super().__init__(**options)
        self.launches: list[Launch] = []

    def instrument(self, task: InstrumentationTask) -> None:
        """Insert nothing: the launch packet has everything."""

    def at_kernel_launch(self, launch: Launch) -> None:
        """Record a launch."""
        self.launches.append(launch)

    def report(self, run: Run) -> Iterable[Table]:
        """Yield a table of the launches in their order, and one of the kernels' arguments."""
        rows = []
        for launch in self.launches[: self.options.top or None]:
            sizes = ("x".join(map(str, size)) for size in (launch.grid, launch.block))
            arguments = ", ".join(f"{one.name}={one.text}" for one in launch.arguments())
            row = (launch.pid, launch.gpu, launch.kernel.name, launch.number, *sizes, launch.group_segment, arguments)
            rows.append(row)
        title = f"launches: {len(self.launches)}"
        yield Table(
            title, ("process", "device", "kernel", "number", "work-items", "work-group", "LDS", "arguments"), rows
        )
        described = dict.fromkeys(
            (launch.kernel.name, one.name, one.type or None, one.offset, one.size)
            for launch in self.launches
            for one in launch.arguments()
        )
        yield Table("arguments", ("kernel", "argument", "type", "offset", "bytes"), list(described))
