"""Several sources with hooks in one file: each is a separate module, whatever the compiler calls them."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from luthier.cli.main import main
from luthier.errors import BuildError, ToolError
from luthier.module import ToolModule
from luthier.objects import load_objects

from luthier_build.plugin import include_dir, plugin_flags
from luthier_build.toolchain import Toolchain

HOOK = """\
#include <hip/hip_runtime.h>
#include <luthier/luthier.h>
MARK_LUTHIER_DEVICE_MODULE
__managed__ uint64_t counter{number} = 0;
LUTHIER_HOOK_ANNOTATE count() {{ luthier::sAtomicAdd<uint64_t>(&counter{number}, {number}); }}
"""
TARGETS = ("gfx90a", "gfx906")


@pytest.fixture(scope="module", params=["clang-15", pytest.param("clang-22", marks=pytest.mark.thorough)])
def objects(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Host objects of two sources of one relative name, compiled by equal commands: without a CUID, or with one that
    is given."""
    try:
        toolchain = Toolchain.find({"LUTHIER_CLANG": request.param, "PATH": "/usr/bin:/bin"})
        flags = [*toolchain.device_flags("gfx90a"), *plugin_flags(toolchain), "-DLUTHIER_ONE_WAVE_SIZE", "-fPIC"]
    except BuildError as problem:
        pytest.skip(f"no {request.param}: {problem}")
    flags += [f"--offload-arch={TARGETS[1]}", f"-I{include_dir()}"]
    if toolchain.llvm_major >= 18:
        flags.append("-cuid=equal")
    made, running = [], []
    for number in (1, 2):
        folder = tmp_path_factory.mktemp(f"source{number}")
        (folder / "a.hip").write_text(HOOK.format(number=number))
        running.append(subprocess.Popen([toolchain.clang, *flags, "-c", "a.hip", "-o", "a.o"], cwd=folder))
        made.append(folder / "a.o")
    assert [one.wait() for one in running] == [0, 0]
    return made


def archive(path: Path, members: Sequence[bytes]) -> Path:
    """Write what `ar` makes of files."""
    parts = [f"{'a.o/':48}{len(data):<10}`\n".encode() + data + b"\n" * (len(data) % 2) for data in members]
    path.write_bytes(b"!<arch>\n" + b"".join(parts))
    return path


@pytest.mark.parametrize("kind", ["shared", "stripped", "archive"])
def test_each_source_is_a_module(
    objects: list[Path], kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "tool"
    if kind == "archive":
        archive(path, [one.read_bytes() for one in objects])
    else:
        flags = ["-s"] if kind == "stripped" else []
        subprocess.run(["g++", "-shared", "-Wl,-z,muldefs", *flags, *objects, "-o", path], check=True)
    modules = ToolModule.load_all(path)
    assert [sorted(str(one) for one in module.targets) for module in modules] == [sorted(TARGETS)] * 2
    assert [list(module.hooks) for module in modules] == [["count"]] * 2
    assert [[*module.variables] for module in modules] == [["counter1"], ["counter2"]]
    with pytest.raises(ToolError, match=r"there are 2 device modules: .*: a\.hip \(count\), a\.hip \(count\)"):
        ToolModule.load(path)
    assert main(["check-hooks", str(path)]) == 0
    assert capsys.readouterr().out.count("tool[a.hip]: 1 hook for gfx906, gfx90a can be spliced") == 2


def test_a_source_that_is_there_twice_is_one_module(objects: list[Path], tmp_path: Path) -> None:
    path = archive(tmp_path / "twice.a", [objects[0].read_bytes()] * 2)
    assert ToolModule.load(path).variables.keys() == {"counter1"}


def test_code_objects_without_bundles(objects: list[Path], tmp_path: Path) -> None:
    """With one target, modules are told apart; with two, it is unknown which belong together, which is reported."""
    loose = [{str(object.target): object.data for object in load_objects(one)} for one in objects]
    module = ToolModule.load(archive(tmp_path / "one.a", [*loose[0].values()]))
    assert (len(module.targets), module.variables.keys()) == (2, {"counter1"})
    one_target = archive(tmp_path / "target.a", [source["gfx90a"] for source in loose])
    assert [[*one.variables] for one in ToolModule.load_all(one_target)] == [["counter1"], ["counter2"]]
    mixed = archive(tmp_path / "mixed.a", [data for source in loose for data in source.values()])
    with pytest.raises(ToolError, match=r"4 code objects for gfx906, gfx90a of sources named a\.hip with hooks"):
        ToolModule.load_all(mixed)
