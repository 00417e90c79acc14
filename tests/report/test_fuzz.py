"""Damaged run directories: everything that reads one works, or says what is wrong with it."""

from __future__ import annotations

import argparse
import copy
import io
import json
import random
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from effort import EVERYTHING
from limited import survives
from luthier.cli import report
from luthier.report.analysis import AnalysedRun
from luthier.report.merge import merge
from luthier.report.page import document, write_comparison, write_page
from luthier.report.traces import Key, summaries
from luthier.run.folder import SUMMARY, RunFolder
from run_folders import SITE, code, kernel, launch, write_run

NUMBERS = [0, -1, 1e400, -1e400, float("nan"), 1 << 63, 1 << 64, -(1 << 70), 10**400, 1.5, True]
OTHERS: list[Any] = [None, "", "x" * 10_000, "\x1b[2J\u202e", [], {}, [[]], {"process": 1}, [1, "a", None]]
TOOL = {
    "tool": "t",
    "options": {"top": 1},
    "tables": [{"title": "x", "columns": ["kernel", "n"], "rows": [["a", 1], ["b", 2.5]]}],
}
PROCESSES = [{"process": 1, "parent": None, "rank": 0, "command": "app", "launches": 1, "kernels": 1}]


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to every value in JSON."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, one in inner for place in places(one, (*path, key)))]


def damaged_summary(summary: dict[str, Any], rng: random.Random) -> Any:
    """Return the summary with some values changed, missing or moved."""
    value: Any = {"it": copy.deepcopy(summary)}
    for _ in range(rng.choice((1, 1, 2, 4))):
        every = [place for place in places(value) if len(place) > 1]
        *way, key = rng.choice(every or [("it",)])
        holder = value
        for step in way:
            holder = holder[step]
        what = rng.random()
        if what < 0.2 and len(way) > 0:
            del holder[key]
        elif what < 0.3 and isinstance(holder, dict):
            holder[f"{key}x"] = holder.pop(key)
        elif what < 0.4:
            holder[key] = [holder[key]]
        else:
            holder[key] = rng.choice(NUMBERS if what < 0.8 else OTHERS)
        if "it" not in value:
            return None
    return value["it"]


TYPES = [pa.int8(), pa.int64(), pa.float64(), pa.string(), pa.binary(), pa.bool_(), pa.list_(pa.int64()), pa.null()]


def damage_table(path: Path, rng: random.Random) -> None:
    """A column with another type, missing, with extreme values or nulls, in another order, or flipped bytes."""
    what = rng.random()
    if what < 0.4:
        data = bytearray(path.read_bytes())
        for _ in range(rng.choice((1, 4, 32))):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        path.write_bytes(data[: rng.randrange(len(data))] if rng.random() < 0.2 else data)
        return
    table = pq.read_table(path)
    metadata = table.schema.metadata
    at = rng.randrange(table.num_columns)
    field = table.schema.field(at)
    if what < 0.5:
        table = table.remove_column(at)
    elif what < 0.65:
        other = rng.choice(TYPES)
        table = table.set_column(at, pa.field(field.name, other), pa.nulls(table.num_rows, other))
    elif what < 0.75:
        table = table.append_column(field, table.column(at))
    elif pa.types.is_integer(field.type):
        bits = field.type.bit_width
        values = [0, (1 << bits - 1) - 1, None]
        values += [-(1 << bits - 1)] if pa.types.is_signed_integer(field.type) else [(1 << bits) - 1]
        column = pa.array([rng.choice(values) for _ in range(table.num_rows)], field.type)
        table = table.set_column(at, field, column)
    else:
        table = table.set_column(at, field, pa.nulls(table.num_rows, field.type))
    pq.write_table(table.replace_schema_metadata(metadata), path)


def read(folder: Path, other: Path, work: Path) -> None:
    """All that is done with run directories."""
    run = RunFolder(folder)
    for table in run.shown():
        table.text()
        table.csv()
    run._repr_html_()
    analysed = AnalysedRun.of(run)
    document(analysed)
    write_page(analysed, io.BytesIO())
    write_comparison(run, RunFolder(other), io.BytesIO())
    shutil.rmtree(work / "merged", ignore_errors=True)
    merge([run, RunFolder(other)], work / "merged")
    summaries(run, "launches", [[Key("kernel")]], ["number"], 10)
    for form in ("text", "json", "perfetto", "csv"):
        parser = argparse.ArgumentParser()
        report.add_arguments(parser)
        given = ["--format", form, "-o", str(work / "out"), *(["--table", "launches"] if form == "csv" else [])]
        report.run(parser.parse_args([str(folder), *given]))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = code("k", 40)
    return write_run(
        tmp_path_factory.mktemp("runs") / "whole",
        {"tools": [TOOL], "processes": PROCESSES, "faults": ["a fault"]},
        kernels=[kernel("k"), kernel("l")],
        launches=[launch("k", number, 1000 + number, 1010 + number) for number in range(5)],
        sites=[{"kernel": "k", "object": "app", "digest": "d", "address": 0x1000, **SITE}],
        counters=[{"tool": "t", "variable": "v", "process": 1, "device": 0, "first": 0, "unsigned": [3], "bytes": 8}],
        **rows,
    )


@pytest.mark.rows(8)
@pytest.mark.parametrize("seed", range(2000 if EVERYTHING else 40))
def test_damaged_run(seed: int, whole: Path, tmp_path: Path) -> None:
    rng = random.Random(seed)
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    if seed % 2:
        damage_table(rng.choice(sorted(folder.glob("*.parquet"))), rng)
    else:
        summary = damaged_summary(json.loads((folder / SUMMARY).read_text()), rng)
        text = json.dumps(summary)
        (folder / SUMMARY).write_text(text.replace("Infinity", "1e400"))
    survives(lambda: read(folder, whole, tmp_path), seconds=10)


def test_whole_run(whole: Path, tmp_path: Path) -> None:
    read(whole, whole, tmp_path)
