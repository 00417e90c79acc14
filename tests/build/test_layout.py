"""Locations of packages in every layout, compared with setuptools' own discovery."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from luthier.errors import BuildError
from setuptools import Distribution
from setuptools.errors import OptionError

from luthier_build.layout import only_package, package_folder
from luthier_build.setuptools_plugin import BuildLuthier

MakeProject = Callable[[Mapping[str, str]], Path]
NAME = '[project]\nname = "x"\nversion = "1"\n'


@pytest.mark.parametrize(
    ("settings", "files", "folder"),
    [
        ("", ["tool/__init__.py", "tests/__init__.py", "docs/x.md"], "tool"),
        ("", ["src/tool/__init__.py", "tests/__init__.py"], "src/tool"),
        ('packages = ["tool"]', ["tool/__init__.py", "src/a.c", "other/__init__.py"], "tool"),
        ('packages = ["tool"]\npackage-dir = { "" = "lib" }', ["lib/tool/__init__.py"], "lib/tool"),
        ('packages = ["tool"]\npackage-dir = { tool = "python" }', ["python/__init__.py"], "python"),
        ('packages.find.where = ["python"]', ["python/tool/__init__.py", "aside/__init__.py"], "python/tool"),
    ],
)
def test_as_setuptools_finds_it(
    make_project: MakeProject, monkeypatch: pytest.MonkeyPatch, settings: str, files: list[str], folder: str
) -> None:
    pyproject = f"{NAME}[tool.setuptools]\n{settings}\n"
    project = make_project({"pyproject.toml": pyproject, **dict.fromkeys(files, "")})
    monkeypatch.chdir(project)
    theirs = Distribution()
    theirs.parse_config_files()
    theirs.set_defaults()
    assert (theirs.packages or [])[0] == only_package(project) == "tool"
    build_py = theirs.get_command_obj("build_py")
    build_py.ensure_finalized()
    assert package_folder(project, "tool") == project / build_py.get_package_dir("tool") == project / folder
    assert package_folder(project, "tool.below.it") == project / folder / "below/it"


@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize(
    ("files", "only"),
    [
        (["ns/tool/__init__.py"], "ns.tool"),
        (["ns/tool/__init__.py", "ns/tool/inner/__init__.py"], "ns.tool"),
        (["org/ns/tool/__init__.py"], "org.ns.tool"),
        (["ns/tool/__init__.py", "ns/module.py"], "ns"),
        (["tool/__init__.py", "tool/inner/__init__.py"], "tool"),
        (["ns/tool/__init__.py", "other/__init__.py"], ""),
        (["ns/one/__init__.py", "ns/two/__init__.py"], ""),
    ],
)
def test_namespaces(
    make_project: MakeProject, monkeypatch: pytest.MonkeyPatch, files: list[str], only: str, listed: bool
) -> None:
    """A pure namespace receives no device modules, with any build system."""
    packages = sorted({str(parent).replace("/", ".") for file in files for parent in Path(file).parents} - {"."})
    table = f'packages = {packages}\npackage-dir = {{ "" = "src" }}\n' if listed else ""
    settings = f"{NAME}[tool.setuptools]\n{table}[tool.luthier]\n"
    project = make_project({"pyproject.toml": settings, **{f"src/{file}": "" for file in files}})
    monkeypatch.chdir(project)
    theirs = Distribution()
    theirs.parse_config_files()
    theirs.set_defaults()
    assert sorted(theirs.packages or []) == packages
    command = BuildLuthier(theirs)
    if only == "ns" and not listed:
        (project / "src/ns/__init__.py").touch()  # a namespace with modules is one to setuptools alone
    if only:
        command.ensure_finalized()
        assert command.settings.package == only_package(project) == only
    else:
        for ask in (command.ensure_finalized, lambda: only_package(project)):
            with pytest.raises((OptionError, BuildError), match="set `package` in"):
                ask()


def test_a_package_that_is_not_clear_is_asked_for(make_project: MakeProject) -> None:
    project = make_project({"a/__init__.py": "", "b/__init__.py": ""})
    with pytest.raises(BuildError, match=r"set `package` in \[tool.luthier\]; the project has a, b"):
        only_package(project)
    (project / "a/__init__.py").unlink()
    (project / "b/__init__.py").unlink()
    with pytest.raises(BuildError, match="the project has no packages"):
        only_package(project)
    assert package_folder(project, "new") == project / "new"
    assert sorted(os.listdir(project)) == ["a", "b"]
