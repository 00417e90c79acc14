"""Tables as JSON, row by row, and the comparison of two runs."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING

from luthier.errors import LuthierError
from luthier.report.formats.declare import ReportFormat
from luthier.support import strict_json

if TYPE_CHECKING:
    from luthier.run.folder import RunFolder


def write(folder: RunFolder, out: IO[bytes]) -> None:
    """Write the summary, all tables and projections as one object. Bytes are hexadecimal."""
    from luthier.projection.kept import kept_run, projections_json  # these import NumPy

    out.write(b'{"summary": ' + strict_json.dumps(folder.summary.to_json()).encode() + b',\n"tables": {')
    for number, name in enumerate(folder.names):
        out.write((",\n" if number else "\n").encode() + strict_json.dumps(name).encode() + b": ")
        _write_rows(folder, name, out)
    out.write(b"}")
    if (measured := kept_run(folder.path)) is not None:
        out.write(b',\n"projection": ' + strict_json.dumps(projections_json(measured)).encode())
    out.write(b"}\n")


def write_table(folder: RunFolder, table: str, out: IO[bytes]) -> None:
    """Write one table as an array of objects."""
    _write_rows(folder, table, out)
    out.write(b"\n")


def _write_rows(folder: RunFolder, name: str, out: IO[bytes]) -> None:
    out.write(b"[")
    for number, row in enumerate(folder.rows(name)):
        out.write((b",\n" if number else b"\n") + strict_json.dumps(row, default=hexadecimal).encode())
    out.write(b"]")


def hexadecimal(value: object) -> str:
    """Return the JSON form of bytes: hexadecimal text.

    Raises:
        LuthierError: the value is not bytes.
    """
    if isinstance(value, bytes):
        return value.hex()
    raise LuthierError(f"a value of type {type(value).__name__} has no JSON form")


def compare(folder: RunFolder, against: RunFolder, out: IO[bytes]) -> None:
    """Write the comparison of two runs."""
    from luthier.report.compare import as_json

    out.write(strict_json.dumps(as_json(folder, against), indent=2).encode() + b"\n")


FORMAT = ReportFormat(
    help="one or all tables as arrays of objects",
    write=write,
    write_table=write_table,
    compare=compare,
    suffix=".json",
)
