"""Tables of run directories: what is written is read again, in bounded memory; what is damaged is an error."""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from effort import FUZZ
from luthier.errors import LuthierError
from luthier.run.tables import Column, Picked, Schema, TableReader, TableWriter, table_names

DTYPE = np.dtype([("time", "<u8"), ("grid", "<u4", 3), ("pad", "<u2", 2), ("value", "<f4")])
SCHEMA = Schema.of_dtype("records", "records of a test", DTYPE, {"time": "ns", "grid": "work-items", "value": "V"})
MIXED = Schema(
    "mixed",
    "all kinds",
    (
        Column("process", "int64", "process"),
        Column("name", "string", "name"),
        Column("flag", "bool", "flag"),
        Column("end", "int64", "ns"),
        Column("values", "float64[]", "any number"),
        Column("raw", "binary", "bytes"),
    ),
)


def rows(folder: Path, name: str) -> list[dict[str, object]]:
    with TableReader(folder, name) as reader:
        return [row for batch in reader.batches() for row in batch.to_pylist()]


@pytest.mark.parametrize("seed", range(25 * FUZZ))
def test_records_are_read_as_they_were_written(tmp_path: Path, seed: int) -> None:
    """Few batches of any size: none, and empty ones, too."""
    folder, random = tmp_path / "run", np.random.default_rng(seed)
    folder.mkdir()
    sizes = random.choice([0, 1, *random.integers(2, 3000, 3)], seed % 6).tolist()
    batches = [np.frombuffer(random.bytes(size * DTYPE.itemsize), DTYPE) for size in sizes]
    with TableWriter(folder, SCHEMA) as writer:
        for batch in batches:
            writer.append(batch)
    with TableReader(folder, "records", SCHEMA) as reader:
        table = pa.Table.from_batches(reader.batches(), reader.arrow)
    expected = np.concatenate(batches) if batches else np.zeros(0, DTYPE)
    assert reader.rows == len(expected) == table.num_rows
    assert np.array_equal(table["time"].to_numpy(), expected["time"])
    assert np.array_equal(table["value"].to_numpy().view("u4"), expected["value"].copy().view("u4"))
    grid = table["grid"].combine_chunks().flatten().to_numpy() if len(expected) else np.zeros(0)
    assert np.array_equal(grid, expected["grid"].ravel())


def test_all_kinds_of_columns(tmp_path: Path) -> None:
    with TableWriter(tmp_path, MIXED) as writer:
        writer.append(
            {
                "name": Picked(["a", None, "c"], np.array([2, 0, 1])),
                "flag": np.array([True, False, True]),
                "end": np.ma.masked_array([1, 2, 3], [False, True, False]),
                "values": [[1.5], [], None],
            },
            process=7,
        )
    assert rows(tmp_path, "mixed") == [
        {"process": 7, "name": "c", "flag": True, "end": 1, "values": [1.5], "raw": None},
        {"process": 7, "name": "a", "flag": False, "end": None, "values": [], "raw": None},
        {"process": 7, "name": None, "flag": True, "end": 3, "values": None, "raw": None},
    ]
    field = pq.read_schema(tmp_path / "mixed.parquet").field("end")
    assert field.metadata == {b"what": b"ns"}
    assert table_names(tmp_path) == ["mixed"]


def test_a_file_has_its_name_when_it_is_whole(tmp_path: Path) -> None:
    writer = TableWriter(tmp_path, SCHEMA)
    writer.append(np.zeros(3, DTYPE))
    assert table_names(tmp_path) == []
    with pytest.raises(LuthierError, match="File exists"):
        TableWriter(tmp_path, SCHEMA)
    writer.discard()
    assert os.listdir(tmp_path) == []
    with pytest.raises(RuntimeError), TableWriter(tmp_path, SCHEMA) as writer:
        raise RuntimeError("of whoever writes")
    assert os.listdir(tmp_path) == []
    with pytest.raises(LuthierError, match="closed"):
        writer.append(np.zeros(3, DTYPE))


def test_values_that_do_not_fit(tmp_path: Path) -> None:
    for columns in ({"flag": [1, "x"]}, {"name": ["a", "b"], "flag": [True]}, {"end": np.array([1 << 63], "u8")}):
        writer = TableWriter(tmp_path, MIXED)
        with pytest.raises(LuthierError):
            writer.append(columns)
        writer.discard()
        assert os.listdir(tmp_path) == []


def test_a_full_disk(tmp_path: Path) -> None:
    """Failed writes are errors and leave nothing behind: files are limited to 100,000 bytes."""
    script = f"""
import os, resource, signal, sys
from pathlib import Path
import numpy as np
from luthier.errors import LuthierError
from luthier.run.tables import Schema, TableWriter
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
dtype = np.dtype([("x", "<u8")])
writer = TableWriter(Path({str(tmp_path)!r}), Schema.of_dtype("t", "t", dtype, {{"x": "x"}}))
random = np.random.default_rng(0)
try:
    for _ in range(100):
        writer.append(random.integers(0, 1 << 62, 10_000).view(dtype))
    writer.close()
except LuthierError as problem:
    print(problem, os.listdir({str(tmp_path)!r}))
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "File too large []" in ran.stdout, ran.stderr


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("good")
    with TableWriter(folder, SCHEMA) as writer:
        random = np.random.default_rng(1)
        writer.append(np.frombuffer(random.bytes(500 * DTYPE.itemsize), DTYPE))
    return (folder / "records.parquet").read_bytes()


def test_damaged_files(tmp_path: Path, good: bytes) -> None:
    """Truncated or changed files are errors, or give the original rows if the change does not affect them."""
    for seed in range(150 * FUZZ):
        random = np.random.default_rng(seed)
        if seed % 2:
            bad = good[: random.integers(len(good))]
        else:
            changed = bytearray(good)
            for at in random.integers(len(good), size=random.integers(1, 5)):
                changed[at] ^= int(random.integers(1, 256))
            bad = bytes(changed)
        (tmp_path / "records.parquet").write_bytes(bad)
        with contextlib.suppress(LuthierError), TableReader(tmp_path, "records", SCHEMA) as reader:
            for _ in reader.batches():
                pass
            assert len(bad) == len(good), seed


def test_what_is_no_table(tmp_path: Path, good: bytes) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(good)
    run = tmp_path / "run"
    run.mkdir()
    (run / "link.parquet").symlink_to(outside)
    os.mkfifo(run / "pipe.parquet")
    (run / "folder.parquet").mkdir()
    pq.write_table(pa.table({"time": [1]}), run / "foreign.parquet")
    (run / "records.parquet").write_bytes(good)
    for name, what in (
        ("missing", "No such file"),
        ("link", "it is a link"),
        ("pipe", "not a regular file"),
        ("folder", "not a regular file"),
        ("foreign", "schema none"),
    ):
        with pytest.raises(LuthierError, match=what):
            TableReader(run, name)
    with pytest.raises(LuthierError, match="lacks the column name"):
        TableReader(run, "records", Schema("records", "", (Column("name", "string", ""),)))
    with pytest.raises(LuthierError, match="has type uint64, not int64"):
        TableReader(run, "records", Schema("records", "", (Column("time", "int64", ""),)))
    with pytest.raises(LuthierError, match="cannot read"):
        table_names(run / "nowhere")


def test_memory_does_not_grow_with_rows(tmp_path: Path) -> None:
    """Ten million records of 24 bytes, that is 240 MB, written and read."""
    batch = np.zeros(100_000, DTYPE)
    with TableWriter(tmp_path, SCHEMA) as writer:
        writer.append(batch)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for number in range(99):
            batch["time"] = np.arange(100_000, dtype=np.uint64) + np.uint64(number)
            writer.append(batch)
    with TableReader(tmp_path, "records") as reader:
        assert sum(len(one) for one in reader.batches(["time"])) == 10_000_000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000
