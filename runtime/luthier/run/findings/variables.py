"""Variables of loaded code objects."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakKeyDictionary

from luthier.objects import CodeObject
from luthier.objects.data_bounds import DataBounds, data_bounds
from luthier.wire.device_requests import Bounds


class Variables:
    """Maps addresses in processes to names of variables. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bounds = WeakKeyDictionary[CodeObject, list[DataBounds]]()
        self._connections = Counter[int]()
        self._names: dict[int, dict[int, tuple[str, str]]] = {}

    @contextmanager
    def connected(self, process: int) -> Iterator[None]:
        """Keep the names of a process while one of its connections lasts."""
        with self._lock:
            self._connections[process] += 1
        try:
            yield
        finally:
            with self._lock:
                self._connections[process] -= 1
                if not self._connections[process]:
                    del self._connections[process]
                    self._names.pop(process, None)

    def of(self, process: int, object: CodeObject, load_address: int) -> list[Bounds]:
        """Return the bounds of the variables of an object that a process has loaded."""
        with self._lock:
            if (bounds := self._bounds.get(object)) is None:
                bounds = self._bounds[object] = data_bounds(object)
            names = self._names.setdefault(process, {})
            names.update({load_address + one.address: (one.name, object.name) for one in bounds})
            return [Bounds(load_address + one.address, one.size, one.reserved) for one in bounds]

    def at(self, process: int, address: int) -> tuple[str, str]:
        """Return symbol and object name of the variable that begins at an address in a process."""
        return self._names.get(process, {}).get(address, ("", ""))
