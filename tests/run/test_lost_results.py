"""Results that were promised and cannot be written: no command ends with 0, and what is lost is named."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import run_luthier

from .conftest import PROGRAMS

FAULTS = {
    "full": ("write", errno.ENOSPC, 0),
    "soon full": ("write", errno.ENOSPC, 600),
    "quota": ("write", errno.EDQUOT, 100),
    "broken": ("write fsync", errno.EIO, 0),
    "close": ("close", errno.EIO, 0),
    "rename": ("rename", errno.ENOSPC, 0),
}
"""The calls that fail, the error, and bytes that can be written before."""
COMMANDS = {
    "run": ("run", "-t", "instr_count", "-o", "{out}/run", "--", "{program}"),
    "run --json": ("run", "-t", "instr_count", "--json", "{out}/run.json", "--", "{program}"),
    "trace": ("run", "-t", "mem_trace", "-o", "{out}/run", "--", "{program}"),
    "run --capture": ("run", "--capture", "-o", "{out}/run", "--", "{program}"),
    "capture": ("capture", "-o", "{out}/captures", "--", "{program}"),
    "sarif": ("sanitize", "--sarif", "{out}/found.sarif", "--", "{program}"),
    "replay": ("replay", "{captures}", "-t", "instr_count", "-o", "{out}/run"),
    "merge": ("merge", "{run}", "{run}", "-o", "{out}/merged"),
    "page": ("report", "{run}", "--format", "html", "-o", "{out}/page.html"),
    "tables": ("report", "{run}", "--format", "csv", "-o", "{out}/tables"),
    "patch": ("patch", "{program}", "-t", "instr_count", "-o", "{out}/patched"),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, build_program: Callable[..., Path]) -> dict[str, Path]:
    """What the commands read: a program, its captures, a run; and what makes files fail."""
    folder, program = tmp_path_factory.mktemp("made"), build_program("graph")
    captures, run, library = folder / "captures", folder / "run", folder / "failing.so"
    source = str(PROGRAMS / "failing_files.c")
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", source, "-o", str(library), "-ldl"], check=True)
    for command in (("capture", "-o", captures), ("run", "-t", "instr_count", "-o", run)):
        done = run_luthier(*command, "--", program)
        assert done.returncode == 0, done
    return {"program": program, "captures": captures, "run": run, "library": library}


@pytest.mark.covering(1)
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("command", COMMANDS)
def test_files_that_cannot_be_written(command: str, fault: str, made: dict[str, Path], tmp_path: Path) -> None:
    """At whatever byte: no traceback, nothing half-written; a whole file is one that could be written."""
    calls, number, after = FAULTS[fault]
    settings = {"BELOW": tmp_path, "CALLS": calls, "ERROR": int(number), "AFTER": after}
    before = ["env", f"LD_PRELOAD={made['library']}", *(f"FAILING_{name}={value}" for name, value in settings.items())]
    words = [word.format(out=tmp_path, **made) for word in COMMANDS[command]]
    done = run_luthier(*words, before=before, timeout=120)
    assert done.returncode == 1, done
    assert "Traceback" not in done.stderr
    assert os.strerror(number) in done.stderr
    assert "error: " in done.stderr.splitlines()[-1]
    left = [path.name for path in tmp_path.rglob("*") if "partial" in path.name or path.name.startswith(".")]
    assert not left
