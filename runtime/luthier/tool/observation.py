"""The interface through which tools see a program under `luthier run`: variables, launches and code objects."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from luthier.channels import Channel, Ring
from luthier.errors import DeviceError, ToolError
from luthier.module import DeviceVariable
from luthier.module.elements import element_type
from luthier.objects import CodeObject, Kernel
from luthier.objects.arguments import Argument, arguments_of
from luthier.support import device_memory as storage
from luthier.tool.counts import KernelCounts, MissingSums, completed

Value = bytes | int | float | NDArray[Any]
"""What `Run.initialise` writes to a variable."""


class TypedVariable(storage.Variable):
    """A tool's variable, with its C++ type."""

    def __init__(self, name: str, size: int, type: str) -> None:
        super().__init__(name, size)
        self.type = type
        """C++ type, or empty if not known."""

    @property
    def value(self) -> int:
        """Return the contents as an unsigned integer, whatever the type is."""
        return int(self.read(int))

    @property
    def elements(self) -> NDArray[Any] | None:
        """Return the elements as a flat array of the variable's type; None if they are not numbers.

        A variable of unknown type with 1, 2, 4 or 8 bytes is an unsigned number.
        """
        dtype = self._element_type
        return None if dtype is None else self.read(dtype)

    @property
    def number(self) -> int | float | None:
        """Return the single element of `elements`; None if there is not exactly one."""
        dtype = self._element_type
        return self.read(dtype).item() if dtype is not None and dtype.itemsize == self.size else None

    def put(self, value: Value) -> None:
        """Write a number as one of the variable's C++ type, or bytes or an array as all of its contents.

        Raises:
            DeviceError: it does not fit the variable.
        """
        kind = self._element_type
        if isinstance(value, int | float | np.number):
            if kind is None or kind.itemsize != self.size:
                raise DeviceError(
                    f"variable {self.name} of {self.size} bytes is not one number: give bytes or an array"
                )
            try:
                with np.errstate(over="ignore"):
                    number = np.array([value]).astype(kind)
                fits = not np.isinf(number[0]) or math.isinf(value) if kind.kind == "f" else number[0] == value
            except OverflowError:
                fits = False
            if not fits:
                raise DeviceError(f"variable {self.name} of type {self.type or kind} cannot hold {value!r}")
            value = number
        self.write(value)

    @property
    def _element_type(self) -> np.dtype[Any] | None:
        return element_type(self.type, self.size)


def total(variables: Iterable[TypedVariable]) -> int | float:
    """Return the sum of the variables' numbers. A variable that is not a single number counts as one integer."""
    return sum(variable.value if (number := variable.number) is None else number for variable in variables)


class LiveVariable(TypedVariable):
    """A `TypedVariable` on one device of one process. Its memory is accessed directly, also while kernels run.

    Args:
        sums: the sums that the memory lacks.
        initial: what `reset` writes, if not the variable's initial value in the source.
    """

    def __init__(
        self,
        variable: DeviceVariable,
        pid: int,
        gpu: int,
        memory: NDArray[np.uint8],
        sums: MissingSums | None = None,
        initial: bytes | None = None,
    ) -> None:
        super().__init__(variable.name, variable.size, variable.type)
        self.pid = pid
        """Process ID."""
        self.gpu = gpu
        """Number of the device."""
        self._initial = variable.storage.initial if initial is None else initial
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
        """Write the initial value."""
        self.write(self._initial)


class LiveChannel(Channel):
    """A tool's channel on one device of one process."""

    def __init__(self, ring: Ring, pid: int, gpu: int) -> None:
        super().__init__(ring)
        self.pid = pid
        """Process ID."""
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
        """Return whether every launch ran with every hook that the tools requested."""


class Run(Protocol):
    """A run as a tool sees it: the tool's variables on every device of every process, and all kernels.

    It can be read while the program runs and afterwards.
    """

    @property
    def folder(self) -> Path | None:
        """Return the run directory (`luthier run -o`), or None if there is none.

        A tool may create files and folders there. Names that end in ``.parquet``, and ``summary.json``, are reserved.
        """

    @property
    def kernels(self) -> Sequence[LaunchedKernel]:
        """Return the kernels launched so far."""

    def initialise(self, name: str, value: Value) -> None:
        """Set the initial value of the tool's variable on every device of every process; call it in `Tool.at_init`.

        Args:
            value: a number of the variable's C++ type, or all of its contents as bytes or an array.

        Raises:
            ToolError: the program already uses the tool's variables; write to `variables` then.
        """

    def variables(self, name: str | None = None) -> list[LiveVariable]:
        """Return the tool's variables of that name, or all.

        There is one for each device of each process that needs it so far.
        """

    def channels(self, name: str | None = None) -> list[LiveChannel]:
        """Return the tool's channels of that name, or all.

        There is one for each device of each process that needs it so far.
        """

    def counts(self) -> Sequence[KernelCounts]:
        """Return the counts that `InstrumentationTask.count` adds to no variable, for each kernel.

        They are sums over all devices and processes.
        """

    def total(self, name: str) -> int | float:
        """Return the sum of the variable's values over devices and processes; 0 if there is none yet.

        A value is the number according to the variable's C++ type, or, if it is not a single number, the contents as an
        unsigned integer.
        """


class LoadedObject(Struct, frozen=True):
    """A code object that a process has loaded on a device."""

    object: CodeObject
    pid: int
    gpu: int
    """Number of the device."""


@dataclass(frozen=True)
class ApiEvent:
    """The begin or end of a call of an HSA or HIP API function."""

    name: str
    """Name of the function."""
    is_exit: bool
    """True at the end of the call, false at its begin."""
    pid: int
    thread: int
    """Thread ID of the operating system."""
    call: int
    """Number of the call, unique in a process: its begin and its end have the same."""
    time: int
    """Nanoseconds since 1970."""
    arguments: Mapping[str, int]
    """By name: integers, addresses, handles, the bits of numbers; three entries ``name.x`` … for a HIP ``dim3``. Larger
    structures are left out. The event at the end of the call has them, too."""
    result: int | None = None
    """Return value at the end of the call, if known."""
    outputs: Mapping[str, int] = field(default_factory=dict)
    """Numbers that arguments point to and the function may have written, at the end of a successful call."""


@dataclass
class Launch:
    """One launch of a kernel."""

    kernel: Kernel
    object: CodeObject
    pid: int
    gpu: int
    """Number of the device."""
    number: int
    """Position among the launches of the kernel in this process."""
    grid: tuple[int, ...]
    """Work-items in three dimensions."""
    block: tuple[int, ...]
    """Work-items of a work-group in three dimensions."""
    group_segment: int
    """Bytes of LDS per work-group."""
    private_segment: int
    """Bytes of scratch per work-item."""
    instrumented: bool
    """True if the patched kernel is launched."""
    kernarg: bytes = b""
    """Contents of the kernel arguments; empty if they could not be read."""
    run: Run = field(init=False, repr=False)
    captured: Path | bool = False
    """Whether the launch is captured, or the file to write the capture to."""

    def capture(self, path: str | Path | None = None) -> None:
        """Request a capture of the launch, which `luthier replay` can run again without the program.

        Call this in `Tool.at_kernel_launch`. The file is written when the launch ends. When the program ends, memory
        that the launch did not access is removed from the file, or the file is deleted if its replay differs.

        Args:
            path: the file; None: a file in the folder ``captures`` of the run directory.

        Raises:
            ToolError: `path` is None and there is no run directory.
        """
        if path is None and self.run.folder is None:
            raise ToolError("no place for the capture: name a file, or give the run a directory (-o)")
        self.captured = True if path is None else Path(path).absolute()

    def arguments(self) -> list[Argument]:
        """Return the kernel arguments, with names, types and contents where they are known."""
        return arguments_of(self.kernel, self.object, self.kernarg)

    def variables(self, name: str | None = None) -> list[LiveVariable]:
        """Return the tool's variables of that name, or all, on the launch's device."""
        device = self.pid, self.gpu
        return [variable for variable in self.run.variables(name) if (variable.pid, variable.gpu) == device]
