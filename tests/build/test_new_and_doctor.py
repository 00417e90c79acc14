"""`luthier new` and `luthier doctor`."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

import pytest
from luthier.cli.main import main
from luthier.errors import BuildError, ToolError

import luthier_build.cli.doctor as doctor
from luthier_build.cli.new import make_tool
from luthier_build.toolchain import Toolchain


def test_a_new_tool_builds_tests_and_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new", "My-Branch-count", "--directory", str(tmp_path)]) == 0
    folder = tmp_path / "My-Branch-count"
    assert f"pip install --no-build-isolation {folder}," in capsys.readouterr().out
    project = folder / "pyproject.toml"  # the tests run for these targets
    project.write_text(re.sub("targets = .*", 'targets = ["gfx90a"]', project.read_text()))
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    site = venv / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    (site / "outer.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
    python = venv / "bin/python"
    pip = [python, "-m", "pip", "install", "-q", "--no-build-isolation", "--no-deps"]
    subprocess.run([*pip, "-e", folder], check=True, capture_output=True)
    tested = subprocess.run([python, "-m", "pytest", "-q"], cwd=folder, capture_output=True, text=True)
    assert "1 passed" in tested.stdout, tested.stdout
    code = "from luthier.cli.main import main; main(['tools', '--json'])"
    listed = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    (row,) = (row for row in json.loads(listed.stdout) if row["name"] == "my_branch_count")
    assert row["problems"] == []
    assert row["options"] == ["step: int = 1"]
    # git ignores the files of an editable install.
    subprocess.run(["git", "init", "-q", folder], check=True)
    status = subprocess.run(["git", "status", "--short", "-uall"], cwd=folder, capture_output=True, text=True).stdout
    assert sorted(line.split()[1] for line in status.splitlines()) == [
        ".clangd",
        ".gitignore",
        "README.md",
        "my_branch_count/__init__.py",
        "my_branch_count/device.hip",
        "pyproject.toml",
        "tests/test_my_branch_count.py",
    ]


def test_what_it_tells_to_install_is_a_folder_not_somebodys_package(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for arguments, place in (
        (["requests"], "./requests"),
        (["flask", "--directory", "sub"], "./sub/flask"),
        (["black", "--directory", "my tools"], "'./my tools/black'"),
    ):
        assert main(["new", *arguments]) == 0
        assert f"pip install --no-build-isolation {place}, then" in capsys.readouterr().out
    assert "pip install --no-build-isolation .\n" in (tmp_path / "requests/README.md").read_text()


def test_a_new_tool_without_a_compiler(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says so, and the tool builds with the oldest compiler that is installed later."""
    monkeypatch.setenv("LUTHIER_CLANG", "/none/clang")
    assert main(["new", "early", "--directory", str(tmp_path)]) == 0
    assert "pip needs a compiler: LUTHIER_CLANG is /none/clang" in capsys.readouterr().err
    project = tomllib.loads((tmp_path / "early/pyproject.toml").read_text())
    assert project["tool"]["luthier"]["targets"] == ["gfx90a", "gfx1100"]


@pytest.mark.parametrize(
    "name",
    [
        *("numpy", "Msgpack", "elftools", "llvmlite", "libclang", "Hip.Python", "pip", "setuptools", "wheel"),
        *("", "9lives", "a--b", "class", "json", "luthier", "a b", "../x", "-x"),
    ],
)
def test_unusable_names(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new", "--directory", str(tmp_path), "--", name]) == 1
    assert "luthier new: error: " in capsys.readouterr().err
    assert os.listdir(tmp_path) == []


def test_every_name_is_refused_with_another_or_is_good(tmp_path: Path) -> None:
    """Created tools can be imported and hide nothing; suggested names are accepted."""
    parts = ("A.B", "a", "B-c", "x_y", "2", "--", "..", "é", " ", "true", "none", "tool", "tests", "class", "json", "-")
    more = (
        "mapping",
        "instruction-flag",
        "execution.counts",
        "dataclass",
        "build",
        "dist",
        "numpy",
        "luthier",
        "test",
        "hip",
        "clang",
        "__",
    )
    names = [*parts, *more, *(first + between + then for first in parts for between in "-. " for then in parts[:5])]
    accepted = []
    for number, name in enumerate(dict.fromkeys(names)):
        place = tmp_path / str(number)
        try:
            folder = make_tool(name, place)
        except ToolError as problem:
            assert not place.exists()
            folder = make_tool(str(problem).rpartition(", e.g. ")[2], place)
        else:
            accepted.append(name)
        (package,) = (path.parent for path in folder.glob("*/__init__.py"))
        project = tomllib.loads((folder / "pyproject.toml").read_text())
        assert project["tool"]["luthier"]["package"] == package.name
        assert sorted(path.name for path in folder.iterdir() if path.is_dir()) == sorted(["tests", package.name])
        tree = ast.parse((package / "__init__.py").read_text())
        imported = {one.name for node in tree.body if isinstance(node, ast.ImportFrom) for one in node.names}
        (tool,) = (node.name for node in tree.body if isinstance(node, ast.ClassDef))
        assert tool not in imported
        assert project["project"]["entry-points"]["luthier.tools"] == {package.name: f"{package.name}:{tool}"}
    assert {"A.B", "a", "B-c", "x_y", "A.B-x_y"} <= set(accepted)
    assert not {"tool", "true", "none", "instruction-flag", "a--", "tests", "test", "hip", "clang"} & set(accepted)


def test_names_of_installed_tools_are_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Except the name of the package itself, which may be created again."""
    known = tmp_path / "site/luthier_flops-1.0.dist-info"
    known.mkdir(parents=True)
    (known / "METADATA").write_text("Metadata-Version: 2.1\nName: luthier-flops\nVersion: 1.0\n")
    (known / "entry_points.txt").write_text("[luthier.tools]\nflops = flops:Flops\nluthier_flops = flops:Flops\n")
    monkeypatch.syspath_prepend(str(known.parent))
    assert main(["new", "flops", "--directory", str(tmp_path / "made")]) == 1
    assert "a tool flops from luthier-flops is already installed" in capsys.readouterr().err
    assert not (tmp_path / "made").exists()
    assert main(["new", "luthier-flops", "--directory", str(tmp_path / "made")]) == 0


def test_nothing_is_overwritten_nor_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sum").mkdir()
    assert main(["new", "sum", "--directory", str(tmp_path)]) == 1
    assert os.listdir(tmp_path / "sum") == []
    (tmp_path / "file").write_text("")
    assert main(["new", "sum", "--directory", str(tmp_path / "file")]) == 1

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(ToolError, match="No space"):
        make_tool("other", tmp_path)
    assert sorted(os.listdir(tmp_path)) == ["file", "sum"]


def test_doctor_on_this_machine(capsys: pytest.CaptureFixture[str], toolchain: Toolchain) -> None:
    assert main(["doctor", "--json"]) == 0
    lines = {item["subject"]: item for item in json.loads(capsys.readouterr().out)}
    for subject in ("luthier", "native module", "compiler", "HIP headers", "compiler plugin", "hooks", "libclang"):
        assert lines[subject]["status"] == "ok", lines[subject]
    assert str(toolchain.clang) in lines["compiler"]["detail"]
    assert lines["hooks"]["detail"] == "count compiles for gfx90a, with its bitcode"
    assert lines["devices"]["status"] in ("ok", "optional")


def test_doctor_names_what_is_missing_and_how_to_get_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LUTHIER_CLANG", "no-such-clang")
    assert main(["doctor"]) == 1
    assert "missing   compiler         LUTHIER_CLANG is no-such-clang" in capsys.readouterr().out

    monkeypatch.delenv("LUTHIER_CLANG")
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LUTHIER_CACHE_DIR", str(tmp_path / "file"))
    assert main(["doctor"]) == 1
    output = capsys.readouterr().out
    assert "missing   compiler plugin" in output
    assert "set LUTHIER_CACHE_DIR" in output
    assert "Traceback" not in output


def test_doctor_without_optional_parts(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def no_hipcc() -> str:
        raise BuildError("no hipcc")

    monkeypatch.setattr("luthier_build.wrapper.find_hipcc", no_hipcc)
    monkeypatch.setattr("luthier_build.sources.available", lambda: False)
    monkeypatch.setattr(doctor.importlib.util, "find_spec", lambda _: None)
    assert main(["doctor"]) == 0
    output = capsys.readouterr().out
    for line in ("optional  hipcc", "optional  libclang", "-> pip install libclang", "-> pip install 'luthier[scons]'"):
        assert line in output


@pytest.mark.parametrize("other", ["librocr.so", "libhsa-runtime64.so.1.vendor", "libhsa-runtime64.so.1.18.60403"])
def test_doctor_with_a_library_of_any_name(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, other: str
) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / other).touch()
    (tmp_path / "lib/libhsa-runtime64.so.1").symlink_to(other)
    (tmp_path / "lib/libhsa-runtime64.so").symlink_to("libhsa-runtime64.so.1")
    monkeypatch.setenv("ROCM_PATH", str(tmp_path))
    version = other.removeprefix("libhsa-runtime64.so.") if other.endswith("60403") else "1"
    assert f"{tmp_path}/lib/{other}, version {version}" in [finding.detail for finding in doctor._programs()]


def test_python_started_above_a_clone_does_not_take_the_clone_for_the_package(tmp_path: Path) -> None:
    """A folder `luthier` without code, in the current folder, hides an editable install but for bootstrap's line."""
    for name in ("luthier", "luthier_build"):
        (tmp_path / name).mkdir()
    script = (Path(__file__).parents[2] / "scripts/bootstrap").read_text()
    match = re.search(r"echo '(import sys; .*)' ", script)
    assert match is not None
    code = f"{match[1]}; import luthier, luthier_build; print(bool(luthier.__file__ and luthier_build.__file__))"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"
