"""A part of the repository that grows beyond its budget, or far below it, fails the check."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "scripts" / "size_budget.py"
BUDGET = """
[code]
lines = 1000
folders = ["code"]

[tests]
lines = 10
folders = ["code/tests"]

[rest]
lines = 99
folders = []
"""


def measured(root: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """The script's result on a tree."""
    return subprocess.run([sys.executable, SCRIPT, *options, root], capture_output=True, text=True)


def test_growing_and_shrinking(tmp_path: Path) -> None:
    for name in ("code/tests", "codes", "scripts"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "scripts/size_budget.toml").write_text(BUDGET)
    (tmp_path / "code/a.py").write_text("a\n" * 995)
    (tmp_path / "code/tests/t.py").write_text("t\n" * 10)
    (tmp_path / "codes/b.py").write_text("b\n" * (99 - BUDGET.count("\n")))
    (tmp_path / "code/not_tracked.py").write_text("n\n" * 100)
    (tmp_path / "code/picture.png").write_text("p\n" * 100)
    for command in (["init", "-q"], ["add", "code/a.py", "code/tests", "codes", "scripts", "code/picture.png"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    done = measured(tmp_path)
    assert (done.returncode, done.stderr) == (0, ""), done
    assert done.stdout.splitlines()[0].split() == ["code", "995", "of", "1,000", "lines"]

    (tmp_path / "code/tests/t.py").write_text("t\n" * 11)
    assert "tests: 1 lines over its budget" in measured(tmp_path).stderr
    (tmp_path / "code/tests/t.py").write_text("t\n" * 10)
    (tmp_path / "code/a.py").write_text("a\n" * 900)
    done = measured(tmp_path)
    assert (done.returncode, "code: 100 lines below its budget" in done.stderr) == (1, True)
    assert measured(tmp_path, "--lower").returncode == 0
    assert (tmp_path / "scripts/size_budget.toml").read_text() == BUDGET.replace("1000", "900")
    assert measured(tmp_path).returncode == 0
