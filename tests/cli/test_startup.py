"""Commands do not wait for imports and threads that they do not need."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from luthier.cli.main import every_command

SLOW = (
    "numpy",
    "llvmlite",
    "elftools",
    "pyarrow",
    "duckdb",
    "luthier.patch",
    "luthier.lifting",
    "luthier.emulator.device",
)
SHORT = ("typing_extensions", "inspect", "dataclasses")
"""What short commands do not import, either."""
OF_HELP = ("shutil", "tempfile", "random", "hashlib", "pkgutil", "lzma")
"""What `disasm` and `objects` do not import: they write no help and no files."""
NEEDS = ["check"]
"""Commands whose help lists what takes slow imports."""
RUN = f"""
import json, sys
from luthier.cli.main import main
try:
    status = main(sys.argv[1:])
except SystemExit as left:
    status = left.code or 0
print(json.dumps([status, [name for name in {SLOW + SHORT + OF_HELP!r} if name in sys.modules]]), file=sys.stderr)
"""


@pytest.mark.rows(3)
@pytest.mark.parametrize(
    "command",
    [
        ["--help"],
        ["--version"],
        ["objects"],
        ["objects", "--json"],
        ["disasm"],
        ["disasm", "--json"],
        *([name, "--help"] for name in every_command() if name not in NEEDS),
    ],
    ids=" ".join,
)
def test_no_slow_imports(command: list[str], fat: Path) -> None:
    files = [str(fat)] if command[0] in ("objects", "disasm") and "--help" not in command else []
    ran = subprocess.run([sys.executable, "-c", RUN, *command, *files], capture_output=True, text=True)
    status, slow = json.loads(ran.stderr.splitlines()[-1])
    is_short = files or command[0] in ("--help", "--version")
    refused = SLOW + SHORT * bool(is_short) + OF_HELP * bool(files)
    assert (status, [name for name in slow if name in refused]) == (0, []), ran.stderr
    assert ran.stdout


def test_a_plain_run_imports_neither_checks_nor_tools() -> None:
    names = ("luthier.hazards", "luthier.lifting", "luthier.patch", "luthier.payload", "luthier.tool")
    code = f"import sys, luthier.cli.run, luthier.run.service; print([one for one in {names} if one in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"


@pytest.mark.parametrize(("other", "frozen"), [("json", True), ("numpy", True), ("duckdb", False)])
def test_garbage_is_left_where_nobody_complains(other: str, frozen: bool) -> None:
    """DuckDB uses nanobind, which would list uncollected objects."""
    code = f"""
import atexit, gc, sys
import {other}
atexit.register(lambda: print(gc.get_freeze_count() > 0, file=sys.stderr))
from luthier.cli.main import main
main(["tools", "--help"])
"""
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stderr == f"{frozen}\n"


@pytest.mark.rows(1)
@pytest.mark.skipif(os.cpu_count() == 1, reason="one processor needs no second thread")
@pytest.mark.parametrize("asked", [None, "2"])
def test_threads_for_matrices_are_not_started(asked: str | None) -> None:
    """Luthier multiplies no matrices. The user's own setting is respected, and the program sees it unchanged."""
    code = """
import os
from luthier.cli.main import main
main(["run", "--", "sh", "-c", "echo ${OPENBLAS_NUM_THREADS-none}"])
import numpy
print(len(os.listdir("/proc/self/task")))
os._exit(0)
"""
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    environment |= {} if asked is None else {"OPENBLAS_NUM_THREADS": asked}
    ran = subprocess.run([sys.executable, "-uc", code], capture_output=True, text=True, env=environment)
    seen, threads = ran.stdout.split()
    assert seen == (asked or "none")
    assert int(threads) >= (2 if asked else 1)
    assert asked or int(threads) <= 2, ran  # one may still take connections
