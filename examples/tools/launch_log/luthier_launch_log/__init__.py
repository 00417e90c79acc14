"""Logs each launch: kernel, sizes, and the values of the kernel's arguments."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from luthier import InstrumentationTask, Launch, LiveChannel, Run, Table, Tool, ToolModule
from numpy.typing import NDArray

DEVICE = ToolModule.from_package(__name__, "device")


@dataclass
class Entry:
    """One launch."""

    launch: Launch
    contents: bytearray
    """Contents of the kernel's own arguments."""
    known: int = 0
    """Number of those bytes that the hook has reported."""

    def arguments(self) -> str:
        """Return the arguments as text: pointers and odd sizes in hexadecimal, others as signed integers."""
        if self.known < len(self.contents):
            return f"not told ({self.known} of {len(self.contents)} bytes)"
        texts = []
        for number, one in enumerate(explicit(self.launch.kernel)):
            data = bytes(self.contents[one.offset : one.offset + one.size])
            if one.value_kind == "by_value" and one.size in (1, 2, 4, 8):
                value = str(int.from_bytes(data, "little", signed=True))
            else:
                value = hex(int.from_bytes(data, "little"))
            texts.append(f"{one.name or number}={value}")
        return ", ".join(texts)


class LaunchLog(Tool):
    """Notes each launch, and what its first work-item finds in the kernel's arguments."""

    @dataclass(frozen=True)
    class Options:
        """Options: what is logged."""

        top: int = 100
        """Show so many launches, the first ones; 0: all."""

    def __init__(self, **options: object) -> None:
        super().__init__(**options)
        self.entries: list[Entry] = []
        self._running: dict[tuple[int, int], Entry] = {}

    def instrument(self, task: InstrumentationTask) -> None:
        """Put the hook at the kernel's beginning."""
        task.insert_hook_at_kernel_entry(DEVICE.starts, size_of(task.lifted.kernel))

    def at_kernel_launch(self, launch: Launch) -> None:
        """Begin an entry."""
        entry = Entry(launch, bytearray(size_of(launch.kernel)))
        self.entries.append(entry)
        self._running[launch.pid, launch.gpu] = entry

    def at_records(self, channel: LiveChannel, batch: NDArray[Any]) -> None:
        """Put the pieces in their places."""
        entry = self._running[channel.pid, channel.gpu]
        for offset, value, size in zip(*(batch[name].tolist() for name in ("offset", "value", "size")), strict=True):
            entry.contents[offset : offset + size] = value.to_bytes(4, "little")[:size]
            entry.known += size

    def at_kernel_end(self, launch: Launch) -> None:
        """Complete the launch's entry."""
        self._running.pop((launch.pid, launch.gpu), None)

    def report(self, run: Run) -> Iterable[Table]:
        """Yield a table of the launches in their order."""
        rows = []
        for entry in self.entries[: self.options.top or None]:
            launch = entry.launch
            sizes = ("x".join(map(str, size)) for size in (launch.grid, launch.block))
            rows.append(
                (
                    launch.pid,
                    launch.gpu,
                    launch.kernel.name,
                    launch.number,
                    *sizes,
                    launch.group_segment,
                    entry.arguments(),
                )
            )
        title = f"launches: {len(self.entries)}"
        yield Table(title, ("process", "device", "kernel", "number", "grid", "block", "LDS", "arguments"), rows)


def explicit(kernel: Any) -> list[Any]:
    """Return the arguments that the program gives."""
    return [one for one in kernel.arguments if not one.hidden]


def size_of(kernel: Any) -> int:
    """Return the bytes of the arguments that the program gives."""
    return max((one.offset + one.size for one in explicit(kernel)), default=0)
