"""Precompiled headers change how long a compiler takes, and nothing that it makes or says."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from kept import run
from luthier.errors import BuildError

from luthier_build import precompiled
from luthier_build.compile import compile_application, compile_device
from luthier_build.precompiled import Beginning
from luthier_build.settings import Settings
from luthier_build.toolchain import Toolchain
from luthier_build.workspace import build_folder

TARGET = "gfx90a"
KERNEL = """#include <hip/hip_runtime.h>
__global__ void scale(float* data, int count) {
  const int index = blockIdx.x * blockDim.x + threadIdx.x;
  if (index < count) data[index] = __fmaf_rn(data[index], 2.0f, sinf(data[index]));
}
"""
MakeProject = Callable[[Mapping[str, str]], Path]
pytestmark = pytest.mark.rows()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache with nothing in it, but for the compiler plugin and device libraries of the user's own."""
    folder = tmp_path / "precompiled"
    monkeypatch.setattr(precompiled, "cache_dir", lambda name: folder)
    folder.mkdir(mode=0o700)
    return folder


def beginning_of(toolchain: Toolchain, *flags: str, folder: Path | None = None) -> Beginning:
    beginning = Beginning.of(toolchain, TARGET, ["-O2", *flags], folder)
    assert beginning is not None
    return beginning


def warm(beginning: Beginning, source: Path) -> list[str]:
    """Return the flags for a source that is not the first."""
    assert beginning.flags_for(source) == ([], ())
    flags, inputs = beginning.flags_for(source)
    assert flags[-1].endswith(".pch")
    assert any(path.name == "hip_runtime.h" for path in inputs) == source.read_text().startswith("#include <hip")
    return flags


@pytest.mark.rows(1)
@pytest.mark.parametrize("flags", [(), ("-Os",), ("-DNDEBUG", "-std=c++20"), ("-Wall", "-ffp-contract=off")])
@pytest.mark.parametrize("text", [KERNEL, "// What it does.\n\n" + KERNEL, KERNEL.replace("__fmaf_rn", "fmaf")])
def test_the_same_bytes(toolchain: Toolchain, tmp_path: Path, cache: Path, flags: Sequence[str], text: str) -> None:
    source = tmp_path / "kernel.hip"
    source.write_text(text)
    made = []
    for number in range(3):
        output = tmp_path / f"{number}.hsaco"
        compile_application(source, TARGET, output, flags=[*flags, "-cuid=one"], toolchain=toolchain)
        made.append(output.read_bytes())
        assert len(list(cache.glob("*.pch"))) == min(number, 1), "the second source pays for those that follow"
    assert made[1:] == made[:1] * 2


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", [TARGET, "gfx1030", "gfx1100", "gfx1201"])
def test_modules_of_tools(
    toolchain: Toolchain, hook: str, make_project: MakeProject, tmp_path: Path, target: str
) -> None:
    """Modules and their dependencies are the same with and without, including hooks for both wave sizes."""
    project = make_project({"device.hip": hook})
    made, lines = [], list[str]()
    for number in range(3):
        with build_folder(tmp_path / "builds" / str(number)) as folder:
            module = compile_device(
                ["device.hip"], [target], Settings(), toolchain, folder=folder, project=project, report=lines.append
            )
            inputs = {
                os.path.relpath(path, folder if path.is_relative_to(folder) else "/") for path in module.dependencies
            }
            made.append((module.objects[target].read_bytes(), inputs))
    assert made[0] == made[1] == made[2]
    assert lines == [f"[1/1] device: compiling for {target}"] * 3


def test_errors_and_warnings(toolchain: Toolchain, tmp_path: Path, cache: Path) -> None:
    source = tmp_path / "kernel.hip"
    output = tmp_path / "out"
    outputs = []
    source.write_text(KERNEL + "int wrong = nothing;\n")
    for _ in range(2):  # without a precompiled header, and with one
        with pytest.raises(BuildError) as caught:
            compile_application(source, TARGET, output, toolchain=toolchain)
        outputs.append(caught.value.message)
    assert len(list(cache.glob("*.pch"))) == 1
    assert outputs[0].replace("/.out-", "")[:200] == outputs[1].replace("/.out-", "")[:200]
    assert "pch" not in outputs[1]
    assert "use of undeclared identifier 'nothing'" in outputs[1]


def test_a_source_that_defines_something_first(toolchain: Toolchain, tmp_path: Path) -> None:
    """Its definitions may be for HIP's headers, so only the compiler's own headers come before."""
    source = tmp_path / "kernel.hip"
    source.write_text("#define __HIP_ENABLE_DEVICE_MALLOC__ 1\n" + KERNEL)
    warm(beginning_of(toolchain), source)


def test_files_that_flags_include(toolchain: Toolchain, tmp_path: Path) -> None:
    """HIP's header is in it if it comes first: another file could define something for it."""
    source = tmp_path / "kernel.hip"
    for names, has_hip in ((["hip/hip_runtime.h", "own.h"], True), (["own.h", "hip/hip_runtime.h"], False)):
        flags = [part for name in names for part in ("-include", name)]
        source.write_text("" if has_hip else KERNEL)
        beginning = beginning_of(toolchain, *flags)
        beginning.flags_for(source)
        _, inputs = beginning.flags_for(source)
        assert any(path.name == "hip_runtime.h" for path in inputs) == has_hip


@pytest.mark.parametrize(
    "flags",
    [
        ["-O2", "-g"],
        ["-O2", "-gline-tables-only"],
        ["-O2", "-include-pch", "some.pch"],
        ["-O2", "-Xclang", "-verify"],
        ["-O2", "-fsanitize=address"],
        ["-O2", "-O0"],
        [],
    ],
)
def test_flags_without_one(toolchain: Toolchain, flags: Sequence[str]) -> None:
    assert Beginning.of(toolchain, TARGET, flags) is None


def test_variables_that_name_headers(toolchain: Toolchain, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CPATH", "/somewhere")
    assert Beginning.of(toolchain, TARGET, ["-O2"]) is None


def test_a_header_that_changes(toolchain: Toolchain, tmp_path: Path) -> None:
    """A header of the user's in place of one of the system's is in the precompiled header, until it changes."""
    folder, source = tmp_path / "include", tmp_path / "kernel.hip"
    folder.mkdir()
    (folder / "limits.h").write_text("#define FACTOR 2\n#include_next <limits.h>\n")
    source.write_text(KERNEL + "__global__ void factor(int* out) { *out = FACTOR; }\n")
    beginning = beginning_of(toolchain, "-Iinclude", folder=tmp_path)
    assert beginning_of(toolchain, "-Iinclude", folder=folder) != beginning
    header = Path(warm(beginning, source)[-1])
    before = header.stat().st_ino
    assert beginning.flags_for(source)[0][-1] == str(header)
    assert header.stat().st_ino == before
    (folder / "limits.h").write_text("#define FACTOR 3\n#include_next <limits.h>\n")
    assert beginning.flags_for(source)[0][-1] == str(header)
    assert header.stat().st_ino != before


def test_a_new_header_that_hides_one(
    toolchain: Toolchain, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A header in an earlier folder, at any depth, that hides one of the system's needs another precompiled header."""
    monkeypatch.setattr(Beginning, "_make", lambda *_: None)
    source, project = tmp_path / "kernel.hip", tmp_path / "project"
    source.write_text(KERNEL)
    beginning = beginning_of(toolchain, "-Iinclude", "-I.", folder=project)

    def write(name: str) -> None:
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text("")

    with build_folder(project / "build"):
        write("build/include/limits.h")
    steps = ("include/limits.h", "include/hip/hip_version.h", "include/hip/amd_detail/device", "limits.h")
    for number, name in enumerate(steps, 1):
        write(name)
        for other in ("build/include/hip/hip_version.h", ".git/objects/limits.h"):
            beginning.flags_for(source)
            assert len(list(cache.glob("*.asked"))) == number
            write(other)
    monkeypatch.setattr(precompiled, "_MOST_NAMES", 100)
    for name in ("one", "two"):  # without end
        (project / "include" / name).symlink_to(project)
    assert beginning.flags_for(source) == ([], ())
    assert len(list(cache.glob("*.asked"))) == len(steps)


def test_what_others_could_have_written_or_is_damaged(toolchain: Toolchain, tmp_path: Path) -> None:
    source = tmp_path / "kernel.hip"
    source.write_text(KERNEL)
    beginning = beginning_of(toolchain)
    header = Path(warm(beginning, source)[-1])
    before = header.stat().st_ino
    header.chmod(0o666)
    assert beginning.flags_for(source)[0][-1] == str(header)
    assert header.stat().st_ino != before
    assert header.stat().st_mode & 0o022 == 0
    header.write_bytes(header.read_bytes()[:1000])
    flags, _ = beginning.flags_for(source)
    command = [str(toolchain.clang), *toolchain.device_flags(TARGET), "-O2", "--cuda-device-only", *flags, "-S"]
    run([*command, str(source), "-o", str(tmp_path / "out.s")])
    assert "scale" in (tmp_path / "out.s").read_text()


@pytest.mark.thorough
def test_only_those_used_last_are_kept(
    toolchain: Toolchain, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(precompiled, "MOST", 2)
    source = tmp_path / "kernel.hip"
    source.write_text("__global__ void nothing() {}\n")
    headers = []
    for number in range(3):
        headers.append(Path(warm(beginning_of(toolchain, f"-DNUMBER={number}"), source)[-1]))
        os.utime(headers[-1], (number + 2e9, number + 2e9))
    assert sorted(cache.glob("*.pch")) == sorted(headers[1:])
    assert not list(cache.glob(f"{headers[0].stem}*"))
