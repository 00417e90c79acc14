"""Every test module is run: a bare pytest collects it when it tests everything."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_every_module_is_collected() -> None:
    files = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    modules = {name for name in files.stdout.splitlines() if re.search(r"(^|/)test_\w*\.py$", name)}
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    environment = {**os.environ, "LUTHIER_TEST_ALL": "1"}
    collected = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert collected.returncode == 0, collected.stdout + collected.stderr
    assert modules == set(re.findall(r"^(tests/[^:]+)::", collected.stdout, re.MULTILINE))
