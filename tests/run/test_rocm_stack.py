"""Root folders of other ROCm releases, as scripts/rocm-stack makes and enters them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from commands import PATIENCE
from rocm_stacks import RELEASES, SUITES, stack

HERE = pytest.mark.rocm("6.4")


def run(command: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE, env={**os.environ, **environment}, cwd="/tmp"
    )


@pytest.mark.parametrize("release", RELEASES)
def test_what_is_not_there_is_said(tmp_path: Path, release: str) -> None:
    done = run([*stack(release)[:-1], "--made"], LUTHIER_CACHE_DIR=str(tmp_path))
    assert done.returncode == 1
    assert re.search(rf"{tmp_path}/stacks/{release}-\w+ does not exist yet", done.stderr)
    assert list(tmp_path.iterdir()) == []


def test_a_release_that_is_not_known() -> None:
    done = run(stack("3.14"))
    assert done.returncode == 2
    assert all(release in done.stderr for release in RELEASES)


@pytest.mark.skipif(
    os.getuid() != 0 or shutil.which("mmdebstrap") is None or shutil.which("bwrap") is None,
    reason="wants root, mmdebstrap and bubblewrap",
)
@pytest.mark.thorough
def test_without_a_network(tmp_path: Path) -> None:
    """Only the lock file remains, because other processes may wait for it."""
    done = run(["unshare", "--net", *stack("5.2")], LUTHIER_CACHE_DIR=str(tmp_path))
    assert done.returncode == 1
    assert "could not be made: mmdebstrap, from http://" in done.stderr
    (left,) = (tmp_path / "stacks").iterdir()
    assert left.suffix == ".lock"


@HERE
def test_a_command_is_as_outside(tmp_path: Path) -> None:
    """Its folder, output, exit code, and files in a shared folder."""
    assert str(tmp_path).startswith("/tmp/")
    done = run([*stack("6.4"), "sh", "-c", f"pwd; echo made > {tmp_path}/file; exit 3"])
    assert (done.returncode, done.stdout, done.stderr) == (3, "/tmp\n", "")
    assert (tmp_path / "file").read_text() == "made\n"


@HERE
def test_it_is_another_system() -> None:
    asked = "/usr/lib/x86_64-linux-gnu/libamdhip64.so.6"
    done = run([*stack("6.4"), "ls", asked])
    assert (done.returncode, done.stdout) == (0, f"{asked}\n")
    assert not Path(asked).exists()


@HERE
@pytest.mark.rocm("6.4", *SUITES)
def test_more_packages_share_the_files_of_the_first_root() -> None:
    """Except for the files of the package database."""
    library, status = "/usr/lib/x86_64-linux-gnu/libamdhip64.so.6", "/var/lib/dpkg/status"
    command = ["stat", "--dereference", "--format=%i", library, status]
    first, second = (run([*stack("6.4", *more), *command]).stdout.split() for more in ((), SUITES))
    assert first[0] == second[0]
    assert first[1] != second[1]
