"""Whole tool packages through Python packaging: pip isolated, without isolation, editable, sdist and wheel."""

from __future__ import annotations

import ensurepip
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import textwrap
import tomllib
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from luthier_build.cli import new
from luthier_build.package import source_files
from luthier_build.settings import load_settings
from luthier_build.setuptools_version import OLDEST

from .conftest import copied_sources, wheel_of

pytestmark = pytest.mark.rows()

ROOT = Path(__file__).parents[2]
MakeProject = Callable[[Mapping[str, str]], Path]

PYPROJECT = """\
[build-system]
requires = ["setuptools>=77", "luthier"]
build-backend = "{backend}"

[project]
name = "sample-tool"
version = "1.0"
dependencies = ["luthier"]

[project.entry-points."luthier.tools"]
sample = "sample_tool:Sample"

[tool.setuptools]
packages = ["sample_tool"]
include-package-data = false

[tool.luthier]
targets = ["gfx942"]
include-dirs = ["include"]

[tool.luthier.modules.device]
sources = ["sample_tool/device.hip"]
"""

PLUGIN_FILES = [
    path for folder in ("src", "include") for path in (ROOT / "compiler_plugin" / folder).rglob("*") if path.is_file()
]
TOOLS = "from luthier.cli.main import main; main(['tools', '--json'])"

TOOL = """\
from luthier import Tool
class Sample(Tool):
    pass
"""


@pytest.fixture
def sample(hook: str, make_project: MakeProject) -> Path:
    return make_project(
        {
            "pyproject.toml": PYPROJECT.format(backend="luthier_build.backend"),
            "sample_tool/__init__.py": TOOL,
            "sample_tool/device.hip": '#include "sizes.h"\n' + hook,
            "include/sizes.h": "#define SIZE 1\n",
        }
    )


def run(
    *command: str | Path, cwd: Path | None = None, fails: bool = False, **variables: str
) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("LUTHIER_")}
    done = subprocess.run(
        command, cwd=cwd, env={**environment, **variables}, capture_output=True, text=True, errors="replace"
    )
    assert (done.returncode != 0) == fails, done.stdout + done.stderr
    return done


def build(project: Path, *arguments: str, fails: bool = False, **variables: str) -> str:
    """`python -m build` in this environment; its output."""
    done = run(
        *(sys.executable, "-m", "build", "--no-isolation", "--outdir", project / "dist", *arguments, project),
        fails=fails,
        **variables,
    )
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def empty_environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with nothing but pip; gives its bin folder."""
    folder = tmp_path_factory.mktemp("empty")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    return folder / "bin"


@pytest.fixture(scope="module")
def prepared_environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment that sees this one's packages, Luthier among them; gives its bin folder."""
    folder = tmp_path_factory.mktemp("prepared")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    site = folder / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    (site / "outer.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
    return folder / "bin"


@pytest.mark.thorough
def test_pip_install_with_only_the_wheel_of_luthier(
    luthier_wheel: Path, empty_environment: Path, tmp_path: Path
) -> None:
    """The shipped example, isolated, where nothing else is installed; then again, with nothing to compile."""
    project = tmp_path / "instr_count"
    shutil.copytree(ROOT / "examples/tools/instr_count", project, ignore=shutil.ignore_patterns("build", "*.egg-info"))
    links = f"{luthier_wheel} {os.environ.get('PIP_FIND_LINKS', '')}"
    run(empty_environment / "pip", "install", "-q", project, PIP_FIND_LINKS=links)
    shown = run(empty_environment / "luthier-cc", "--luthier-cmakedir").stdout
    assert Path(shown.strip()).is_relative_to(empty_environment.parent)
    (row,) = json.loads(run(empty_environment / "luthier", "tools", "--json").stdout)
    assert row["problems"] == []
    assert (row["name"], row["package"], row["version"]) == ("instr_count", "luthier-instr-count", "0.1.0")
    assert {"gfx90a", "gfx942", "gfx1100"} <= set(row["targets"])
    assert row["hooks"] == ["device.count_vector(bool wave_level)", "device.count_scalar()"]
    assert row["options"] == ["per_wave: bool = False", "per_block: bool = False"]

    def compiled() -> dict[str, int]:
        return {path.name: path.stat().st_mtime_ns for path in (project / "build").rglob("*.hsaco")}

    before = compiled()
    assert len(before) == len(row["targets"]) >= 3
    run(empty_environment / "pip", "install", "-q", "--force-reinstall", "--no-deps", project, PIP_FIND_LINKS=links)
    assert compiled() == before


@pytest.mark.thorough
def test_the_wheel_of_luthier_carries_what_builds_need(luthier_wheel: Path) -> None:
    (path,) = luthier_wheel.glob("*.whl")
    with zipfile.ZipFile(path) as wheel:
        names = set(wheel.namelist())
        (points,) = (wheel.read(name).decode() for name in names if name.endswith("entry_points.txt"))
    sources = {f"luthier_build/compiler_plugin/{p.relative_to(ROOT / 'compiler_plugin')}" for p in PLUGIN_FILES}
    assert sources <= names
    assert {"luthier_build/cmake/LuthierConfig.cmake", "luthier_build/cmake/LuthierConfigVersion.cmake"} <= names
    assert {"luthier-cc", "luthier-hipcc"} <= {Path(name).name for name in names if ".data/scripts/" in name}
    for line in ("luthier-wrapper = ", "Luthier = luthier_build.cmake", "[distutils.setup_keywords]"):
        assert line in points


@pytest.mark.thorough
def test_without_isolation_and_editable(prepared_environment: Path, sample: Path) -> None:
    python = prepared_environment / "python"
    pip = (python, "-m", "pip", "install", "-q", "--no-build-isolation", "--no-deps")
    run(*pip, sample)
    where = "import sample_tool; print(sample_tool.__path__[0])"
    installed = Path(run(python, "-c", where, cwd=prepared_environment).stdout.strip())
    assert sorted(path.name for path in installed.iterdir() if path.suffix) == [
        "__init__.py",
        "device.hipfb",
        "device.json",
        "device.py",
        "device.pyi",
    ]
    right = (installed / "device.hipfb").read_bytes()

    run(*pip, "-e", sample)
    assert Path(run(python, "-c", where, cwd=prepared_environment).stdout.strip()) == sample / "sample_tool"
    assert (sample / "sample_tool/device.hipfb").read_bytes() == right
    rows = json.loads(run(python, "-c", TOOLS, cwd=prepared_environment).stdout)
    (row,) = (row for row in rows if row["name"] == "sample")
    assert row["problems"] == []
    assert row["hooks"] == ["device.count(uint32_t step)"]


@pytest.mark.thorough
def test_editable_strict_mode_links_the_artefacts(prepared_environment: Path, sample: Path) -> None:
    python = prepared_environment / "python"
    run(
        *(python, "-m", "pip", "install", "-q", "--no-build-isolation", "--no-deps", "-e", sample),
        *("-C", "editable_mode=strict"),
    )
    code = "from sample_tool import device; assert device.count.name == 'count' and 'count' in dir(device)"
    run(python, "-c", code, cwd=prepared_environment)


def test_sdist_then_wheel(sample: Path) -> None:
    build(sample)
    with tarfile.open(sample / "dist/sample_tool-1.0.tar.gz") as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"sample_tool/device.hip", "include/sizes.h", "pyproject.toml", "sample_tool/__init__.py"} <= names
    assert not any(name.endswith((".hipfb", ".hsaco")) or name.startswith("build/") for name in names)
    with zipfile.ZipFile(sample / "dist/sample_tool-1.0-py3-none-any.whl") as wheel:
        assert {name for name in wheel.namelist() if name.startswith("sample_tool/")} == {
            "sample_tool/__init__.py",
            "sample_tool/device.hipfb",
            "sample_tool/device.json",
            "sample_tool/device.py",
            "sample_tool/device.pyi",
        }


@pytest.mark.thorough
def test_what_is_installed_has_no_record_of_an_editable_install(sample: Path) -> None:
    path = sample / "pyproject.toml"
    path.write_text(path.read_text().replace("include-package-data = false\n", ""))
    (sample / "MANIFEST.in").write_text("graft sample_tool\n")
    run(sys.executable, "-c", "from luthier.cli.main import main; main()", "build", cwd=sample)
    assert (sample / "sample_tool/.luthier-editable.json").exists()
    (sample / "sample_tool/limits.json").write_text("{}")
    build(sample, "--sdist", "--wheel")
    with tarfile.open(sample / "dist/sample_tool-1.0.tar.gz") as archive:
        names = {name.rpartition("/")[2] for name in archive.getnames()}
    with zipfile.ZipFile(sample / "dist/sample_tool-1.0-py3-none-any.whl") as wheel:
        installed = {name.rpartition("/")[2] for name in wheel.namelist()}
    assert "limits.json" in names & installed
    assert ".luthier-editable.json" not in names | installed


def test_sdist_carries_symbolic_links_by_their_own_names(make_project: MakeProject) -> None:
    project = make_project({"common/hooks.hip": '#include "size.h"\n', "common/sizes.h": "", "include/a.h": ""})
    (project / "tool").mkdir()
    for name, place in {
        "tool/device.hip": "../common/hooks.hip",
        "tool/size.h": "../common/sizes.h",
        "headers": "include",
    }.items():
        (project / name).symlink_to(place)
    table = {"include-dirs": ["headers"], "modules": {"device": ["tool/device.hip"]}}
    assert source_files(load_settings(table, environment={}), project) == [
        "common/hooks.hip",
        "common/sizes.h",
        "headers/a.h",
        "include/a.h",
        "tool/device.hip",
        "tool/size.h",
    ]


@pytest.mark.thorough
def test_sdist_carries_every_header_that_is_included(sample: Path) -> None:
    """Below the sources, of any suffix, through headers, in angle brackets; and a wheel can be built from it alone."""
    for name, text in {
        "sample_tool/detail/deep/a.h": '#include "../b.def"\n',
        "sample_tool/detail/b.def": "  #  include <c>\n",
        "include/c": "#define STEP step\n",
        "common/d.h": "",
        "common/not_included.txt": "",
    }.items():
        (sample / name).parent.mkdir(parents=True, exist_ok=True)
        (sample / name).write_text(text)
    source = sample / "sample_tool/device.hip"
    source.write_text(
        '#include "detail/deep/a.h"\n#include "../common/d.h"\n' + source.read_text().replace("step)", "STEP)")
    )
    build(sample)  # the wheel is built from the unpacked source distribution
    with tarfile.open(sample / "dist/sample_tool-1.0.tar.gz") as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"sample_tool/detail/deep/a.h", "sample_tool/detail/b.def", "include/c", "common/d.h"} <= names
    assert "common/not_included.txt" not in names


@pytest.mark.thorough
def test_a_renamed_module_is_in_no_later_wheel(sample: Path) -> None:
    """Neither from the folder of the last build nor from the sources, where an editable install put it."""

    def modules() -> set[str]:
        build(sample, "--wheel")
        with zipfile.ZipFile(sample / "dist/sample_tool-1.0-py3-none-any.whl") as wheel:
            return {name.rpartition("/")[2] for name in wheel.namelist() if "device" in name or "probes" in name}

    path = sample / "pyproject.toml"
    text = path.read_text()
    (sample / "sample_tool/device_notes.py").write_text("# the author's own\n")
    suffixes = (".hipfb", ".json", ".py", ".pyi")
    assert modules() == {*(f"device{suffix}" for suffix in suffixes), "device_notes.py"}
    path.write_text(text.replace("modules.device", "modules.probes"))
    assert modules() == {*(f"probes{suffix}" for suffix in suffixes), "device_notes.py"}
    for name in ("probes.py", "probes.pyi"):
        shutil.copy2(sample / "build/lib/sample_tool" / name, sample / "sample_tool" / name)
    path.write_text(text)
    assert modules() == {*(f"device{suffix}" for suffix in suffixes), "device_notes.py"}


@pytest.mark.thorough
@pytest.mark.parametrize("layout", ["flat", "src"])
def test_pip_and_luthier_build_know_what_the_other_made(sample: Path, layout: str) -> None:
    """Without `package`: neither compiles again what the other has, and nothing lies about in the project's folder."""
    path = sample / "pyproject.toml"
    if layout == "src":
        (sample / "src").mkdir()
        (sample / "sample_tool").rename(sample / "src/sample_tool")
        listed = path.read_text().replace('packages = ["sample_tool"]', 'package-dir = { "" = "src" }')
        path.write_text(listed.replace("sample_tool/device", "src/sample_tool/device"))
    package = sample / ("src/sample_tool" if layout == "src" else "sample_tool")
    before = set(os.listdir(sample))
    command = [sys.executable, "-c", "from luthier.cli.main import main; main()", "build"]
    assert "compiling for gfx942" in run(*command, cwd=sample).stdout
    assert {"device.hipfb", "device.json", "device.py", "device.pyi"} < set(os.listdir(package))
    assert set(os.listdir(sample)) - before == {"build"}
    assert "compiling for" not in build(sample, "--wheel")
    assert "compiling for" not in run(*command, cwd=sample).stdout


EPOCH = {"SOURCE_DATE_EPOCH": "1700000000"}


@pytest.mark.thorough  # test_compile.py compares the bytes of a module from two folders
def test_wheels_are_reproducible(sample: Path, tmp_path: Path) -> None:
    """Wheels of a tool built in two folders, with other file times and other hash seeds, are equal."""
    other = tmp_path / "copy/of it"
    shutil.copytree(sample, other, copy_function=shutil.copyfile)
    os.utime(sample / "sample_tool/device.hip", (1e9, 1e9))
    wheels = []
    for number, project in enumerate((sample, other)):
        build(project, "--wheel", **EPOCH, PYTHONHASHSEED=str(number))
        (wheel,) = (project / "dist").glob("*.whl")
        assert str(project).encode() not in b"".join(contents_of(wheel))
        wheels.append(wheel.read_bytes())
    assert wheels[0] == wheels[1]


def contents_of(wheel: Path) -> Iterator[bytes]:
    with zipfile.ZipFile(wheel) as archive:
        yield from map(archive.read, archive.namelist())


@pytest.mark.thorough
def test_the_wheel_of_luthier_is_reproducible(tmp_path: Path) -> None:
    """Compiled in two folders: in one with the objects of this tree, where they are current."""
    wheels = []
    for folder in (tmp_path / "first", tmp_path / "the other/folder"):
        copy = copied_sources(folder)
        for path in copy.rglob("*.py"):
            os.utime(path)
        objects = f"build/objects-{sys.implementation.cache_tag}"
        if not wheels and (ROOT / objects).is_dir():
            shutil.copytree(ROOT / objects, copy / objects)
        (wheel,) = wheel_of(copy, folder / "dist", **EPOCH).glob("*.whl")
        assert not any(str(part).encode() in b"".join(contents_of(wheel)) for part in (folder, ROOT))
        wheels.append(wheel.read_bytes())
    assert wheels[0] == wheels[1]


def test_permissions_in_the_wheel_of_luthier(tmp_path: Path) -> None:
    """Sources and new files are readable only by their owner; without native parts."""
    copy = copied_sources(tmp_path / "private")
    for path in copy.rglob("*"):
        path.chmod(path.stat().st_mode & 0o700)
    launcher = copy / f"build/scripts-{sys.version_info.major}.{sys.version_info.minor}/luthier-cc"
    launcher.parent.mkdir(parents=True)
    shutil.copy("/bin/true", launcher)
    library = f"build/lib.{sysconfig.get_platform()}-{sys.implementation.cache_tag}"
    command = (
        "setup.py",
        "-q",
        "build_py",
        "--build-lib",
        library,
        "bdist_wheel",
        "--skip-build",
        "--dist-dir",
        tmp_path,
    )
    subprocess.run([sys.executable, *command], cwd=copy, check=True, umask=0o077, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        modes = {one.filename: one.external_attr >> 16 & 0o777 for one in archive.infolist()}
    executable = {name for name, mode in modes.items() if mode == 0o755}
    assert {Path(name).name for name in executable} == {"luthier-cc"}
    written = {name for name, mode in modes.items() if mode == 0o664}
    assert {Path(name).name for name in written} == {"RECORD"}  # by setuptools, with this mode always
    assert {modes[name] for name in modes.keys() - executable - written} == {0o644}


@pytest.mark.thorough
def test_where_settings_come_from(sample: Path) -> None:
    def bundled(*arguments: str, **variables: str) -> list[str]:
        build(sample, "--wheel", *arguments, **variables)
        with zipfile.ZipFile(sample / "dist/sample_tool-1.0-py3-none-any.whl") as wheel:
            targets: list[str] = json.loads(wheel.read("sample_tool/device.json"))["targets"]
        return targets

    flag = "-C--global-option=build_luthier --targets=gfx90a"
    config = "-Cluthier.targets=gfx908"
    assert bundled() == ["gfx942"]
    assert bundled(LUTHIER_TARGETS="gfx906") == ["gfx906"]
    assert bundled(config, LUTHIER_TARGETS="gfx906") == ["gfx908"]
    assert bundled(flag, config, LUTHIER_TARGETS="gfx906") == ["gfx90a"]
    output = build(sample, "--wheel", config, LUTHIER_VERBOSE="1", LUTHIER_JOBS="1")
    assert "targets = ('gfx908',) (from config setting luthier.targets)" in output
    assert "jobs = 1 (from environment LUTHIER_JOBS)" in output
    assert "include-dirs = ('include',) (from pyproject.toml)" in output
    assert "compress = False (from default)" in output


@pytest.mark.thorough
def test_plain_setuptools_backend_and_setup_keyword(sample: Path) -> None:
    text = PYPROJECT.format(backend="setuptools.build_meta").partition("[tool.luthier]")[0]
    (sample / "pyproject.toml").write_text(text)
    (sample / "setup.py").write_text(
        textwrap.dedent(
            """\
            from setuptools import setup
            setup(luthier={
                "targets": ["gfx90a"],
                "include-dirs": ["include"],
                "modules": {"device": ["sample_tool/device.hip"]},
            })
            """
        )
    )
    build(sample, "--wheel")
    with zipfile.ZipFile(sample / "dist/sample_tool-1.0-py3-none-any.whl") as wheel:
        manifest = json.loads(wheel.read("sample_tool/device.json"))
    assert manifest["targets"] == ["gfx90a"]
    assert manifest["hooks"][0]["parameters"][0]["type"] == "uint32_t"


def test_a_project_without_settings_is_left_alone(make_project: MakeProject) -> None:
    project = make_project(
        {
            "pyproject.toml": '[build-system]\nrequires = ["setuptools"]\n[project]\nname = "plain"\nversion = "1"\n',
            "plain.py": "",
        }
    )
    output = build(project, "--wheel")
    assert "build_luthier" not in output
    assert not (project / "build/luthier").exists()


@pytest.fixture(scope="session")
def older_setuptools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the setuptools that a new environment of Python 3.11 has."""
    wheels = list((Path(ensurepip.__file__).parent / "_bundled").glob("setuptools-*.whl"))
    if not wheels:
        pytest.skip("this Python brings no setuptools")
    folder = tmp_path_factory.mktemp("setuptools")
    with zipfile.ZipFile(wheels[0]) as wheel:
        wheel.extractall(folder)
    return folder


@pytest.mark.parametrize("kind", ["backend", "plugin", "counting", "plain"])
def test_a_setuptools_that_is_too_old(older_setuptools: Path, sample: Path, tmp_path: Path, kind: str) -> None:
    """With --no-build-isolation, pip does not check its version, and some later failure would be reported."""
    path, backend = sample / "pyproject.toml", "luthier_build.backend" if kind == "backend" else "setuptools.build_meta"
    if kind in ("counting", "plain"):  # a tool without device modules, and no tool
        text = path.read_text().partition("[tool.luthier]")[0]
        path.write_text(text if kind == "counting" else text.replace("luthier.tools", "console_scripts"))
    code = f"import {backend} as backend; backend.prepare_metadata_for_build_wheel({str(tmp_path)!r})"
    command, environment = [sys.executable, "-W", "ignore", "-c", code], {"PYTHONPATH": str(older_setuptools)}
    done = subprocess.run(command, cwd=sample, env={**os.environ, **environment}, capture_output=True, text=True)
    if kind == "plain":
        assert done.returncode == 0, done.stderr
    else:
        wanted = f"{OLDEST} or later: pip install -U 'setuptools>={OLDEST}'"
        assert done.returncode == 1
        assert re.fullmatch(rf".*setuptools [\d.]+ is too old; this package needs {wanted}\n", done.stderr), done.stderr


def test_one_setuptools_is_asked_for_everywhere() -> None:
    asked = f'"setuptools>={OLDEST}"'
    assert asked in new.PYPROJECT
    assert asked in PYPROJECT
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert asked.strip('"') in extras["build"]


@pytest.mark.rows(1)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("targets =", "target ="), "unknown key 'target' in pyproject.toml"),
        (('"gfx942"', '"gfx9999"'), "unknown target 'gfx9999'"),
        (("sample_tool/device.hip", "../device.hip"), "lies outside the project"),
        (("sample_tool/device.hip", "missing.hip"), "no source"),
        (('packages = ["sample_tool"]', 'packages = ["sample_tool", "other"]'), "set `package` in [tool.luthier]"),
    ],
    ids=["key", "target", "outside", "missing", "package"],
)
def test_wrong_settings_are_one_line_not_a_traceback(sample: Path, change: tuple[str, str], message: str) -> None:
    path = sample / "pyproject.toml"
    path.write_text(path.read_text().replace(*change))
    (sample / "other").mkdir()
    (sample / "other/__init__.py").write_text("")
    output = build(sample, "--wheel", fails=True)
    assert message in output
    assert "luthier_build/" not in output  # no traceback through us
    assert not list(sample.rglob("*.whl"))


@pytest.mark.thorough
def test_compiler_errors_reach_the_user_and_the_next_build_is_right(sample: Path) -> None:
    source = sample / "sample_tool/device.hip"
    right = source.read_text()
    source.write_text(right + "LUTHIER_HOOK_ANNOTATE broken( {}\n")
    output = build(sample, "--wheel", fails=True)
    assert "sample_tool/device.hip:9:" in output
    assert "error: expected" in output
    assert not list(sample.rglob("*.whl"))
    source.write_text(right)
    build(sample, "--wheel")


@pytest.mark.thorough
def test_no_compiler_and_unwritable_cache(sample: Path, tmp_path: Path) -> None:
    output = build(sample, "--wheel", fails=True, LUTHIER_CLANG="no-such-clang")
    assert "LUTHIER_CLANG is no-such-clang, which is not a program" in output
    (tmp_path / "file").write_text("")
    output = build(sample, "--wheel", fails=True, LUTHIER_CACHE_DIR=str(tmp_path / "file"))
    assert "set LUTHIER_CACHE_DIR to a writable folder" in output
