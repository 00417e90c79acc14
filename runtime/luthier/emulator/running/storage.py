"""Buffers and variables in an emulated device's memory."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from luthier.emulator.running.memory import AllocationTable, DeviceAllocation
from luthier.errors import DeviceError
from luthier.support import device_memory as storage


class DeviceBuffer(storage.Buffer):
    """Memory of a device."""

    def __init__(self, memory: AllocationTable, allocation: DeviceAllocation) -> None:
        super().__init__(allocation.size)
        self._memory = memory
        self._allocation: DeviceAllocation | None = allocation

    def _live(self) -> DeviceAllocation:
        if self._allocation is None:
            raise DeviceError("the buffer was freed")
        return self._allocation

    def _place(self) -> int:
        return self._live().address

    def _load(self) -> bytes:
        return self._live().view().tobytes()

    def _store(self, offset: int, data: NDArray[np.uint8]) -> None:
        self._live().view()[offset : offset + data.size] = data

    def _release(self) -> None:
        self._memory.free(self._live())
        self._allocation = None


class ModuleVariable(storage.Variable):
    """A variable of a loaded module; for a HIP managed variable, its storage."""

    def __init__(self, name: str, address: int, size: int, memory: AllocationTable, holder: DeviceAllocation) -> None:
        super().__init__(name, size)
        self.address = address
        self._memory = memory
        self._holder = holder

    def _live(self) -> NDArray[np.uint8]:
        if self._memory.find(self._holder.address) is not self._holder:
            raise DeviceError(f"the module of variable {self.name} was unloaded")
        return self._holder.view()[self.address - self._holder.address :][: self.size]

    def _load(self) -> bytes:
        return self._live().tobytes()

    def _store(self, data: NDArray[np.uint8]) -> None:
        self._live()[:] = data
