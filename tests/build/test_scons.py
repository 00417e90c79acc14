"""The SCons tool: whole projects, built, rebuilt with nothing to do, and rebuilt after each kind of change."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from luthier.objects import load_object, load_objects

from luthier_build import workspace
from luthier_build.package import compile_tool
from luthier_build.plugin import plugin_for
from luthier_build.settings import load_settings, read_table
from luthier_build.stubs import GENERATED
from luthier_build.toolchain import Toolchain

pytestmark = pytest.mark.rows()

ROOT = Path(__file__).parents[2]
MakeProject = Callable[[Mapping[str, str]], Path]

PYPROJECT = """\
[tool.luthier]
package = "sample_tool"
targets = ["gfx942", "gfx1100"]
include-dirs = ["include"]
[tool.luthier.modules.device]
sources = ["sample_tool/device.hip"]
"""
SCONSTRUCT = """\
from luthier_build import scons
env = Environment(tools=["default", scons.generate])
env.LuthierTool()
"""
OUTPUT = "build/scons/sample_tool"
EVERYTHING = ["__init__.py", "device.hipfb", "device.json", "device.py", "device.pyi"]


@pytest.fixture
def project(hook: str, make_project: MakeProject) -> Path:
    return make_project(
        {
            "pyproject.toml": PYPROJECT,
            "SConstruct": SCONSTRUCT,
            "sample_tool/__init__.py": "",
            "sample_tool/device.hip": '#include "inner.h"\n' + hook,
            "include/inner.h": '#include "innermost.h"\n',
            "include/innermost.h": "#define SIZE 1\n",
        }
    )


def scons(project: Path, *arguments: str, fails: bool = False, **variables: str) -> str:
    command = [sys.executable, "-m", "SCons", "-Q", *arguments]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("LUTHIER_")}
    done = subprocess.run(command, cwd=project, env={**environment, **variables}, capture_output=True, text=True)
    assert (done.returncode != 0) == fails, done.stdout + done.stderr
    return done.stdout + done.stderr


def work(output: str) -> list[str]:
    return sorted(line for line in output.splitlines() if line.startswith(("compiling", "bundling")))


ALL_WORK = [
    f"bundling {OUTPUT}/device.hipfb",
    "compiling device for gfx1100",
    "compiling device for gfx942",
]
NO_WORK = "scons: `.' is up to date.\n"


@pytest.mark.thorough
def test_build_nothing_to_do_changes_and_clean(project: Path) -> None:
    assert work(scons(project, "-j2")) == ALL_WORK
    assert sorted(path.name for path in (project / OUTPUT).iterdir()) == EVERYTHING
    assert scons(project) == NO_WORK

    os.utime(project / "sample_tool/device.hip")
    assert scons(project) == NO_WORK
    (project / "include/innermost.h").write_text("#define SIZE 2\n")
    assert work(scons(project)) == ALL_WORK  # found through two levels of #include
    source = project / "sample_tool/device.hip"
    source.write_text(source.read_text() + "LUTHIER_HOOK_ANNOTATE more() {}\n")
    assert work(scons(project)) == ALL_WORK
    assert scons(project) == NO_WORK

    text = (project / "pyproject.toml").read_text()
    (project / "pyproject.toml").write_text(text.replace('"gfx1100"', '"gfx90a"'))
    assert work(scons(project)) == [ALL_WORK[0], "compiling device for gfx90a"]
    (project / "pyproject.toml").write_text(text.replace("[tool.luthier]", '[tool.luthier]\ndefines = ["X"]'))
    assert work(scons(project)) == ALL_WORK

    scons(project, "-c")
    left = [path.name for path in (project / "build").rglob("*") if path.is_file()]
    assert not [name for name in left if "gfx90a" not in name]  # targets that are no longer requested are removed


def test_what_a_build_depends_on_and_installs(project: Path) -> None:
    """Headers that only flags name, and subpackages; in a folder whose name is a pattern."""
    (project / "pyproject.toml").write_text(
        PYPROJECT.replace(
            "[tool.luthier]\n", '[tool.luthier]\nflags = ["-include", "pre.h", "-isystem", "third", "-Iown"]\n'
        )
    )
    for name, text in {
        "third/pre.h": '#include "deep.h"\n',
        "third/deep.h": "",
        "own/size.h": "",
        "sample_tool/inner/__init__.py": "",
        "sample_tool/inner/more.py": "",
        "sample_tool/scripts/no_package.py": "",
    }.items():
        (project / name).parent.mkdir(exist_ok=True)
        (project / name).write_text(text)
    source = project / "sample_tool/device.hip"
    source.write_text('#include "size.h"\n' + source.read_text())
    project = project.rename(project.with_name("project [x]"))
    nodes = {line.rpartition("+-")[2] for line in scons(project, "-n", "--tree=all").splitlines()}
    assert {"third/pre.h", "third/deep.h", "own/size.h", "include/innermost.h"} <= nodes
    assert {f"{OUTPUT}/{name}" for name in ("__init__.py", "inner/__init__.py", "inner/more.py")} <= nodes
    assert not any("no_package" in line for line in nodes if line.startswith("build"))


def test_a_file_of_the_authors_is_not_replaced(project: Path) -> None:
    own = project / OUTPUT / "device.json"
    own.parent.mkdir(parents=True)
    own.write_text("{}")
    assert "device.json exists and would be replaced" in scons(project, fails=True)
    assert own.read_text() == "{}"


@pytest.mark.thorough
def test_a_new_plugin_compiles_again(project: Path, toolchain: Toolchain, tmp_path: Path) -> None:
    plugin = plugin_for(toolchain)
    cache = tmp_path / "cache"
    (cache / "plugins").mkdir(parents=True)
    own = cache / "plugins" / plugin.name
    shutil.copy2(plugin, own)
    shutil.copy2(f"{plugin}.record", f"{own}.record")
    assert work(scons(project, LUTHIER_CACHE_DIR=str(cache))) == ALL_WORK
    assert scons(project, LUTHIER_CACHE_DIR=str(cache)) == NO_WORK
    own.write_bytes(own.read_bytes() + b"\0")
    workspace.remember(own, json.loads(own.with_name(f"{own.name}.record").read_text())["key"], ())
    assert work(scons(project, LUTHIER_CACHE_DIR=str(cache)))[-2:] == ALL_WORK[1:]


@pytest.mark.thorough
def test_the_same_bytes_as_from_pip(project: Path, toolchain: Toolchain, tmp_path: Path) -> None:
    scons(project)
    other = tmp_path / "elsewhere"
    shutil.copytree(project, other, ignore=shutil.ignore_patterns("build"))
    settings = load_settings(read_table(other) or {}, environment={})
    compile_tool(settings, project=other, destination=other / "out", toolchain=toolchain, report=lambda _: None)
    for name in EVERYTHING[1:]:
        assert (project / OUTPUT / name).read_bytes() == (other / "out" / name).read_bytes(), name
    # And the two builds do not stand in each other's way.
    compile_tool(settings, project=project, destination=project / "out", toolchain=toolchain, report=lambda _: None)
    assert scons(project) == NO_WORK


@pytest.mark.thorough
def test_derived_files_come_from_a_shared_cache(project: Path, tmp_path: Path) -> None:
    (project / "SConstruct").write_text(f"CacheDir({str(tmp_path / 'cache')!r})\n" + SCONSTRUCT)
    assert work(scons(project)) == ALL_WORK
    before = (project / OUTPUT / "device.hipfb").read_bytes()
    shutil.rmtree(project / "build")
    (project / ".sconsign.dblite").unlink()
    output = scons(project)
    assert work(output) == []
    assert re.search(r"Retrieved `build/scons.objects/sample_tool/device/\w+/device-gfx942.hsaco' from cache", output)
    assert (project / OUTPUT / "device.hipfb").read_bytes() == before


@pytest.mark.thorough
def test_module_builder_with_construction_variables_and_install(project: Path) -> None:
    (project / "SConstruct").write_text(
        """\
from luthier_build import scons
env = Environment(tools=["default", "compilation_db", "install", scons.generate], LUTHIER_TARGETS=["gfx90a"])
made = env.LuthierDeviceModule("out", ["sample_tool/device.hip"], name="counting", LUTHIER_PACKAGE="sample_tool",
                               LUTHIER_INCLUDE_DIRS=["include"], LUTHIER_CODE_OBJECT_VERSION=5)
env.Alias("install", env.Install("installed", made))
env.Program("host", "host.cpp")
env.Default("out", "host", env.CompilationDatabase())
"""
    )
    (project / "host.cpp").write_text("int main() { return 0; }\n")
    scons(project)
    (code_object,) = load_objects(project / "out/counting.hipfb")
    assert (str(code_object.target), code_object.abi) == ("gfx90a", 5)
    assert json.loads((project / "out/counting.json").read_text())["package"] == "sample_tool"
    assert not (project / "installed").exists()
    scons(project, "install")
    assert (project / "installed/counting.hipfb").exists()

    rows = json.loads((project / "compile_commands.json").read_text())
    (device,) = (row for row in rows if row["file"].endswith(".hip"))
    assert {Path(row["file"]).name for row in rows} == {"device.hip", "host.cpp"}
    assert "--offload-arch=gfx90a" in device["command"]
    assert "-fpass-plugin" not in device["command"]
    subprocess.run(
        f"{device['command']} -fsyntax-only", shell=True, cwd=device["directory"], check=True, capture_output=True
    )


def test_variants_of_one_module(project: Path) -> None:
    """Debug and release variants have separate code objects."""
    (project / "SConstruct").write_text(
        """\
from luthier_build import scons
env = Environment(tools=["default", scons.generate], LUTHIER_TARGETS=["gfx90a"], LUTHIER_INCLUDE_DIRS=["include"])
for variant in ("debug", "release"):
    env.LuthierDeviceModule(variant, ["sample_tool/device.hip"], LUTHIER_DEFINES=[variant])
"""
    )
    planned = scons(project, "-n").splitlines()
    assert planned.count("compiling device for gfx90a") == 2


@pytest.mark.thorough
def test_site_tool(project: Path) -> None:
    """By name from `site_scons`, without hiding the package `luthier`."""
    shutil.copytree(ROOT / "site_scons", project / "site_scons", ignore=shutil.ignore_patterns("__pycache__"))
    (project / "SConstruct").write_text(
        """\
env = Environment(tools=["default", "luthier_device"])
import luthier
assert luthier.__version__
env.LuthierTool(destination="out")
"""
    )
    scons(project)
    assert sorted(path.name for path in (project / "out/sample_tool").iterdir()) == EVERYTHING


PATCHED = """\
from luthier_build import scons
env = Environment(tools=["default", scons.generate], LUTHIER_TARGETS=["gfx942"])
{cache}
tool = env.LuthierTool()
other = env.LuthierDeviceModule("build/scons/other_tool", ["sample_tool/device.hip"], LUTHIER_PACKAGE="other_tool",
                                LUTHIER_INCLUDE_DIRS=["include"])
host = env.Install("build/scons/other_tool", "other_tool/__init__.py")
app = env.Command("app.hsaco", "app.hip", [{compile} + ["-c", "$SOURCE", "-o", "$TARGET"]])
one = env.LuthierPatched("app.one.hsaco", app, LUTHIER_TOOL="sample")
two = env.LuthierPatched("app.two.hsaco", app, LUTHIER_TOOL="other")
env.Depends(one, tool)
env.Depends(two, [other, host])
"""


@pytest.mark.thorough
def test_patched_objects_follow_their_tools(project: Path, toolchain: Toolchain, tmp_path: Path) -> None:
    """Two tools of the project are spliced into a code object; SCons and its shared cache track their sources."""
    host = (
        "from luthier import Tool\n"
        "from {package} import device\n"
        "class Sample(Tool):\n"
        "    def instrument(self, task):\n"
        "        task.insert_hook_before(next(iter(task.instructions)), device.count, 1)\n"
    )
    for name in ("sample", "other"):
        metadata = project / f"build/scons/{name}_tool-1.0.dist-info"
        metadata.mkdir(parents=True)
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}-tool\nVersion: 1.0\n")
        (metadata / "entry_points.txt").write_text(f"[luthier.tools]\n{name} = {name}_tool:Sample\n")
        (project / f"{name}_tool").mkdir(exist_ok=True)
        (project / f"{name}_tool/__init__.py").write_text(host.format(package=f"{name}_tool"))
    (project / "app.hip").write_text('#include <hip/hip_runtime.h>\nextern "C" __global__ void k(int *p) { *p = 1; }\n')
    compile_ = [str(toolchain.clang), *toolchain.device_flags("gfx942"), "--cuda-device-only", "--no-gpu-bundle-output"]
    text = PATCHED.format(compile=compile_, cache=f"CacheDir({str(tmp_path / 'cache')!r})")
    (project / "SConstruct").write_text(text)

    def made() -> list[str]:
        """Return the lines about objects that were patched or taken from the cache."""
        output = scons(project, PYTHONPATH=str(project / "build/scons"))
        return sorted(line for line in output.splitlines() if line.startswith(("patching", "Retrieved `app.")))

    log = "patching app.hsaco with {} into app.{}.hsaco".format
    app_one, app_two = log("sample", "one"), log("other", "two")
    assert made() == [app_two, app_one]
    first = (project / "app.one.hsaco").read_bytes()
    assert load_object(project / "app.one.hsaco").symbol("counter")
    assert made() == []

    (project / "other_tool/__init__.py").write_text(host.format(package="other_tool").replace(", 1)", ", 2)"))
    assert made() == [app_two]  # another host side, of that tool alone
    source = project / "sample_tool/device.hip"
    right = source.read_text()
    source.write_text(right.replace("&counter, step)", "&counter, step + 5)"))
    assert made() == [app_two, app_one]  # another hook
    assert (project / "app.one.hsaco").read_bytes() != first
    # The cache has the tool's previous version, and returns it only for that.
    source.write_text(right)
    assert made() == ["Retrieved `app.one.hsaco' from cache", "Retrieved `app.two.hsaco' from cache"]
    assert (project / "app.one.hsaco").read_bytes() == first
    assert made() == []


@pytest.mark.thorough
def test_a_tool_of_another_python_is_never_up_to_date() -> None:
    """Only what this Python has installed can be looked into."""
    from luthier_build.scons import _content_of

    assert _content_of("no-such-tool") != _content_of("no-such-tool")


@pytest.mark.thorough
def test_a_src_layout_and_leftovers_of_an_editable_install(project: Path) -> None:
    (project / "src").mkdir()
    (project / "sample_tool").rename(project / "src/sample_tool")
    path = project / "pyproject.toml"
    path.write_text(path.read_text().replace("sample_tool/device", "src/sample_tool/device").replace(', "gfx1100"', ""))
    (project / "src/sample_tool/more.py").write_text("")
    (project / "src/sample_tool/old.py").write_text(f'"""Device module. {GENERATED}"""')
    scons(project)
    assert sorted(path.name for path in (project / OUTPUT).iterdir()) == sorted([*EVERYTHING, "more.py"])


@pytest.mark.rows(1)
@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("sample_tool/device.hip", ("uint32_t step", "nonsense step"), "error: unknown type name 'nonsense'"),
        ("sample_tool/device.hip", ("uint32_t step", "int &step"), "parameter 'step' of hook count has type 'int &'"),
        ("pyproject.toml", ("gfx1100", "gfx1"), "unknown target 'gfx1'"),
        ("pyproject.toml", ("sample_tool/device.hip", "missing.hip"), "missing.hip"),
        ("pyproject.toml", ("[tool.luthier", "[tool.other"), "no [tool.luthier] in"),
        ("pyproject.toml", ('package = "sample_tool"', ""), "set `package` in [tool.luthier]"),
    ],
)
def test_errors_name_what_is_wrong(project: Path, file: str, change: tuple[str, str], message: str) -> None:
    path = project / file
    path.write_text(path.read_text().replace(*change))
    output = scons(project, fails=True)
    assert message in output
    assert "Traceback" not in output
    assert not list(project.rglob("*.hipfb"))
