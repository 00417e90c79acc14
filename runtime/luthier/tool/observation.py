"""The view that tools have of a program under `luthier run`: its processes' variables, launches and code objects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from luthier.channels import Channel, Ring
from luthier.errors import ToolError
from luthier.module import DeviceVariable
from luthier.module.elements import element_type
from luthier.objects import CodeObject, Kernel
from luthier.objects.arguments import Argument, arguments_of
from luthier.support import device_memory as storage
from luthier.tool.counts import KernelCounts, MissingSums, completed


class TypedVariable(storage.Variable):
    """A tool's variable, with its C++ type.

    Args:
        type: empty when it is not known.
    """

    def __init__(self, name: str, size: int, type: str) -> None:
        super().__init__(name, size)
        self.type = type
        """C++ type, or empty when it is not known."""

    @property
    def value(self) -> int:
        """Return the contents as an unsigned integer, whatever the type is."""
        return int(self.read(int))

    @property
    def elements(self) -> NDArray[Any] | None:
        """Return the elements by the type, however many dimensions it has; None if they are no numbers.

        Of a type that is not known, 1, 2, 4 or 8 bytes are an unsigned number.
        """
        dtype = self._element_type
        return None if dtype is None else self.read(dtype)

    @property
    def number(self) -> int | float | None:
        """Return the only one of `elements`; None if there are several, or none."""
        dtype = self._element_type
        return self.read(dtype).item() if dtype is not None and dtype.itemsize == self.size else None

    @property
    def _element_type(self) -> np.dtype[Any] | None:
        return element_type(self.type, self.size)


def total(variables: Iterable[TypedVariable]) -> int | float:
    """Return the sum of the variables' numbers, or where one is no single number, of its contents as an integer."""
    return sum(one.value if (number := one.number) is None else number for one in variables)


class LiveVariable(TypedVariable):
    """A `TypedVariable` on one device of one process: its memory is read and written as it is now, while kernels run
    and after.

    Args:
        sums: what it lacks there.
    """

    def __init__(
        self, variable: DeviceVariable, pid: int, gpu: int, memory: NDArray[np.uint8], sums: MissingSums | None = None
    ) -> None:
        super().__init__(variable.name, variable.size, variable.type)
        self.pid = pid
        """Process."""
        self.gpu = gpu
        """Number of the device."""
        self._initial = variable.storage.initial
        self._memory = memory
        self._sums = sums

    def _load(self) -> bytes:
        data = self._memory.tobytes()
        return data if self._sums is None else completed(data, self._sums.missing())

    def _store(self, data: NDArray[np.uint8]) -> None:
        self._memory[:] = data
        if self._sums is not None:
            self._sums.written()

    def reset(self) -> None:
        """Give it its initial value."""
        self.write(self._initial)


class LiveChannel(Channel):
    """A tool's channel on one device of one process."""

    def __init__(self, ring: Ring, pid: int, gpu: int) -> None:
        super().__init__(ring)
        self.pid = pid
        """Process."""
        self.gpu = gpu
        """Number of the device."""


class LaunchedKernel(Protocol):
    """A kernel of one code object, in all processes and on all devices."""

    @property
    def name(self) -> str:
        """Return the kernel's symbol."""

    @property
    def object(self) -> str:
        """Return the code object's name."""

    @property
    def launches(self) -> int:
        """Return the number of launches."""

    @property
    def instrumented(self) -> int:
        """Return the number of launches that ran the patched kernel."""

    @property
    def covered(self) -> bool:
        """Return whether every launch ran with every hook that the tools asked for."""


class Run(Protocol):
    """A run as a tool sees it: its own variables on every device of every process, and all kernels.

    It may be looked at while the program runs and after.
    """

    @property
    def folder(self) -> Path | None:
        """Return the run directory (`luthier run -o`), or None if there is none.

        A tool may put files and folders of its own there. Names that end in ``.parquet``, and ``summary.json``, are
        Luthier's.
        """

    @property
    def kernels(self) -> Sequence[LaunchedKernel]:
        """Return the kernels launched so far."""

    def variables(self, name: str | None = None) -> list[LiveVariable]:
        """Return the tool's variables of that name, or all.

        There is one for each device of each process that has come to need it.
        """

    def channels(self, name: str | None = None) -> list[LiveChannel]:
        """Return the tool's channels of that name, or all.

        There is one for each device of each process that has come to need it.
        """

    def counts(self) -> Sequence[KernelCounts]:
        """Return the counts that go to no variable, for each kernel, over all devices and processes.

        They are those of `InstrumentationTask.count`.
        """

    def total(self, name: str) -> int | float:
        """Return the sum of the variable's values over devices and processes; 0 if there is none yet.

        A value is the number that the variable's C++ type makes of it, or where it is not one number, the contents as
        an unsigned integer.
        """


class LoadedObject(Struct, frozen=True):
    """A code object that a process has loaded on a device."""

    object: CodeObject
    pid: int
    gpu: int
    """Number of the device."""


@dataclass(frozen=True)
class ApiEvent:
    """A call of a function of the HSA or HIP API has begun or ended."""

    name: str
    """Name of the function."""
    is_exit: bool
    """True when the call has ended, false when it begins."""
    pid: int
    thread: int
    """The system's number of it."""
    call: int
    """Number of the call: the same when it begins and when it ends; different for every call of a process."""
    time: int
    """Nanoseconds since 1970."""
    arguments: Mapping[str, int]
    """By name: integers, addresses, handles, the bits of numbers; three entries ``name.x`` … for a HIP ``dim3``. Larger
    structures are left out. Also there when the call has ended."""
    result: int | None = None
    """Return value, if the call has ended and it is known."""
    outputs: Mapping[str, int] = field(default_factory=dict)
    """Values that arguments point at when the call has succeeded, where that is one number that the function may have
    written."""


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
    """True if the patched kernel is launched."""
    kernarg: bytes = b""
    """Contents of the arguments that the program gives; empty if they could not be read."""
    run: Run = field(init=False, repr=False)
    captured: Path | bool = False
    """Whether it is to be captured, or to which file."""

    def capture(self, path: str | Path | None = None) -> None:
        """Have the launch captured: `luthier replay` runs the file again, without the program.

        To be called in `Tool.at_kernel_launch`. The file is written when the launch has ended. When the program has, it
        loses the memory that the launch did not access, or is removed if its replay differs.

        Args:
            path: of the file; None: one in the folder ``captures`` of the run directory.

        Raises:
            ToolError: there is no run directory.
        """
        if path is None and self.run.folder is None:
            raise ToolError("captures go to the run directory (-o), or to a file that is named")
        self.captured = True if path is None else Path(path).absolute()

    def arguments(self) -> list[Argument]:
        """Return the arguments that the program gives, with names, types and contents as far as they are known."""
        return arguments_of(self.kernel, self.object, self.kernarg)

    def variables(self, name: str | None = None) -> list[LiveVariable]:
        """Return the tool's variables of that name, or all, on the launch's device: to be read and written."""
        return [one for one in self.run.variables(name) if (one.pid, one.gpu) == (self.pid, self.gpu)]
