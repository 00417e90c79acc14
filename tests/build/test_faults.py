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
    return {"LD_PRELOAD": "{folder}/failing.so", **{f"FAILING_{name}": value for name, value in settings.items()}}


FAULTS: dict[str, tuple[dict[str, str], str, str]] = {
    "build folder full": (full("{folder}/tool/build/luthier"), "", "cannot write .*No space left on device"),
    "build folder soon full": (full("{folder}/tool/build/luthier", 20_000), "", "No space left on device"),
    "rename": (full("{folder}/tool/build/luthier", error=errno.EIO, calls="rename"), "", "cannot write .*Input/output"),
    "temporary files": (full("{folder}/tmp"), "", "No space left on device"),
    "killed": ({"LUTHIER_CLANG": "{folder}/clang"}, "", "{folder}/clang was killed by SIGKILL"),
    "no TMPDIR": ({"TMPDIR": "{folder}/none"}, "", "TMPDIR is {folder}/none, which is not a writable folder"),
    "no HOME": ({"HOME": "/proc/none", "LUTHIER_CACHE_DIR": "-"}, "", "cannot use Luthier's cache: .*'/proc/none'"),
    "cache is a file": ({"LUTHIER_CACHE_DIR": "{folder}/clang"}, "", "cannot use Luthier's cache: .*{folder}/clang"),
    "file size, small": ({}, "ulimit -f 8; ", "cannot write .*File too large"),
    "read-only cache": (
        {"LUTHIER_CACHE_DIR": "{folder}/empty"},
        "mount --bind {folder}/empty {folder}/empty; mount -o remount,ro,bind {folder}/empty; ",
        "cannot use Luthier's cache: .*Read-only file system: '{folder}/empty",
    ),
}
"""What is set, what the shell does before, and what is said."""


def install(folder: Path, variables: Mapping[str, str], before: str = "") -> subprocess.CompletedProcess[str]:
    """Install the tool into a folder, as pip does into an environment that has Luthier."""
    pip = "-m pip install -q --no-deps --no-build-isolation --no-cache-dir --upgrade --target"
    command = [*pip.split(), str(folder / "site"), str(folder / "tool")]
    own = {"LUTHIER_CACHE_DIR": str(folder / "cache"), "LUTHIER_TARGETS": "gfx90a", "TMPDIR": str(folder / "tmp")}
    environment = {**os.environ, **own, **variables}
    environment = {name: value for name, value in environment.items() if value != "-" and name != "XDG_CACHE_HOME"}
    shell = ["sh", "-c", f'{before}exec "$@"', "sh", sys.executable, *command]
    if "mount" in before:
        shell = ["unshare", "--user", "--map-root-user", "--mount", *shell]
    return subprocess.run(shell, capture_output=True, text=True, env=environment)


@pytest.fixture(scope="module")
def right(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Return the files of an installation without faults."""
    folder = make_here(tmp_path_factory.mktemp("right"))
    assert install(folder, {}).returncode == 0
    return installed(folder)


def make_here(folder: Path) -> Path:
    kept = cache_root()
    assert kept is not None
    for name in ("cache", "tmp", "empty"):
        (folder / name).mkdir(mode=0o700)
    for name in ("plugins", "device-library"):
        (kept / name).mkdir(parents=True, exist_ok=True)
        (folder / "cache" / name).symlink_to(kept / name)
    ignored = shutil.ignore_patterns("build", "*.egg-info")
    shutil.copytree(ROOT / "examples/tools/instr_count", folder / "tool", ignore=ignored)
    (folder / "clang").write_text(KILLED)
    (folder / "clang").chmod(0o755)
    source = ROOT / "tests/run/programs/failing_files.c"
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", source, "-o", folder / "failing.so", "-ldl"], check=True)
    return folder


def installed(folder: Path) -> dict[str, bytes]:
    files = (path for path in (folder / "site").rglob("*") if path.is_file() and ".dist-info" not in str(path))
    return {str(path.relative_to(folder)): path.read_bytes() for path in files if path.suffix != ".pyc"}


@pytest.mark.thorough
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault(fault: str, right: Mapping[str, bytes], tmp_path: Path) -> None:
    variables, before, message = FAULTS[fault]
    base = make_here(tmp_path)
    done = install(
        base, {name: value.format(folder=base) for name, value in variables.items()}, before.format(folder=base)
    )
    if "unshare" in done.stderr or "mount:" in done.stderr:
        pytest.skip(done.stderr)
    output = done.stdout + done.stderr
    assert done.returncode != 0, output
    assert "Traceback" not in output
    lines = [line for line in output.splitlines() if re.search(message.format(folder=re.escape(str(base))), line)]
    assert lines, output
    assert not installed(base)
    kept = [path for folder in ("cache", "tool/build") for path in (base / folder).rglob(".*")]
    assert {path.name for path in kept} <= {".lock", ".luthier-build"}
    assert install(base, {}).returncode == 0
    assert installed(base) == right
