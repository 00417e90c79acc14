"""Luthier's installation, and its start-up cost."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from luthier import Tool
from luthier.run import program

from .conftest import RunUnderTools
from .test_programs import SAYS


@pytest.mark.rows(1)
@pytest.mark.parametrize("where", ["libraries", "temporary files"])
@pytest.mark.parametrize("name", ["with blank", "quote'\"d", "back\\slash", "co:l;on", "grün-雪", "x" * 120])
def test_paths_of_any_kind(
    build_program: Callable[[str], Path],
    under_tools: Callable[..., RunUnderTools],
    counter: type[Tool],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    where: str,
    name: str,
) -> None:
    """ROCr and the loader split lists of libraries; a socket's path has at most 107 bytes."""
    folder = tmp_path / name
    if where == "libraries":
        folder.symlink_to(program.library_folder())
        monkeypatch.setattr(program, "library_folder", lambda: folder)
    else:
        folder.mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(folder))
    ran = under_tools("emu:gfx90a", [counter()], build_program("graph"))
    assert (ran.code, ran.out, ran.summary["faults"]) == (0, SAYS["graph"], []), ran.err
    assert all(kernel["covered"] for kernel in ran.kernels().values())


IMPORTED = """
import json, sys
from luthier.support import processes
from luthier.run import program
names = {"numpy", "llvmlite", "pyarrow", "luthier.patch", "luthier.emulator", "luthier.run.instrumentation"}
real = processes.start
def start(*arguments, **options):
    print(json.dumps(sorted(names & sys.modules.keys())), file=sys.stderr)
    return real(*arguments, **options)
program.start = start
from luthier.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.rows(1)
@pytest.mark.parametrize(
    ("tools", "imported"),
    [("", []), ("-t plain", []), ("-t plain:early=true", ["luthier.run.instrumentation"])],
)
def test_nothing_slow_before_the_program_starts(tmp_path: Path, tools: str, imported: list[str]) -> None:
    """Except for imports of the tool, and those for the start event if the tool listens to it."""
    (tmp_path / "plain.py").write_text(
        """
from dataclasses import dataclass
from luthier.tool import Tool

class Plain(Tool):
    @dataclass(frozen=True)
    class Options:
        early: bool = False

    def __new__(cls, early=False):
        return object.__new__(Early if early else cls)

    def instrument(self, task):
        pass

class Early(Plain):
    def at_init(self, run):
        pass
"""
    )
    (tmp_path / "plain-1.dist-info").mkdir()
    (tmp_path / "plain-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: plain\nVersion: 1\n")
    (tmp_path / "plain-1.dist-info" / "entry_points.txt").write_text("[luthier.tools]\nplain = plain:Plain\n")
    script = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{IMPORTED}"
    argv = [sys.executable, "-c", script, "run", *tools.split(), "--allow-nothing", "--", "true"]
    ran = subprocess.run(argv, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    modules = json.loads(next(line for line in ran.stderr.splitlines() if line.startswith("[")))
    assert set(imported) <= set(modules)
    if not imported:
        assert modules == []
    assert "pyarrow" not in modules


def entries_of(cache: Path) -> dict[str, int]:
    """Return the number of entries of each database in a cache."""
    counts = {}
    for path in cache.glob("*/*.sqlite"):
        with sqlite3.connect(path) as database:
            counts[str(path)] = database.execute("SELECT count(*) FROM kept").fetchone()[0]
    return counts


LISTED = """
import atexit, sys
names = lambda: print(*(name for name in sys.modules if name.startswith("luthier.")), sep="\\n", file=sys.stderr)
atexit.register(names)
from luthier.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def test_a_second_run_makes_nothing(build_program: Callable[[str], Path], tmp_path: Path) -> None:
    """No operation, no hook, no kernel, no digest of a source: what `make setup` puts into the cache lasts. What makes
    them is not imported either."""
    command = [sys.executable, "-c", LISTED, "run", "-t", "instr_count", str(build_program("saxpy"))]
    entries, modules = [], []
    for _ in range(2):
        environment = {**os.environ, "LUTHIER_CACHE_DIR": str(tmp_path)}
        ran = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert ran.returncode == 0, ran.stderr
        entries.append(entries_of(tmp_path))
        modules.append({line for line in ran.stderr.splitlines() if line.startswith("luthier.")})
    assert {Path(path).parent.name for path in entries[0]} == {"emulator", "patched", "payloads", "provenance"}
    assert all(entries[0].values())
    assert entries[0] == entries[1]
    makers = {"luthier.patch.output.kernel", "luthier.payload.codegen", "luthier.emulator.native.compiler"}
    assert makers <= modules[0]
    assert not makers & modules[1]
    assert len(modules[1]) <= 260
