"""Counters of profilers' files beside those that a run counted."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import pytest
from commands import run_luthier
from luthier.errors import LuthierError
from luthier.report.analysis import AnalysedRun
from luthier.report.measured import measured_beside_counted, read_measured, read_times
from luthier.report.page import document
from luthier.report.thread_trace import is_thread_trace, stalls_beside_counts
from luthier.run.folder import RunFolder
from run_folders import code, kernel, write_run

ROCPROFV3 = (
    '"Correlation_Id","Dispatch_Id","Agent_Id","Queue_Id","Process_Id","Thread_Id","Grid_Size","Kernel_Id","Kernel_Name",'
    '"Workgroup_Size","LDS_Block_Size","Scratch_Size","VGPR_Count","Accum_VGPR_Count","SGPR_Count","Counter_Name",'
    '"Counter_Value","Start_Timestamp","End_Timestamp"\n'
)
ROW = '{at},{at},4,1,7,7,64,10,"{kernel}",64,0,0,8,0,16,"{counter}",{value},100,200\n'
MEASURED = [("k", 1, "SQ_INSTS", 12.0), ("k", 1, "SQ_INSTS_VALU", 12.0), ("k", 2, "SQ_INSTS", 12.0)]


def rocprofv3(path: Path, rows: Sequence[tuple[str, int, str, float]]) -> Path:
    text = (ROW.format(at=at, kernel=name, counter=counter, value=value) for name, at, counter, value in rows)
    path.write_text(ROCPROFV3 + "".join(text))
    return path


def rocprof_compute(path: Path, rows: Sequence[tuple[str, int, str, float]]) -> Path:
    counters = sorted({counter for _, _, counter, _ in rows})
    lines = [",".join(["Dispatch_ID", "Kernel_Name", "Grid_Size", *counters])]
    for dispatch in sorted({at for _, at, _, _ in rows}):
        values = {counter: value for _, at, counter, value in rows if at == dispatch}
        (name,) = {name for name, at, _, _ in rows if at == dispatch}
        lines.append(
            ",".join([str(dispatch), f'"{name} [clone .kd]"', "64", *(str(values.get(c, "")) for c in counters)])
        )
    path.write_text("\n".join(lines) + "\n")
    return path


def rocpd(path: Path, rows: Sequence[tuple[str, int, str, float]]) -> Path:
    with sqlite3.connect(path) as database:
        columns = 'pid, dispatch_id, kernel_name, grid_size, counter_name, value, start, "end"'
        database.execute(f"CREATE TABLE counters ({columns})")
        database.execute(f"CREATE VIEW counters_collection AS SELECT {columns} FROM counters")
        values = [(7, at, name, 64, counter, value, 100, 200) for name, at, counter, value in rows]
        database.executemany("INSERT INTO counters VALUES (?, ?, ?, ?, ?, ?, ?, ?)", values)
    return path


def rocprofv3_json(path: Path, rows: Sequence[tuple[str, int, str, float]]) -> Path:
    """Kernels by number and counters by handle; each value in two parts."""
    kernels = ["", *sorted({name for name, *_ in rows})]
    counters = {counter: 1000 + number for number, counter in enumerate(sorted({counter for _, _, counter, _ in rows}))}
    dispatches = []
    for dispatch, name in sorted({(at, name) for name, at, _, _ in rows}):
        info = {"dispatch_id": dispatch, "kernel_id": kernels.index(name), "agent_id": {"handle": 5}}
        values = [(counters[counter], part) for _, at, counter, v in rows if at == dispatch for part in (v - 1, 1)]
        records = [{"counter_id": {"handle": handle}, "value": value} for handle, value in values]
        dispatches.append({"thread_id": 9, "dispatch_data": {"dispatch_info": info}, "records": records})
    process = {
        "metadata": {"pid": 7},
        "agents": [],
        "counters": [{"id": {"handle": handle}, "name": counter} for counter, handle in counters.items()],
        "kernel_symbols": [{"formatted_kernel_name": name, "kernel_id": at} for at, name in enumerate(kernels)],
        "callback_records": {"counter_collection": dispatches},
    }
    path.write_text(json.dumps({"rocprofiler-sdk-tool": [process]}))
    return path


FORMATS = [rocprofv3, rocprof_compute, rocpd, rocprofv3_json]


@pytest.fixture
def counted(tmp_path: Path) -> Path:
    """Return a run of two launches of eight VALU instructions: 4 executed twice by a wave, 4 four times."""
    rows = code("k", 8, block=4)
    for row in rows["counts"]:
        row["executions"] *= 2
    return write_run(tmp_path / "run", kernels=[kernel("k", launches=2, instructions=8)], **rows)


@pytest.mark.parametrize("write", FORMATS)
def test_equal_counters_have_no_note(counted: Path, tmp_path: Path, write: object) -> None:
    table = measured_beside_counted(RunFolder(counted), [write(tmp_path / "counters", MEASURED)])  # type: ignore[operator]
    assert table.rows == [
        ("k", 2, 2, "SQ_INSTS", 12, 12, 1.0, ""),
        ("k", 2, 1, "SQ_INSTS_VALU", 12, 12, 1.0, ""),
    ]


@pytest.mark.parametrize("write", FORMATS)
def test_what_differs_is_said(counted: Path, tmp_path: Path, write: object) -> None:
    rows = [("k", 1, "SQ_INSTS", 14.0), ("k", 2, "SQ_INSTS", 14.0), ("void other<int>(int*)", 3, "SQ_INSTS", 1.0)]
    table = measured_beside_counted(RunFolder(counted), [write(tmp_path / "counters", rows)])  # type: ignore[operator]
    assert [row[4:] for row in table.rows] == [
        (12, 14, 1.1667, "another build or other work"),
        (None, None, None, "the run did not count this kernel"),
    ]


def test_waves_of_the_entry(counted: Path, tmp_path: Path) -> None:
    rows = [("k", 1, "SQ_WAVES", 1.0), ("k", 2, "SQ_WAVES", 2.0)]
    table = measured_beside_counted(RunFolder(counted), [rocprofv3(tmp_path / "counters", rows)])
    assert table.rows == [("k", 2, 2, "SQ_WAVES", 1, 1.5, 1.5, "launches differ")]


@pytest.mark.parametrize("name", ["void k<int>(float*, int)", "k<int>", "_Z1kIiEvPfi"])
def test_names_with_and_without_parameters(tmp_path: Path, name: str) -> None:
    row = kernel("_Z1kIiEvPfi", name="void k<int>(float*, int)")
    run = write_run(tmp_path / "run", kernels=[row], **code("_Z1kIiEvPfi", 4, block=4))
    table = measured_beside_counted(RunFolder(run), [rocprofv3(tmp_path / "counters", [(name, 1, "SQ_INSTS", 4)])])
    assert [row[3:] for row in table.rows] == [("SQ_INSTS", 4, 4, 1.0, "")]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"a,b\n1,2\n",
        b"Kernel_Name,Dispatch_Id,Counter_Name,Counter_Value\nk,x,SQ_INSTS,1\n",
        b"Kernel_Name,Dispatch_Id,Counter_Name,Counter_Value\nk,1,SQ_INSTS,many\n",
        b"Kernel_Name,Dispatch_Id,Counter_Name,Counter_Value\nk,1,SQ_INSTS,nan\n",
        b"Kernel_Name,Dispatch_Id,Counter_Name,Counter_Value\nk,1\n",
        b"Dispatch_Id,Counter_Name,Counter_Value,Kernel_Name\n1,SQ_INSTS,2\n",
        b"Kernel_Name,Dispatch_Id,Counter_Name\nk,1,SQ_INSTS\n",
        b"Kernel_Name,Dispatch_ID,SQ_INSTS\nk,1,inf\n",
        b"SQLite format 3\0" + bytes(100),
        b"\xff\xfe\x00",
        b"{",
        b'{"rocprofiler-sdk-tool": []}',
        b'{"rocprofiler-sdk-tool": [{"counters": 3, "kernel_symbols": [], "callback_records": {}}]}',
        b"Kernel_Name,Dispatch_Id,Counter_Name,Counter_Value\n",
    ],
    ids=range(15),
)
def test_other_files_are_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(LuthierError, match="file"):
        read_measured(tmp_path / "file")


TRACE = """"CodeObj","Vaddr","Instruction","Hitcount","Latency","Stall","Idle","Source"
1,4096,"; {kernel}",0,0,0,0,"k()"
1,4096,"v_add_f32_e32 v0, v1, v2",4,40,8,0,"/a/k.hip:7"
1,4112,"v_add_f32_e32 v4, v1, v2",8,800,72,0,"/a/k.hip:9"
1,4116,"s_nop 0",1,1,0,0,""
"""


def test_stalls_of_a_thread_trace(counted: Path, tmp_path: Path) -> None:
    path = tmp_path / "stats_ui_output_agent_1_dispatch_1.csv"
    path.write_text(TRACE.format(kernel="k"))
    assert is_thread_trace(path)
    rows = stalls_beside_counts(RunFolder(counted), [path], 0).rows
    assert rows == [
        ("k", "0x1010", "v_add_f32_e32 v4, v1, v2", "/a/k.hip:9", 4, 8, 100.0, 9.0, 90.0, ""),
        ("k", "0x1000", "v_add_f32_e32 v0, v1, v2", "/a/k.hip:7", 2, 4, 10.0, 2.0, 10.0, ""),
        ("k", "0x1014", "s_nop 0", "", None, 1, 1.0, 0.0, 0.0, "another build: the run has v_add_f32_e32 there"),
    ]
    path.write_text(TRACE.format(kernel="other"))
    (row,) = stalls_beside_counts(RunFolder(counted), [path], 1).rows
    assert row[-1] == "the run did not count this kernel"


@pytest.mark.parametrize("row", ['1,4096,"s_nop 0",x,1,0,0,""', "1,4096", ""])
def test_damaged_traces_are_refused(counted: Path, tmp_path: Path, row: str) -> None:
    path = tmp_path / "stats.csv"
    path.write_text(TRACE.partition("\n")[0] + f"\n{row}\n")
    with pytest.raises(LuthierError, match="thread trace"):
        stalls_beside_counts(RunFolder(counted), [path], 0)


def test_on_the_command_line(counted: Path, tmp_path: Path) -> None:
    file = rocprofv3(tmp_path / "counters.csv", MEASURED)
    assert "SQ_INSTS_VALU" in run_luthier("report", counted, "--counters", file).stdout
    trace = tmp_path / "stats.csv"
    trace.write_text(TRACE.format(kernel="k"))
    both = run_luthier("report", counted, "--counters", file, "--counters", trace, "--format", "csv")
    assert (both.returncode != 0, "csv writes one table: give --counters" in both.stderr) == (True, True)
    shown = run_luthier("report", counted, "--counters", file, "--counters", trace)
    assert "SQ_INSTS_VALU" in shown.stdout
    assert "thread trace" in shown.stdout
    refused = run_luthier("report", counted, "--counters", file, "--format", "sarif")
    assert refused.returncode != 0
    assert "--counters works with the formats text, json, csv and html" in refused.stderr


def test_on_the_page(counted: Path, tmp_path: Path) -> None:
    """Tables of both kinds; cycles of a trace are columns of the instructions' lines and code."""
    file, trace = rocprofv3(tmp_path / "counters.csv", MEASURED), tmp_path / "stats.csv"
    trace.write_text(TRACE.format(kernel="k"))
    words = ("report", counted, "--counters", file, "--counters", trace, "--format", "html", "-o", tmp_path / "page")
    assert run_luthier(*words).returncode == 0
    assert (tmp_path / "page").stat().st_size > 100_000
    measured = [
        measured_beside_counted(RunFolder(counted), [file]),
        stalls_beside_counts(RunFolder(counted), [trace], 0),
    ]
    data, code, _ = document(AnalysedRun.of(RunFolder(counted), measured))
    assert [table["title"] for table in data["tables"] if table["tool"] == "GPU"] == [one.title for one in measured]
    columns = {column["name"]: column["values"] for column in code[0]["heat"] if column["tool"] == "GPU"}
    assert columns["stall"][0] == 2
    assert columns["latency"][4] == 100


def test_times_of_a_kernel_trace(tmp_path: Path) -> None:
    """Rows without a time above 0 are counted by kernel."""
    sizes = ",".join(f"Grid_Size_{axis}" for axis in "XYZ")
    head = f"Kind,Dispatch_Id,Kernel_Name,Start_Timestamp,End_Timestamp,{sizes}\n"
    rows = ("1,k.kd,1000,3500,64,2,1", "2,k.kd,5000,5000,64,2,1", "3,k.kd,,,64,2,1")
    (tmp_path / "trace.csv").write_text(head + "".join(f"KERNEL_DISPATCH,{row}\n" for row in rows))
    times = read_times(tmp_path / "trace.csv")
    assert [(row.kernel, row.time_us, row.items) for row in times.launches] == [("k", 2.5, 128)]
    assert times.skipped == {"k": 2}
