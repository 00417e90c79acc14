"""Device modules in a source tree: never silently older than their sources, however they got there."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from luthier.errors import BuildError

from luthier_build import editable, plugin
from luthier_build.toolchain import plugin_sources
from luthier_build.workspace import read_depfile

MakeProject = Callable[[Mapping[str, str]], Path]

PYPROJECT = """\
[tool.luthier]
package = "followed"
targets = ["gfx942"]
include-dirs = ["include"]
[tool.luthier.modules.device]
sources = ["followed/device.hip"]
"""
HOOKS = "from followed import device; print(*dir(device)[-1:], [p.name for p in device.count.parameters])"


@pytest.fixture(scope="module")
def built(hook: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with its module built into the source tree; tests that change it restore it."""
    folder = tmp_path_factory.mktemp("built")
    for name, text in {
        "pyproject.toml": PYPROJECT,
        "followed/__init__.py": "",
        "followed/device.hip": '#include "size.h"\n' + hook,
        "include/size.h": "\n",
    }.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    luthier(folder, "build", "--depfile", "all.d", "--depfile-target", "done")
    return folder


@pytest.fixture
def project(hook: str, make_project: MakeProject) -> Path:
    """A project with its module built into the source tree."""
    folder = make_project(
        {
            "pyproject.toml": PYPROJECT,
            "followed/__init__.py": "",
            "followed/device.hip": '#include "size.h"\n' + hook,
            "include/size.h": "",
        }
    )
    luthier(folder, "build")
    return folder


def python(project: Path, code: str, fails: bool = False, **variables: str) -> tuple[str, str]:
    """Standard output and error of a program that uses the tool, from another folder."""
    environment = {**os.environ, "PYTHONPATH": str(project), **variables}
    done = subprocess.run([sys.executable, "-c", code], cwd="/", env=environment, capture_output=True, text=True)
    assert (done.returncode != 0) == fails, done.stdout + done.stderr
    return done.stdout, done.stderr


def luthier(project: Path, *arguments: str) -> str:
    code = f"import sys; from luthier.cli.main import main; sys.exit(main({list(arguments)!r}))"
    done = subprocess.run([sys.executable, "-c", code], cwd=project, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_a_module_that_cannot_be_built_stops_a_run_before_its_program(project: Path) -> None:
    """Told once, and without what follows; a hook that does not exist is named at the line of the tool."""
    tool = """
        from luthier import Tool
        from followed import device
        class Followed(Tool):
            def instrument(self, task):
                device.missing
    """
    (project / "followed/__init__.py").write_text(textwrap.dedent(tool))
    (project / "followed.dist-info").mkdir()
    (project / "followed.dist-info/METADATA").write_text("Name: followed\nVersion: 1\n")
    (project / "followed.dist-info/entry_points.txt").write_text("[luthier.tools]\nfollowed = followed:Followed\n")
    edit(project / "followed/device.hip", "step", "unknown_type step")
    run = "from luthier.cli.main import main; exit(main(['run', '-t', 'followed', '--', 'echo', 'started']))"
    output, stderr = python(project, run, fails=True)
    assert output == ""
    assert stderr.count("2 errors generated") == 1, stderr
    assert stderr.count("has changed since") == 1, stderr
    assert "== coverage" not in stderr
    group = "from luthier.tool.tool import ToolGroup, failed\nfrom followed import Followed\ntool = Followed()\n"
    edit(project / "followed/device.hip", "unknown_type step", "step")
    misspelt = f"{group}try:\n    tool.instrument(None)\nexcept AttributeError as e:\n    print(failed(tool, 'x', e))"
    assert f"{project / 'followed/__init__.py'}:6: AttributeError: " in python(project, misspelt)[0]
    edit(
        project / "followed/__init__.py",
        "device.missing\n",
        "self.missing\n    def __getattr__(self, name):\n        1 / 0\n",
    )
    own = misspelt.replace("AttributeError", "ZeroDivisionError")
    assert f"{project / 'followed/__init__.py'}:8: ZeroDivisionError: " in python(project, own)[0]


def test_an_edit_of_source_header_or_settings_reaches_the_next_program(project: Path) -> None:
    assert python(project, HOOKS) == ("count ['step']\n", "")

    edit(project / "followed/device.hip", "step", "stride")
    output, stderr = python(project, HOOKS)
    assert output == "count ['stride']\n"
    assert "luthier: followed: [1/1] device: compiling for gfx942" in stderr
    assert python(project, HOOKS) == ("count ['stride']\n", "")

    (project / "include/size.h").write_text("#define stride pace\n")
    assert python(project, HOOKS)[0] == "count ['pace']\n"

    os.utime(project / "followed/device.hip")  # touched, but the same
    assert python(project, HOOKS) == ("count ['pace']\n", "")

    stderr = python(project, HOOKS, CPATH="/elsewhere", LUTHIER_EDITABLE_REBUILD="0")[1]
    assert "CPATH has changed since the device modules were built" in stderr

    edit(project / "pyproject.toml", '["gfx942"]', '["gfx90a"]')
    code = "from followed import device; print(*device.targets)"
    assert python(project, code)[0] == "gfx90a\n"


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    def compile_again(*_: object, **__: object) -> None:
        raise BuildError("reached")

    monkeypatch.setattr(editable, "compile_tool", compile_again)


@pytest.mark.usefixtures("no_compiler")
@pytest.mark.parametrize("name", ["include/size.h", "followed/device.hip", "followed/device.hipfb"])
@pytest.mark.parametrize("replaces", [True, False])
def test_a_file_of_equal_size_and_time_is_another(built: Path, name: str, replaces: bool) -> None:
    """As an archive unpacks it; a copy of the same contents is the same."""
    path = built / name
    state, before = path.stat(), path.read_bytes()
    try:
        for text in (before[:-1] + b"!", before):
            fresh = path.with_name("fresh") if replaces else path
            fresh.write_bytes(text)
            os.utime(fresh, ns=(state.st_atime_ns, state.st_mtime_ns))
            fresh.replace(path)
            if text != before:
                with pytest.raises(BuildError, match=f"{path.name} has changed since .* reached$"):
                    editable.refresh(built / "followed")
        editable.refresh(built / "followed")
    finally:
        path.write_bytes(before)


@pytest.mark.usefixtures("no_compiler")
def test_modules_follow_luthier(built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = shutil.copytree(plugin_sources(), tmp_path / "compiler_plugin")
    for module in (plugin, editable):
        monkeypatch.setattr(module, "plugin_sources", lambda: copy)
    editable.refresh(built / "followed")  # the same Luthier in another folder
    for path in (copy / "include/luthier/luthier.h", copy / "src/Manifest.cpp", copy / "include/luthier/new.h"):
        before = path.read_bytes() if path.exists() else b""
        path.write_bytes(before + b"// new")
        with pytest.raises(BuildError, match=r"^Luthier has changed since .* reached$"):
            editable.refresh(built / "followed")
        path.write_bytes(before) if before else path.unlink()
    monkeypatch.setattr(editable, "made_by", lambda what: "99")  # of another commit
    with pytest.raises(BuildError, match="Luthier has changed since"):
        editable.refresh(built / "followed")


def test_other_builds_are_told_of_luthiers_own_files(built: Path) -> None:
    """Not of copies of them, which change no earlier than in the build that they are to cause."""
    read = [Path(name) for name in read_depfile(built / "all.d")]
    assert {built / "include/size.h", *plugin.own_files()} <= {*read}
    assert not [path for path in read if path.is_relative_to(built / "build") or not path.exists()]


def test_a_copy_follows_nothing(project: Path, tmp_path: Path) -> None:
    """A record in a wheel or in a copied folder is ignored, because it belongs to another location."""
    copy = shutil.copytree(project / "followed", tmp_path / "site/followed")
    shutil.rmtree(project)
    assert python(copy.parent, HOOKS) == ("count ['step']\n", "")


KERNEL = '#include <hip/hip_runtime.h>\nextern "C" __global__ void k(int *out) { *out = 1; }\n'


@pytest.fixture
def instrumented(compile_object: Callable[..., Path]) -> Callable[..., str]:
    """``instrumented(*targets)``: a program that instruments kernels for these targets, one after the other."""

    def program(*targets: str) -> str:
        return f"""
from luthier import load_object, patch_object, Tool
class Counting(Tool):
    def instrument(self, task):
        from followed import device
        task.insert_hook_at_kernel_entry(device.count, 1)
for kernel in {[str(compile_object(KERNEL, target)) for target in targets]!r}:
    assert patch_object(load_object(kernel), Counting().instrument, strict=True).report.kernels[0].sites == 1
from followed import device
print(*sorted(map(str, device.targets_compiled)))
"""

    return program


@pytest.mark.thorough
def test_only_what_runs_is_compiled(project: Path, instrumented: Callable[..., str]) -> None:
    """After an edit, the application's target is compiled, and other targets once when they are needed."""
    edit(project / "pyproject.toml", '["gfx942"]', '["gfx90a", "gfx942", "gfx1100"]')
    edit(project / "followed/device.hip", "step", "pace")
    output, stderr = python(project, instrumented("gfx1100", "gfx942"))
    assert [line for line in stderr.splitlines() if "compiling" in line] == [
        "luthier: followed: [1/1] device: compiling for gfx1100",
        "luthier: followed: [1/1] device: compiling for gfx942",
    ]
    assert output == "gfx1100 gfx942\n"
    assert python(project, instrumented("gfx942", "gfx1100"))[1] == ""
    assert (
        "not built for this target, only for gfx90a, gfx942, gfx1100"
        in (python(project, instrumented("gfx1030"), fails=True)[1])
    )
    stderr = python(project, instrumented("gfx90a"), LUTHIER_EDITABLE_REBUILD="0", fails=True)[1]
    assert "no code for gfx90a was compiled when the device modules were built" in stderr
    edit(project / "followed/device.hip", "pace", "stride")
    assert "[1/1] device: compiling for gfx90a" in python(project, HOOKS)[1]


def test_a_bundle_with_fewer_targets_is_described_as_such(project: Path, instrumented: Callable[..., str]) -> None:
    """A program without a target builds the first again, also if other code was compiled, and nothing has to be."""
    edit(project / "pyproject.toml", '["gfx942"]', '["gfx90a", "gfx942"]')
    assert python(project, instrumented("gfx90a", "gfx942"))[0] == "gfx90a gfx942\n"
    stub = project / "followed/device.pyi"
    stub.write_text(f"{stub.read_text()}# edited\n")
    python(project, HOOKS)
    assert python(project, instrumented("gfx942"))[0] == "gfx90a gfx942\n"


@pytest.mark.thorough
def test_a_renamed_module_leaves_nothing_behind(project: Path) -> None:
    edit(project / "pyproject.toml", "modules.device", "modules.probes")
    # Loading the old module is an error, instead of returning outdated hooks.
    assert "has no built device module 'device'" in python(project, HOOKS, fails=True)[1]
    assert python(project, HOOKS.replace("device", "probes"))[0] == "count ['step']\n"
    assert sorted(path.name for path in (project / "followed").iterdir() if path.suffix) == [
        ".luthier-editable.json",
        "__init__.py",
        "device.hip",
        "probes.hipfb",
        "probes.json",
        "probes.py",
        "probes.pyi",
    ]


@pytest.mark.thorough
def test_what_cannot_be_built_is_an_error_and_never_the_old_hooks(project: Path) -> None:
    edit(project / "followed/device.hip", "uint32_t", "nonsense")
    stderr = python(project, HOOKS, fails=True)[1]
    assert "device.hip has changed since the device modules of followed were built" in stderr
    assert "unknown type name 'nonsense'" in stderr
    edit(project / "followed/device.hip", "nonsense", "uint64_t")
    assert python(project, HOOKS)[0] == "count ['step']\n"


@pytest.mark.thorough
def test_turned_off_it_says_that_they_are_stale(project: Path) -> None:
    edit(project / "followed/device.hip", "step", "stride")
    output, stderr = python(project, HOOKS, LUTHIER_EDITABLE_REBUILD="0")
    assert output == "count ['step']\n"
    assert "device.hip has changed since" in stderr
    assert f"Rebuild them with `pip install --no-build-isolation -e {project}`" in stderr
    edit(project / "pyproject.toml", "[tool.luthier]", "[tool.luthier]\neditable-rebuild = false")
    luthier(project, "build")
    edit(project / "followed/device.hip", "stride", "pace")
    output, stderr = python(project, HOOKS)
    assert output == "count ['stride']\n"
    assert "has changed since" in stderr
    assert python(project, HOOKS, LUTHIER_EDITABLE_REBUILD="1")[0] == "count ['pace']\n"


@pytest.mark.thorough
def test_what_the_build_was_given_counts_in_the_next(project: Path) -> None:
    luthier(project, "build", "--target", "gfx1100")
    edit(project / "followed/device.hip", "step", "stride")
    assert python(project, "from followed import device; print(*device.targets)")[0] == "gfx1100\n"
    assert json.loads((project / "followed/device.json").read_text())["hooks"][0]["parameters"][0]["name"] == "stride"


def started(project: Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(project)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([sys.executable, "-c", HOOKS], cwd="/", env=environment, text=True, **pipes)


@pytest.mark.thorough
def test_an_edit_while_the_compiler_runs_reaches_the_next_program(project: Path) -> None:
    edit(project / "followed/device.hip", "step", "stride")
    first = started(project)
    # clang writes its dependency file when it has read everything, long before its code object.
    while not any(path.stat().st_size for path in project.glob("build/luthier/device/.device-*.d")):
        assert first.poll() is None
        time.sleep(0.001)
    edit(project / "followed/device.hip", "stride", "pace")
    output, stderr = first.communicate()
    assert first.returncode == 0, stderr
    assert output in ("count ['stride']\n", "count ['pace']\n")  # libclang may have read it after the compiler
    output, stderr = python(project, HOOKS)
    assert output == "count ['pace']\n"
    assert "compiling for gfx942" in stderr
    assert python(project, HOOKS) == ("count ['pace']\n", "")


@pytest.mark.thorough
def test_of_several_programs_one_builds_and_the_others_wait(project: Path) -> None:
    edit(project / "followed/device.hip", "step", "stride")
    programs = [started(project) for _ in range(3)]
    outputs = [program.communicate() for program in programs]
    assert [program.returncode for program in programs] == [0, 0, 0], outputs
    assert {output for output, _ in outputs} == {"count ['stride']\n"}
    assert sum(error.count("compiling for gfx942") for _, error in outputs) == 1


@pytest.mark.thorough
def test_a_damaged_record_is_an_error(project: Path) -> None:
    record = project / "followed/.luthier-editable.json"
    for text in ("", "{}", "[]", '{"package": 1}', record.read_text().replace('"inputs": {', '"inputs": 3, "x": {')):
        record.write_text(text)
        stderr = python(project, HOOKS, fails=True)[1]
        assert ".luthier-editable.json is damaged" in stderr
