"""Make the table of mutation rates in docs/checking.md, with all mutants of all kernels. Not a benchmark.

Runs the mutation studies of the tests (`tests/support/mutation_study.py`) in full, and writes their counts between the
two marks of the page.

Usage: python benchmarks/mutation_rates.py [FOLDER]: results in FOLDER are reused, so that an interrupted run can
continue. LUTHIER_MUTANTS_MOST: most mutants of each kernel. The exit status is that of the tests: kernels with
disagreements are not in the table.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "checking.md"
BEGIN, END = "<!-- rates of mutants: benchmarks/mutation_rates.py -->\n", "<!-- end -->\n"
COLUMNS = {
    "kernels": "kernels",
    "all": "mutants",
    "mutants": "judged",
    "static": "all paths",
    "dynamic": "launch",
    "changed": "other output",
    "redundant": "redundant",
    "not executed": "not executed",
    "other way": "other way",
    "other lanes": "other lanes",
    "disagreeing": "disagreeing",
}


def run(folder: Path) -> int:
    """Run the studies, which write a file for each kernel and print progress; return pytest's exit status."""
    tests = [ROOT / "tests" / "mutants" / "test_study.py", ROOT / "tests" / "triton" / "test_mutants.py"]
    environment = {
        "LUTHIER_TEST_ALL": "1",
        "LUTHIER_MUTANTS": str(folder),
        "LUTHIER_MUTANTS_MOST": "1000000",
        **os.environ,
    }
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", *map(str, tests)]
    return subprocess.run(command, check=False, cwd=ROOT, env=environment).returncode


def table(folder: Path) -> str:
    """Return a table with a row for each family, and one for all."""
    families: dict[str, Counter[str]] = {}
    for path in sorted(folder.glob("*.json")):
        seen = json.loads(path.read_text())
        sums = families.setdefault(seen.pop("family"), Counter())
        seen.pop("name")
        sums.update({"kernels": 1, **seen})
    total: Counter[str] = Counter()
    for sums in families.values():
        total.update(sums)
    lines = [f"| family | {' | '.join(COLUMNS.values())} |", "| --- |" + " --- |" * len(COLUMNS)]
    for name, sums in [*sorted(families.items()), ("all", total)]:
        lines.append(f"| {name} | {' | '.join(f'{sums[column]:,}' for column in COLUMNS)} |")
    return "\n".join(lines) + "\n"


def main(arguments: list[str]) -> int:
    """Count, and write the page."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(arguments[0] if arguments else name).resolve()
        status = run(folder)
        page = PAGE.read_text()
        head, rest = page.split(BEGIN)
        _, tail = rest.split(END)
        PAGE.write_text(f"{head}{BEGIN}{table(folder)}{END}{tail}")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
