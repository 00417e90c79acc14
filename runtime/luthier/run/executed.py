"""Executions of each instruction, as counted by the virtual devices."""

from __future__ import annotations

import hashlib
import threading
from collections import defaultdict
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from luthier.objects import CodeObject
from luthier.objects.parts import parts
from luthier.run.summary import ExecutedKernel
from luthier.support.table import Table


class Executed:
    """Counts by code object and virtual address, over all processes and devices. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._objects: dict[bytes, CodeObject] = {}
        self._counts: dict[bytes, dict[int, list[int]]] = defaultdict(lambda: defaultdict(lambda: [0, 0]))
        self.elsewhere = 0
        """Wave-instructions of code outside of the program's code objects, or patched."""
        self.elsewhere_lanes = 0
        """Lane-instructions of the same code."""
        self.notes: list[str] = []
        """Sentences about missing counts."""

    def add(
        self,
        object: CodeObject | None,
        addresses: NDArray[np.int64],
        executions: NDArray[np.int64],
        lanes: NDArray[np.int64],
    ) -> None:
        """Add counts of instructions at addresses of an object."""
        with self._lock:
            if object is None:
                self.elsewhere += int(executions.sum())
                self.elsewhere_lanes += int(lanes.sum())
                return
            digest = hashlib.blake2b(object.data).digest()  # objects without files have no unique names
            self._objects[digest] = object
            counts = self._counts[digest]
            for address, times, active in zip(addresses.tolist(), executions.tolist(), lanes.tolist(), strict=True):
                counts[address][0] += times
                counts[address][1] += active

    def objects(self) -> Iterator[tuple[CodeObject, dict[int, tuple[int, int]]]]:
        """Yield each code object with the counts of its instructions, by virtual address.

        A count is the number of executions by waves, and the sum of their active lanes (EXEC).
        """
        for digest, counts in self._counts.items():
            yield self._objects[digest], {address: (times, lanes) for address, (times, lanes) in counts.items()}

    def rows(self) -> Iterator[tuple[CodeObject, str | None, int, int]]:
        """Yield each code object's kernels with their wave- and lane-instructions.

        The entry None is for its functions, which belong to no kernel's own code.
        """
        for object, counts in self.objects():
            left = dict(counts)
            for part in parts(object):  # kernel symbols from assembly often have no size
                inside = [left.pop(at) for at in list(left) if part.kernel and 0 <= at - part.address < part.size]
                if inside:
                    yield object, part.name, sum(times for times, _ in inside), sum(lanes for _, lanes in inside)
            if left:
                functions = left.values()
                yield object, None, sum(times for times, _ in functions), sum(lanes for _, lanes in functions)

    def table(self) -> Table:
        """Return `rows` as a table."""
        rows = [
            (f"functions of {object.name}" if kernel is None else kernel, waves, lanes)
            for object, kernel, waves, lanes in self.rows()
        ]
        return Table("", ("kernel", "wave-instructions", "lane-instructions"), rows)

    def to_json(self) -> list[ExecutedKernel]:
        """Return `rows` for the summary of the run.

        The last one, without an object, is for code outside of the program's code objects.
        """
        from luthier.run.patching import digest_of  # slow to import

        rows = [
            ExecutedKernel(kernel, object.name, waves, lanes, digest_of(object))
            for object, kernel, waves, lanes in self.rows()
        ]
        if self.elsewhere:
            rows.append(ExecutedKernel(None, None, self.elsewhere, self.elsewhere_lanes))
        return rows
