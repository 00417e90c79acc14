"""Rows of a run folder's tables by kernel, without a Python object for each value."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from luthier.run.folder import RunFolder

Key = tuple[str, str]
"""Identity of a kernel: its symbol and the digest of its code object."""


class KernelNumbers:
    """Assigns numbers to kernels, in order of first use."""

    def __init__(self) -> None:
        self.numbers: dict[Key, int] = {}

    def of(self, kernel: str | None, digest: str | None) -> int:
        """Return the number of a kernel; nulls name the unknown kernel."""
        key = (kernel or "", digest or "")
        return self.numbers.setdefault(key, len(self.numbers))

    def column(self, batch: Any) -> NDArray[np.int64]:
        """Return the kernel number of each row of a batch with the columns ``kernel`` and ``digest``."""
        names, digests = (batch.column(name).dictionary_encode("encode") for name in ("kernel", "digest"))
        which, inverse = np.unique(_indices(names) * len(digests.dictionary) + _indices(digests), return_inverse=True)
        kernel_of, digest_of = names.dictionary.to_pylist(), digests.dictionary.to_pylist()
        numbers = [self.of(kernel_of[at // len(digest_of)], digest_of[at % len(digest_of)]) for at in which.tolist()]
        return np.array(numbers, np.int64)[inverse]


def _indices(encoded: Any) -> NDArray[np.int64]:
    return np.asarray(encoded.indices.to_numpy(zero_copy_only=False), np.int64)


def by_kernel(
    run: RunFolder, table: str, columns: Sequence[str], known: KernelNumbers, wanted: Collection[int]
) -> Iterator[tuple[int, dict[str, list[Any]]]]:
    """Yield consecutive rows of one kernel as lists by column; skip kernels that are not in `wanted`.

    Raises:
        LuthierError: the table is damaged.
    """
    with run.table(table) as reader:
        for batch in reader.batches(["kernel", "digest", *columns]):
            number = known.column(batch)
            starts = np.flatnonzero(np.diff(number, prepend=-1)).tolist()
            for start, end in zip(starts, [*starts[1:], len(number)], strict=True):
                if number[start] in wanted:
                    part = batch.slice(start, end - start)
                    yield int(number[start]), {name: part.column(name).to_pylist() for name in columns}


def numeric(batch: Any, column: str, missing: int = 0) -> NDArray[np.int64]:
    """Return a column of integers or booleans, with nulls replaced by `missing`."""
    values = batch.column(column).cast("int64", safe=False).fill_null(missing)
    return np.asarray(values.to_numpy(zero_copy_only=False), np.int64)
