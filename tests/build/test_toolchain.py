"""Toolchain discovery against made-up installations, and the generated parts against what real ones hold."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from luthier.errors import BuildError, TargetError

from luthier_build import device_library, plugin, toolchain
from luthier_build.cache import cache_dir
from luthier_build.cli import new
from luthier_build.device_library import isa_version
from luthier_build.plugin import include_dir, plugin_flags, plugin_for
from luthier_build.toolchain import Toolchain

SHELL_PATH = "/no/programs/here"


def fake_clang(path: Path, version: str = "clang version 22.1.0", tools: bool = True) -> Path:
    """A program that answers what discovery asks a clang."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path_printed = f"{path.parent}/$name" if tools else "$name"
    path.write_text(
        "#!/bin/sh\n"
        'case "$1" in\n'
        f'--version) echo "{version}";;\n'
        f"-print-resource-dir) echo {path.parent.parent}/resource;;\n"
        f'-print-prog-name=*) name=${{1#*=}}; echo "{path_printed}";;\n'
        "*) exit 1;;\n"
        "esac\n"
    )
    path.chmod(0o755)
    return path


def fake_hip(
    root: Path, version: tuple[int, int, int] = (7, 1, 0), processors: tuple[str, ...] = ("90a", "942")
) -> Path:
    headers = root / "include/hip"
    headers.mkdir(parents=True)
    (headers / "hip_runtime.h").touch()
    names = zip(("MAJOR", "MINOR", "PATCH"), version, strict=True)
    (headers / "hip_version.h").write_text("".join(f"#define HIP_VERSION_{name} {value}\n" for name, value in names))
    library = root / "amdgcn/bitcode"
    library.mkdir(parents=True)
    for name in ("ocml", *(f"oclc_abi_version_{abi}" for abi in (400, 500, 600))):
        (library / f"{name}.bc").touch()
    for processor in processors:
        (library / f"oclc_isa_version_{processor}.bc").touch()
    return root


def fake_rocm(root: Path, llvm: str = "llvm") -> Path:
    fake_clang(root / llvm / "bin/clang", "AMD clang version 20.0.0git (roc-7.1.0)")
    return fake_hip(root)


@pytest.fixture(autouse=True)
def _no_system(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    if "real" not in request.fixturenames:
        monkeypatch.setattr(toolchain, "_SYSTEM", tmp_path / "usr")


@pytest.mark.parametrize("llvm", ["llvm", "lib/llvm"])
@pytest.mark.parametrize("variable", ["LUTHIER_ROCM_PATH", "ROCM_PATH"])
def test_rocm_needs_no_help(tmp_path: Path, variable: str, llvm: str) -> None:
    root = fake_rocm(tmp_path / "rocm", llvm)
    rocm = Toolchain.find({variable: str(root), "PATH": SHELL_PATH})
    assert (rocm.kind, rocm.llvm_major, rocm.rocm_path) == ("rocm", 20, root)
    assert rocm.clang == root / llvm / "bin/clang"
    assert rocm.bundler == root / llvm / "bin/clang-offload-bundler"
    assert rocm.device_flags("gfx942:xnack-") == ["-x", "hip", "--offload-arch=gfx942:xnack-", f"--rocm-path={root}"]


def test_explicit_settings_come_first(tmp_path: Path) -> None:
    first, two = fake_rocm(tmp_path / "one"), fake_rocm(tmp_path / "two")
    assert Toolchain.find({"LUTHIER_ROCM_PATH": str(two), "ROCM_PATH": str(first), "PATH": SHELL_PATH}).rocm_path == two
    clang = fake_clang(tmp_path / "bin/clang-22")
    mixed = Toolchain.find({"LUTHIER_CLANG": str(clang), "ROCM_PATH": str(first), "PATH": SHELL_PATH})
    assert (mixed.clang, mixed.rocm_path, mixed.kind) == (clang, first, "upstream")
    assert f"--rocm-device-lib-path={first}/amdgcn/bitcode" in mixed.device_flags("gfx90a")
    own = Toolchain.find({"LUTHIER_CLANG": str(two / "llvm/bin/clang"), "ROCM_PATH": str(first), "PATH": SHELL_PATH})
    assert (own.rocm_path, own.kind) == (two, "rocm")


def test_relative_settings_mean_the_same_in_every_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("one", "two"):
        fake_rocm(tmp_path / name / "rocm")
        fake_clang(tmp_path / name / "bin/clang-22")
        monkeypatch.chdir(tmp_path / name)
        for settings, clang in (
            ({"LUTHIER_ROCM_PATH": "rocm"}, "rocm/llvm/bin/clang"),
            ({"ROCM_PATH": "rocm"}, "rocm/llvm/bin/clang"),
            ({"LUTHIER_CLANG": "bin/clang-22", "ROCM_PATH": "rocm"}, "bin/clang-22"),
            ({"LUTHIER_CLANG": "clang-22", "ROCM_PATH": "rocm", "PATH": "bin"}, "bin/clang-22"),
        ):
            toolchain = Toolchain.find({"PATH": SHELL_PATH, **settings})
            assert toolchain.clang == tmp_path / name / clang
            assert toolchain.rocm_path == tmp_path / name / "rocm"


def test_newest_readable_release_on_the_path(tmp_path: Path) -> None:
    fake_hip(tmp_path / "usr")
    for major in (17, 21, 22, 23):
        fake_clang(tmp_path / f"bin/clang-{major}", f"clang version {major}.0.0")
    search = f"{tmp_path}/bin:{SHELL_PATH}"
    assert Toolchain.find({"PATH": search}).llvm_major == 22
    (tmp_path / "bin/clang-22").unlink()
    assert Toolchain.find({"PATH": f"{search}:"}).llvm_major == 21  # another PATH, so nothing remembered is used


@pytest.mark.parametrize(
    "folder",
    ["lib/llvm-15/lib/clang/15.0.6/lib/amdgcn/bitcode", "lib/llvm-17/lib/clang/17/amdgcn/bitcode"],
)
def test_a_device_library_inside_another_llvm(tmp_path: Path, folder: str) -> None:
    """As Debian 12 and 13 have it: in the folder of the clang that their hipcc uses."""
    root = fake_hip(tmp_path / "usr")
    (root / folder).parent.mkdir(parents=True)
    (root / "amdgcn/bitcode").rename(root / folder)
    fake_clang(tmp_path / "bin/clang-22")
    assert Toolchain.find({"PATH": f"{tmp_path}/bin:{SHELL_PATH}"}).device_library == root / folder


def test_old_headers_get_the_wavefront_size(tmp_path: Path) -> None:
    fake_hip(tmp_path / "usr", (5, 2, 1), ("90a", "1100"))
    fake_clang(tmp_path / "bin/clang-22")
    toolchain = Toolchain.find({"PATH": f"{tmp_path}/bin:{SHELL_PATH}"})
    assert "-D__AMDGCN_WAVEFRONT_SIZE=64" in toolchain.device_flags("gfx90a")
    assert "-D__AMDGCN_WAVEFRONT_SIZE=32" in toolchain.device_flags("gfx1100")
    assert "--hip-version=5.2.1" in toolchain.device_flags("gfx90a")
    with pytest.raises(TargetError):
        toolchain.device_flags("gfx12345")


def test_generated_files_follow_what_they_have_of_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LUTHIER_CACHE_DIR", str(tmp_path / "cache"))
    library = fake_hip(tmp_path / "usr") / "amdgcn/bitcode"
    made = list[str]()

    def generate(path: Path, module: object, clang: Path) -> None:
        made.append(path.name)
        path.write_bytes(b"BC")

    monkeypatch.setattr(device_library, "_generate", generate)
    steps = (("one", "90a", True), ("one", "90a", False), ("two", "90a", True), ("two", "942", True))
    for text, processor, is_new in steps:
        (library / "hip.bc").write_text(text)
        device_library.library_for(library, f"gfx{processor}", tmp_path / "clang", "clang version 22.1.0")
        assert made == [f"oclc_isa_version_{processor}.bc"] * is_new
        made.clear()


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    search = f"{tmp_path}/bin:{SHELL_PATH}"

    def message(**environment: str) -> str:
        toolchain._find.cache_clear()
        with pytest.raises(BuildError) as caught:
            Toolchain.find({"PATH": search, **environment})
        return str(caught.value)

    assert "apt install hipcc g++" in message(PATH=str(tmp_path))
    assert "LUTHIER_ROCM_PATH is /no/where" in message(LUTHIER_ROCM_PATH="/no/where")
    assert "LUTHIER_CLANG is /no/clang" in message(LUTHIER_CLANG="/no/clang")
    assert "is not clang" in message(LUTHIER_CLANG="/bin/echo")
    old = fake_clang(tmp_path / "old/clang", "clang version 14.0.6")
    assert "needs 15 or later" in message(LUTHIER_CLANG=str(old))

    clang = fake_clang(tmp_path / "bin/clang-22", tools=False)
    assert "libamdhip64-dev" in message()
    root = fake_hip(tmp_path / "usr")
    (root / "amdgcn/bitcode/ocml.bc").unlink()
    assert "rocm-device-libs" in message()
    (root / "amdgcn/bitcode/ocml.bc").touch()
    assert "clang-tools-22" in message()
    (clang.parent / "clang-offload-bundler").touch()
    assert "lld-22" in message()
    (clang.parent / "lld").touch()
    toolchain._find.cache_clear()
    assert Toolchain.find({"PATH": search}).clang == clang


def test_missing_llvm_headers_are_named(tmp_path: Path) -> None:
    fake_hip(tmp_path / "usr")
    fake_clang(tmp_path / "bin/clang-29", "clang version 29.0.0")
    with pytest.raises(BuildError, match=r"C\+\+ headers of LLVM 29 .*install the package llvm-29-dev"):
        _ = Toolchain.find({"PATH": f"{tmp_path}/bin:{SHELL_PATH}"}).llvm_include
    rocm = fake_rocm(tmp_path / "rocm")
    with pytest.raises(BuildError, match="rocm-llvm-dev"):
        _ = Toolchain.find({"ROCM_PATH": str(rocm), "PATH": SHELL_PATH}).llvm_include


# The following tests use the real toolchain.


@pytest.fixture
def real() -> Toolchain:
    try:
        toolchain = Toolchain.find()
        _ = toolchain.llvm_include
    except BuildError as problem:
        pytest.skip(str(problem))
    return toolchain


def test_isa_versions_are_those_of_the_installed_library(real: Toolchain) -> None:
    """Oracle: the constants in ROCm's own files."""
    checked = 0
    for path in real.device_library.glob("oclc_isa_version_*.bc"):
        text = subprocess.run(["llvm-dis-22", path, "-o", "-"], capture_output=True, text=True, check=True).stdout
        match = re.search(r"@__oclc_ISA_version = .* constant i32 (\d+)", text)
        assert match
        assert isa_version("gfx" + path.stem.removeprefix("oclc_isa_version_")) == int(match[1])
        checked += 1
    assert checked > 10
    assert isa_version("gfx942") == 9402
    assert isa_version("gfx1151") == 11501
    with pytest.raises(BuildError):
        isa_version("gfx")


@pytest.mark.thorough
def test_supplemented_device_library(real: Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if real.kind == "rocm":
        pytest.skip("ROCm's own library needs no supplement")
    monkeypatch.setenv("LUTHIER_CACHE_DIR", str(tmp_path))
    source = tmp_path / "math.hip"
    source.write_text(
        "#include <hip/hip_runtime.h>\n"
        "__global__ void k(float *p) {\n"
        "  p[threadIdx.x + blockDim.x] = powf(sinf(*p), expf(p[1]));\n"
        "  __threadfence(); __syncthreads();\n"
        "}\n"
    )
    for target in ("gfx906", "gfx942", "gfx1201", "gfx11-generic"):
        if real.llvm_major < 19 and target in ("gfx942", "gfx1201", "gfx11-generic"):
            continue
        flags = real.device_flags(target)
        library = Path(next(flag for flag in flags if "device-lib-path" in flag).partition("=")[2])
        assert (library / "ocml.bc").samefile(real.device_library / "ocml.bc")
        command = [real.clang, *flags, "-O1", "-c", source, "-o", tmp_path / "math.o"]
        done = subprocess.run(command, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")  # no warning about data layouts either
    isa = library / "oclc_isa_version_11-generic.bc"
    if isa.exists() and shutil.which("llvm-dis-22"):
        text = subprocess.run(["llvm-dis-22", isa, "-o", "-"], capture_output=True, text=True, check=True).stdout
        assert re.search(r"@__oclc_ISA_version = weak hidden .*addrspace\(4\) constant i32 11003", text)


def test_unusable_cache(real: Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("LUTHIER_CACHE_DIR", str(tmp_path / "file"))
    with pytest.raises(BuildError, match="set LUTHIER_CACHE_DIR to a writable folder"):
        plugin_for(real)


def test_a_build_needs_a_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LUTHIER_CACHE_DIR", "")
    with pytest.raises(BuildError, match="is off; set LUTHIER_CACHE_DIR to a writable folder"):
        cache_dir("plugins")


@pytest.mark.thorough
def test_plugin_is_built_once_by_processes_at_once(
    real: Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LUTHIER_CACHE_DIR", str(tmp_path))
    count = tmp_path / "compiler"
    compiler = os.environ.get("CXX") or shutil.which("g++") or str(real.clang.with_name("clang++"))
    count.write_text(f'#!/bin/sh\necho built >> {tmp_path}/log\nexec {compiler} "$@"\n')
    count.chmod(0o755)
    program = (
        "from luthier_build.plugin import plugin_for\n"
        "from luthier_build.toolchain import Toolchain\n"
        "print(plugin_for(Toolchain.find()))"
    )
    environment = {**os.environ, "CXX": str(count), "PYTHONPATH": os.pathsep.join(sys.path)}
    running = [
        subprocess.Popen([sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    paths = {process.communicate()[0].strip() for process in running}
    assert all(process.returncode == 0 for process in running)
    assert (tmp_path / "log").read_text() == "built\n"
    (path,) = paths
    monkeypatch.setenv("CXX", str(count))
    assert Path(path) == plugin_for(real)
    left = sorted(file.suffix for file in (tmp_path / "plugins").iterdir())
    assert left == [".lock", ".record", ".so"]  # no half-written file


@pytest.mark.parametrize(
    ("setting", "given"),
    [
        ("", ()),
        ("one-g++", ("one-g++",)),
        ("ccache one-g++ -O1", ("ccache", "one-g++", "-O1")),
        ("'{}/with blank'", ("{}/with blank",)),
        ("{}/with blank", ("{}/with blank",)),
        ("one-g++ 'open", "CXX is .*No closing quotation"),
        ("gone one-g++", "CXX is gone one-g\\+\\+, which is not a program"),
        ("hipcc", ()),
        ("ccache /opt/rocm/bin/hipcc -O2", ()),
        ("luthier-hipcc", ()),
        ("luthier-cc one-g++", ()),
        ("link", ()),
    ],
)
def test_the_compiler_for_the_plugin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str, given: tuple[str, ...] | str
) -> None:
    """A hipcc and Luthier's own commands are for what is built with it, and would start it in a circle."""
    for name in ("one-g++", "ccache", "with blank"):
        fake_clang(tmp_path / name)
    for name in ("luthier-hipcc", "luthier-cc"):
        (tmp_path / name).write_text("# luthier_build.wrapper\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "link").symlink_to("luthier-cc")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CXX", setting.format(tmp_path))
    if isinstance(given, str):
        with pytest.raises(BuildError, match=given):
            plugin._given_compiler()
    else:
        assert plugin._given_compiler() == tuple(word.format(tmp_path) for word in given)


@pytest.mark.parametrize(("end", "builds_differ"), [("exit 1", True), ("exit 139", True), ("kill -9 $$", False)])
def test_a_compiler_that_is_killed_is_of_no_other_build(
    real: Toolchain, tmp_path: Path, end: str, builds_differ: bool
) -> None:
    clang = tmp_path / "clang"
    clang.write_text(f"#!/bin/sh\n{end}\n")
    clang.chmod(0o755)
    with pytest.raises(BuildError) as caught:
        plugin._build([], dataclasses.replace(real, clang=clang, resource_dir=tmp_path), ("true",), tmp_path / "out.so")
    assert ("different builds of LLVM" in str(caught.value)) == builds_differ


def test_plugin_of_wrong_headers_is_not_kept(real: Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plugin that compiles but does not load is refused with the reason, and is not cached."""
    monkeypatch.setenv("LUTHIER_CACHE_DIR", str(tmp_path))
    plugin._plugin.cache_clear()
    empty = tmp_path / "compiler"
    empty.write_text('#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done\necho "no plugin" > "$2"\n')
    empty.chmod(0o755)
    monkeypatch.setenv("CXX", str(empty))
    with pytest.raises(BuildError, match="does not load into"):
        plugin_for(real)
    assert not list((tmp_path / "plugins").glob("*.so"))
    monkeypatch.setenv("CXX", "/no/compiler")
    with pytest.raises(BuildError, match="CXX is /no/compiler"):
        plugin_for(real)


def test_plugin_flags_and_headers(real: Toolchain) -> None:
    flags = plugin_flags(real)
    path = plugin_for(real)
    assert flags[flags.index(f"-fpass-plugin={path}") - 1] == "-Xarch_device"  # not for the host
    assert f"-fplugin={path}" in flags  # compiler caches hash it
    assert flags[flags.index(f"-fdepfile-entry={path}") - 1] == "-Xclang"  # make sees it
    assert (include_dir() / "luthier/luthier.h").is_file()


def test_a_target_that_the_compiler_does_not_know(clang15: Toolchain, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BuildError, match=r"clang 15 \(.*\) cannot compile for gfx942: install a newer clang"):
        clang15.device_flags("gfx942:xnack-")
    assert "--offload-arch=gfx90a" in clang15.device_flags("gfx90a")
    monkeypatch.setattr(Toolchain, "find", lambda: clang15)
    assert new._targets() == ("gfx90a", "gfx1100")
