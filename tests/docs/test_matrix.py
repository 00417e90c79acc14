"""The tables of what has run above stacks of ROCm (benchmarks/run_matrix.py, run_hecbench.py, run_hip_tests.py)."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from kept import ROOT
from luthier.run.patching import NOTHING_REQUESTED


def load(name: str) -> ModuleType:
    """Return a module of the benchmarks' folder, which is not a package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / f"benchmarks/{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # its dataclasses and neighbouring modules need it there
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def matrix() -> ModuleType:
    return load("run_matrix")


@pytest.fixture(scope="module")
def hecbench(matrix: ModuleType) -> ModuleType:
    return load("run_hecbench")


@pytest.fixture(scope="module")
def hip_tests(matrix: ModuleType) -> ModuleType:
    return load("run_hip_tests")


@pytest.mark.parametrize("name", ["matrix", "hecbench", "hip_tests"])
def test_the_table_is_of_the_outcomes(matrix: ModuleType, request: pytest.FixtureRequest, name: str) -> None:
    module = request.getfixturevalue(name)
    document = (ROOT / "docs/what-runs.md").read_text()
    between = document.partition(module.MARKERS[0])[2].partition(module.MARKERS[1])[0]
    made = "\n".join(module.table(matrix.recorded(module.RESULTS)))
    assert between.strip() == made.strip()


@pytest.mark.parametrize(
    ("output", "passed", "failed"),
    [
        ("[==========] 3 tests from 1 test suite ran. (9 ms total)\n[  PASSED  ] 3 tests.\n", 3, ()),
        (
            "[  FAILED  ] A/0.B, where TypeParam = int (2 ms)\n"
            "[==========] 2 tests from 1 test suite ran. (2 ms total)\n"
            "[  PASSED  ] 1 test.\n[  FAILED  ] 1 test, listed below:\n[  FAILED  ] A/0.B, where TypeParam = int\n",
            1,
            ("A/0.B",),
        ),
    ],
)
def test_what_googletest_says(matrix: ModuleType, output: str, passed: int, failed: tuple[str, ...]) -> None:
    assert matrix.read_gtest(output) == matrix.Tally(passed, len(failed), failed)


def test_a_program_that_broke_off_has_no_tally(matrix: ModuleType) -> None:
    assert matrix.read_gtest("[ RUN      ] A.B\nMemory access fault by GPU node-1\n") is None
    assert matrix.read_operations("  ADD(type=f32): OK\n") is None


def test_what_llama_says(matrix: ModuleType) -> None:
    output = "  ADD(type=f32,ne=[1]): OK\n  ADD(type=f16,ne=[2]): [ADD] NMSE = 1.0 > 0.1 FAIL\n  1/2 tests passed\n"
    assert matrix.read_operations(output) == matrix.Tally(1, 1, ("ADD(type=f16,ne=[2])",))


def test_what_migraphx_says(matrix: ModuleType) -> None:
    assert matrix.read_migraphx("MIGraphX verification passed successfully.\n") == matrix.Tally(1, 0)
    assert matrix.read_migraphx("FAILED: a.onnx\n").failed == 1
    assert matrix.read_migraphx("terminate called\n") is None
    output = "[  FAILED  ] scale: 1 == 2\n[==========] 2 tests ran\n[  FAILED  ] 1 tests failed\n"
    assert matrix.read_migraphx_tests(output) == matrix.Tally(1, 1, ("scale",))


def test_a_complaint_is_of_what_ended_the_program(matrix: ModuleType) -> None:
    tried = "MIOpen Error: kernel.cpp:453: Failed to load kernel source: winograd.s\n"
    assert matrix.complaint(f"{tried}sum.cpp:9:2: error: no constant\n") == "sum.cpp:9:2: error: no constant"


def test_rows(matrix: ModuleType) -> None:
    """Cases that no test is in are not counted; cells say what Markdown would not show otherwise."""
    new = {"seconds": 1, "failed": 0, "date": "2026-12-01", "version": "0.7"}
    outcomes = {
        "6.4/gfx90a/llama.cpp/ADD/": {"seconds": 1, "passed": 5, "failed": 0},
        "6.4/gfx90a/llama.cpp/GLU/": {"seconds": 1, "passed": 0, "failed": 0},
        "6.4/gfx90a/llama.cpp/MUL/": {"seconds": 1, "passed": 2, "failed": 1, "reason": "a|b"},
        "6.4/gfx90a/llama.cpp/ADD/instr_count": {"seconds": 1, "passed": 5, "failed": 0},
        "6.4/gfx942/llama.cpp/ADD/": new | {"passed": 5},
        "6.4/gfx942/llama.cpp/ADD/sanitize": new | {"passed": 5, "findings": {"race": 1, "leak": 2}},
        "6.4/gfx942/llama.cpp/ADD/instr_count": new | {"passed": 5, "reason": "6 counted"},
    }
    rows = list(matrix.table(outcomes))[2:]
    assert rows == [
        r"| llama.cpp | – | 6.4 | gfx90a | 1 of 2 | 7 | instr_count 1 of 1 | MUL: a\|b | – |",
        "| llama.cpp | 0.7 | 6.4 | gfx942 | 1 of 1 | 5 | instr_count 0 of 1, sanitize 1 of 1 (2 leak, 1 race) "
        "| ADD (instr_count): 6 counted | 2026-12-01 |",
        "",
        "4 of 6 runs passed: each case alone, and under each tool. In them 27 tests passed and 1 failed.",
    ]


@pytest.mark.parametrize(
    ("counted", "covered", "reason"),
    [
        (70, True, None),
        (71, True, "71 instructions counted, 70 executed"),
        (70, False, "not fully instrumented: add"),
    ],
)
def test_what_a_count_must_be(
    matrix: ModuleType, tmp_path: Path, counted: int, covered: bool, reason: str | None
) -> None:
    """Functions count, and the runtime's own kernels are left out, as tools leave them out."""
    results = tmp_path / "results.json"
    waves = [("add", "a.co", 60), (None, "a.co", 10), ("__amd_copy", "b.co", 9), (None, None, 8)]
    executed = [{"kernel": kernel, "object": path, "wave_instructions": number} for kernel, path, number in waves]
    results.write_text(json.dumps({"executed": executed}))
    plain = matrix.facts("", tmp_path, {})
    assert plain == {"kernels": 1, "executed": 70}
    idle = {"kernel": "empty", "covered": False, "reason": NOTHING_REQUESTED}
    kernels = [{"kernel": "add", "covered": covered, "reason": None}, idle, {"kernel": "__amd_copy", "covered": False}]
    results.write_text(json.dumps({"kernels": kernels, "variables": [{"value": str(counted)}]}))
    measured = matrix.facts("instr_count", tmp_path, plain)
    assert measured.get("reason") == reason
    assert (matrix.miscount(measured, plain) == reason) == (counted != 70)
    if covered:
        assert matrix.facts("instr_count", tmp_path, {})["reason"].startswith("not compared")


def test_missing_captures(matrix: ModuleType, tmp_path: Path) -> None:
    assert matrix.replayed(tmp_path, "", 1) == {"captured": 0, "reason": "nothing was captured"}
    (tmp_path / "run/captures/a.lcap").mkdir(parents=True)
    refused = matrix.replayed(tmp_path, "luthier capture: not captured: add: it waits\n", 1)
    assert refused == {"captured": 1, "reason": "not captured: add: it waits"}


def test_wheels_are_whole(matrix: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A folder of an installation that failed does not count as installed."""
    monkeypatch.setattr(matrix, "ROOT", tmp_path)
    suite = matrix.Suite({}, wheels="./absent-1.0-py3-none-any.whl")
    with pytest.raises(subprocess.CalledProcessError):
        matrix.install(suite)
    assert not suite.installed.exists()


@pytest.mark.parametrize(
    ("code", "output", "outcome"),
    [
        (0, "PASS\n", {"what": "passed"}),
        (0, "Average time: 2 us\n", {"what": "ended"}),
        (0, "Error: 0.0001\nTest PASSED\n", {"what": "passed"}),
        (0, "PASS\nFAIL\n", {"what": "failed", "reason": "FAIL"}),
        (0, "Results mismatch at 3\n", {"what": "failed", "reason": "Results mismatch at 3"}),
        (1, "cannot open x\n", {"what": "failed", "reason": "cannot open x"}),
        (-11, "", {"what": "failed", "reason": "exit code -11"}),
        (124, "PASS\n", {"what": "not ended", "reason": "not ended after 9 s"}),
    ],
)
def test_what_programs_of_hecbench_say(hecbench: ModuleType, code: int, output: str, outcome: dict[str, str]) -> None:
    setting = hecbench.Setting(ROOT, "6.4", "gfx90a", 9)
    assert hecbench.judge(setting, code, output) == outcome


def test_why_a_program_does_not_compile(matrix: ModuleType) -> None:
    folder = ROOT / "src/a-hip"
    missing = f"{folder}/main.cu:4:10: fatal error: 'hipblas/hipblas.h' file not found\n"
    assert matrix.complaint_of_compiler(missing, folder) == "wants what is not there: hipblas/hipblas.h"
    assert matrix.complaint_of_compiler("ld: cannot find -lrccl: none\n", folder) == "wants what is not there: rccl"
    unknown = f"{folder}/main.cu:4:10: error: use of undeclared identifier '__syncwarp'\n1 error generated.\n"
    why = "does not compile: use of undeclared identifier '__syncwarp'"
    assert matrix.complaint_of_compiler(unknown, folder) == why


def test_outcomes_of_hecbench(hecbench: ModuleType) -> None:
    """Every program is in one row of the first table, and in the second one by how it counted."""
    outcomes = {
        "6.4/gfx90a/a": {"what": "passed", "instructions": 5, "counts": "equal"},
        "6.4/gfx90a/b": {"what": "passed", "instructions": 5, "counts": "vary", "counts_reason": "so"},
        "6.4/gfx90a/c": {"what": "not tried", "reason": "wants MPI"},
        "6.4/gfx90a/d": {"what": "not tried", "reason": "wants MPI"},
        "6.4/gfx90a/e": {"what": "failed", "reason": "FAIL"},
    }
    lines = list(hecbench.table(outcomes))
    assert lines[0] == "ROCm 6.4, gfx90a: 5 programs, of which 3 were compiled and run."
    assert f"| {hecbench.OUTCOMES['passed']} | 2 | a, b |" in lines
    assert "| not tried | 2 | c, d: wants MPI |" in lines
    assert "| failed | 1 | e: FAIL |" in lines
    assert f"| {hecbench.COUNTS['vary']} | 1 | b |" in lines


def test_findings_of_suites(matrix: ModuleType) -> None:
    """The table is of the outcomes, and each finding but leaks has a row with its reason."""
    between = matrix.FINDINGS_DOCUMENT.read_text().partition(matrix.FINDINGS_MARKERS[0])[2]
    lines = list(matrix.table_of_findings(matrix.recorded()))
    assert between.partition(matrix.FINDINGS_MARKERS[1])[0].strip() == "\n".join(lines).strip()
    assert [line for line in lines if line.endswith("| not explained |")] == []


def test_the_table_of_checks_is_of_the_outcomes(matrix: ModuleType, hecbench: ModuleType) -> None:
    between = matrix.FINDINGS_DOCUMENT.read_text().partition(hecbench.MARKERS[0])[2].partition(hecbench.MARKERS[1])[0]
    results = matrix.recorded(hecbench.CHECKED)
    assert between.strip() == "\n".join(hecbench.table_of_checks(results, hecbench.GIVEN["findings"])).strip()


def test_outcomes_under_checks(hecbench: ModuleType) -> None:
    """Programs are counted by what they end with, and each finding has a row with its reason."""
    outcomes = {
        "6.4/gfx90a/a/all": {"what": "passed", "alone": 1.0, "seconds": 3.0, "findings": {}},
        "6.4/gfx90a/b/all": {"what": "passed", "alone": 2.0, "seconds": 8.0, "findings": {"leak": 2}},
        "6.4/gfx90a/c/all": {"what": "ended", "alone": 2.0, "seconds": 2.0, "findings": {"leak": 1, "race": 3}},
        "6.4/gfx90a/c/default": {"what": "ended", "alone": 2.0, "seconds": 2.0, "findings": {"nan": 1, "race": 3}},
        "6.4/gfx1100/a/all": {"what": "failed", "alone_was": "passed", "alone": 1.0, "seconds": 3.0, "findings": {}},
        "6.4/gfx90a/d/all": {"what": "not ended", "reason": "so", "alone": 2.0, "seconds": 60.0},
        "6.4/gfx90a/e/all": {"what": "not tried", "reason": "wants MPI"},
    }
    reasons = {"a": {"other results": "unwritten memory"}, "c": {"race": "true: no barrier"}}
    lines = list(hecbench.table_of_checks(outcomes, reasons))
    assert "| 6.4 | gfx1100 | all | 1 | 0 | 0 | 1 | 0 | 3.0 times | a: 3.0 times, 1.0 s alone |" in lines
    assert "| a | other results | gfx1100 all | unwritten memory |" in lines
    assert "| 6.4 | gfx90a | all | 4 | 1 | 1 | 1 | 1 | 3.0 times | b: 4.0 times, 2.0 s alone |" in lines
    assert "| c | race | gfx90a all, gfx90a default | true: no barrier |" in lines
    assert "| c | nan | gfx90a default | not explained |" in lines
    assert "| b | leak | gfx90a all | not explained |" in lines
    assert not any(line.startswith(("| d |", "| e |")) for line in lines)


REPORT = """<Catch name="t"><Group name="t">
<TestCase name="Unit_good" tags="[a]"><OverallResult success="true"/></TestCase>
<TestCase name="Unit_bad"><Expression success="false" type="REQUIRE"><Original>
a &lt; b
</Original><Expanded>
2 &lt; 1
</Expanded></Expression><OverallResult success="false"/></TestCase>
<TestCase name="Unit_last"><Section name="s">"""


SIGNAL = """<Catch name="t"><TestCase name="Unit_a"><FatalErrorCondition>
SIGTERM - Termination request signal
</FatalErrorCondition><OverallResult success="false"/></TestCase></Catch>"""


def test_a_signal_is_no_verdict_of_catch(hip_tests: ModuleType) -> None:
    assert list(hip_tests.verdicts(SIGNAL, False)) == [("Unit_a", "unended")]


def test_what_catch_says(hip_tests: ModuleType) -> None:
    """A test in which the program aborted is reported as such, without a reason."""
    assert dict(hip_tests.verdicts(REPORT, False)) == {
        "Unit_good": "",
        "Unit_bad": "a < b: 2 < 1",
        "Unit_last": "unended",
    }
