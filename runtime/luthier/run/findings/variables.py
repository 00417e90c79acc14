"""Variables of the code objects that processes have loaded."""

from __future__ import annotations

import threading

from luthier.objects import CodeObject
from luthier.objects.data_bounds import DataBounds, data_bounds
from luthier.wire.device_requests import Bounds


class Variables:
    """Knows names by their addresses in processes. Safe from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bounds: dict[CodeObject, list[DataBounds]] = {}
        self._names: dict[tuple[int, int], tuple[str, str]] = {}

    def of(self, process: int, object: CodeObject, load_address: int) -> list[Bounds]:
        """Return the bounds of an object's variables in the memory of a process that has loaded it there."""
        with self._lock:
            if (found := self._bounds.get(object)) is None:
                found = self._bounds[object] = data_bounds(object)
            for one in found:
                self._names[process, load_address + one.address] = one.name, object.name
            return [Bounds(load_address + one.address, one.size, one.reserved) for one in found]

    def at(self, process: int, address: int) -> tuple[str, str]:
        """Return the symbol of the variable that begins there in a process, and the name of its object."""
        return self._names.get((process, address), ("", ""))
