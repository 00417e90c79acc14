"""Caches in memory with a bound."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class BoundedCache(Generic[Key, Value]):
    """Values by key, with a bound on their total cost. Beyond it the least recently put or used values are dropped, but
    one value always stays. Thread-safe; several threads may make the same value.

    Args:
        most: bound on the cost of all values.
        cost: returns the cost of a key and its value; None: each costs 1.
        dropped: called for each dropped value; must not use the cache.

    Attributes:
        get: returns the value of a key, or None, without marking it as used. `use` marks it, and takes longer.
    """

    def __init__(
        self,
        most: int,
        cost: Callable[[Key, Value], int] | None = None,
        dropped: Callable[[Key, Value], None] | None = None,
    ) -> None:
        self.most = most
        self._cost, self._dropped = cost, dropped
        self._total = 0
        self._lock = threading.Lock()
        self._values: OrderedDict[Key, Value] = OrderedDict()
        self.get: Callable[[Key], Value | None] = self._values.get

    def __len__(self) -> int:
        return len(self._values)

    def use(self, key: Key) -> Value | None:
        """Return the value of a key, or None, and mark it as used."""
        with self._lock:
            value = self._values.get(key)  # once: hashing a key may take longer than all else
            if value is not None:
                self._values.move_to_end(key)
            return value

    def put(self, key: Key, value: Value) -> Value:
        """Store a value, and return it."""
        with self._lock:
            if key in self._values:
                self._total -= self._cost_of(key, self._values[key])
                self._values.move_to_end(key)
            self._values[key] = value
            self._total += self._cost_of(key, value)
            while self._total > self.most and len(self._values) > 1:
                oldest, gone = self._values.popitem(last=False)
                self._total -= self._cost_of(oldest, gone)
                if self._dropped is not None:
                    self._dropped(oldest, gone)
        return value

    def _cost_of(self, key: Key, value: Value) -> int:
        return 1 if self._cost is None else self._cost(key, value)
