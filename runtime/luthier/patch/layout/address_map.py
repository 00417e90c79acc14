"""New addresses of the instructions of patched kernels, with the source lines that they come from."""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from luthier.objects import CodeObject


class MapRow(NamedTuple):
    """One of the application's instructions in a patched kernel."""

    kernel: str
    address: int
    """Virtual address in the patched object."""
    begin: int
    """Virtual address of the first instruction inserted before it; `address` if there is none."""
    original: int
    """Its virtual address in the original object."""
    function: str
    """Name as in `SourceFrame`; "" if the source is unknown."""
    file: str
    """"" if the source is unknown."""
    line: int
    column: int


class AddressMap(Struct, frozen=True, eq=False):
    """The instructions of one patched kernel, and of the functions that it calls."""

    kernel: str
    code: range
    """Virtual addresses of the new code; everything except the application's instructions was inserted."""
    addresses: NDArray[np.int64]
    """[n] virtual address in the patched object, ascending."""
    begins: NDArray[np.int64]
    """[n] virtual address of the code inserted before it, or `addresses`."""
    originals: NDArray[np.int64]
    """[n] virtual address in the original object, ascending."""

    def moved(self, original: int) -> int | None:
        """Return the new address of an instruction of the application."""
        at = bisect.bisect_left(self.originals, original)
        return int(self.addresses[at]) if at < len(self.originals) and self.originals[at] == original else None

    def rows(self, object: CodeObject) -> Iterator[MapRow]:
        """Yield one row per instruction, in the order of addresses.

        Args:
            object: the original.
        """
        source = object.source
        columns = (self.addresses, self.begins, self.originals, source.numbers(self.originals))
        for address, begin, original, number in zip(*(column.tolist() for column in columns), strict=True):
            if number < 0:
                yield MapRow(self.kernel, address, begin, original, "", "", 0, 0)
            else:
                yield MapRow(self.kernel, address, begin, original, *source.locations[number].frames[0])


def as_columns(objects: list[tuple[CodeObject, tuple[AddressMap, ...]]]) -> dict[str, list[Any]]:
    """Return the maps of patched objects as one table: ``object`` and ``target``, then the fields of `MapRow`."""
    columns: dict[str, list[Any]] = {name: [] for name in ("object", "target", *MapRow._fields)}
    for object, maps in objects:
        for address_map in maps:
            for row in address_map.rows(object):
                for name, value in zip(columns, (object.name, str(object.target), *row), strict=True):
                    columns[name].append(value)
    return columns
