"""`luthier sanitize` on other projects' programs with labelled bugs: findings match the table.

`LUTHIER_TEST_LABELLED` names a folder with a checkout of each repository, which nothing of is kept here.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import run_luthier
from kept import ROOT, kept, run, version
from labelled_programs import SUITES, Suite

from luthier_build.workspace import digest

from .test_planted_bugs import before_of

CHECKOUTS = Path(os.environ.get("LUTHIER_TEST_LABELLED", ""))
NAMES = Path(__file__).parent / "foreign" / "cuda_names.h"
ROWS = [(name, program) for name, suite in SUITES.items() for program in suite.programs]


@pytest.fixture
def build_labelled() -> Callable[[str, str], Path]:
    """``build_labelled(suite, program)``: a program, ported to HIP by replacing words of its text."""

    def build(name: str, program: str) -> Path:
        suite = SUITES[name]
        if "LUTHIER_TEST_LABELLED" not in os.environ or not (CHECKOUTS / name).is_dir():
            pytest.skip(f"there is no checkout of {suite.repository} in what LUTHIER_TEST_LABELLED would name")
        (source,) = (CHECKOUTS / name / suite.folder).glob(f"{Path(program).parent}/*{Path(program).name}.cu")
        text = suite.ported(source.read_text())
        command = [*before_of(suite.target), "env", "HIP_PLATFORM=amd", "hipcc", f"--offload-arch={suite.target}"]
        command += ["-O1", "-gline-tables-only", "-w", "-include", str(NAMES)]

        def make(output: Path) -> None:
            ported = output.with_suffix(".hip")
            ported.write_text(text)
            run([*command, str(ported), "-o", str(output)])

        return kept(("labelled", version("hipcc"), *command, text, digest(NAMES)), make, source.stem)

    return build


def found_in(suite: Suite, program: Path, log: Path) -> set[str]:
    """Return the kinds of what is found."""
    words = ["sanitize", "--device", f"emu:{suite.target}", "--check", suite.checks, "--json", log, "--", program]
    done = run_luthier(*words, before=before_of(suite.target))
    report = json.loads(log.read_text())
    assert done.returncode == (1 if report["findings"] else 0), done
    return {one["kind"] for one in report["findings"]}


@pytest.mark.thorough
@pytest.mark.parametrize(("name", "program"), ROWS)
def test_labelled(build_labelled: Callable[[str, str], Path], tmp_path: Path, name: str, program: str) -> None:
    suite = SUITES[name]
    assert found_in(suite, build_labelled(name, program), tmp_path / "log") == suite.programs[program].found


@pytest.mark.parametrize("name", SUITES)
def test_all_of_a_suite_is_in_the_table(name: str) -> None:
    suite, text = SUITES[name], (ROOT / "docs" / "sanitize-evidence.md").read_text()
    for program, labels in suite.programs.items():
        assert labels.why or not (labels.misses or labels.found - {labels.label}), program
    row = " | ".join(str(number) for number in (*suite.row(), len(suite.not_run)))
    assert f"| {name} (github.com/{suite.repository}) | {row} |" in text
