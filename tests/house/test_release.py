"""Releases: the source distribution is complete, wheels run elsewhere, and releases are checked first."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Callable
from importlib import metadata
from itertools import chain
from pathlib import Path

import pytest
from effort import EVERYTHING

ROOT = Path(__file__).parents[2]
SETUP = ROOT / "setup.py"
CHANGELOG = """\
# Changelog

## Unreleased

## 1.2.3 - 2030-01-01

### Added

- Something.
"""


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=Nobody", "-c", "user.email=nobody@localhost")
    done = subprocess.run(["git", *identity, *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout


@pytest.fixture
def ready(tmp_path: Path) -> Path:
    """A repository that is ready for release 1.2.3, as far as the release script looks before it builds."""
    folder = tmp_path / "repository"
    (folder / "scripts").mkdir(parents=True)
    shutil.copy2(ROOT / "scripts/release", folder / "scripts/release")
    (folder / "runtime/luthier").mkdir(parents=True)
    (folder / "runtime/luthier/__init__.py").write_text('"""Text."""\n\n__version__ = "1.2.3"\n')
    (folder / "CHANGELOG.md").write_text(CHANGELOG)
    git(folder, "init", "-q")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "All")
    return folder


def release(folder: Path, *arguments: str) -> tuple[int, str]:
    done = subprocess.run([folder / "scripts/release", *arguments], capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def test_headers_are_made_by_what_a_build_has(tmp_path: Path) -> None:
    """Pip builds with what `requires` names and nothing else."""
    requires = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    for name in (re.split(r"[<>=]", one)[0] for one in requires):
        for file in metadata.distribution(name).files or ():
            top = file.parts[0]
            if top != ".." and not (tmp_path / top).exists():
                (tmp_path / top).symlink_to(Path(str(file.locate())).parents[len(file.parts) - 1] / top)
    registers, modules = re.findall(r"^(?:REGISTERS = Path|AGREEMENT, DEVICE_HEADER = )(.*)$", SETUP.read_text(), re.M)
    code = (
        f"import importlib, runpy, sys; sys.path[:0] = [{str(tmp_path)!r}, {str(ROOT / 'runtime')!r}]; "
        f"runpy.run_path({str(ROOT)!r} + '/' + {registers})['native_header'](); "
        f"agreement, device = map(importlib.import_module, ({modules})); agreement.header(), device.header()"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_dry_run_checks_and_changes_nothing(ready: Path) -> None:
    code, output = release(ready, "1.2.3", "--dry-run", "--without", "3.14")
    assert code == 0, output
    assert "would build dist/luthier-1.2.3.tar.gz and wheels for CPython 3.11 3.12 3.13 (" in output
    assert git(ready, "status", "--porcelain", "--ignored") == ""


def commit(folder: Path, path: str, old: str, new: str) -> None:
    text = (folder / path).read_text()
    assert old in text
    (folder / path).write_text(text.replace(old, new))
    git(folder, "commit", "-qam", "Change")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (
            lambda folder: commit(folder, "runtime/luthier/__init__.py", "1.2.3", "1.2.4"),
            "has version 1.2.4, not 1.2.3",
        ),
        (lambda folder: (folder / "new").write_text(""), "uncommitted changes:\n?? new"),
        (lambda folder: git(folder, "tag", "v1.2.3"), "tag v1.2.3 already exists"),
        (lambda folder: commit(folder, "CHANGELOG.md", "## 1.2.3", "## 1.2.30"), 'no section "## 1.2.3 - DATE"'),
        (lambda folder: commit(folder, "CHANGELOG.md", "### Added\n\n- Something.\n", ""), "or the section is empty"),
        (lambda folder: commit(folder, "CHANGELOG.md", "Unreleased\n", "Unreleased\n\n- More.\n"), "changes under"),
    ],
    ids=["version", "tree", "tag", "section", "empty", "unreleased"],
)
def test_what_is_not_ready(ready: Path, spoil: Callable[[Path], object], message: str) -> None:
    spoil(ready)
    code, output = release(ready, "1.2.3")  # fails before anything is built
    assert code == 1
    assert message in output


def test_wrong_arguments(ready: Path) -> None:
    assert release(ready) == (2, "usage: scripts/release VERSION [--dry-run] [--without PYTHON_VERSION]...\n")
    assert release(ready, "1.2.3", "1.2.4")[0] == 2
    assert release(ready, "--upload")[0] == 2
    assert "1.2 is not a version" in release(ready, "1.2", "--dry-run")[1]


def test_the_source_distribution_has_all_that_is_built_from(tmp_path: Path) -> None:
    parts = ("runtime", "luthier_build", "compiler_plugin")
    tracked = git(ROOT, "ls-files", *parts, "pyproject.toml", "setup.py", "README.md", "LICENSE").splitlines()
    copy = tmp_path / "copy"
    for name in tracked:
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy / name)
    command = [
        sys.executable,
        "-m",
        "build",
        "--sdist",
        "--no-isolation",
        "--outdir",
        str(tmp_path / "dist"),
        str(copy),
    ]
    subprocess.run(command, check=True, capture_output=True)
    (archive,) = (tmp_path / "dist").glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        packed = {name.partition("/")[2] for name in opened.getnames()}
    missing = {name for name in tracked if (ROOT / name).is_file()} - packed
    assert {name for name in missing if not name.endswith(("README.md", ".clang-format"))} == set()


def test_every_package_is_pinned_with_the_hashes_of_its_files() -> None:
    """And nothing says which host they come from: `scripts/hashes` writes them."""
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    pins = {re.sub(r"[-_.]+", "-", line.partition("==")[0].lower()) for line in lines}
    assert not [line[:60] for line in lines if not re.fullmatch(r"[\w.-]+==[\w.]+( --hash=sha256:[0-9a-f]{64})+", line)]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    groups = *project["project"]["optional-dependencies"].values(), *project["dependency-groups"].values()
    wanted = {*project["build-system"]["requires"], *project["project"]["dependencies"], *chain(*groups)}
    assert {re.split(r"[\[<>=]", one)[0].lower() for one in wanted} <= pins


def test_wheels_are_linked_with_the_stubs_whatever_python_says(tmp_path: Path) -> None:
    """Debian's Python names the folder of the machine's own glibc, which must not come first."""
    libraries = subprocess.run(["gcc", "-print-file-name=libc.so.6"], capture_output=True, text=True, check=True).stdout
    machine = Path(libraries.strip()).resolve().parent
    stubs = tmp_path / "stubs"
    stubs.mkdir()
    (stubs / "only.c").write_text("void only_in_the_stub(void) {}\n")
    (stubs / "only.map").write_text("STUB_1 { global: only_in_the_stub; };\n")
    only = ["gcc", "-shared", "-nostdlib", "-Wl,--version-script=only.map", "only.c", "-o", "libonly.so"]
    subprocess.run(only, cwd=stubs, check=True)
    (stubs / "libc.so.6").write_text(f"GROUP ( {stubs}/libonly.so {machine}/libc.so.6 )\n")
    (stubs / "libld.so.2").write_text("GROUP ( /lib64/ld-linux-x86-64.so.2 )\n")
    (tmp_path / "uses.c").write_text("void only_in_the_stub(void);\nvoid uses(void) { only_in_the_stub(); }\n")
    subprocess.run(["gcc", "-fPIC", "-c", "uses.c"], cwd=tmp_path, check=True)
    command = [str(ROOT / "scripts/portable/c++"), "-shared", f"-L{machine}", "uses.o", "-o", "uses.so", "-Wl,-z,defs"]
    subprocess.run(command, cwd=tmp_path, env={**os.environ, "GLIBC_STUBS": str(stubs)}, check=True)


def test_a_python_is_found_by_its_path() -> None:
    """Also one that was looked up by its name: pip takes no names."""
    this = f"{sys.version_info.major}.{sys.version_info.minor}"
    path = subprocess.run([ROOT / "scripts/wheels", "--find", this], capture_output=True, text=True, check=True).stdout
    assert Path(path.strip()).is_absolute()
    version = subprocess.run([path.strip(), "--version"], capture_output=True, text=True, check=True).stdout
    assert version.startswith(f"Python {this}.")
    none = subprocess.run([ROOT / "scripts/wheels", "--find", "9.9"], capture_output=True, text=True, check=True)
    assert none.stdout == ""


MOVED = {"dladdr", "dlclose", "dlopen", "dlsym", "dlvsym", "pthread_once", "pthread_sigmask", "pthread_mutex_trylock"}
"""Functions of old versions of glibc's other libraries, which are in libc.so.6 since."""


def test_what_is_younger_than_the_glibc_of_wheels_is_made_of_older_functions() -> None:
    """For libraries built on this machine, whose symbols have its versions."""
    libraries = [*(ROOT / "runtime/luthier").rglob("*.so")]
    assert len(libraries) >= 4
    younger = set()
    for library in libraries:
        command = ["nm", "-D", "--undefined-only", str(library)]
        listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        for name, version in re.findall(r"(\S+)@GLIBC_2\.(\d+)", listed):
            if int(version) > 28:
                younger.add(name)
    made = set(
        re.findall(r"^SINCE [\w ]*?(\w+)(?:\(| =)", (ROOT / "scripts/portable/since.c").read_text(), re.MULTILINE)
    )
    assert "pthread_cond_clockwait" in made
    assert younger <= made | MOVED, younger - made - MOVED


@pytest.mark.skipif(not EVERYTHING, reason="takes minutes; under make test-all")
def test_a_wheel_from_the_source_distribution_runs_elsewhere() -> None:
    """Built for glibc 2.28, installed outside the checkout, and used without a compiler."""
    subprocess.run([ROOT / "scripts/wheels", sys.executable], check=True)
    tag = f"cp{sys.version_info.major}{sys.version_info.minor}"
    (wheel,) = (ROOT / "dist").glob(f"*-{tag}-{tag}-manylinux_2_28_x86_64.whl")
    subprocess.run([ROOT / "build/release/tools/bin/twine", "check", "--strict", wheel], check=True)
    subprocess.run([ROOT / "scripts/try-wheel", wheel, sys.executable], check=True)
