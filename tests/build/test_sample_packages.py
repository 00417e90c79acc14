"""Whole projects from `tests/packages`: built from a clean tree, again with no work, and again after each change."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from luthier import Tool, ToolModule
from luthier.cli.main import main
from luthier.module import ModuleManifest
from luthier.objects import load_object, load_objects
from luthier.verify import verify_object

from luthier_build.compile import compile_application
from luthier_build.toolchain import Toolchain

pytestmark = pytest.mark.rows()

PACKAGES = Path(__file__).parents[1] / "packages"


@pytest.fixture
def sample(tmp_path: Path) -> Callable[[str], Path]:
    def copy(name: str) -> Path:
        shutil.copytree(PACKAGES / name, tmp_path / name)
        return tmp_path / name

    return copy


def run(command: Sequence[str | Path], cwd: Path, commands: Path | None = None, **variables: str) -> str:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("LUTHIER_")}
    if commands:
        environment["PATH"] = f"{commands}:{environment['PATH']}"
    done = subprocess.run(command, cwd=cwd, env={**environment, **variables}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def hooks(path: Path) -> dict[str, int]:
    """Target -> number of bytes of bitcode, of every code object in a file."""
    return {str(o.target): len(o.section_data(".llvmbc") or b"") for o in load_objects(path)}


# The pip samples


def wheel_of(project: Path, **variables: str) -> tuple[list[str], zipfile.ZipFile]:
    """(modules compiled, the wheel), from a build without isolation."""
    output = run([sys.executable, "-m", "build", "--wheel", "--no-isolation", project], project, **variables)
    (wheel,) = (project / "dist").glob("*.whl")
    return sorted(line.split("] ")[1] for line in output.splitlines() if ": compiling for " in line), zipfile.ZipFile(
        wheel
    )


@pytest.mark.thorough
def test_minimal(sample: Callable[[str], Path]) -> None:
    project = sample("minimal")
    compiled, wheel = wheel_of(project)
    assert compiled == [f"device: compiling for {target}" for target in ("gfx1100", "gfx90a", "gfx942")]
    assert "minimal_tool/device.hipfb" in wheel.namelist()
    assert wheel_of(project)[0] == []
    assert wheel_of(project, LUTHIER_TARGETS="gfx942;gfx1201")[0] == ["device: compiling for gfx1201"]
    assert len(wheel_of(project, LUTHIER_DEFINES="A=1")[0]) == 3


@pytest.mark.thorough
def test_two_modules_and_a_host_extension(sample: Callable[[str], Path], tmp_path: Path) -> None:
    project = sample("two_modules")
    compiled, wheel = wheel_of(project)
    everything = [
        "counting: compiling for gfx1100",
        "counting: compiling for gfx90a",
        "tracing: compiling for gfx90a",
    ]
    assert compiled == everything
    names = wheel.namelist()
    extension = f"two_modules/_host{sysconfig.get_config_var('EXT_SUFFIX')}"
    assert {extension, "two_modules/counting.hipfb", "two_modules/tracing.hipfb", "two_modules/tracing.pyi"} <= set(
        names
    )
    assert sysconfig.get_platform().replace("-", "_") in str(wheel.filename)  # not py3-none-any
    wheel.extractall(tmp_path / "installed")
    code = (
        "from two_modules import _host, counting, tracing;"
        "assert _host.sum([1, 2, 3]) == 6;"
        "assert counting.count.parameters == ();"
        "assert tracing.trace.location == 'two_modules/device/tracing.hip:2'"
    )
    run([sys.executable, "-c", code], tmp_path / "installed")
    manifest = ModuleManifest.read(tmp_path / "installed/two_modules/tracing.json")
    assert {variable.name: variable.size for variable in manifest.variables} == {"slots": 512, "next_slot": 4}
    assert manifest.hooks[0].documentation == "Keeps an address."
    counting = ModuleManifest.read(tmp_path / "installed/two_modules/counting.json")
    assert counting.cuid != manifest.cuid

    assert wheel_of(project)[0] == []
    header = project / "two_modules/device/include/common.h"
    header.write_text(header.read_text() + "#define MORE\n")
    assert wheel_of(project)[0] == everything
    source = project / "two_modules/device/counting.hip"
    source.write_text(source.read_text() + "// more\n")
    assert wheel_of(project)[0] == everything[:2]


@pytest.mark.thorough
def test_templates_and_device_functions(sample: Callable[[str], Path], tmp_path: Path) -> None:
    project = sample("templates")
    _, wheel = wheel_of(project)
    raw = json.loads(wheel.read("template_tool/device.json"))
    assert [hook["name"] for hook in raw["hooks"]] == ["see_float", "see_integer"]
    variables = {variable["name"]: variable for variable in raw["variables"]}
    assert variables["statistics::floats"]["size"] == 8
    assert variables["statistics::integers"]["size"] == 16
    assert variables["statistics::integers"]["managed"]


# Projects that are not built by pip


def fake_rocm(folder: Path) -> Path:
    """A ROCm installation in the form that CMake's language HIP expects; CMake does not find Debian's."""
    config = folder / "lib/cmake/hip-lang/hip-lang-config.cmake"
    config.parent.mkdir(parents=True)
    config.write_text(
        """\
add_library(hip-lang::device INTERFACE IMPORTED)
set_property(TARGET hip-lang::device PROPERTY INTERFACE_LINK_LIBRARIES "$<$<LINK_LANGUAGE:HIP>:amdhip64>")
set(_CMAKE_HIP_DEVICE_RUNTIME_TARGET "hip-lang::device")
"""
    )
    return folder


@pytest.mark.thorough
@pytest.mark.parametrize(("how", "generator"), [("launcher", "Ninja"), ("function", "Unix Makefiles")])
def test_cmake_with_the_language_hip(
    sample: Callable[[str], Path], commands: Path, clang15: Toolchain, tmp_path: Path, how: str, generator: str
) -> None:
    project = sample("cmake_hip")
    build = project / "build"
    flags = [flag for flag in clang15.device_flags("gfx90a") if flag.startswith(("--rocm", "--hip-version"))]
    package = run(["luthier-cc", "--luthier-cmakedir"], project, commands).strip()
    launcher = "-DCMAKE_HIP_COMPILER_LAUNCHER=luthier-cc" if how == "launcher" else "-DINSTRUMENT=ON"
    run(
        [
            *("cmake", "-S", project, "-B", build, "-G", generator, launcher, f"-DLuthier_DIR={package}"),
            f"-DCMAKE_HIP_COMPILER={clang15.clang.with_name('clang++-15')}",
            "-DCMAKE_HIP_ARCHITECTURES=gfx90a",
            f"-DCMAKE_HIP_FLAGS={' '.join(flags)}",
            f"-DCMAKE_HIP_COMPILER_ROCM_ROOT={fake_rocm(tmp_path / 'rocm')}",
        ],
        project,
        commands,
    )

    def make() -> str:
        return run(["cmake", "--build", build, "-j2"], project, commands)

    output = make()
    assert "Compiling device module device" in output
    assert hooks(build / "app")["gfx90a"] > 1000
    manifest = ModuleManifest.read(build / "out/device.json")
    assert (manifest.package, manifest.targets) == ("cmake_tool", ("gfx90a", "gfx942"))
    assert hooks(build / "out/device.hipfb").keys() == {"gfx90a", "gfx942"}

    def compiled(output: str) -> set[str]:
        return {
            name
            for name, sign in (("app", "Building HIP object"), ("tool", "Compiling device module"))
            if sign in output
        }

    assert compiled(make()) == set()
    header = project / "include/step.h"
    header.write_text(header.read_text() + "#define CHANGED\n")
    assert compiled(make()) == {"app", "tool"}
    assert compiled(make()) == set()


@pytest.mark.thorough
def test_make_with_hipcc_replaced(sample: Callable[[str], Path], commands: Path, clang15: Toolchain) -> None:
    project = sample("make_hipcc")
    run(["make", "HIPCC=hipcc"], project, HIP_PLATFORM="amd")
    assert set(hooks(project / "app").values()) == {0}  # the plain build is not touched
    run(["make", "clean"], project)

    output = run(["make", "HIPCC=luthier-hipcc"], project, commands)
    assert "warning" not in output
    assert hooks(project / "app").keys() == {"gfx90a", "gfx1030"}
    assert min(hooks(project / "app").values()) > 1000
    assert ToolModule.load(project / "app").count.name == "count"  # the executable is a tool module
    assert "is up to date" in run(["make", "HIPCC=luthier-hipcc"], project, commands)

    header = project / "kernels.h"
    header.write_text(header.read_text() + "#define CHANGED\n")
    output = run(["make", "HIPCC=luthier-hipcc"], project, commands)
    assert output.count("luthier-hipcc") == 3
    assert ".so" in (project / "kernels.d").read_text()  # and so does a new plugin


def test_sconstruct(sample: Callable[[str], Path]) -> None:
    project = sample("sconstruct")
    scons = [sys.executable, "-m", "SCons", "-Q"]
    assert run(scons, project).count("compiling device for") == 2
    assert hooks(project / "out/scons_tool/device.hipfb").keys() == {"gfx90a", "gfx942"}
    assert run(scons, project) == "scons: `.' is up to date.\n"
    settings = project / "pyproject.toml"
    settings.write_text(settings.read_text().replace('"gfx942"', '"gfx950"'))
    assert run(scons, project).count("compiling device for") == 1


@pytest.mark.thorough
def test_the_same_source_by_clang_15_and_22_is_usable_by_the_runtime(
    sample: Callable[[str], Path], toolchain: Toolchain, clang15: Toolchain, tmp_path: Path
) -> None:
    """`luthier build` with each compiler; a hook of each result in a kernel, outputs and counters proven."""

    project = sample("minimal")
    (tmp_path / "app.hip").write_text(
        '#include <hip/hip_runtime.h>\nextern "C" __global__ void kernel(int *p) { p[threadIdx.x] = threadIdx.x; }\n'
    )
    application = load_object(
        compile_application(tmp_path / "app.hip", "gfx90a", tmp_path / "app.hsaco", toolchain=toolchain)
    )
    for compiler in (toolchain, clang15):
        out = tmp_path / f"out{compiler.llvm_major}"
        arguments = ["--project", str(project), "--target", "gfx90a", "--clang", str(compiler.clang), "-o", str(out)]
        assert main(["build", *arguments, "--build-dir", f"build/{compiler.llvm_major}"]) == 0
        assert ModuleManifest.read(out / "device.json").llvm.startswith(f"{compiler.llvm_major}.")
        module = ToolModule.load(out / "device.hipfb")

        class Counting(Tool):
            def instrument(self, task):  # type: ignore[no-untyped-def]
                self.sites = 0
                for instruction in task.instructions:
                    task.insert_hook_before(instruction, module.count)  # noqa: B023 used at once
                    self.sites += 1

            def expected(self, task, counts):  # type: ignore[no-untyped-def]
                return {"counter": int(counts.executions.sum())}

        for verdict in verify_object(application, Counting()):
            assert not verdict.problems
            assert verdict.counters["counter"] > 3
