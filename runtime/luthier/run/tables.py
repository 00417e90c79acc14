"""Tables of a run folder: Parquet, written and read in batches, so that they may exceed memory.

The `Schema` of a table is also in the file: layout number, and meaning of each column as metadata of the fields. A file
gets its name when it is complete; ``NAME.parquet.partial`` is being written, or left by a killed run.

pyarrow takes 0.2 s to import, so it is imported on first use.
"""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from luthier.errors import LuthierError
from luthier.support.extras import extra

SCHEMA = 2
"""Schema of run folders; incremented if a field changes its meaning or is removed."""
SUFFIX = ".parquet"
_KEY = b"luthier.schema"
_GROUP_ROWS, _GROUP_BYTES = 1 << 17, 1 << 24
"""Maximum number of rows and bytes that are buffered before they are written as a row group."""
_LARGEST_GROUP = 1 << 30
"""Maximum bytes of a row group that is read, uncompressed: 64 times ours, to allow for other writers."""


class Column(Struct, frozen=True):
    """One column of a table."""

    name: str
    type: str
    """Arrow's type name (``int64``, ``bool``, ``string``, ``binary``), followed by ``[n]`` for n values in each row, or
    by ``[]`` for any number. Values may be null."""
    what: str
    """Meaning, with its unit."""
    added: bool = False
    """Tables of this schema may lack it, since it was added later."""


class Schema(Struct, frozen=True, dict=True):
    """Schema of a table."""

    name: str
    """Name of the file, without `SUFFIX`."""
    what: str
    columns: Sequence[Column]

    @classmethod
    def of_dtype(cls, name: str, what: str, dtype: np.dtype[np.void], meanings: Mapping[str, str]) -> Schema:
        """Return the schema of a table of records, with the fields that `meanings` names.

        Args:
            dtype: structured, each field a number or a one-dimensional array of numbers.
        """
        columns = []
        for field, meaning in meanings.items():
            base, shape = dtype[field].base, dtype[field].shape
            columns.append(Column(field, base.name + "".join(f"[{size}]" for size in shape), meaning))
        return cls(name, what, tuple(columns))

    @cached_property
    def arrow(self) -> Any:
        """Return the pyarrow schema."""
        pa = extra("pyarrow")

        fields = [pa.field(one.name, _arrow_type(one.type), metadata={"what": one.what}) for one in self.columns]
        return pa.schema(fields, {_KEY: str(SCHEMA), b"luthier.what": self.what})


def _arrow_type(name: str) -> Any:
    pa = extra("pyarrow")

    base, bracket, count = name.partition("[")
    type = pa.type_for_alias(base)
    return pa.list_(type, int(count[:-1] or -1)) if bracket else type


class Picked(Struct, frozen=True):
    """A column with few distinct values: ``names[index]`` for each row."""

    names: Sequence[str | None]
    index: NDArray[Any]


class TableWriter:
    """Writes a table. Thread-safe.

    As a context manager it leaves a complete file, or none if the block raises.

    Args:
        folder: run folder.

    Raises:
        LuthierError: the file cannot be created.
    """

    def __init__(self, folder: Path, schema: Schema) -> None:
        pq = extra("pyarrow.parquet")

        self.schema = schema
        self.path = folder / f"{schema.name}{SUFFIX}"
        self.rows = 0
        """Number of rows appended so far."""
        self._partial = folder / f"{schema.name}{SUFFIX}.partial"
        self._lock = threading.Lock()
        self._held: list[Any] = []
        self._held_rows = self._held_bytes = 0
        self._file: BinaryIO | None = None
        with _writing(self._partial):
            self._file = self._partial.open("xb")
            self._writer = pq.ParquetWriter(
                self._file, schema.arrow, compression="zstd", write_page_checksum=True, write_statistics=True
            )

    def append(self, columns: Mapping[str, Any] | NDArray[np.void], **same: Any) -> None:
        """Append rows.

        Args:
            columns: for each column an array (NumPy, masked if there are nulls, or pyarrow), a list, or a `Picked`;
                missing columns are null. Or records, whose other fields are ignored.
            same: columns that have one value in all of these rows.

        Raises:
            LuthierError: writing fails, or the values do not fit the columns. Then the table is lost.
        """
        pa = extra("pyarrow")

        if isinstance(columns, np.ndarray):
            records = columns
            columns = {one.name: records[one.name] for one in self.schema.columns if one.name not in same}
        lengths = {len(value.index if isinstance(value, Picked) else value) for value in columns.values()}
        if len(lengths) != 1:
            raise LuthierError(f"columns of {self.path.name} have different lengths: {sorted(lengths)}")
        (count,) = lengths
        with self._lock, _writing(self.path, self._give_up):
            if self._file is None:
                raise LuthierError(f"{self.path.name} has been closed")
            arrays = []
            for field in self.schema.arrow:
                value = columns[field.name] if field.name in columns else same.get(field.name)
                whole = field.name in columns
                arrays.append(_array(value, field.type) if whole else pa.repeat(pa.scalar(value, field.type), count))
            batch = pa.record_batch(arrays, self.schema.arrow)
            self.rows += count
            self._held.append(batch)
            self._held_rows += count
            self._held_bytes += batch.nbytes
            if self._held_rows >= _GROUP_ROWS or self._held_bytes >= _GROUP_BYTES:
                self._flush()

    def _flush(self) -> None:
        pa = extra("pyarrow")

        if self._held:
            self._writer.write_table(pa.Table.from_batches(self._held, self.schema.arrow), row_group_size=_GROUP_ROWS)
        self._held, self._held_rows, self._held_bytes = [], 0, 0

    def close(self) -> None:
        """Complete the file and give it its name; later calls do nothing.

        Raises:
            LuthierError: writing fails.
        """
        with self._lock, _writing(self.path, self._give_up):
            if self._file is not None:
                self._flush()
                self._writer.close()
                self._file.close()
                self._partial.rename(self.path)
                self._file = None

    def discard(self) -> None:
        """Remove the file, unless it was closed."""
        with self._lock:
            self._give_up()

    def _give_up(self) -> None:
        file, self._file, self._held = self._file, None, []
        if file is not None:
            with suppress(Exception):
                self._writer.close()
            self._writer.is_open = False  # otherwise it retries when it is collected
            with suppress(OSError):
                file.close()
            self._partial.unlink(missing_ok=True)

    def __enter__(self) -> TableWriter:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.close() if kind is None else self.discard()


def _array(value: Any, type: Any) -> Any:
    pa = extra("pyarrow")

    if isinstance(value, pa.Array):
        return value.cast(type)
    if isinstance(value, Picked):
        return pa.array(value.names, type).take(pa.array(value.index, pa.int64()))
    if isinstance(value, np.ma.MaskedArray):
        return pa.array(np.ma.getdata(value), type, mask=np.ma.getmaskarray(value))
    if isinstance(value, np.ndarray) and value.ndim == 2:
        flat = pa.array(np.ascontiguousarray(value).reshape(-1), type.value_type)
        return pa.FixedSizeListArray.from_arrays(flat, value.shape[1]).cast(type)
    return pa.array(np.ascontiguousarray(value) if isinstance(value, np.ndarray) else value, type)


@contextmanager
def _writing(path: Path, give_up: Any = None) -> Iterator[None]:
    """Convert errors to `LuthierError`."""
    pa = extra("pyarrow")

    try:
        yield
    except (OSError, pa.ArrowException, ValueError, TypeError, OverflowError) as problem:
        if give_up is not None:
            give_up()
        reason = getattr(problem, "strerror", None) or problem
        raise LuthierError(f"cannot write {path}: {reason}") from problem


# Reading --------------------------------------------------------------------------------------------------------------


def table_names(folder: Path) -> list[str]:
    """Return the names of the tables in a run folder.

    Raises:
        LuthierError: the folder cannot be read.
    """
    try:
        return sorted(path.name.removesuffix(SUFFIX) for path in folder.iterdir() if path.name.endswith(SUFFIX))
    except OSError as problem:
        raise LuthierError(f"cannot read the run {folder}: {problem.strerror or problem}") from None


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file of a run folder, which may be untrusted: no link, nothing that blocks.

    Raises:
        LuthierError: it is not a regular file, or cannot be read.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise LuthierError(f"{path} is not a regular file")
        return os.fdopen(descriptor, "rb")
    except OSError as problem:
        reason = "it is a link" if path.is_symlink() else problem.strerror or problem
        raise LuthierError(f"cannot read {path}: {reason}") from None


class TableReader:
    """Reads a table of a run folder.

    Args:
        folder: run folder.
        name: name of the table.
        schema: required columns; None: any.

    Raises:
        LuthierError: there is no such table, it is damaged or of another layout, or lacks columns.
    """

    def __init__(self, folder: Path, name: str, schema: Schema | None = None) -> None:
        pq = extra("pyarrow.parquet")

        self.path = folder / f"{name}{SUFFIX}"
        self._open = open_regular(self.path)
        with self._reading():
            # Buffering ahead would keep the whole file in memory.
            self._file = pq.ParquetFile(self._open, page_checksum_verification=True, pre_buffer=False)
            self.arrow = self._file.schema_arrow
            self.rows = int(self._file.metadata.num_rows)
            metadata = self._file.metadata
            sizes = [metadata.row_group(at).total_byte_size for at in range(metadata.num_row_groups)]
        layout = (self.arrow.metadata or {}).get(_KEY, b"none").decode(errors="replace")
        if layout != str(SCHEMA):
            raise LuthierError(f"{self.path} has schema {layout}; this version of Luthier reads {SCHEMA}")
        if any(not 0 <= size <= _LARGEST_GROUP for size in sizes):
            raise LuthierError(f"{self.path} is damaged: a row group claims {max(sizes)} bytes")
        twice = next((name for name in self.arrow.names if self.arrow.names.count(name) > 1), None)
        if twice is not None:
            raise LuthierError(f"{self.path} has several columns {twice!r}")
        for column in () if schema is None else schema.columns:
            if column.name not in self.arrow.names:
                if column.added:
                    continue
                raise LuthierError(f"{self.path} lacks the column {column.name}")
            actual = self.arrow.field(column.name).type
            if actual != _arrow_type(column.type):
                raise LuthierError(f"the column {column.name} of {self.path} has type {actual}, not {column.type}")

    @property
    def columns(self) -> list[str]:
        """Return the names of the columns."""
        return list(self.arrow.names)

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[Any]:
        """Yield the rows in batches, as `pyarrow.RecordBatch`.

        Args:
            columns: names of the columns to read; None: all.

        Raises:
            LuthierError: the file is damaged.
        """
        with self._reading():
            yield from self._file.iter_batches(1 << 16, columns=None if columns is None else list(columns))

    def close(self) -> None:
        """Close the file."""
        self._open.close()

    def __enter__(self) -> TableReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _reading(self) -> Iterator[None]:
        pa = extra("pyarrow")

        try:
            yield
        except (OSError, pa.ArrowException, ValueError, TypeError, OverflowError, MemoryError) as problem:
            failed = isinstance(problem, OSError) and problem.errno and os.strerror(problem.errno)
            what = f"cannot be read: {failed}" if failed else f"is damaged: {problem}"
            raise LuthierError(f"{self.path} {what}") from None
