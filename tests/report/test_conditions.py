"""Conditions under which `luthier report` fails, and the formats that continuous integration reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from junitparser import JUnitXml
from luthier.cli import report
from luthier.cli.main import main
from run_folders import code, kernel, launch, write_run

SYMBOL = "_Z5saxpyfPKfPfi"
KERNELS = {
    "title": "coalescing",
    "columns": ["kernel", "requests", "lines/request", "efficiency %"],
    "rows": [[SYMBOL, 8, 4.0, 100.0], ["copy", 8, 10.0, 40.0], ["idle", 0, None, None]],
}
SITES = {
    "title": "most cache lines",
    "columns": ["kernel", "source", "address", "instruction", "lines/request", "efficiency %"],
    "rows": [["copy", "/src/copy.hip:7", "0x1004", "global_store_dword v[0:1], v3, off", 16.0, 25.0]],
}
COUNTS = {"title": "", "columns": ["variable", "value"], "rows": [["counter", 1000]]}
BLOCKS = {"title": "copy", "columns": ["block", "entered"], "rows": [[0, 3], [1, 900]]}


@pytest.fixture
def run(tmp_path: Path) -> str:
    """A run with tables of two tools, and the code of the kernel `copy`."""
    rows: dict[str, Any] = code("copy", 4, text="global_store_dword v[0:1], v3, off")
    for at, row in enumerate(rows["listings"]):
        row |= {"file": "/src/copy.hip", "line": 6 + at}
    tools = [{"tool": "coalescing", "tables": [KERNELS, SITES]}, {"tool": "instr_count", "tables": [COUNTS, BLOCKS]}]
    kernels = [kernel(SYMBOL, name="saxpy", digest="e"), kernel("copy", instructions=4)]
    return str(write_run(tmp_path / "run", {"tools": tools}, kernels=kernels, **rows))


def _failures(run: str, capsys: pytest.CaptureFixture[str], *options: str) -> list[str]:
    """Return the messages on standard error; check that the exit code fits and the report is complete."""
    status = main(["report", run, *options])
    out, err = capsys.readouterr()
    assert out.strip()
    assert status == (1 if err else 0)
    return [line.removeprefix("luthier report: ") for line in err.splitlines()]


@pytest.mark.parametrize(
    ("condition", "messages"),
    [
        (
            "coalescing.efficiency < 40",
            ["25 (kernel copy, /src/copy.hip:7, 0x1004, global_store_dword v[0:1], v3, off)"],
        ),
        ("coalescing.efficiency %<=40%", ["40 (kernel copy)", "25 (kernel copy, /src/copy.hip:7, 0x1004, global"]),
        ("coalescing[coalescing].efficiency < 50", ["40 (kernel copy)"]),
        ("coalescing[most*].Efficiency<1e2", ["25 (kernel copy"]),
        ("coalescing.requests == 8", ["8 (kernel saxpy)", "8 (kernel copy)"]),
        ("coalescing.efficiency < 25", []),
        ("max(coalescing.efficiency) < 100", ["25 (max of 1, most cache lines)"]),
        ("sum(coalescing.requests) > 15", ["16 (sum of 3, coalescing)"]),
        ("min(coalescing.lines/request) > 4", ["16 (min of 1, most cache lines)"]),
        ("instr_count.counter > 999", ["1000"]),
        ("instr_count.counter != 1000", []),
        ("instr_count.entered >= 900", ["900 (kernel copy, block 1)"]),
    ],
)
def test_each_row_that_fulfils_it_is_named(
    run: str, condition: str, messages: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    failures = _failures(run, capsys, "--fail-if", condition)
    assert len(failures) == len(messages)
    for line, expected in zip(failures, messages, strict=True):
        assert line.startswith(f"{condition}: {expected}")


def test_several_conditions_and_names(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    both = ["--fail-if", "coalescing.requests > 7", "--fail-if", "instr_count.counter > 2000"]
    assert len(_failures(run, capsys, *both)) == 2
    assert "kernel saxpy" in _failures(run, capsys, *both)[0]
    assert SYMBOL in _failures(run, capsys, *both, "--mangled")[0]
    assert len(_failures(run, capsys, *both, "--format", "json")) == 2
    assert len(_failures(run, capsys, *both, "--format", "csv", "--table", "kernels")) == 2


@pytest.mark.parametrize(("conditions", "status"), [([], 0), (["t.v < 0"], 0), (["t.v > 0"], 1)])
def test_they_are_judged_whoever_reads(
    conditions: list[str], status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As under `luthier report | head`."""

    def fail(*_: object) -> None:
        raise BrokenPipeError

    table = {"title": "t", "columns": ["v"], "rows": [[1]]}
    run = write_run(tmp_path / "run", {"tools": [{"tool": "t", "tables": [table]}]}, kernels=[kernel("k")])
    monkeypatch.setattr(report, "_report", fail)
    assert main(["report", str(run), *(word for one in conditions for word in ("--fail-if", one))]) == status


def test_of_many_rows_some_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = {"title": "k", "columns": ["block", "entered"], "rows": [[at, 5] for at in range(30)]}
    run = write_run(tmp_path / "many", {"tools": [{"tool": "t", "tables": [table]}]}, kernels=[kernel("k")])
    failures = _failures(str(run), capsys, "--fail-if", "t.entered > 4")
    assert len(failures) == 11
    assert failures[-1] == "t.entered > 4: 20 more"


def test_nothing_to_judge_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = {"title": "", "columns": ["kernel", "share %"], "rows": [["k", None]]}
    run = write_run(tmp_path / "empty", {"tools": [{"tool": "t", "tables": [table]}]}, kernels=[kernel("k")])
    assert main(["report", str(run), "--fail-if", "max(t.share) < 5"]) == 0
    assert "max(t.share) < 5: no row has a number, so there is nothing to judge" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("condition", "reason"),
    [
        (
            "coalesing.efficiency < 50",
            "no tool 'coalesing'; it has coalescing, instr_count; did you mean 'coalescing'?",
        ),
        (
            "coalescing.eficiency < 50",
            "no column 'eficiency'; it reported kernel, requests, lines/request, efficiency %",
        ),
        ("coalescing.eficiency < 50", "did you mean 'efficiency %'?"),
        ("instr_count.conter > 5", "did you mean 'counter'?"),
        ("coalescing[most lines].lines > 5", "no table 'most lines'; it reported 'coalescing', 'most cache lines'"),
        ("coalescing.kernel > 5", "which is not a number"),
        ("coalescing.requests > 5%", "'requests' is not a percentage, so the bound takes no %"),
        ("efficiency < 50", "'efficiency' does not name a column: give TOOL.COLUMN"),
        ("coalescing.efficiency = 50", "is malformed"),
        ("coalescing.efficiency < low", "is malformed"),
        ("", "is malformed"),
    ],
)
def test_what_is_no_condition(
    run: str, tmp_path: Path, condition: str, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert main(["report", run, "--fail-if", condition, "-o", str(out)]) == 1
    assert reason in capsys.readouterr().err
    assert not out.exists(), "nothing is written"


def _build(folder: Path, digest: str, times: int, vgprs: int, *more: str) -> str:
    rows: dict[str, Any] = code("k", 8, block=4)
    return str(
        write_run(
            folder,
            kernels=[kernel(one, digest=digest, vgprs=vgprs, instructions=8) for one in ("k", *more)],
            launches=[launch("k", 0, 0, 10, digest=digest)],
            counts=[{**row, "digest": digest, "executions": row["executions"] * times} for row in rows["counts"]],
            counters=[
                {
                    "tool": "t",
                    "variable": "hits",
                    "device": 0,
                    "process": 1,
                    "first": 0,
                    "type": "uint64_t",
                    "unsigned": [times],
                }
            ],
        )
    )


@pytest.mark.parametrize(
    ("condition", "messages"),
    [
        ("executed > 5%", ["72 against 48, +50 % (kernel k, gfx90a)"]),
        ("executed > 50%", []),
        ("executed > 23", ["72 against 48, +50 % (kernel k, gfx90a)"]),
        ("executed < -5%", []),
        ("instructions != 0", []),
        ("kernels.vgprs >= 8", ["40 against 32, +25 % (kernel k, gfx90a)"]),
        ("opcodes.executed > 10%", ["72 against 48, +50 % (kernel k, gfx90a v_add_f32_e32)"]),
        ("t.hits > 49.9%", ["6 against 4, +50 % (t hits)"]),
        ("sum(executed) > 5%", ["72 against 48, +50 % (sum of all)"]),
    ],
)
def test_differences(tmp_path: Path, condition: str, messages: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    run, against = _build(tmp_path / "a", "new", 6, 40), _build(tmp_path / "b", "old", 4, 32)
    failures = _failures(run, capsys, "--against", against, "--fail-if", condition)
    assert failures == [f"{condition}: {one}" for one in messages]


def test_what_cannot_be_compared_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, against = _build(tmp_path / "a", "new", 6, 40, "added"), _build(tmp_path / "b", "old", 4, 32, "gone")
    assert main(["report", run, "--against", against, "--fail-if", "vgprs > 100"]) == 0, "only told"
    stderr = capsys.readouterr().err
    assert "vgprs > 100: in one run only, so not compared: added gfx90a, gone gfx90a" in stderr
    for condition, reason in (
        ("emulation_ns > 5%", "time of emulated devices is not compared"),
        ("instrutions > 5%", "has no 'instrutions'"),
        ("instrutions > 5%", "did you mean 'instructions'?"),
        ("t.hit > 5", "did you mean 't.hits'?"),
    ):
        assert main(["report", run, "--against", against, "--fail-if", condition]) == 1
        assert reason in capsys.readouterr().err
    other = str(write_run(tmp_path / "c", kernels=[kernel("another", instructions=3)]))
    assert main(["report", run, "--against", other, "--fail-if", "instructions > 5%"]) == 1
    assert "no row is in both runs, so there is nothing to compare" in capsys.readouterr().err


def test_from_nothing_is_more_than_any_share(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, against = _build(tmp_path / "a", "new", 6, 40), _build(tmp_path / "b", "old", 4, 0)
    (failure,) = _failures(run, capsys, "--against", against, "--fail-if", "vgprs > 1000%")
    assert failure == "vgprs > 1000%: 40 against 0, +40 (kernel k, gfx90a)"
    assert not _failures(against, capsys, "--against", against, "--fail-if", "vgprs > 0%")


def test_sarif(run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, condition = tmp_path / "found.sarif", "coalescing.efficiency < 50"
    options = ["--format", "sarif", "-o", str(out), "--fail-if", condition, "--fail-if", "instr_count.counter > 5"]
    assert main(["report", run, *options]) == 1
    data = json.loads(out.read_text())
    assert (data["version"], data["$schema"].rsplit("/")[-1]) == ("2.1.0", "sarif-schema-2.1.0.json")
    (log,) = data["runs"]
    rules = [rule["id"] for rule in log["tool"]["driver"]["rules"]]
    assert {condition, "tool-finding", "coalescing", "divergence"} <= set(rules)
    for result in log["results"]:
        assert rules[result["ruleIndex"]] == result["ruleId"]
        assert result["level"] in ("error", "warning", "note")
        assert result["message"]["text"]
    whole, site, counter = [one for one in log["results"] if one["level"] == "error"]
    assert whole["message"]["text"] == f"{condition}: 40 (kernel copy)"
    assert whole["locations"][0]["logicalLocations"][0]["fullyQualifiedName"] == "copy"
    place = site["locations"][0]["physicalLocation"]
    assert place == {"artifactLocation": {"uri": "file:///src/copy.hip"}, "region": {"startLine": 7}}
    assert "locations" not in counter
    idle = next(one for one in log["results"] if one["ruleId"] == "divergence")
    assert idle["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "file:///src/copy.hip"
    assert idle["level"] == "warning"


def test_junit(run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "found.xml"
    conditions = ["coalescing.efficiency < 50", "instr_count.counter > 5000"]
    options = [word for one in conditions for word in ("--fail-if", one)]
    assert main(["report", run, "--format", "junit", "-o", str(out), *options]) == 1
    suites = {suite.name: suite for suite in JUnitXml.fromfile(str(out))}
    assert (suites["conditions"].tests, suites["conditions"].failures) == (2, 1)
    broken, kept = suites["conditions"]
    assert (broken.name, kept.name) == tuple(conditions)
    assert (broken.is_failure, kept.is_passed) == (True, True)
    assert broken.result[0].message == f"{conditions[0]}: 40 (kernel copy), and 1 more"
    assert "/src/copy.hip:7" in broken.result[0].text
    findings = {(case.classname, case.name): case for case in suites["findings"]}
    assert findings["copy", "divergence"].is_passed, "waste is no failure"
    assert "copy.hip:" in findings["copy", "divergence"].system_out


def test_what_is_wrong_is_a_failure(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """Names that XML cannot hold are visible."""
    table = {"title": "", "columns": ["kernel", "finding"], "rows": [["k\x1b", "0x1000 lacks a wait \x00"]]}
    run = write_run(tmp_path / "run", {"tools": [{"tool": "t", "tables": [table]}]}, kernels=[kernel("k\x1b")])
    assert main(["report", str(run), "--format", "junit"]) == 0, "findings alone do not fail"
    suites = ElementTree.fromstring(capsysbinary.readouterr().out)
    assert suites.get("failures") == "1"
    (failure,) = suites.iter("failure")
    assert failure.get("message") == r"0x1000 lacks a wait \u0000"
    assert main(["report", str(run), "--format", "sarif"]) == 0
    (wrong,) = json.loads(capsysbinary.readouterr().out)["runs"][0]["results"]
    assert (wrong["ruleId"], wrong["level"]) == ("tool-finding", "error")


def test_tables_of_memcheck_and_fp_check(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """What only passes on a NaN, and rows without a kernel, are no findings of a kernel."""
    columns = ["kernel", "kind", "source", "address", "instruction", "lanes"]
    rows = [
        ["k", "nan", "", "0x1000", "v_add_f32 v0, v1, v2", 3],
        ["k", "nan-flow", "", "0x1008", "v_add_f32 v0, v1, v2", 64],
        ["k", "out-of-bounds", "", "no address", "global_load_dword v0, v[2:3], off", None],
        ["", "double-free", "", "", "", 1],
    ]
    table = {"title": "", "columns": columns, "rows": rows}
    run = write_run(tmp_path / "run", {"tools": [{"tool": "t", "tables": [table]}]}, kernels=[kernel("k")])
    assert main(["report", str(run), "--format", "sarif"]) == 0
    results = json.loads(capsysbinary.readouterr().out)["runs"][0]["results"]
    assert [(result["ruleId"], result["message"]["text"].partition(" of ")[0]) for result in results] == [
        ("tool-finding", "nan: NaN result"),
        ("tool-finding", "out-of-bounds: access"),
    ]


def test_formats_of_a_comparison(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    run, against = _build(tmp_path / "a", "new", 6, 40, "added"), _build(tmp_path / "b", "old", 4, 32)
    options = ["--against", against, "--fail-if", "vgprs > 5%"]
    assert main(["report", run, *options, "--format", "sarif"]) == 1
    (log,) = json.loads(capsysbinary.readouterr().out)["runs"]
    assert [one["message"]["text"] for one in log["results"]] == ["vgprs > 5%: 40 against 32, +25 % (kernel k, gfx90a)"]
    assert "added" in log["invocations"][0]["toolExecutionNotifications"][0]["message"]["text"]
    assert main(["report", run, *options, "--format", "junit"]) == 1
    suites = ElementTree.fromstring(capsysbinary.readouterr().out)
    assert (suites.get("tests"), suites.get("failures")) == ("1", "1")


def test_of_a_program(mix_run: Path, tmp_path: Path) -> None:
    """Findings of a real run have lines of its source."""
    out = tmp_path / "found.sarif"
    assert main(["report", str(mix_run), "--format", "sarif", "-o", str(out), "--fail-if", "lanes.entered < 0"]) == 0
    results = json.loads(out.read_text())["runs"][0]["results"]
    assert results
    lines = [one["locations"][0].get("physicalLocation") for one in results if one["level"] == "warning"]
    assert any(one and one["artifactLocation"]["uri"].endswith("/mix.hip") for one in lines)
