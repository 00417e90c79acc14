"""`pip install` of a tool where something fails: it says what, keeps nothing half-made, and the next one is right."""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from luthier.cache.folder import cache_root

ROOT = Path(__file__).parents[2]
KILLED = '#!/bin/sh\ncase "$*" in *--cuda-device-only*) kill -9 $$ ;; esac\nexec clang-22 "$@"\n'
"""A compiler that something kills when it compiles device code."""


def full(below: str, after: int = 0, error: int = errno.ENOSPC, calls: str = "write") -> dict[str, str]:
    settings = {"BELOW": below, "CALLS": calls, "ERROR": str(error), "AFTER": str(after)}
    return {"LD_PRELOAD": "{here}/failing.so", **{f"FAILING_{name}": value for name, value in settings.items()}}


FAULTS: dict[str, tuple[dict[str, str], str, str]] = {
    "build folder full": (full("{here}/tool/build/luthier"), "", "cannot write .*No space left on device"),
    "build folder soon full": (full("{here}/tool/build/luthier", 20_000), "", "No space left on device"),
    "rename": (full("{here}/tool/build/luthier", error=errno.EIO, calls="rename"), "", "cannot write .*Input/output"),
    "temporary files": (full("{here}/tmp"), "", "No space left on device"),
    "killed": ({"LUTHIER_CLANG": "{here}/clang"}, "", "{here}/clang was killed by SIGKILL"),
    "no TMPDIR": ({"TMPDIR": "{here}/none"}, "", "TMPDIR is {here}/none, which is not a writable folder"),
    "no HOME": ({"HOME": "/proc/none", "LUTHIER_CACHE_DIR": "-"}, "", "cannot use Luthier's cache: .*'/proc/none'"),
    "cache is a file": ({"LUTHIER_CACHE_DIR": "{here}/clang"}, "", "cannot use Luthier's cache: .*{here}/clang"),
    "file size, small": ({}, "ulimit -f 8; ", "cannot write .*File too large"),
    "read-only cache": (
        {"LUTHIER_CACHE_DIR": "{here}/empty"},
        "mount --bind {here}/empty {here}/empty; mount -o remount,ro,bind {here}/empty; ",
        "cannot use Luthier's cache: .*Read-only file system: '{here}/empty",
    ),
}
"""What is set, what the shell does before, and what is said."""


def install(here: Path, variables: Mapping[str, str], before: str = "") -> subprocess.CompletedProcess[str]:
    """Install the tool into a folder, as pip does into an environment that has Luthier."""
    pip = "-m pip install -q --no-deps --no-build-isolation --no-cache-dir --upgrade --target"
    command = [*pip.split(), str(here / "site"), str(here / "tool")]
    own = {"LUTHIER_CACHE_DIR": str(here / "cache"), "LUTHIER_TARGETS": "gfx90a", "TMPDIR": str(here / "tmp")}
    environment = {**os.environ, **own, **variables}
    environment = {name: value for name, value in environment.items() if value != "-" and name != "XDG_CACHE_HOME"}
    shell = ["sh", "-c", f'{before}exec "$@"', "sh", sys.executable, *command]
    if "mount" in before:
        shell = ["unshare", "--user", "--map-root-user", "--mount", *shell]
    return subprocess.run(shell, capture_output=True, text=True, env=environment)


@pytest.fixture(scope="module")
def right(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What is installed where nothing fails."""
    here = make_here(tmp_path_factory.mktemp("right"))
    assert install(here, {}).returncode == 0
    return installed(here)


def make_here(here: Path) -> Path:
    kept = cache_root()
    assert kept is not None
    for name in ("cache", "tmp", "empty"):
        (here / name).mkdir(mode=0o700)
    for name in ("plugins", "device-library"):
        (kept / name).mkdir(parents=True, exist_ok=True)
        (here / "cache" / name).symlink_to(kept / name)
    ignored = shutil.ignore_patterns("build", "*.egg-info")
    shutil.copytree(ROOT / "examples/tools/instr_count", here / "tool", ignore=ignored)
    (here / "clang").write_text(KILLED)
    (here / "clang").chmod(0o755)
    source = ROOT / "tests/run/programs/failing_files.c"
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", source, "-o", here / "failing.so", "-ldl"], check=True)
    return here


def installed(here: Path) -> dict[str, bytes]:
    files = (path for path in (here / "site").rglob("*") if path.is_file() and ".dist-info" not in str(path))
    return {str(path.relative_to(here)): path.read_bytes() for path in files if path.suffix != ".pyc"}


@pytest.mark.thorough
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault(fault: str, right: Mapping[str, bytes], tmp_path: Path) -> None:
    variables, before, message = FAULTS[fault]
    here = make_here(tmp_path)
    done = install(here, {name: value.format(here=here) for name, value in variables.items()}, before.format(here=here))
    if "unshare" in done.stderr or "mount:" in done.stderr:
        pytest.skip(done.stderr)
    said = done.stdout + done.stderr
    assert done.returncode != 0, said
    assert "Traceback" not in said
    lines = [line for line in said.splitlines() if re.search(message.format(here=re.escape(str(here))), line)]
    assert lines, said
    assert not installed(here)
    kept = [path for folder in ("cache", "tool/build") for path in (here / folder).rglob(".*")]
    assert {path.name for path in kept} <= {".lock", ".luthier-build"}
    assert install(here, {}).returncode == 0
    assert installed(here) == right
