"""Tables as comma-separated values."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING, Any

from luthier.report.formats.declare import ReportFormat
from luthier.report.formats.json import hexadecimal
from luthier.support import strict_json
from luthier.support.extras import extra

if TYPE_CHECKING:
    from luthier.run.folder import RunFolder


def write_table(folder: RunFolder, table: str, out: IO[bytes]) -> None:
    """Write one table with a header; nulls are empty, lists JSON, bytes hexadecimal."""
    pa = extra("pyarrow")
    csv = extra("pyarrow.csv")

    with folder.table(table) as reader:
        flat = pa.schema([pa.field(one.name, pa.string() if _nested(one.type) else one.type) for one in reader.arrow])
        with csv.CSVWriter(out, flat) as writer:
            for batch in reader.batches():
                columns = [
                    pa.array([_text(value) for value in column.to_pylist()], pa.string())
                    if _nested(column.type)
                    else column
                    for column in batch.columns
                ]
                writer.write_batch(pa.record_batch(columns, flat))


def _nested(type: Any) -> bool:
    pa = extra("pyarrow")

    return bool(pa.types.is_nested(type) or pa.types.is_binary(type) or pa.types.is_fixed_size_binary(type))


def _text(value: Any) -> str | None:
    if value is None:
        return None
    return value.hex() if isinstance(value, bytes) else strict_json.dumps(value, default=hexadecimal)


FORMAT = ReportFormat(help="one table, or all tables as files in a folder", write_table=write_table, suffix=".csv")
