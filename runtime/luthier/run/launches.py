"""What tools are told of while a program runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from luthier.objects import CodeObject, Kernel

if TYPE_CHECKING:
    from luthier.run.results import Run
    from luthier.run.sessions import LiveVariable


@dataclass(frozen=True)
class LoadedObject:
    """A code object that a process has loaded on a device."""

    object: CodeObject
    pid: int
    gpu: int
    """Number of the device."""


@dataclass
class Launch:
    """One launch of a kernel."""

    kernel: Kernel
    object: CodeObject
    pid: int
    gpu: int
    """Number of the device."""
    number: int
    """Among the launches of the kernel in this process."""
    grid: tuple[int, ...]
    """Work-items in three dimensions."""
    block: tuple[int, ...]
    """Work-items of a work-group in three dimensions."""
    group_segment: int
    """Bytes of LDS a work-group."""
    private_segment: int
    """Bytes of scratch a work-item."""
    instrumented: bool
    """Whether the patched kernel is launched."""
    run: Run = field(init=False, repr=False)

    def variables(self, name: str | None = None) -> list[LiveVariable]:
        """The tool's variables of that name, or all, on the launch's device: to be read and written."""
        return [one for one in self.run.variables(name) if (one.pid, one.gpu) == (self.pid, self.gpu)]
