"""What ROCm's runtimes have COMGR compile is kept: HIP's copy kernels, and OpenCL sources without included files.

A library before COMGR counts the compilations: each makes a folder for temporary files.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from commands import run_luthier
from compiling import compiled
from rocm_stacks import built, stack

from .conftest import PROGRAMS

COUNTER = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
int mkdir(const char *path, mode_t mode) {
  const char *name = strrchr(path, '/');
  if (name && !strncmp(name, "/comgr-", 7) && !strchr(name + 7, '/')) {
    int file = open(getenv("COMPILATIONS"), O_WRONLY | O_APPEND | O_CREAT, 0600);
    if (write(file, ".", 1) != 1) abort();
    close(file);
  }
  int (*real)(const char *, mode_t) = dlsym(RTLD_NEXT, "mkdir");
  return real(path, mode);
}
"""
SOURCE = "kernel void store(global int *to) { to[0] = VALUE; }\n"

Run = Callable[..., tuple[str, int]]


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "compilations"


@pytest.fixture
def counted(tmp_path: Path, kept: Path) -> Run:
    """``counted(*command)``: run it with a cache of its own; return its output and how often COMGR compiled."""
    source, log = tmp_path / "counter.c", tmp_path / "log"
    source.write_text(COUNTER)
    library = compiled(["gcc", "-shared", "-fPIC", "-O1", source], [source], "counter.so")

    def run(*command: object, root: Sequence[str] = (), **variables: str) -> tuple[str, int]:
        log.write_bytes(b"")
        own = {"LD_PRELOAD": str(library), "COMPILATIONS": str(log), "LUTHIER_CACHE_DIR": str(kept.parent)}
        if root:
            before = [*root, "env", "AMD_COMGR_CACHE=0", *(f"{name}={value}" for name, value in own.items())]
            ran = run_luthier("run", "--device", "emu:gfx90a", *command, before=before)
        else:
            ran = run_luthier("run", *command, env={**os.environ, **own, **variables})
        assert ran.returncode == 0, ran.stderr
        return ran.stdout, log.stat().st_size

    return run


@pytest.fixture(scope="session")
def compiler() -> Path:
    source = PROGRAMS / "compiler.c"
    return compiled(["gcc", "-O1", source, "-ldl"], [source], "compiler")


def test_copy_kernels(build_program: Callable[..., Path], counted: Run, kept: Path) -> None:
    """A second process compiles nothing. What is damaged, or could be by others, is compiled again."""
    program = build_program("saxpy")
    expected, count = counted(program)
    assert count > 0
    assert counted(program) == (expected, 0)
    entries = sorted(kept.iterdir())
    assert all(entry.stat().st_mode & 0o777 == 0o600 for entry in entries)
    for entry in entries:
        contents = bytearray(entry.read_bytes())
        contents[-100] ^= 1
        entry.write_bytes(contents)
    assert counted(program)[0] == expected
    assert counted(program) == (expected, 0)
    for entry in entries:
        entry.write_bytes(entry.read_bytes()[:-1])
    assert counted(program)[1] > 0
    for entry in entries:
        entry.chmod(0o660)
    assert counted(program)[1] > 0
    assert counted(program) == (expected, 0)  # they were replaced


def test_not_kept(build_program: Callable[..., Path], counted: Run) -> None:
    """Variables that change what COMGR does, and a cache that is off."""
    program = build_program("saxpy")
    for variables in ({"AMD_COMGR_EMIT_VERBOSE_LOGS": "0"}, {"LUTHIER_CACHE_DIR": ""}):
        assert [counted(program, **variables)[1] > 0 for _ in range(2)] == [True, True]


def test_sources(compiler: Path, counted: Run, tmp_path: Path) -> None:
    """Results are those of COMGR alone: they depend on the source and on flags, and on included files."""
    source, header = tmp_path / "store.cl", tmp_path / "value.h"
    source.write_text(SOURCE)
    first, count = counted(compiler, source, "-DVALUE=3")
    assert count > 0
    assert counted(compiler, source, "-DVALUE=3") == (first, 0)
    second, count = counted(compiler, source, "-DVALUE=4")
    assert count > 0
    assert second != first
    source.write_text(SOURCE.replace("VALUE", "VALUE + 1"))
    assert counted(compiler, source, "-DVALUE=3")[0] == second
    source.write_text(f'#include "value.h"\n{SOURCE}')
    for value, expected in ((3, first), (4, second)):
        header.write_text(f"#define VALUE {value}\n")
        assert counted(compiler, source, f"-I{tmp_path}")[0] == expected
    source.write_text(SOURCE)
    for value, expected in ((4, second), (3, first)):
        header.write_text(f"#define VALUE {value}\n")
        assert counted(compiler, source, "-include", str(header))[0] == expected
    assert "logs 1: 00001505" in first  # an empty text


def test_an_action_without_isa(compiler: Path, counted: Run, tmp_path: Path) -> None:
    """COMGR does it each time, as HIP 7 has it unpack bundles; what follows is kept."""
    source = tmp_path / "store.cl"
    source.write_text(SOURCE)
    first, count = counted(compiler, source, "-DVALUE=3", LINK_WITHOUT_ISA="1")
    assert count > 1
    assert counted(compiler, source, "-DVALUE=3", LINK_WITHOUT_ISA="1") == (first, 1)


@pytest.mark.rows(2)
@pytest.mark.parametrize(
    ("before", "value", "flag"),
    [
        ("", "VALUE", "-DVALUE=sizeof(__TIME__)"),
        ("", "VALUE", "-DVALUE=sizeof(__DA##TE__)"),
        ("", "sizeof(__TIMEST\\ \nAMP__)", "-w"),
        ("#define PASTED(a, b) a##b\n", "sizeof(PASTED(__TI, ME__))", "-w"),
        ("", r'1; __asm__(".inc" "lude \"/dev/null\"")', "-w"),
    ],
)
def test_clocks_and_files(compiler: Path, counted: Run, tmp_path: Path, before: str, value: str, flag: str) -> None:
    """A source that may read the clock or a file, also by its flags, is compiled each time; what follows is kept."""
    source = tmp_path / "store.cl"
    source.write_text(before + SOURCE.replace("VALUE", value))
    first, count = counted(compiler, source, flag)
    again, fewer = counted(compiler, source, flag)
    assert 0 < fewer < count
    assert again == first


def test_bound(compiler: Path, counted: Run, kept: Path, tmp_path: Path) -> None:
    """A run begins by removing what has not been used for long, and the oldest of too much."""
    source = tmp_path / "store.cl"
    source.write_text(SOURCE)
    counted(compiler, source, "-DVALUE=3")
    old, large, recent = kept / "old", kept / "large", kept / "recent"
    for path, days in ((old, 31), (large, 2), (recent, 0)):
        path.write_bytes(b"")
        os.utime(path, (path.stat().st_mtime - days * 24 * 3600,) * 2)
    os.truncate(large, 1 << 30)
    os.utime(large, (recent.stat().st_mtime - 2 * 24 * 3600,) * 2)
    assert counted(compiler, source, "-DVALUE=3")[1] == 0
    assert [path.exists() for path in (old, large, recent)] == [False, False, True]


@pytest.mark.rocm("6.4")
def test_newer_rocm(counted: Run) -> None:
    program = built(PROGRAMS / "saxpy.hip", ("gfx90a",), release="6.4")
    expected, count = counted(program, root=stack("6.4"))
    assert count > 0
    assert counted(program, root=stack("6.4")) == (expected, 0)
