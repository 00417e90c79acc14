"""Commands that need neither NumPy nor LLVM's code generator do not wait for their import."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SLOW = ("numpy", "llvmlite", "elftools")
RUN = f"""
import json, sys
from luthier.cli.main import main
try:
    status = main(sys.argv[1:])
except SystemExit as left:
    status = left.code or 0
print(json.dumps([status, [name for name in {SLOW!r} if name in sys.modules]]), file=sys.stderr)
"""


@pytest.mark.parametrize(
    "command",
    [
        ["--help"],
        ["--version"],
        ["objects"],
        ["objects", "--json"],
        ["disasm"],
        ["disasm", "--json"],
        ["disasm", "--help"],
        ["doctor", "--help"],
        ["new", "--help"],
        ["build", "--help"],
        ["report", "--help"],
    ],
    ids=" ".join,
)
def test_no_slow_imports(command: list[str], fat: Path) -> None:
    files = [str(fat)] if command[0] in ("objects", "disasm") and "--help" not in command else []
    ran = subprocess.run([sys.executable, "-c", RUN, *command, *files], capture_output=True, text=True)
    assert json.loads(ran.stderr.splitlines()[-1]) == [0, []], ran.stderr
    assert ran.stdout
