"""Several runs as one: what was cut into parts is the whole again."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from luthier.cli.main import main
from luthier.errors import LuthierError
from luthier.report.merge import merge
from luthier.run.folder import SUMMARY, RunFolder
from luthier.run.schema import TABLES
from luthier.run.tables import Column, Schema, TableWriter
from run_folders import SITE, code, kernel, launch, write_run


def _bag(run: RunFolder, name: str) -> Counter[str]:
    return Counter(json.dumps(row, sort_keys=True, default=str) for row in run.rows(name))


@pytest.mark.rows(3)
@pytest.mark.parametrize("seed", range(4))
def test_parts_are_the_whole(tmp_path: Path, seed: int) -> None:
    """Distribute processes to runs at random; each run has the code, sites and counts of its launches."""
    choose = np.random.default_rng(seed)
    names = [f"k{number}" for number in range(5)]
    codes = {name: code(name, 12, block=5, address=0x1000 * (1 + at)) for at, name in enumerate(names)}
    sites = {name: [{"kernel": name, "digest": "d", "address": 4 * at, **SITE} for at in range(6)] for name in names}

    def run(folder: str, processes: list[int]) -> Path:
        launches = [one for one in every if one["process"] in processes]
        used = Counter(one["kernel"] for one in launches)
        tables: dict[str, Any] = {name: [] for name in ("listings", "blocks", "counts")}
        for name, times in used.items():
            tables["listings"] += codes[name]["listings"]
            tables["blocks"] += codes[name]["blocks"]
            tables["counts"] += [
                {**row, "executions": row["executions"] * times, "active_lanes": row["active_lanes"] * times}
                for row in codes[name]["counts"]
            ]
        return write_run(
            tmp_path / folder,
            {"processes": [{"process": one, "parent": one - 1, "command": "app"} for one in processes]},
            launches=launches,
            sites=[row for name in used for row in sites[name]],
            kernels=[kernel(name, launches=times, instrumented=times) for name, times in used.items()],
            counters=[
                {"tool": "t", "variable": "v", "process": one, "device": 0, "first": 0, "unsigned": [one]}
                for one in processes
            ],
            **tables,
        )

    every = [
        launch(str(choose.choice(names)), number, 10 * number, 10 * number + 5, process=int(choose.integers(1, 9)))
        for number in range(60)
    ]
    processes = list(range(1, 9))
    dealt = choose.integers(0, 3, len(processes))
    parts = [
        run(f"part{part}", [one for one, to in zip(processes, dealt, strict=True) if to == part]) for part in range(3)
    ]
    whole = RunFolder(run("whole", processes))
    merge([RunFolder(part) for part in parts], tmp_path / "merged")
    merged = RunFolder(tmp_path / "merged")
    for table in TABLES:
        assert _bag(merged, table.name) == _bag(whole, table.name), table.name
    known = {one.process: one for one in merged.summary.processes}
    assert known == {one.process: one for one in whole.summary.processes}
    assert merged.summary.tables == {table.name: sum(_bag(merged, table.name).values()) for table in TABLES}
    assert len(merged.summary.runs or ()) == 3


def _ranks(tmp_path: Path, count: int) -> list[Path]:
    """Runs of ranks on several machines, with equal process numbers and separate records."""
    made = []
    for rank in range(count):
        table = {"title": "hits", "columns": ["kernel", "address", "hits"], "rows": [["k", "0x1004", 10 + rank]]}
        folder = write_run(
            tmp_path / f"rank{rank}",
            {
                "exit_code": 7 if rank == 1 else 0,
                "began_ns": 100 - rank,
                "devices": [f"emu:{rank}"],
                "processes": [{"process": 5, "parent": 4, "rank": rank}, {"process": 6, "parent": 5, "rank": rank}],
                "tools": [{"tool": "cache", "options": {}, "tables": [table]}],
                "faults": [f"fault {rank}"],
            },
            kernels=[kernel("k", instructions=8)],
            launches=[launch("k", 0, 10, 20, process=5), launch("k", 1, 30, 40, process=6)],
            **code("k", 8),
        )
        trace = Schema("trace-points", "points", (Column("process", "int64", "p"), Column("at", "uint32[2]", "xy")))
        with TableWriter(folder, trace) as writer:
            writer.append({"process": [5, 6], "at": np.full((2, 2), rank, np.uint32)})
        made.append(folder)
    return made


def test_ranks_with_the_same_process_numbers(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    ranks = _ranks(tmp_path, 3)
    assert main(["merge", *map(str, ranks), "-o", str(tmp_path / "all")]) == 0
    merged = RunFolder(tmp_path / "all")
    rank_of = {one.process: one.rank for one in merged.summary.processes}
    assert Counter(rank_of.values()) == {0: 2, 1: 2, 2: 2}
    assert {one.parent for one in merged.summary.processes if one.process & 0xFFFFFFFF == 6} == {
        one.process for one in merged.summary.processes if one.process & 0xFFFFFFFF == 5
    }, "children know their parents"
    assert Counter(row["process"] for row in merged.rows("launches")) == dict.fromkeys(rank_of, 1)
    assert [(rank_of[row["process"]], row["at"][0]) for row in merged.rows("trace-points")] == [
        (rank, rank) for rank in (0, 0, 1, 1, 2, 2)
    ]
    assert (merged.summary.exit_code, merged.summary.began_ns, merged.summary.faults) == (
        7,
        98,
        ["fault 0", "fault 1", "fault 2"],
    )
    (only,) = merged.rows("kernels")
    assert (only["launches"], only["instrumented"]) == (3, 3)
    assert main(["report", *map(str, ranks), "--all"]) == 0
    text = capfd.readouterr().out
    for part in ("cache hits", "0: rank0", "2: rank2", "counts", "launches"):
        assert part in text
    assert main(["report", *map(str, ranks), "--format", "html", "-o", str(tmp_path / "page.html")]) == 0
    from luthier.report.analysis import AnalysedRun
    from luthier.report.page import document

    assert document(AnalysedRun.of(merged))[1][0]["heat"][0]["values"][:3] == [None, 10 + 11 + 12, None]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_what_is_merged_again_has_numbers_of_its_own(
    tmp_path: Path, order: tuple[int, int], capfd: pytest.CaptureFixture[str]
) -> None:
    """Two ranks as one, before or behind a third one; on the time line all numbers are such as Perfetto reads."""
    *two, last = map(RunFolder, _ranks(tmp_path, 3))
    merge(two, tmp_path / "two")
    both = [RunFolder(tmp_path / "two"), last]
    merge([both[at] for at in order], tmp_path / "all")
    merged = RunFolder(tmp_path / "all")
    processes = [one.process for one in merged.summary.processes]
    assert sorted(processes) == [number + (rank << 32) for rank in range(3) for number in (5, 6)]
    assert Counter(row["process"] for row in merged.rows("launches")) == dict.fromkeys(processes, 1)
    assert main(["report", str(tmp_path / "all"), "--format", "perfetto"]) == 0
    events = json.loads(capfd.readouterr().out)["traceEvents"]
    named = {one["pid"]: one["args"]["name"] for one in events if one["name"] == "process_name"}
    assert len(named) == 6
    assert all(0 < pid < 1 << 31 for pid in named)
    assert Counter(one["pid"] for one in events if one["ph"] == "X") == dict.fromkeys(named, 1)
    assert sum(f"(process {number})" in name for name in named.values() for number in processes) == 4


@pytest.mark.parametrize("wrong", ["columns", "full", "damaged", "nothing"])
def test_what_merge_refuses(tmp_path: Path, wrong: str, capfd: pytest.CaptureFixture[str]) -> None:
    ranks = _ranks(tmp_path, 2)
    out = tmp_path / "out"
    if wrong == "columns":
        (ranks[1] / "trace-points.parquet").unlink()
        with TableWriter(ranks[1], Schema("trace-points", "", (Column("x", "int64", ""),))) as writer:
            writer.append({"x": [1]})
    elif wrong == "full":
        shutil.copytree(ranks[0], out)
    elif wrong == "damaged":
        path = ranks[1] / "counts.parquet"
        path.write_bytes(path.read_bytes()[:-9])
    else:
        (ranks[1] / SUMMARY).unlink()
    assert main(["merge", *map(str, ranks), "-o", str(out)]) == 1
    assert capfd.readouterr().err.startswith("luthier merge: error: ")
    if wrong == "full":
        assert RunFolder(out).summary.devices == ["emu:0"], "nothing was touched"
    else:
        assert not (out / SUMMARY).exists()
        with pytest.raises(LuthierError):
            RunFolder(out)


def test_a_real_run_twice(mix_run: Path, tmp_path: Path, capfd: Callable[[], Any]) -> None:
    """Twice as much of everything, of the same code."""
    run = RunFolder(mix_run)
    merge([run, run], tmp_path / "twice")
    twice = RunFolder(tmp_path / "twice")
    for name in ("listings", "blocks", "sites"):
        assert _bag(twice, name) == _bag(run, name)
    for name, columns in (("counts", ("executions", "active_lanes")), ("kernels", ("launches", "instrumented"))):
        pairs = zip(run.rows(name), twice.rows(name), strict=True)
        assert all(
            other[one] == (None if row[one] is None else 2 * row[one]) for row, other in pairs for one in columns
        )
    assert len(list(twice.rows("launches"))) == 2 * len(list(run.rows("launches")))
