"""Variables of the code objects that processes have loaded."""

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
    """Knows names by their addresses in processes. Safe from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bounds = WeakKeyDictionary[CodeObject, list[DataBounds]]()
        self._connections = Counter[int]()
        self._names: dict[int, dict[int, tuple[str, str]]] = {}

    @contextmanager
    def connected(self, process: int) -> Iterator[None]:
        """Keep what is known of a process for as long as one of its connections lasts."""
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
        """Return the bounds of an object's variables in the memory of a process that has loaded it there."""
        with self._lock:
            if (found := self._bounds.get(object)) is None:
                found = self._bounds[object] = data_bounds(object)
            names = self._names.setdefault(process, {})
            names.update({load_address + one.address: (one.name, object.name) for one in found})
            return [Bounds(load_address + one.address, one.size, one.reserved) for one in found]

    def at(self, process: int, address: int) -> tuple[str, str]:
        """Return the symbol of the variable that begins there in a process, and the name of its object."""
        return self._names.get(process, {}).get(address, ("", ""))
