"""Every test module is run: a bare pytest collects it when it tests everything."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from effort import is_in_shard

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
    environment = {**os.environ, "LUTHIER_TEST_ALL": "1", "LUTHIER_TEST_SHARD": ""}
    collected = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert collected.returncode == 0, collected.stdout + collected.stderr
    assert modules == set(re.findall(r"^(tests/[^:]+)::", collected.stdout, re.MULTILINE))


@pytest.mark.parametrize("count", [1, 3, 12])
def test_every_test_is_in_exactly_one_shard(count: int) -> None:
    names = [f"tests/folder/test_file.py::test_this[{number}]" for number in range(1000)]
    shards = [[name for name in names if is_in_shard(name, f"{number}/{count}")] for number in range(1, count + 1)]
    assert sorted(name for shard in shards for name in shard) == sorted(names)
    assert min(map(len, shards)) > 500 / count


@pytest.mark.parametrize("shard", ["0/3", "4/3", "3", "x/y", "/", "-1/3"])
def test_a_shard_that_is_none_is_said(shard: str) -> None:
    with pytest.raises(ValueError, match="SHARD="):
        is_in_shard("a test", shard)
