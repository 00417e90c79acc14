"""`make setup` and `make demo` on releases of Debian as they are installed, by these two commands alone."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from kept import ROOT

MIRROR = tomllib.loads((ROOT / "scripts/rocm-stacks.toml").read_text())["mirror"]
SECURITY = f"{MIRROR}-security"
SUITES = {"bookworm": "bookworm", "trixie": "trixie", "sid": "forky"}
"""Suites of Debian's, and the release that each says it is."""
FRESH = ("ca-certificates", "git", "make", "python3", "python3-dev", "python3-venv")
"""What a developer's machine has."""


def packages(release: str, *extras: str, rocm: str = "/no/where") -> list[str]:
    """Return what `scripts/bootstrap` wants of a release of Debian's."""
    command = [str(ROOT / "scripts/bootstrap"), "--packages", release, *extras]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env={**os.environ, "ROCM_PATH": rocm})
    return done.stdout.split()


@pytest.mark.parametrize("release", SUITES.values())
def test_packages_of_a_release(tmp_path: Path, release: str) -> None:
    wanted = packages(release)
    headers = [name for name in wanted if re.fullmatch(r"llvm-\d+-dev", name)]
    libraries = [name for name in wanted if name.startswith("rocm-device-libs")]
    assert (len(headers), len(libraries)) == (2, 1), wanted
    assert set(wanted) < set(packages(release, "test"))
    clang = tmp_path / "llvm/bin/clang"
    clang.parent.mkdir(parents=True)
    clang.symlink_to("/bin/true")
    left = packages(release, rocm=str(tmp_path))
    assert set(wanted) - set(left) >= {"hipcc", "libamdhip64-dev", *libraries}


def test_what_releases_differ_in() -> None:
    lists = {release: set(packages(release)) for release in SUITES.values()}
    assert lists["bookworm"] - lists["trixie"] == {"llvm-15-dev", "rocm-device-libs"}
    assert lists["trixie"] - lists["bookworm"] == {"llvm-17-dev", "rocm-device-libs-17"}
    assert lists["forky"] - lists["trixie"] == {"llvm-21-dev", "rocm-device-libs-21"}


@pytest.fixture
def fresh_root(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A root of a suite, with a clone of this project's last commit in /root/luthier."""
    if os.getuid() != 0 or shutil.which("mmdebstrap") is None or shutil.which("bwrap") is None:
        pytest.skip("wants root, mmdebstrap and bubblewrap")
    root = tmp_path / "root"
    apt = ['--aptopt=Acquire::Check-Valid-Until "false"', '--aptopt=APT::Sandbox::User "root"']
    sources = [f"deb {MIRROR} {request.param} main"]
    if request.param != "sid":  # what an installed release has: bookworm's LLVM 22 is a security update
        sources.append(f"deb {SECURITY} {request.param}-security main")
    make = [
        "mmdebstrap",
        "--quiet",
        "--variant=apt",
        f"--include={','.join(FRESH)}",
        *apt,
        request.param,
        root,
        *sources,
    ]
    subprocess.run(make, check=True)
    subprocess.run(["git", "clone", "-q", ROOT, root / "root/luthier"], check=True)
    yield root
    shutil.rmtree(root)


def enter(root: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command in the root's clone, with the network and pip's settings of this machine."""
    shared = [
        path for path in ("/etc/resolv.conf", "/etc/hosts", "/etc/pip.conf", "/etc/ssl/certs") if Path(path).exists()
    ]
    line = ["bwrap", "--die-with-parent", "--unshare-pid", "--cap-add", "ALL", "--bind", str(root), "/"]
    line += ["--dev-bind", "/dev", "/dev", "--proc", "/proc", "--ro-bind", "/sys", "/sys", "--tmpfs", "/tmp"]
    for path in shared:
        line += ["--ro-bind", path, path]
    line += ["--clearenv", "--setenv", "PATH", "/usr/bin:/bin:/usr/sbin:/sbin", "--setenv", "HOME", "/root"]
    return subprocess.run(
        [*line, "--chdir", "/root/luthier", "--", *command], capture_output=True, text=True, timeout=7200
    )


@pytest.mark.thorough
@pytest.mark.parametrize("fresh_root", SUITES, indirect=True)
def test_setup_and_demo(fresh_root: Path) -> None:
    """By the README's two commands alone; then a program that the release's own hipcc builds runs under a tool."""
    for command in (["make", "setup"], ["make", "demo"]):
        done = enter(fresh_root, *command)
        assert done.returncode == 0, (command, done.stdout[-3000:], done.stderr[-3000:])
    build = "HIP_PLATFORM=amd hipcc --offload-arch=gfx90a examples/apps/vector_add.hip -o /root/vector_add"
    run = ".venv/bin/luthier run -t instr_count --device emu:gfx90a -- /root/vector_add"
    done = enter(fresh_root, "sh", "-c", f"{build} && {run}")
    assert done.returncode == 0, done
    assert re.search(r"counter +\d+", done.stderr), done
    assert enter(fresh_root, ".venv/bin/luthier", "doctor").returncode == 0
