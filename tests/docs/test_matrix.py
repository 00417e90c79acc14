"""The table of what has run above stacks of ROCm (benchmarks/run_matrix.py)."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType

import pytest
from kept import ROOT


@pytest.fixture(scope="module")
def matrix() -> ModuleType:
    spec = importlib.util.spec_from_file_location("run_matrix", ROOT / "benchmarks/run_matrix.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["run_matrix"] = module  # its dataclasses look for it there
    spec.loader.exec_module(module)
    return module


def test_the_table_is_of_the_outcomes(matrix: ModuleType) -> None:
    document = (ROOT / "docs/what-runs.md").read_text()
    between = document.partition(matrix.MARKERS[0])[2].partition(matrix.MARKERS[1])[0]
    assert between.strip().splitlines() == list(matrix.table(matrix.recorded()))


@pytest.mark.parametrize(
    ("said", "passed", "failed"),
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
def test_what_googletest_says(matrix: ModuleType, said: str, passed: int, failed: tuple[str, ...]) -> None:
    assert matrix.read_gtest(said) == matrix.Tally(passed, len(failed), failed)


def test_a_program_that_broke_off_has_no_tally(matrix: ModuleType) -> None:
    assert matrix.read_gtest("[ RUN      ] A.B\nMemory access fault by GPU node-1\n") is None
    assert matrix.read_operations("  ADD(type=f32): OK\n") is None


def test_what_llama_says(matrix: ModuleType) -> None:
    said = "  ADD(type=f32,ne=[1]): OK\n  ADD(type=f16,ne=[2]): [ADD] NMSE = 1.0 > 0.1 FAIL\n  1/2 tests passed\n"
    assert matrix.read_operations(said) == matrix.Tally(1, 1, ("ADD(type=f16,ne=[2])",))


def test_rows(matrix: ModuleType) -> None:
    """Cases that no test is in are not counted; cells say what Markdown would not show otherwise."""
    outcomes = {
        "6.4/gfx90a/llama.cpp/ADD/": {"seconds": 1, "passed": 5, "failed": 0},
        "6.4/gfx90a/llama.cpp/GLU/": {"seconds": 1, "passed": 0, "failed": 0},
        "6.4/gfx90a/llama.cpp/MUL/": {"seconds": 1, "passed": 2, "failed": 1, "reason": "a|b"},
        "6.4/gfx90a/llama.cpp/ADD/instr_count": {"seconds": 1, "passed": 5, "failed": 0},
    }
    rows = list(matrix.table(outcomes))[2:]
    assert rows == [
        r"| llama.cpp | 6.4 | gfx90a | – | 1 of 2 | 7 | MUL: a\|b |",
        "| llama.cpp | 6.4 | gfx90a | instr_count | 1 of 1 | 5 | – |",
        "",
        "In all 2 of 3 cases; 12 tests passed and 1 failed.",
    ]
