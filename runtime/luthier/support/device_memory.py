"""Buffers and variables in device memory, independent of the kind of device."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from luthier.errors import DeviceError


def as_bytes(data: bytes | NDArray[Any]) -> NDArray[np.uint8]:
    """Return the bytes of an array, shape (size,)."""
    if isinstance(data, bytes):
        return np.frombuffer(data, np.uint8)
    return np.ascontiguousarray(data).view(np.uint8).ravel()


class Buffer(ABC):
    """Memory of a device."""

    def __init__(self, size: int) -> None:
        self.size = size
        """Bytes."""

    @property
    def address(self) -> int:
        """Return the device address of the first byte.

        Raises:
            DeviceError: the buffer was freed.
        """
        return self._place()

    @abstractmethod
    def _place(self) -> int:
        """Return the device address."""

    @abstractmethod
    def _load(self) -> bytes:
        """Return all contents."""

    @abstractmethod
    def _store(self, offset: int, data: NDArray[np.uint8]) -> None:
        """Replace contents; the bytes fit."""

    @abstractmethod
    def _release(self) -> None:
        """Free the memory."""

    def free(self) -> None:
        """Free the memory.

        Raises:
            DeviceError: the buffer was already freed.
        """
        self._release()

    def read(self, dtype: Any = None) -> Any:
        """Return the contents: bytes, or an array of `dtype`."""
        data = self._load()
        return data if dtype is None else np.frombuffer(data, dtype).copy()

    def write(self, data: bytes | NDArray[Any], offset: int = 0) -> None:
        """Replace contents from byte `offset`.

        Raises:
            DeviceError: the data does not fit.
        """
        raw = as_bytes(data)
        if offset < 0 or offset + raw.size > self.size:
            raise DeviceError(f"{raw.size} bytes at offset {offset} do not fit into a buffer of {self.size} bytes")
        self._store(offset, raw)


class Variable(ABC):
    """A named variable."""

    def __init__(self, name: str, size: int) -> None:
        self.name = name
        self.size = size
        """Bytes."""

    @abstractmethod
    def _load(self) -> bytes:
        """Return all contents.

        Raises:
            DeviceError: the variable's module was unloaded.
        """

    @abstractmethod
    def _store(self, data: NDArray[np.uint8]) -> None:
        """Replace the contents by as many bytes.

        Raises:
            DeviceError: the variable's module was unloaded.
        """

    def read(self, dtype: Any = None) -> Any:
        """Return the contents: bytes, an array of `dtype`, or for int a little-endian unsigned number.

        Raises:
            DeviceError: the variable's module was unloaded.
        """
        data = self._load()
        if dtype is None:
            return data
        return int.from_bytes(data, "little") if dtype is int else np.frombuffer(data, dtype).copy()

    def write(self, data: bytes | int | NDArray[Any]) -> None:
        """Replace the contents; a number fills the whole variable, little-endian.

        Raises:
            DeviceError: the sizes differ, or the variable's module was unloaded.
        """
        if isinstance(data, (int, np.integer)):
            data = (int(data) & ((1 << 8 * self.size) - 1)).to_bytes(self.size, "little")
        raw = as_bytes(data)
        if raw.size != self.size:
            raise DeviceError(f"variable {self.name} has {self.size} bytes, not {raw.size}")
        self._store(raw)
