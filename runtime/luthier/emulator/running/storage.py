"""Memory of a device as users see it: buffers, and variables of loaded modules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from luthier.emulator.running.memory import Allocation, Memory
from luthier.errors import DeviceError


def _as_bytes(data: bytes | NDArray[Any]) -> NDArray[np.uint8]:
    if isinstance(data, bytes):
        return np.frombuffer(data, np.uint8)
    return np.ascontiguousarray(data).view(np.uint8).ravel()


class DeviceBuffer:
    """Memory of a device.

    Args:
        written: told of address and size whenever the host writes.
    """

    def __init__(
        self, memory: Memory, allocation: Allocation, written: Callable[[int, int], None] | None = None
    ) -> None:
        self._memory = memory
        self._written = written
        self._allocation: Allocation | None = allocation

    def _live(self) -> Allocation:
        if self._allocation is None:
            raise DeviceError("the buffer was freed")
        return self._allocation

    @property
    def address(self) -> int:
        """Device address of the first byte."""
        return self._live().address

    @property
    def size(self) -> int:
        """Bytes."""
        return self._live().size

    def read(self, dtype: Any = None) -> Any:
        """The contents: bytes, or an array of `dtype`."""
        data = self._live().view().tobytes()
        return data if dtype is None else np.frombuffer(data, dtype).copy()

    def write(self, data: bytes | NDArray[Any], offset: int = 0) -> None:
        """Replace contents from byte `offset`.

        Raises:
            DeviceError: it does not fit.
        """
        raw = _as_bytes(data)
        if offset < 0 or offset + raw.size > self.size:
            raise DeviceError(f"{raw.size} bytes at {offset} do not fit a buffer of {self.size}")
        self._live().view()[offset : offset + raw.size] = raw
        if self._written is not None:
            self._written(self.address + offset, raw.size)

    def free(self) -> None:
        """Give the memory back."""
        self._memory.free(self._live())
        self._allocation = None


class Variable:
    """A variable of a loaded module; of a HIP managed variable its storage."""

    def __init__(self, name: str, address: int, size: int, memory: Memory, holder: Allocation) -> None:
        self.name = name
        self.address = address
        self.size = size
        self._memory = memory
        self._holder = holder

    def _live(self) -> NDArray[np.uint8]:
        if self._memory.find(self._holder.address) is not self._holder:
            raise DeviceError(f"the module of variable {self.name} was unloaded")
        return self._holder.view()[self.address - self._holder.address :][: self.size]

    def read(self, dtype: Any = None) -> Any:
        """Contents: bytes, an array of `dtype`, or with `dtype` int the little-endian unsigned number.

        Raises:
            DeviceError: the module was unloaded.
        """
        data = self._live().tobytes()
        if dtype is None:
            return data
        if dtype is int:
            return int.from_bytes(data, "little")
        return np.frombuffer(data, dtype).copy()

    def write(self, data: bytes | int | NDArray[Any]) -> None:
        """Replace the contents (a number fills the whole variable, little-endian).

        Raises:
            DeviceError: the sizes differ, or the module was unloaded.
        """
        if isinstance(data, (int, np.integer)):
            data = (int(data) & ((1 << 8 * self.size) - 1)).to_bytes(self.size, "little")
        raw = _as_bytes(data)
        if raw.size != self.size:
            raise DeviceError(f"variable {self.name} has {self.size} bytes, not {raw.size}")
        self._live()[:] = raw
