"""Files of a run, and their reports."""

from __future__ import annotations

import csv
import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from luthier import Cell, InstrumentationTask, Tool, ToolModule
from luthier.cli.main import main
from luthier.errors import LuthierError
from luthier.module.elements import element_type
from luthier.run.folder import SUMMARY, RunFolder
from luthier.run.schema import CALLS, TABLES
from luthier.run.sessions import HEAD, RECORD, ROW, ROWS, Session
from luthier.run.tables import TableWriter
from luthier.wire.memory import NEVER

from .conftest import RunUnderTools
from .test_programs import SAYS

ROOT = Path(__file__).parents[2]
Build = Callable[[str], Path]
UnderTools = Callable[..., RunUnderTools]


@pytest.fixture(scope="module")
def many_kinds(make_module: Callable[..., ToolModule]) -> type[Tool]:
    """A tool with variables of several types, a hook that is refused, one before and one after each vector instruction,
    counts into a variable, and counts into none."""
    module = make_module(
        """
__managed__ uint64_t counter = 0;
__device__ uint64_t total = 0;
__device__ float weights[3] = {1.5f, 2.5f, -3.0f};
__device__ int64_t table[2][40000] = {{-7, 8}};
struct Pair { int a; float b; int c; };
__device__ Pair pair = {1, 2, 3};
__device__ float ratio = 1.5f;
__device__ double least = -__builtin_inf();
__device__ int balance = -3;
__device__ unsigned two[2] = {1, 2};
LUTHIER_HOOK_ANNOTATE one() { luthier::sAtomicAdd<uint64_t>(&counter, 1); }
LUTHIER_HOOK_ANNOTATE keep(uint64_t a) {
  if (a == 77) { weights[0] = 0; table[0][0] = 0; pair.a = 0; ratio = 0; least = 0; balance = 0; two[0] = 0; }
}
LUTHIER_HOOK_ANNOTATE bad() { __syncthreads(); }
""",
        "gfx90a",
        "gfx1030",
    )
    types = {"counter": "uint64_t", "weights": "float[3]", "table": "int64_t[2][40000]", "pair": "Pair"}
    types |= {"ratio": "float", "least": "double", "balance": "int", "two": "unsigned[2]"}
    for symbol, variable in module.variables.items():
        object.__setattr__(variable, "type", types.get(symbol, ""))

    class ManyKinds(Tool):
        """All that can be asked for."""

        name = "many-kinds"

        def instrument(self, task: InstrumentationTask) -> None:
            """Ask for it."""
            first = next(iter(task.instructions))
            task.insert_hook_before(first, module.bad)
            task.insert_hook_before(first, module.keep, 5)
            for instruction in task.instructions:
                if instruction.is_vector:
                    task.insert_hook_before(instruction, module.one)
                    task.insert_hook_after(instruction, module.one)
            task.count(task.instructions, into=Cell(module, "total"))
            task.count(task.instructions)

    return ManyKinds


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the run that several tests read."""
    return tmp_path_factory.mktemp("made") / "run"


@pytest.fixture
def folder(made: Path, build_program: Build, under_tools: UnderTools, many_kinds: type[Tool]) -> Path:
    """A run of a program with forked and executed processes."""
    if not made.exists():
        ran = under_tools("emu:gfx90a", [many_kinds()], build_program("processes"), folder=made)
        assert (ran.code, ran.summary["faults"]) == (0, []), ran.err
        assert ran.out == SAYS["processes"]
        (made.parent / "values.json").write_text(json.dumps(ran.summary["variables"]))
    return made


def test_every_process_is_in_it(folder: Path) -> None:
    run = RunFolder(folder)
    processes = {one.process: one for one in run.summary.processes}
    launches = list(run.rows("launches"))
    assert len(processes) == len(launches) == 4
    assert {row["process"] for row in launches} == set(processes)
    assert any(one.parent in processes for one in processes.values())
    assert all(one.launches == 1 for one in processes.values())
    for row in launches:
        assert (row["grid_x"], row["block_x"], row["number"], row["instrumented"]) == (64, 64, 0, True)
    known = [row for row in launches if row["end_ns"] is not None]
    assert len(known) == 3, "of one process that ends by _exit nothing is known"
    assert all(row["time_ns"] <= row["begin_ns"] < row["end_ns"] <= run.summary.ended_ns for row in known)
    (kernel,) = run.rows("kernels")
    assert (kernel["launches"], kernel["instrumented"], kernel["covered"], kernel["name"]) == (4, 4, False, "add")
    assert kernel["target"] == "gfx90a"
    assert kernel["patched_vgprs"] >= kernel["vgprs"] > 0
    assert {(row["kernel"], row["object"], row["digest"]) for row in launches} == {
        (kernel["kernel"], kernel["object"], kernel["digest"])
    }


def test_sites(folder: Path) -> None:
    run = RunFolder(folder)
    (kernel,) = run.rows("kernels")
    sites = list(run.rows("sites"))
    hooks = [site for site in sites if site["hook"] is not None]
    assert {site["tool"] for site in sites} == {"many-kinds"}
    assert sum(site["status"] == "patched" for site in hooks) == kernel["hooks"]
    (refused,) = (site for site in sites if site["status"] == "refused")
    assert (refused["hook"], refused["place"], refused["kind"]) == ("bad", "before", "hook")
    assert refused["reason"]
    counted = [site for site in sites if site["status"] == "counted"]
    assert len(counted) == kernel["instructions"]
    vector = Counter(site["address"] for site in hooks if site["hook"] == "one")
    assert set(vector.values()) == {2}
    assert all(
        site["mnemonic"] == site["text"].split()[0] and site["mnemonic"][0] in "vgbf"
        for site in hooks
        if site["hook"] == "one"
    )
    assert {site["place"] for site in hooks} == {"before", "after"}


def test_counters_have_their_types(folder: Path) -> None:
    run = RunFolder(folder)
    tables: dict[str, list[dict[str, Any]]] = {}
    for row in run.rows("counters"):
        tables.setdefault(row["variable"], []).append(row)
    assert all({row["tool"] for row in rows} == {"many-kinds"} for rows in tables.values())
    for name in ("counter", "total"):
        values = [row["unsigned"] for row in tables[name]]
        assert len(values) == 4
        assert values.count(values[0]) == 4
        assert values[0][0] > 0
    assert [row["real"] for row in tables["weights"]] == [[1.5, 2.5, -3.0]] * 4
    assert Counter(row["first"] for row in tables["table"]) == dict.fromkeys(range(0, 80000, 4096), 4)
    assert sum(len(row["signed"]) for row in tables["table"]) == 4 * 80000
    assert [row["signed"][:3] for row in tables["table"] if row["first"] == 0] == [[-7, 8, 0]] * 4
    assert np.frombuffer(tables["pair"][0]["raw"], "<i4")[[0, 2]].tolist() == [1, 3]


def test_variables_are_added_up_by_their_types(folder: Path) -> None:
    """Variables that are one number, in each of four processes; of others, the values are listed."""
    (tool,) = RunFolder(folder).summary.tools
    sums: dict[object, object] = dict(tool.tables[0].rows)  # type: ignore[arg-type]  # of two cells each
    assert sums.keys() == {"counter", "total", "ratio", "least", "balance"}
    assert (sums["ratio"], sums["balance"]) == (6, -12)
    assert sums["least"] == "-inf", "JSON has no number for it"
    values = {one["variable"]: one["value"] for one in json.loads((folder.parent / "values.json").read_text())}
    assert (values["ratio"], values["least"], values["balance"]) == (1.5, -np.inf, -3)
    assert values["two"] == [1, 2]
    assert bytes.fromhex(values["weights"]) == np.array([1.5, 2.5, -3], "<f4").tobytes()
    assert values["counter"] > 0


def test_counts_are_those_of_the_variable(folder: Path) -> None:
    """One tool counts the same instructions into a variable and without one."""
    run = RunFolder(folder)
    rows = [row for row in run.rows("counts") if row["executions"] is not None]
    total = sum(row["unsigned"][0] for row in run.rows("counters") if row["variable"] == "total")
    assert sum(row["executions"] for row in rows) == total > 0
    assert all(row["active_lanes"] is None for row in rows)
    assert {row["mnemonic"] for row in rows} >= {"s_endpgm", "global_store_dword"}


def test_text_json_and_csv(folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(folder), "--all"]) == 0
    text = capfd.readouterr().out
    for part in ("many-kinds", "kernels", "variables", "launches", "  add  ", "counts, the first 20 of"):
        assert part in text
    assert "_Z3addPii" not in text
    assert main(["report", str(folder), "--all", "--mangled"]) == 0
    assert capfd.readouterr().out.replace("_Z3addPii", "add").split() == text.split()
    assert main(["report", str(folder), "--format", "json", "-o", str(tmp_path / "all.json")]) == 0
    everything = json.loads((tmp_path / "all.json").read_text())
    assert set(everything["tables"]) == {table.name for table in TABLES}
    assert everything["summary"] == json.loads((folder / SUMMARY).read_text())
    assert everything["summary"]["tables"] == {name: len(rows) for name, rows in everything["tables"].items()}
    assert main(["report", str(folder), "--format", "csv", "-o", str(tmp_path / "csv")]) == 0
    for table in TABLES:
        with (tmp_path / "csv" / f"{table.name}.csv").open() as file:
            rows = list(csv.DictReader(file))
        assert len(rows) == len(everything["tables"][table.name])
        for row, wanted in zip(rows, everything["tables"][table.name], strict=True):
            for column in table.columns:
                value = wanted[column.name]
                shown = {True: "true", False: "false", None: ""}.get(value) if value in (True, False, None) else None
                if column.type in ("bool", "string"):
                    assert row[column.name] == (shown if column.type == "bool" else value or "")
                elif value is None:
                    assert row[column.name] == ""
                elif column.type != "binary":
                    assert json.loads(row[column.name]) == value
    assert main(["report", str(folder), "--format", "csv", "--table", "launches"]) == 0
    assert len(capfd.readouterr().out.splitlines()) == 5
    assert main(["report", str(folder), "--format", "json", "--table", "kernels"]) == 0
    assert json.loads(capfd.readouterr().out) == everything["tables"]["kernels"]


def test_time_line(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(folder), "--format", "perfetto"]) == 0
    trace = json.loads(capfd.readouterr().out)
    run = RunFolder(folder)
    launches = list(run.rows("launches"))
    began = int(trace["otherData"]["began_ns"])
    slices = sorted((one["pid"], one["ts"], one["dur"]) for one in trace["traceEvents"] if one["ph"] == "X")
    assert slices == sorted(
        (row["process"], (row["begin_ns"] - began) / 1000, (row["end_ns"] - row["begin_ns"]) / 1000)
        for row in launches
        if row["end_ns"] is not None
    )
    (unknown,) = (one for one in trace["traceEvents"] if one["ph"] == "i")
    assert unknown["args"]["times"] == "not known"
    names = {(one["pid"], one["name"]) for one in trace["traceEvents"] if one["ph"] == "M"}
    assert names == {(row["process"], kind) for row in launches for kind in ("process_name", "thread_name")}
    waits = read_trace(trace)
    assert sorted(waits) == sorted(
        ((row["time_ns"] - began) / 1000, (row["begin_ns"] - began) / 1000)
        for row in launches
        if row["end_ns"] is not None
    )


def read_trace(trace: Any) -> list[tuple[float, float]]:
    """Read a trace as its format says, and return the waits: begin and end of each.

    Source: "Trace Event Format". Slices of a track either follow each other or one is within the other; what begins
    ends, with the same name and category; tracks and processes have names.
    """
    open_slices: dict[tuple[int, int], list[float]] = {}
    begun: dict[tuple[int, str, str | None], tuple[str, float]] = {}
    waits, named = [], set()
    for event in trace["traceEvents"]:
        if event["ph"] == "M":
            named.add((event["pid"], event.get("tid")))
            assert event["args"]["name"]
    events = [one for one in trace["traceEvents"] if one["ph"] != "M"]
    for event in sorted(events, key=lambda entry: (entry["ts"], -entry.get("dur", 0), entry["ph"] != "b")):
        assert {"name", "cat", "ph", "ts", "pid", "tid"} <= event.keys()
        assert (event["pid"], None) in named
        key = event["pid"], event["cat"], event.get("id2", {}).get("local")
        if event["ph"] == "b":
            assert key not in begun
            begun[key] = event["name"], event["ts"]
        elif event["ph"] == "e":
            name, at = begun.pop(key)
            assert name == event["name"]
            waits.append((at, event["ts"]))
        else:
            assert event["ph"] in ("X", "i", "B")
            assert (event["pid"], event["tid"]) in named
        if event["ph"] == "X":
            around = open_slices.setdefault((event["pid"], event["tid"]), [])
            while around and around[-1] <= event["ts"]:
                around.pop()
            assert event["dur"] >= 0
            assert not around or event["ts"] + event["dur"] <= around[-1] + 0.001, "slices that overlap"
            around.append(event["ts"] + event["dur"])
    assert not begun
    return waits


def test_calls_on_the_time_line(
    build_program: Build, tmp_path: Path, luthier_run: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    """Launches are called before they wait, and wait before they run; copies have their sizes."""
    run = tmp_path / "run"
    outcome = luthier_run("emu:gfx90a", build_program("streams"), options=["--calls", "-o", str(run)])
    assert outcome.code == 0, outcome.err
    calls = list(RunFolder(run).rows("calls"))
    assert all(row["begin_ns"] <= row["end_ns"] for row in calls)
    named = Counter(row["name"] for row in calls)
    assert main(["report", str(run), "--format", "perfetto"]) == 0
    trace = json.loads(capfd.readouterr().out)
    assert read_trace(trace)
    slices = [one for one in trace["traceEvents"] if one["ph"] == "X"]
    assert Counter(one["name"] for one in slices if one["cat"] in ("hip", "copy")) == named
    copies = [one for one in slices if one["cat"] == "copy"]
    assert copies
    assert all(one["args"]["sizeBytes"] > 0 for one in copies if one["name"] == "hipMemcpyAsync")
    launched = sorted(one["ts"] for one in slices if "LaunchKernel" in one["name"])
    ran = sorted(one["ts"] for one in slices if one["cat"] == "original")
    assert launched
    assert launched[0] <= ran[0]
    assert main(["run", "--calls", "--", "echo"]) == 1
    assert "give a folder with -o" in capfd.readouterr().err


@pytest.mark.parametrize(
    "arguments", [["--format", "csv"], ["--table", "nothing"], ["--format", "csv", "--table", "x"]]
)
def test_what_report_refuses(folder: Path, arguments: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(folder), *arguments]) == 1
    assert "luthier report: error" in capfd.readouterr().err


def _damage(folder: Path, how: str) -> None:
    summary, launches = folder / SUMMARY, folder / "launches.parquet"
    if how == "cut":
        launches.write_bytes(launches.read_bytes()[:-20])
    elif how == "missing":
        (folder / "sites.parquet").unlink()
    elif how == "link":
        launches.rename(folder.parent / "moved")
        launches.symlink_to(folder.parent / "moved")
    elif how == "summary is a link":
        summary.rename(folder.parent / "summary")
        summary.symlink_to(folder.parent / "summary")
    elif how == "killed":
        summary.unlink()
        launches.rename(folder / "launches.parquet.partial")
    elif how == "another table":
        shutil.copy(folder / "kernels.parquet", launches)
    elif how == "huge":
        with summary.open("r+b") as file:
            file.truncate(1 << 33)
    elif how == "deep":
        summary.write_text("[" * 100_000)
    else:
        summary.write_text(how)


@pytest.mark.parametrize(
    "how",
    [
        *("cut", "missing", "link", "summary is a link", "killed", "another table", "huge", "deep"),
        *("", "[]", "{}", '{"schema": 99}', '{"schema": 2, "tools": 3}', "\0", '{"schema": 2, "command": []}'),
    ],
)
def test_damaged_runs(folder: Path, tmp_path: Path, how: str, capfd: pytest.CaptureFixture[str]) -> None:
    """An error in one line for each format, and no output file."""
    bad = tmp_path / "bad"
    shutil.copytree(folder, bad)
    _damage(bad, how)
    for format in ("text", "json", "perfetto", "html"):
        assert main(["report", str(bad), "--format", format, "-o", str(tmp_path / "out")]) == 1
        error = capfd.readouterr().err
        assert error.startswith("luthier report: error: ")
        assert error.count("\n") == 1
        assert not (tmp_path / "out").exists()


def test_folders_that_cannot_be_had(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Before the program starts."""
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    (tmp_path / "file").touch()
    for name in ("full", "file", "file/below"):
        assert main(["run", "-t", "instr_count", "-o", str(tmp_path / name), "--", "echo", "started"]) == 1
    assert "started" not in capfd.readouterr().out
    with pytest.raises(LuthierError, match="is not a run folder"):
        RunFolder(tmp_path / "nothing")


@pytest.mark.rows(1)
@pytest.mark.parametrize("name", ["streams", "host_memory", "graph", "raw"])
def test_programs_are_right_while_launches_are_timed(
    build_program: Build,
    raw_program: Callable[[str], list[Path]],
    under_tools: UnderTools,
    counter: type[Tool],
    name: str,
    tmp_path: Path,
) -> None:
    """Also times of events, which `streams` looks at, and signals that are the program's own."""
    command = raw_program("gfx90a") if name == "raw" else [build_program(name)]
    ran = under_tools("emu:gfx90a", [counter()], *command, folder=tmp_path / "run")
    assert ran.code == 0, ran.err
    launches = list(RunFolder(tmp_path / "run").rows("launches"))
    if name == "raw":  # an error of the queue
        assert launches.pop()["end_ns"] is None
    assert launches
    for row in launches:
        assert row["end_ns"] is not None, "all ended before the process did"
        assert row["time_ns"] <= row["begin_ns"] < row["end_ns"]


def test_ledger_is_taken_in_order_and_given_back() -> None:
    """Records are taken once, up to the first that is not complete; their pages are given back meanwhile."""
    session = Session(1, "", 100_000)
    start = HEAD.itemsize + ROWS * ROW.itemsize
    head = session.ledger.bytes[: HEAD.itemsize].view(HEAD)
    records = session.ledger.bytes[start : start + 100_000 * RECORD.itemsize].view(RECORD)
    choose = np.random.default_rng(3)
    written, taken = 0, []
    while written < 100_000:
        more = min(int(choose.integers(1, 9000)), 100_000 - written)
        records["number"][written : written + more] = np.arange(written, written + more)
        records["time"][written : written + more] = 1
        late = written + more // 2
        records["end"][written : written + more] = np.where(choose.random(more) < 0.1, NEVER, 5)
        records["end"][late] = 0
        written += more
        head["records"] = written
        while len(part := session.take_records(1000, ended=False)):
            taken.append(part["number"])
        assert sum(map(len, taken)) == late
        records["end"][late] = 9
    while len(part := session.take_records(1000, ended=True)):
        taken.append(part["number"])
    assert np.array_equal(np.concatenate(taken), np.arange(100_000))
    assert np.count_nonzero(records["time"]) < 200, "pages that are begun or end with something else"


@pytest.mark.parametrize(
    ("type", "size", "wanted"),
    [
        ("uint64_t", 8, "<u8"),
        ("const volatile int [4]", 16, "<i4"),
        ("std::uint32_t[2][8]", 64, "<u4"),
        ("unsigned long long", 8, "<u8"),
        ("double[3]", 24, "<f8"),
        ("_Float16", 2, "<f2"),
        ("bool", 1, "<u1"),
        ("Node *", 8, "<u8"),
        ("", 4, "<u4"),
        ("Kind", 2, "<u2"),
        ("Pair", 12, None),
        ("", 24, None),
        ("int", 3, None),
    ],
)
def test_elements_of_variables(type: str, size: int, wanted: str | None) -> None:
    assert element_type(type, size) == (None if wanted is None else np.dtype(wanted))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"arguments": "[1]"}, "arguments of a call are not a JSON object"),
        ({"arguments": "{"}, "arguments of a call are not a JSON object"),
        ({"name": None}, "a call has no name"),
        ({"begin_ns": None}, "no start time"),
    ],
)
def test_damaged_calls(
    folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], change: dict[str, Any], says: str
) -> None:
    bad = tmp_path / "bad"
    shutil.copytree(folder, bad)
    (bad / "calls.parquet").unlink()
    row = {
        "process": 1,
        "thread": 1,
        "name": "hipMalloc",
        "begin_ns": 1,
        "end_ns": None,
        "result": 0,
        "arguments": "{}",
    }
    with TableWriter(bad, CALLS) as writer:
        writer.append({name: [value] for name, value in {**row, **change}.items()})
    assert main(["report", str(bad), "--format", "perfetto"]) == 1
    assert says in capfd.readouterr().err


def test_documentation_lists_every_column() -> None:
    """`docs/run-directory.md` has the tables as they are."""
    text = (ROOT / "docs" / "run-directory.md").read_text()
    for table in TABLES:
        assert f"**{table.name}**: {table.what}." in text
        for column in table.columns:
            assert f"| `{column.name}` | {column.type} | {column.what} |" in text, (table.name, column.name)


def test_files_hold_their_own_description(folder: Path) -> None:
    for table in TABLES:
        schema = pq.read_schema(folder / f"{table.name}.parquet")
        assert [field.name for field in schema] == [column.name for column in table.columns]
        assert [field.metadata[b"what"].decode() for field in schema] == [column.what for column in table.columns]
