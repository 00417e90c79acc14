"""Formats of `luthier report` that packages add, and what is wrong with some of them."""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from luthier.cli.main import main
from luthier.errors import LuthierError
from luthier.report.formats import FORMATS, ReportFormat
from luthier.run.folder import SUMMARY
from luthier.run.tables import Column, Schema, TableWriter
from planted import plant
from run_folders import kernel, write_run
from strict_json_reader import strictly

from luthier_build.cli.doctor import DoctorLine, examine

CODE = """
from luthier import ReportFormat


def write(run, file):
    for table in run.names:
        write_table(run, table, file)


def write_table(run, table, file):
    for row in run.rows(table):
        file.write("; ".join(f"{name}={value}" for name, value in row.items() if value).encode() + b"\\n")


def compare(run, against, file):
    file.write(f"{run.summary.exit_code} {against.summary.exit_code}".encode())


PLAIN = ReportFormat(help="a line a row, 100 %", write=write, write_table=write_table, suffix=".txt", compare=compare)
TABLES = ReportFormat(help="tables alone", write_table=write_table, suffix=".rows")
"""
BUILT_IN = (
    "csv",
    "json",
    "html",
    "perfetto",
    "sarif",
    "junit",
    "lcov",
    "llvm-cov",
    "sample-profile",
    "folded",
    "speedscope",
)
Plant = Callable[..., None]


@pytest.fixture
def add(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plant:
    """``add(points, code)``: one more package with formats."""
    return lambda points, code=CODE, **more: plant(
        tmp_path, monkeypatch, "luthier.report_formats", points, code, **more
    )


@pytest.fixture
def run(tmp_path: Path) -> str:
    return str(write_run(tmp_path / "run", kernels=[kernel("first"), kernel("second")]))


def test_a_package_adds_formats(
    add: Plant, run: str, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    add("plain = other_one:PLAIN\nrows = other_one:TABLES")
    assert FORMATS.names() == (*BUILT_IN, "plain", "rows")
    assert main(["report", run, "--format", "plain"]) == 0
    lines = capsysbinary.readouterr().out.decode().splitlines()
    assert [line.split("; ")[0] for line in lines] == ["kernel=first", "kernel=second"]
    out = tmp_path / "out.txt"
    assert main(["report", run, "--format", "plain", "--table", "kernels", "-o", str(out)]) == 0
    assert out.read_text().splitlines() == lines
    assert main(["report", run, "--format", "plain", "--against", run]) == 0
    assert capsysbinary.readouterr().out == b"0 0"
    assert main(["report", run, "--format", "rows", "-o", str(tmp_path / "tables")]) == 0
    assert (tmp_path / "tables" / "kernels.rows").read_text() == out.read_text()
    assert len(list((tmp_path / "tables").iterdir())) > 3


def test_json_has_text_for_what_is_no_number(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    table = {"title": "x", "columns": ["rate"], "rows": [[math.nan], [0.5]]}
    counter = {"tool": "t", "variable": "v", "process": 1, "device": 0, "first": 0, "real": [math.nan, -math.inf, 0.5]}
    summary = {"tools": [{"tool": "t", "options": {"limit": math.inf}, "tables": [table]}]}
    run = str(write_run(tmp_path / "run", summary, counters=[counter]))
    assert main(["report", run, "--format", "json"]) == 0
    everything = strictly(capfd.readouterr().out)
    assert everything["tables"]["counters"][0]["real"] == ["nan", "-inf", 0.5]
    assert everything["summary"]["tools"][0]["options"] == {"limit": "inf"}
    assert everything["summary"]["tools"][0]["tables"][0]["rows"] == [["nan"], [0.5]]
    assert main(["report", run, "--format", "csv", "--table", "counters"]) == 0
    (row,) = csv.DictReader(capfd.readouterr().out.splitlines())
    assert strictly(row["real"]) == ["nan", "-inf", 0.5]
    assert main(["merge", run, run, "-o", str(tmp_path / "merged")]) == 0
    (tool,) = strictly((tmp_path / "merged" / SUMMARY).read_text())["tools"]
    assert [row[1] for row in tool["tables"][0]["rows"]] == ["nan", 0.5, "nan", 0.5]
    with TableWriter(tmp_path / "run", Schema("trace-points", "", (Column("at", "float64", ""),))) as writer:
        writer.append({"at": [math.nan, math.nan]})
    assert main(["report", run, "--format", "json", "--trace", "trace-points", "--by", "at", "--sum", "at"]) == 0
    strictly(capfd.readouterr().out)


@pytest.mark.parametrize("wrong", ["there", "link", "damaged"])
def test_a_folder_of_tables_is_whole_or_not_there(
    run: str, tmp_path: Path, wrong: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """The error names the file, and nothing else comes to be beside it."""
    out = tmp_path / "tables"
    out.mkdir()
    if wrong == "there":
        (out / "launches.csv").write_text("mine")
    elif wrong == "link":
        (out / "launches.csv").symlink_to(tmp_path / "nowhere")
    else:
        table = Path(run) / "launches.parquet"
        table.write_bytes(table.read_bytes()[:-9])
    before = list(out.iterdir())
    assert main(["report", run, "--format", "csv", "-o", str(out)]) == 1
    assert (
        "launches.parquet is damaged" if wrong == "damaged" else "launches.csv: File exists"
    ) in capfd.readouterr().err
    assert list(out.iterdir()) == before
    assert not (tmp_path / "nowhere").exists()


def test_what_a_format_cannot_do_is_told(add: Plant, run: str, capsys: pytest.CaptureFixture[str]) -> None:
    add("rows = other_one:TABLES")
    assert main(["report", run, "--format", "rows"]) == 1
    assert re.search(r"rows writes one table \(--table [\w|]*kernels\|[\w|]*\), or all to a", capsys.readouterr().err)
    assert main(["report", run, "--format", "rows", "--against", run]) == 1
    assert "works with the formats text, json, html, sarif and junit, and not with --table" in capsys.readouterr().err
    assert main(["report", run, "--format", "html", "--table", "kernels"]) == 1
    assert "--table works with the formats text, csv, json and rows" in capsys.readouterr().err


def test_help_and_completion_list_it(add: Plant, capsys: pytest.CaptureFixture[str]) -> None:
    add("plain = other_one:PLAIN\nbroken = nowhere:NOTHING")
    with pytest.raises(SystemExit):
        main(["report", "--help"])
    output = " ".join(capsys.readouterr().out.split())
    assert f"--format {{text,{','.join(BUILT_IN)},broken,plain}}" in output
    assert "plain: a line a row, 100 % (default: text)" in output
    assert "broken: NOT USABLE" in output
    for shell in ("bash", "zsh", "fish"):
        assert main(["completion", shell]) == 0
        assert "plain" in capsys.readouterr().out


def test_an_unknown_format_lists_those_that_there_are(add: Plant, run: str, capsys: pytest.CaptureFixture[str]) -> None:
    add("plain = other_one:PLAIN")
    with pytest.raises(SystemExit) as ended:
        main(["report", run, "--format", "poem"])
    assert ended.value.code == 2
    output = capsys.readouterr().err
    assert "'poem'" in output
    assert all(name in output for name in ("text", *BUILT_IN, "plain"))


@pytest.mark.parametrize(
    ("points", "code", "reason"),
    [
        ("bad = nowhere:IT", "", "report format bad of other-one (nowhere:IT) cannot be imported: ModuleNotFoundError"),
        ("bad = other_one:IT", "raise SystemExit(3)", "cannot be imported: SystemExit(3)"),
        ("bad = other_one:IT", "IT = 3", "report format bad of other-one: other_one:IT is not a luthier.ReportFormat"),
        ("bad = other_one:NOT_THERE", "", "cannot be imported: AttributeError"),
        (
            "bad = other_one:IT",
            "from luthier import ReportFormat\nIT = ReportFormat(help='nothing')",
            "a report format must write runs or tables",
        ),
    ],
)
def test_one_that_is_broken_is_one_error(
    add: Plant, run: str, capsys: pytest.CaptureFixture[str], points: str, code: str, reason: str
) -> None:
    add(points, code)
    assert main(["report", run, "--format", "bad"]) == 1
    (output,) = capsys.readouterr().err.splitlines()
    assert output.startswith("luthier report: error: report format bad of other-one")
    assert reason in output
    assert main(["report", run, "--format", "json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["tables"]["kernels"]) == 2


def test_two_of_one_name_are_refused(add: Plant, run: str, capsys: pytest.CaptureFixture[str]) -> None:
    add("html = other_one:PLAIN\nplain = other_one:PLAIN")
    add("plain = second_one:PLAIN", name="second_one")
    assert main(["report", run, "--format", "html"]) == 1
    assert "report format html is defined by several packages: luthier and other-one" in capsys.readouterr().err
    assert main(["report", run, "--format", "plain"]) == 1
    output = capsys.readouterr().err
    assert "report format plain is defined by several packages" in output
    assert "other-one" in output
    assert "second-one" in output
    assert main(["report", run, "--format", "perfetto"]) == 0


def test_the_doctor_names_what_is_broken(add: Plant) -> None:
    def finding() -> DoctorLine:
        return next(one for one in examine() if one.subject == "report formats")

    add("plain = other_one:PLAIN")
    assert (finding().status, finding().detail) == ("ok", ", ".join((*BUILT_IN, "plain")))
    add("bad = nowhere:IT", name="second_one")
    assert finding().status == "missing"
    assert "report format bad of second-one (nowhere:IT) cannot be imported" in finding().detail


def test_a_format_that_writes_nothing_is_none() -> None:
    with pytest.raises(LuthierError, match="must write runs or tables"):
        ReportFormat(help="nothing")


def test_the_built_in_ones_are_declared_in_a_module_each() -> None:
    folder = Path(__file__).parents[2] / "runtime/luthier/report/formats"
    assert {path.stem for path in folder.glob("*.py")} == {
        *(name.replace("-", "_") for name in BUILT_IN),
        "__init__",
        "declare",
    }
    assert all("\n" not in text and "NOT USABLE" not in text for text in FORMATS.helps().values())
