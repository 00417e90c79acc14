"""Objects of native parts are made again when anything that they are made of has changed, and only then."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from luthier_build.kept_objects import Compile, unless_current

COMPILER = ["c++"]


class Folder:
    """A source with a header, and how often it was compiled."""

    def __init__(self, path: Path) -> None:
        self.source, self.header, self.output = path / "one.cpp", path / "two.h", path / "one.o"
        self.source.write_text('#include "two.h"\nint one() { return TWO; }\n')
        self.header.write_text("#define TWO 2\n")
        self.compiled = 0

    def compile(self, target: str, source: str, suffix: str, arguments: list[str], after: list[str]) -> None:
        """Compile, as setuptools' compilers do."""
        self.compiled += 1
        subprocess.run([*COMPILER, *arguments, source, "-c", "-o", target, *after], check=True)

    def build(self, compile_source: Compile, *flags: str) -> int:
        """Build, and return how often a compiler ran for it."""
        before = self.compiled
        compile_source(str(self.output), str(self.source), ".cpp", list(flags), ["-Wall"])
        return self.compiled - before


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


CHANGES: dict[str, Callable[[Folder], object]] = {
    "source": lambda folder: folder.source.write_text('#include "two.h"\nint one() { return TWO + 1; }\n'),
    "header": lambda folder: folder.header.write_text("#define TWO 3\n"),
    "object": lambda folder: folder.output.write_bytes(b"half an object"),
    "object gone": lambda folder: folder.output.unlink(),
    "record": lambda folder: folder.output.with_name("one.o.record").write_text("{"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_has_changed_is_compiled_again(folder: Folder, change: Callable[[Folder], object]) -> None:
    compile_source = unless_current(folder.compile, COMPILER)
    assert [folder.build(compile_source) for _ in range(2)] == [1, 0]
    change(folder)
    assert [folder.build(compile_source) for _ in range(2)] == [1, 0]


def test_arguments_and_compilers_count(folder: Folder) -> None:
    compile_source = unless_current(folder.compile, COMPILER)
    assert folder.build(compile_source) == 1
    assert folder.build(compile_source, "-O2") == 1
    assert folder.build(unless_current(folder.compile, ["clang++-22"]), "-O2") == 1
    assert folder.build(unless_current(folder.compile, ["clang++-22"]), "-O2") == 0


def test_what_does_not_compile_is_compiled_again(folder: Folder) -> None:
    """Also where an object is left of what did."""
    compile_source = unless_current(folder.compile, COMPILER)
    assert folder.build(compile_source) == 1
    good = folder.header.read_text()
    folder.header.write_text("#define TWO }\n")
    for _ in range(2):
        with pytest.raises(subprocess.CalledProcessError):
            folder.build(compile_source)
    folder.header.write_text(good)
    assert folder.build(compile_source) == 1
