"""Data of the page, compared with sums over the tables."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from luthier.cli.main import main
from luthier.report import timeline as timelines
from luthier.report.analysis import AnalysedRun
from luthier.report.code import graph
from luthier.report.page import document
from luthier.run.folder import RunFolder
from run_folders import SITE, code, kernel, launch, write_run


@pytest.mark.parametrize("seed", range(4))
def test_time_is_kept_where_launches_are_added_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """However long launches are and however they overlap: as much time, as many launches of each kernel and queue."""
    choose = np.random.default_rng(seed)
    names = [f"k{number}" for number in range(12)]
    rows = []
    for number in range(300):
        begin = int(choose.integers(0, 50_000))
        end = begin + int(choose.choice([0, 3, 200, 40_000]))
        times: tuple[int | None, int | None] = (begin, end) if choose.random() < 0.9 else (None, None)
        name, queue = str(choose.choice(names)), int(choose.integers(3))
        rows.append(launch(name, number, *times, queue=queue, time_ns=begin))
    run = RunFolder(write_run(tmp_path / "run", kernels=[kernel(name) for name in names], launches=rows))
    single = document(AnalysedRun.of(run))[0]["timeline"]
    monkeypatch.setattr(timelines, "SINGLE", 10)
    binned = document(AnalysedRun.of(run))[0]["timeline"]
    assert (single["begin"], single["end"], single["rows"]) == (binned["begin"], binned["end"], 300)
    sums: dict[tuple[int, int], list[int]] = {}
    for lane, _, begin, end, number, *_ in single["launches"]:
        colour = single["colours"].index(number) if number in single["colours"] else len(single["colours"])
        entry = sums.setdefault((lane, colour), [0, 0])
        entry[0] += 0 if end is None else end - begin
        entry[1] += 1
    durations: dict[tuple[int, int], list[int]] = {}
    for lane, _, colour, busy, begun in binned["bins"]:
        entry = durations.setdefault((lane, colour), [0, 0])
        entry[0] += busy
        entry[1] += begun
    assert durations == sums
    assert sum(entry[1] for entry in sums.values()) == 300
    rows_of: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for lane, row, begin, end, *_ in single["launches"]:
        rows_of.setdefault((lane, row), []).append((begin, end or begin))
    for spans in rows_of.values():
        assert all(one[1] <= other[0] for one, other in pairwise(spans)), "nothing overlaps in a row"


@pytest.mark.parametrize("named", ["by column", "by title", "by its addresses"])
@pytest.mark.parametrize("by", ["address", "block"])
def test_any_table_by_address_or_block_colours_the_code(tmp_path: Path, named: str, by: str) -> None:
    """Whatever made the table, and whatever its numbers are."""
    first, other = code("k", 32, block=8), code("other", 8, block=8, address=0x9000)
    listing = {name: rows + other[name] for name, rows in first.items()}
    keys: list[Any] = ["0x1004", 0x1008, "0x1008"] if by == "address" else [1, 3, 3]
    columns = [by, "misses", "rate", "why"]
    rows: list[list[Any]] = [[key, value, 0.5, "text"] for key, value in zip(keys, (7, 2, 3), strict=True)]
    if named == "by column":
        columns, rows = ["kernel", *columns], [["k", *row] for row in rows]
    table = {"title": "k" if named == "by title" else "cache", "columns": columns, "rows": rows}
    run = RunFolder(
        write_run(
            tmp_path / "run",
            {"tools": [{"tool": "cache", "options": {}, "tables": [table]}]},
            kernels=[kernel("k", instructions=32), kernel("other", instructions=8)],
            **listing,
        )
    )
    codes = document(AnalysedRun.of(run))[1]
    assert codes[1]["heat"] == []
    misses, rate = codes[0]["heat"]
    assert (misses["name"], rate["name"]) == ("misses", "rate")
    if by == "address":
        assert misses["values"] == [None, 7, 5, *[None] * 29]
    else:
        assert misses["values"] == [*[None] * 8, *[7] * 8, *[None] * 8, *[5] * 8]


def test_a_kernel_on_two_devices_is_one(tmp_path: Path) -> None:
    """The table lists it twice if it was selected in one of them; sites and counts are marked at their positions."""
    site = {"kernel": "k", "digest": "d", **SITE}
    run = RunFolder(
        write_run(
            tmp_path / "run",
            kernels=[
                kernel("k", launches=3, instructions=8),
                kernel("k", launches=2, covered=False, reason="not selected"),
            ],
            sites=[{**site, "address": 0x1004}, {**site, "address": 0x1004, "status": "refused", "reason": "no room"}],
            **code("k", 8, block=4),
        )
    )
    data, codes, _ = document(AnalysedRun.of(run))
    (only,) = data["kernels"]
    assert (only["launches"], only["covered"], only["reason"]) == (5, False, "not selected")
    assert (only["executed"], only["lanes"]) == (4 + 8, 32 * 12)
    assert codes[0]["sites"] == [0, 5, *[0] * 6]
    assert data["coverage"]["refusals"] == [[0, "t", "h", None, "no room", 1, 0x1004]]


def test_blocks_of_a_graph_do_not_overlap() -> None:
    """Nor are ways lost, also those of a block to itself and of two ways to one block."""
    choose = np.random.default_rng(7)
    for size in (1, 2, 40, 300):
        ways = [[int(one) for one in choose.integers(0, size, choose.integers(0, 3))] for _ in range(size)]
        drawn = graph({"block": list(range(size)), "successors": ways, "ways": [["taken"] * len(one) for one in ways]})
        assert drawn is not None
        wide, tall = drawn["node"]
        places = sorted(drawn["nodes"])
        for at, (x, y) in enumerate(places):
            assert 0 <= x <= drawn["width"] - wide + 1
            assert all(other[0] >= x + wide or abs(other[1] - y) >= tall for other in places[at + 1 :])
        assert [edge[:2] for edge in drawn["edges"]] == [[at, to] for at, row in enumerate(ways) for to in row]
    assert graph({}) is None


def test_code_whose_blocks_are_missing_is_not_shown(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", kernels=[kernel("k", instructions=8)], **{**code("k", 8), "blocks": []})
    assert document(AnalysedRun.of(RunFolder(run)))[0]["coded"] == []


def test_runs_of_earlier_versions_have_no_listing(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", kernels=[kernel("k", instructions=8)], **code("k", 8))
    (run / "listings.parquet").unlink()
    (run / "blocks.parquet").unlink()
    data, codes, _ = document(AnalysedRun.of(RunFolder(run)))
    assert (len(data["kernels"]), data["coded"], codes) == (1, [], {})


_GOOD: dict[str, Any] = {
    "kernels": [kernel("k", instructions=8)],
    "launches": [launch("k", 0, 10, 20)],
    "sites": [{"kernel": "k", "object": "app", "digest": "d", "address": 0x1000, **SITE}],
    "counters": [{"tool": "t", "variable": "v", "process": 1, "device": 0, "first": 0, "unsigned": [3]}],
    **code("k", 8),
}


@pytest.mark.rows(1)
@pytest.mark.parametrize("table", [*_GOOD])
def test_any_value_may_be_missing(tmp_path: Path, table: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Each column of each table in turn: what is made of it is a report, or one line that says what is wrong."""
    for column in _GOOD[table][0]:
        rows = [{name: value for name, value in row.items() if name != column} for row in _GOOD[table]]
        run = write_run(tmp_path / column, **{**_GOOD, table: rows})
        for number, arguments in enumerate(
            (["--format", "html"], ["--against", str(run), "--format", "json"], [str(run), "--format", "json"])
        ):
            out = tmp_path / f"{column}-{number}"
            status = main(["report", str(run), *arguments, "-o", str(out)])
            error = capfd.readouterr().err
            assert (status, error) == (0, "") or (status == 1 and error.count("\n") == 1), column
