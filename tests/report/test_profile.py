"""`luthier profile`, the summary of `luthier report`, and the rules: each finds its fault in one kernel of a real
program, and nothing in the kernel that does the same without it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from luthier import ReportRule, _mc
from luthier.cli.main import main
from luthier.errors import LuthierError
from luthier.isa import Isa
from luthier.report.analysis import AnalysedRun
from luthier.report.digest import LINES, RunDigest
from luthier.report.findings import findings
from luthier.report.measures import is_per_lane
from luthier.report.page import document
from luthier.report.rules import RULES
from luthier.run.folder import RunFolder
from planted import plant
from run_folders import code, kernel, wasteful_run, write_run

from .conftest import Opened

HERE = Path(__file__).parent
FAULTS = {
    "columns": "coalescing",
    "conflicting": "bank-conflicts",
    "uneven": "divergence",
    "small_groups": "partial-waves",
    "indexed": "scratch",
    "much_lds": "occupancy",
}
"""Kernel of faults.hip -> the only rule that finds a fault in it."""
CLEAN = ("rows", "padded", "even", "whole_groups")


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """The folder in which faults.hip was profiled, and the process of `luthier profile`."""
    folder = tmp_path_factory.mktemp("faults")
    build = ["hipcc", "--offload-arch=gfx90a", "-O2", "-g", "-w", str(HERE / "faults.hip"), "-o", str(folder / "app")]
    subprocess.run(build, check=True, env={**os.environ, "HIP_PLATFORM": "amd"})
    command = [sys.executable, "-m", "luthier", "profile", "--json", "out.json", "--", "./app"]
    return folder, subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)


def test_each_rule_finds_its_fault_and_nothing_else(
    profile: tuple[Path, subprocess.CompletedProcess[str]], capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    folder, _ = profile
    data = json.loads((folder / "out.json").read_text())
    assert {(one["kernel"], one["rule"]) for one in data["findings"]} == set(FAULTS.items())
    assert all(one["advice"] for one in data["findings"])
    place = {one["kernel"]: one["place"] for one in data["findings"]}
    text = (HERE / "faults.hip").read_text().splitlines()
    store = next(number for number, line in enumerate(text, 1) if line.lstrip().startswith("out[threadIdx.x * 64"))
    assert place["columns"] == f"faults.hip:{store}"
    assert main(["report", str(folder / "luthier-app"), "--format", "sarif"]) == 0
    (log,) = json.loads(capsysbinary.readouterr().out)["runs"]
    assert sorted(one["ruleId"] for one in log["results"]) == sorted(FAULTS.values()), "the formats use the same rules"
    page = document(AnalysedRun.of(RunFolder(folder / "luthier-app")))[0]
    assert sorted(one["rule"] for one in page["findings"]) == sorted(FAULTS.values())


def test_profile_prints_the_answer_in_few_lines(profile: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    folder, process = profile
    assert (process.returncode, process.stdout) == (0, "hipSuccess\n"), process.stderr
    lines = process.stderr.splitlines()
    assert len(lines) <= 15
    assert lines[0].startswith("./app on emu:gfx90a: 10 kernels, 10 launches, ")
    assert lines[-1] == "luthier-app/report.html"
    assert (folder / lines[-1]).read_text().startswith("<!doctype html>")
    assert any(line.startswith("  bank-conflicts: faults.hip:") for line in lines)
    again = subprocess.run(
        [sys.executable, "-m", "luthier", "profile", "--no-page", "-k", "rows", "-k", "padded", "--", "./app"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert again.returncode == 0
    assert again.stderr.splitlines()[-1] == "luthier-app-2"
    assert "no findings: lanes, cache lines and LDS banks are used well" in again.stderr, "a clean program is told so"


def test_findings_are_printed_even_if_the_summary_cannot_be_written(
    profile: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    folder, _ = profile
    options = ["--check", "memory", "--no-page", "--json", "/dev/full", "-k", "rows"]
    command = [sys.executable, "-m", "luthier", "profile", *options, "--", "./app"]
    process = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    assert process.returncode != 0
    assert "/dev/full" in process.stderr
    assert "0 findings" in process.stderr


def test_what_fails_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["profile", "--", "./nothing"]) == 1
    assert "cannot run ./nothing" in capfd.readouterr().err
    assert main(["profile"]) == 1
    assert "no program given" in capfd.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_missing_tool_is_named(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    from luthier.tool import tool

    installed = tool.find_entry_points
    monkeypatch.setattr(
        tool, "find_entry_points", lambda: {k: v for k, v in installed().items() if v.name != "coalescing"}
    )
    assert main(["profile", "--", "true"]) == 1
    assert "needs the tool coalescing, which is not installed" in capfd.readouterr().err


def test_lanes_are_those_of_vector_instructions(mix_run: Path, open_page: Callable[..., Opened]) -> None:
    """Recomputed from the tables; the page, the summary and the comparison have the same share."""
    run = RunFolder(mix_run)
    kinds = {(row["kernel"], row["address"]): row["kind"] for row in run.rows("listings")}
    units = ("vector", "matrix", "memory", "lds")
    vector = [row for row in run.rows("counts") if kinds.get((row["kernel"], row["address"])) in units]
    executed, lanes = (sum(row[name] or 0 for row in vector) for name in ("executions", "active_lanes"))
    share = 100 * lanes / (64 * executed)
    scalars = sum(row["executions"] or 0 for row in run.rows("counts")) - executed
    assert scalars > executed / 4, "an average over all instructions is another one"
    assert f"{share:.1f} % of lanes active" in next(RunDigest.of(AnalysedRun.of(run)).lines())
    opened = open_page(mix_run)
    assert f"Lanes active\n{share:.1f}" in opened.text("#totals").replace(" ", " ")


@pytest.mark.rows(2)
@pytest.mark.parametrize("target", ["gfx906", "gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1201", "gfx1250"])
def test_mnemonics_tell_scalar_instructions(target: str) -> None:
    isa = Isa.of(target)
    opcodes = [isa.opcode(number) for number in range(len(_mc.opcode_names()))]
    named = [one for one in opcodes if one.encodable and one.mnemonic]
    assert len(named) > 1000
    assert [one.mnemonic for one in named if is_per_lane(one.mnemonic) == one.is_scalar] == []


def test_the_summary_says_what_is_lacking(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = write_run(
        tmp_path / "run",
        {"exit_code": -9, "ended_before": "1 launch", "faults": ["the disk was full"]},
        kernels=[kernel("k", launches=3, instrumented=1, instructions=8)],
        **code("k", 8),
    )
    lines = list(RunDigest.of(AnalysedRun.of(RunFolder(run))).lines())
    text = "\n".join(lines)
    assert "partial: the program was ended by SIGKILL" in text
    assert "more notes: partial: the run was stopped before 1 launch ended; fault: the disk was full" in text
    assert "used well" not in text
    assert len(lines) <= LINES
    assert main(["report", str(run)]) == 0
    assert capsys.readouterr().out.startswith(text)
    empty = write_run(tmp_path / "empty", {"exit_code": 127})
    assert "nothing was measured: no kernel was launched" in RunDigest.of(AnalysedRun.of(RunFolder(empty))).lines()


def test_details_on_request(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = str(wasteful_run(tmp_path / "run"))
    assert main(["report", run]) == 0
    short = capsys.readouterr().out
    assert len(short.splitlines()) <= 15
    assert "--table measures" in short
    assert main(["report", run, "--all"]) == 0
    whole = capsys.readouterr().out
    assert whole.splitlines()[0] == short.splitlines()[0]
    assert "measures races" in whole
    assert main(["report", run, "--table", "measures"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "measures most"
    assert main(["report", run, "--table", "launches"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2 + 3
    assert main(["report", run, "--table", "launchs"]) == 1
    assert "did you mean 'launches'?" in capsys.readouterr().err
    assert main(["report", run, "--all", "--format", "json"]) == 1


@pytest.mark.parametrize(("efficiency", "has_finding"), [(96.6, False), (76, False), (74, True)])
def test_a_threshold(tmp_path: Path, efficiency: float, has_finding: bool) -> None:
    columns = ("kernel", "address", "instruction", "requests", "lanes", "lines", "lines/request", "efficiency %")
    cells = [["k", "0x1000", "x", 10, 640, 80, 8, efficiency]]
    summary = {"tools": [{"tool": "t", "options": {}, "tables": [{"title": "", "columns": columns, "rows": cells}]}]}
    rows = code("k", 8)
    for row in rows["counts"]:
        row["active_lanes"] = 64 * row["executions"]
    run = write_run(tmp_path / "run", summary, kernels=[kernel("k", instructions=8)], **rows)
    assert bool(RunDigest.of(AnalysedRun.of(RunFolder(run))).findings) == has_finding


RULE = """
from pathlib import Path

from luthier import ReportRule
from luthier.report.rules import RuleFinding


def many(kernel):
    if kernel.facts["launches"] > 2:
        yield RuleFinding(text=f"{kernel.facts['launches']} launches", advice="launch fewer")


def broken(kernel):
    raise KeyError("x")


MANY = ReportRule(level="note", label="many", explanation=Path(__file__).with_name("many.md"), of_kernel=many)
BROKEN = ReportRule(level="note", label="many", explanation=Path(__file__).with_name("many.md"), of_kernel=broken)
"""


def test_a_package_adds_rules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plant(tmp_path, monkeypatch, "luthier.report_rules", "many-launches = other_one:MANY", RULE)
    module = next(tmp_path.rglob("other_one.py"))
    module.with_name("many.md").write_text("# too many launches\n\n## What it means\n\nA text.\n")
    assert "many-launches" in RULES.names()
    run = str(write_run(tmp_path / "run", kernels=[kernel("few"), kernel("many", launches=3)]))
    assert main(["report", run]) == 0
    assert "many-launches: many: 3 launches\n    launch fewer\n" in capsys.readouterr().out
    assert main(["explain", "many-launches"]) == 0
    assert capsys.readouterr().out == "many-launches: too many launches\n\nWhat it means\n\nA text.\n"


def test_a_broken_rule_is_one_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plant(tmp_path, monkeypatch, "luthier.report_rules", "bad = other_one:BROKEN", RULE)
    run = str(write_run(tmp_path / "run", kernels=[kernel("k")]))
    assert main(["report", run]) == 1
    assert "the report rule bad failed: KeyError('x')" in capsys.readouterr().err


def test_rules_that_are_no_rules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = RULE.replace('raise KeyError("x")', 'yield "text"')
    plant(tmp_path, monkeypatch, "luthier.report_rules", "bad = other_one:BROKEN", source)
    run = str(write_run(tmp_path / "run", kernels=[kernel("k")]))
    assert main(["report", run]) == 1
    assert "it yields 'text', not a RuleFinding" in capsys.readouterr().err
    with pytest.raises(LuthierError, match="must be error, warning, note, not 'warn'"):
        ReportRule(level="warn", label="l", explanation=tmp_path)  # type: ignore[arg-type]


def test_missing_hooks_are_a_note(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", kernels=[kernel("k", requested_sites=4, sites=3)])
    (finding,) = (
        one for one in RunDigest.of(AnalysedRun.of(RunFolder(run))).findings if one.rule == "not-instrumented"
    )
    assert (finding.level, finding.text) == ("note", "1 of 4 instructions lack hooks that tools requested")


def test_different_errors_of_a_kernel_stay_two(tmp_path: Path) -> None:
    tables = [{"title": "", "columns": ("kernel", "finding"), "rows": [["k", "a race"], ["k", "a NaN"]]}]
    summary = {"tools": [{"tool": "t", "options": {}, "tables": tables}]}
    run = write_run(tmp_path / "run", summary, kernels=[kernel("k")])
    text = "\n".join(RunDigest.of(AnalysedRun.of(RunFolder(run))).lines())
    assert "findings: 2 " in text
    assert "a race" in text
    assert "a NaN" in text


def test_kernels_of_the_runtime_have_no_findings() -> None:
    facts = kernel("fill", skipped=True, private_segment=64) | {"symbol": "fill", "name": "fill"}
    facts |= {"executed": None, "vector_executed": None, "lanes": None}
    assert findings([facts], {}, (), {}) == []
    assert findings([facts | {"skipped": False}], {}, (), {})[0].rule == "scratch"


def test_paths_and_empty_tables(
    profile: tuple[Path, subprocess.CompletedProcess[str]], monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    """Paths below the current folder are relative; a table without rows says so; lanes are shares."""
    folder, _ = profile
    monkeypatch.chdir(HERE)
    assert main(["report", str(folder / "luthier-app"), "--by", "line", "--top", "0"]) == 0
    rows = [line.split() for line in capfd.readouterr().out.splitlines() if line.startswith("  uneven ")]
    assert {row[1].partition(":")[0] for row in rows} == {"faults.hip"}
    assert any(row[-2] == "50.1" for row in rows)
    tools = ["-t", "fp_check", "-t", "block_timing"]
    command = [sys.executable, "-m", "luthier", "run", "-k", "even", *tools, "--", "./app"]
    process = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    assert process.returncode == 0
    assert "exceptional numbers: none in 1 launch\n" in process.stderr
    assert "== block_timing\nno times\n" in process.stderr, "a device without a clock says so"
