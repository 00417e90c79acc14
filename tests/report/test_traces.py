"""Summaries of traces against sums by NumPy, in the memory that they are given."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from luthier.cli.main import main
from luthier.errors import LuthierError
from luthier.report.traces import Key, summaries
from luthier.run.folder import RunFolder
from luthier.run.tables import Column, Schema, TableWriter
from run_folders import write_run

ACCESS = np.dtype(
    [("address", "<u8"), ("pc", "<u8"), ("kernel", "<u2"), ("size", "<u2"), ("offset", "<i8"), ("x", "<f4")]
)


def trace(folder: Path, rows: int, pages: int = 50, seed: int = 1) -> np.ndarray[Any, Any]:
    """A run directory with a trace, and its records."""
    write_run(folder)
    choose = np.random.default_rng(seed)
    records = np.zeros(rows, ACCESS)
    records["address"] = (1 << 63) + choose.integers(0, pages * 4096, rows).astype(np.uint64)
    records["pc"] = 0x1900 + 4 * choose.integers(0, 9, rows)
    records["kernel"] = choose.integers(0, 3, rows)
    records["size"] = 1 << choose.integers(0, 5, rows)
    records["offset"] = choose.integers(-1000, 1000, rows)
    meanings = dict.fromkeys(ACCESS.names or (), "of the record")
    fields = Schema.of_dtype("", "", ACCESS, meanings).columns
    schema = Schema("trace-accesses", "records", (Column("process", "int64", "process"), *fields))
    with TableWriter(folder, schema) as writer:
        for part in np.array_split(records, 7):
            writer.append(part, process=5)
    return records


@pytest.mark.parametrize(
    "keys", [["kernel"], ["pc"], ["kernel", "pc"], ["address/4096"], ["offset/7"], ["kernel", "address/0x10000"], []]
)
def test_groups_are_those_of_numpy(tmp_path: Path, keys: list[str]) -> None:
    records = trace(tmp_path / "run", 20_000)
    parsed = [Key.parse(one) for one in keys]
    columns = [[int(one) // key.size * key.size for one in records[key.column]] for key in parsed]
    groups = list(zip(*columns, strict=True)) if columns else [()] * len(records)
    sizes: Counter[Any] = Counter()
    for group, size in zip(groups, records["size"].tolist(), strict=True):
        sizes[group] += size
    (table,) = summaries(RunFolder(tmp_path / "run"), "accesses", [parsed], ["size"], top=0)
    actual = {
        tuple(int(one, 0) if isinstance(one, str) else one for one in row[: len(keys)]): row[len(keys) :]
        for row in table.rows
    }
    assert {group: row[:2] for group, row in actual.items()} == {
        group: [count, sizes[group]] for group, count in Counter(groups).items()
    }
    counts: list[Any] = [row[len(keys)] for row in table.rows]
    assert counts == sorted(counts, reverse=True)
    assert "20,000 rows" in table.title


def test_the_command(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    records = trace(tmp_path / "run", 3000)
    command = ["report", str(tmp_path / "run"), "--trace", "accesses"]
    assert main([*command, "--by", "pc", "--by", "kernel", "--top", "2", "--sum", "size+x", "--format", "json"]) == 0
    by_pc, by_kernel = json.loads(capfd.readouterr().out)
    ((_, count),) = Counter(records["pc"].tolist()).most_common(1)
    assert by_pc["columns"] == ["pc", "rows", "sum of size", "sum of x", "%"]
    assert len(by_pc["rows"]) == len(by_kernel["rows"]) == 2
    assert by_pc["rows"][0][1] == count
    assert by_pc["rows"][0][0] in {hex(pc) for pc, many in Counter(records["pc"].tolist()).items() if many == count}
    assert main([*command, "--by", "address/4096"]) == 0
    assert "trace-accesses by address/4096, 3,000 rows" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--trace", "nothing"], "has no table 'nothing'"),
        (["--trace", "accesses", "--by", "colour"], "has no column 'colour'"),
        (["--trace", "accesses", "--by", "x/4"], "has no integers"),
        (["--trace", "accesses", "--by", "pc/0"], "neither COLUMN nor COLUMN/SIZE"),
        (["--trace", "accesses", "--by", 'pc"; DROP TABLE rows'], "has no column"),
        (["--trace", "kernels", "--sum", "name"], "no numbers to sum"),
        (["--trace", "accesses", "--memory", "1"], "too little"),
        (["--trace", "accesses", "--top", "-1"], "--top must be at least 0, not -1"),
        (["--trace", "accesses", "--format", "csv"], "formats text and json"),
        (["--by", "pc"], "--by pc needs a table (--trace)"),
    ],
)
def test_what_is_refused(tmp_path: Path, options: list[str], says: str, capfd: pytest.CaptureFixture[str]) -> None:
    trace(tmp_path / "run", 10)
    assert main(["report", str(tmp_path / "run"), *options]) == 1
    assert says in capfd.readouterr().err


def test_damage_is_an_error(tmp_path: Path) -> None:
    trace(tmp_path / "run", 20_000)
    file = tmp_path / "run" / "trace-accesses.parquet"
    data = bytearray(file.read_bytes())
    data[2000:2400] = bytes(400)
    file.write_bytes(data)
    with pytest.raises(LuthierError, match="trace-accesses"):
        summaries(RunFolder(tmp_path / "run"), "accesses", [[Key("address")]])


ROWS = 6_000_000


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a number of records, hardly two of which have the same address."""
    folder = tmp_path_factory.mktemp("large") / "run"
    trace(folder, ROWS, pages=1 << 30)
    return folder


def most_memory(code: str) -> tuple[str, list[int]]:
    """Return a program's output, and its peak memory in MiB at calls of `most`."""
    begin = """
import sys
def most():
    line = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
    print(int(line.split()[1]) >> 10, file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", begin + code], capture_output=True, text=True, check=True)
    return done.stdout, [int(line) for line in done.stderr.split()]


@pytest.mark.thorough
def test_memory_stays_bounded(large: Path) -> None:
    """Six million groups, of which hardly a fourth fits into memory: the rest goes to disk."""
    printed, (most,) = most_memory(f"""
from luthier.cli.main import main
assert main(["report", {str(large)!r}, "--trace", "accesses", "--by", "address", "--memory", "128"]) == 0
most()
""")
    assert f"{ROWS} rows" in printed
    assert most < 500


def test_what_was_read_is_not_kept(large: Path) -> None:
    """While 48 MB of addresses pass by, some row groups of them are in memory."""
    _, (before, after) = most_memory(f"""
from pathlib import Path
from luthier.run.folder import RunFolder
with RunFolder(Path({str(large)!r})).table("trace-accesses") as reader:
    batches = reader.batches(["address"])
    next(batches)
    most()
    assert sum(len(batch) for batch in batches) > 5_000_000
    most()
""")
    assert after - before < 24
