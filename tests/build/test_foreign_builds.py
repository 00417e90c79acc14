"""Other build systems find this installation: by CMake's package, by pkg-config, by `python -m luthier_build`."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from luthier import __version__
from luthier.objects import load_object
from luthier.verify import verify_object

from luthier_build.compile import compile_application

ROOT = Path(__file__).parents[2]
PACKAGE = Path(__file__).parents[1] / "packages/cmake_foreign"


def run(command: Sequence[str | Path], fails: bool = False, **variables: str) -> str:
    environment = {**os.environ, **variables}
    done = subprocess.run(command, cwd="/", env=environment, capture_output=True, text=True)
    assert (done.returncode != 0) == fails, done.stdout + done.stderr
    return done.stdout + (done.stderr if fails else "")


def folder(name: str, **variables: str) -> str:
    return run([sys.executable, "-m", "luthier_build", name], **variables).strip()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return Path(shutil.copytree(PACKAGE, tmp_path / "foreign project"))


@pytest.mark.thorough
def test_a_tool_built_and_installed_by_a_foreign_cmake_project(
    project: Path, commands: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build, prefix = tmp_path / "build", tmp_path / "installed here"
    path = f"{commands}:{os.environ['PATH']}"
    run(["cmake", "-S", project, "-B", build, f"-DLuthier_DIR={folder('cmake-dir')}"], PATH=path)
    assert "Compiling device module probes" in run(["cmake", "--build", build], PATH=path)
    run(["cmake", "--install", build, "--prefix", prefix])
    assert sorted(file.name for file in (prefix / "python/foreign_tool").iterdir()) == [
        "__init__.py",
        "probes.hipfb",
        "probes.json",
        "probes.py",
        "probes.pyi",
    ]
    assert (prefix / "lib/libregisters.a").is_file()
    shutil.rmtree(build)

    monkeypatch.syspath_prepend(str(prefix / "python"))
    from foreign_tool import Stores  # type: ignore[import-not-found]

    app = compile_application(ROOT / "examples/apps/vector_add.hip", "gfx90a", tmp_path / "vector_add.hsaco")
    (verdict,) = verify_object(load_object(app), Stores())
    assert not verdict.problems
    assert verdict.counters["stores"] > 0


def test_flags_with_blanks_and_quotes_stay_whole(commands: Path, tmp_path: Path) -> None:
    """As `luthier_instrument` hands them to CMake, which splits them as a shell does."""
    flags = ["-Xclang", '-fplugin=/the cache/"p"/it\'s.so', "-Xclang", "-fdepfile-entry=/x"]
    compiler = tmp_path / "luthier-cc"
    compiler.write_text(f"#!/bin/sh\ncat <<'END'\n{shlex.join(flags)}\nEND\n")
    compiler.chmod(0o755)
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.20)\n"
        "project(quoting LANGUAGES NONE)\n"
        "set(CMAKE_HIP_COMPILER clang++)\n"
        "find_package(Luthier REQUIRED)\n"
        "function(target_compile_options target scope option)\n"
        '  file(WRITE "${CMAKE_BINARY_DIR}/option" "${option}")\n'
        "endfunction()\n"
        "luthier_instrument(app)\n"
    )
    given = [f"-DLuthier_DIR={folder('cmake-dir')}", f"-DLuthier_CC={compiler}"]
    run(["cmake", "-S", tmp_path, "-B", tmp_path / "build", *given], PATH=f"{commands}:{os.environ['PATH']}")
    option = (tmp_path / "build/option").read_text()
    assert shlex.split(option.removeprefix("$<$<COMPILE_LANGUAGE:HIP>:SHELL:").removesuffix(">")) == flags


@pytest.mark.rows(1)
@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("Luthier 0.1", "Luthier 9.0", "considered but not accepted"),
        ("(probes DESTINATION", "(probes INTO", "expected DESTINATION <folder>"),
        ("(probes DESTINATION", "(registers DESTINATION", "registers was not made by"),
        ("(probes DESTINATION", "(nothing DESTINATION", "nothing was not made by"),
    ],
)
def test_what_cmake_is_told_wrongly(
    project: Path, commands: Path, tmp_path: Path, old: str, new: str, message: str
) -> None:
    lists = project / "CMakeLists.txt"
    lists.write_text(lists.read_text().replace(old, new))
    output = run(
        ["cmake", "-S", project, "-B", tmp_path / "build", f"-DLuthier_DIR={folder('cmake-dir')}"],
        fails=True,
        PATH=f"{commands}:{os.environ['PATH']}",
    )
    assert message in output


def test_pkg_config(tmp_path: Path) -> None:
    cache = tmp_path / "a cache"
    path = folder("pkgconfig-dir", LUTHIER_CACHE_DIR=str(cache))
    assert folder("pkgconfig-dir", LUTHIER_CACHE_DIR=str(cache)) == path

    def ask(option: str) -> str:
        return run(["pkg-config", option, "luthier"], PKG_CONFIG_PATH=path).strip()

    assert ask("--modversion") == __version__
    assert ask("--variable=hipcc").endswith("/bin/luthier-hipcc")
    flags = ask("--cflags")
    assert Path(flags.removeprefix("-I"), "luthier/luthier.h").is_file()
    assert flags == f"-I{folder('include-dir')}"
    run(f"c++ {flags} -fsyntax-only '{PACKAGE}/registers.cpp'".replace("'", "").split())


def test_what_has_no_folder(tmp_path: Path) -> None:
    assert "invalid choice: 'lib-dir'" in run([sys.executable, "-m", "luthier_build", "lib-dir"], fails=True)
    (tmp_path / "file").write_text("")
    text = run([sys.executable, "-m", "luthier_build", "pkgconfig-dir"], True, LUTHIER_CACHE_DIR=str(tmp_path / "file"))
    assert "luthier_build: error: cannot use Luthier's cache" in text
