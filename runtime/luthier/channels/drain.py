"""The thread that takes records out of rings while kernels run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any

from numpy.typing import NDArray

from luthier.channels.ring import Ring
from luthier.support.threads import Worker

Sink = Callable[[NDArray[Any]], object]
"""Receives batches of records, in the order of tickets."""
_SHORTEST, _LONGEST = 0.0001, 0.005
"""Shortest and longest pause in seconds while all rings are empty."""


class ChannelDrain:
    """Passes records from rings to sinks, on its own thread, until it is stopped.

    Exceptions of sinks are kept in `problems`, and draining continues, so that waves do not wait. Sinks are called one
    at a time.
    """

    def __init__(self, rings: Iterable[tuple[Ring, Sink]] = ()) -> None:
        self.problems: list[BaseException] = []
        self._rings = dict(rings)
        self._lock = threading.Lock()
        self._end = threading.Event()
        self._thread = Worker(self._run)

    def add(self, ring: Ring, sink: Sink) -> None:
        """Drain another ring as well."""
        with self._lock:
            self._rings[ring] = sink

    def flush(self, ring: Ring) -> None:
        """Pass on the records that are in a ring now, before returning."""
        with self._lock:
            sink = self._rings.get(ring)
            while sink is not None and len(batch := ring.take()):
                self._give(sink, batch)

    def retire(self, ring: Ring) -> None:
        """Drain and remove a ring that no wave uses any more."""
        with self._lock:
            sink = self._rings.pop(ring, None)
            if sink is not None:
                for batch in ring.settle():
                    self._give(sink, batch)

    def stop(self) -> None:
        """Retire all rings and end the thread."""
        self._end.set()
        self._thread.join()
        for ring in list(self._rings):
            self.retire(ring)

    def _run(self) -> None:
        pause = _SHORTEST
        while not self._end.wait(pause):
            pause = min(2 * pause or _SHORTEST, _LONGEST)
            with self._lock:
                # One batch of each ring: a ring may be filled as fast as it is drained.
                for ring, sink in self._rings.items():
                    if len(batch := ring.take()):
                        self._give(sink, batch)
                        pause = 0

    def _give(self, sink: Sink, batch: NDArray[Any]) -> None:
        try:
            sink(batch)
        except BaseException as problem:  # any exception of a tool's code
            self.problems.append(problem)
