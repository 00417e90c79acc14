"""Settings: every source, every type, every way to get one wrong."""

from __future__ import annotations

import itertools
import subprocess
from pathlib import Path

import pytest
from luthier.errors import BuildError, TargetError

from luthier_build.settings import (
    DEFAULT_TARGETS,
    ModuleSettings,
    Settings,
    check_targets,
    describe,
    load_settings,
    read_table,
)
from luthier_build.toolchain import Toolchain

MODULES = {"modules": {"device": {"sources": ["a.hip"]}}}


def test_values_come_from_the_table() -> None:
    settings = load_settings(
        {
            "package": "tool",
            "targets": ["gfx942:xnack-"],
            "include-dirs": ["include"],
            "code-object-version": 5,
            "compress": True,
            "modules": {"first": {"sources": ["a.hip", "b.hip"], "defines": ["X=1"]}, "second": ["c.hip"]},
        },
        environment={},
    )
    assert settings == Settings(
        package="tool",
        targets=("gfx942:xnack-",),
        include_dirs=("include",),
        code_object_version=5,
        compress=True,
        modules=(
            ModuleSettings("first", ("a.hip", "b.hip"), defines=("X=1",)),
            ModuleSettings("second", ("c.hip",)),
        ),
    )
    assert settings.module("second").sources == ("c.hip",)
    with pytest.raises(BuildError, match="there are: first, second"):
        settings.module("third")


@pytest.mark.parametrize(
    ("given", "value", "origin"),
    [
        (("flag", "config", "environment", "table"), "gfx900", "flag --targets"),
        (("config", "environment", "table"), "gfx906", "config setting luthier.targets"),
        (("environment", "table"), "gfx908", "environment LUTHIER_TARGETS"),
        (("table",), "gfx90a", "pyproject.toml"),
    ],
)
def test_precedence_and_origin(given: tuple[str, ...], value: str, origin: str) -> None:
    settings = load_settings(
        {**MODULES, **({"targets": ["gfx90a"]} if "table" in given else {})},
        flags={"targets": "gfx900" if "flag" in given else None},
        config={"luthier.targets": "gfx906"} if "config" in given else {},
        environment={"LUTHIER_TARGETS": "gfx908"} if "environment" in given else {},
    )
    assert settings.targets == (value,)
    assert settings.origins["targets"] == origin
    assert settings.origins["jobs"] == "default"


def test_nothing_given_is_the_default() -> None:
    settings = load_settings({}, environment={})
    assert settings.targets == DEFAULT_TARGETS
    assert set(settings.origins.values()) == {"default"}


def test_lists_in_text() -> None:
    settings = load_settings(
        {},
        environment={
            "LUTHIER_TARGETS": "gfx90a;gfx942:sramecc+:xnack-, gfx1100",
            "LUTHIER_DEFINES": "A=x y;B",
            "LUTHIER_FLAGS": "-Wall '-DNAME=two words'",
            "LUTHIER_COMPRESS": "yes",
            "LUTHIER_JOBS": "3",
        },
    )
    assert settings.targets == ("gfx90a", "gfx942:sramecc+:xnack-", "gfx1100")
    assert settings.defines == ("A=x y", "B")
    assert settings.flags == ("-Wall", "-DNAME=two words")
    assert settings.compress
    assert settings.jobs == 3


@pytest.mark.parametrize("key", ["targets", "include-dirs", "defines", "flags", "sources"])
@pytest.mark.parametrize("values", [[""], ["one", ""], ["", "one"]])
def test_an_empty_string_is_no_value(key: str, values: list[str]) -> None:
    """`-I` alone would take the next flag for its folder."""
    tables = [{"modules": {"first": {"sources": ["a.hip"], key: values}}}]
    tables += [{key: values}] if key != "sources" else []
    for table in tables:
        with pytest.raises(
            BuildError, match=f"{key} from .*pyproject.toml contains an empty string|{key} from module 'first'"
        ):
            load_settings(table, environment={})
    if key == "flags":
        with pytest.raises(BuildError, match="flags from environment LUTHIER_FLAGS contains an empty string"):
            load_settings({}, environment={"LUTHIER_FLAGS": "-Wall ''"})


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"target": ["gfx942"]}, "unknown key 'target'"),
        ({"targets": "gfx942"}, None),  # one string is a list of one
        ({"targets": [1]}, "targets from pyproject.toml must be a list of strings"),
        ({"targets": []}, "targets from pyproject.toml is empty"),
        ({"targets": ["gfx942", "gfx942"]}, "given twice"),
        ({"jobs": "many"}, "jobs from pyproject.toml must be a whole number, not 'many'"),
        ({"jobs": "²"}, "jobs from pyproject.toml must be a whole number, not '²'"),
        ({"jobs": True}, "must be a whole number"),
        ({"compress": "perhaps"}, "compress from pyproject.toml must be true or false"),
        ({"package": ["a"]}, "package from pyproject.toml must be a string"),
        ({"code-object-version": 3}, "must be 4, 5 or 6, not 3"),
        ({"optimization": "0"}, "must be 1, 2, 3 or s"),
        ({"flags": "'open"}, "No closing quotation"),
        ({"modules": ["a.hip"]}, "must be tables"),
        ({"modules": {"a-b": ["a.hip"]}}, "must be a Python identifier"),
        ({"modules": {"a": {}}}, "module 'a' in pyproject.toml has no sources"),
        ({"modules": {"a": {"source": ["a.hip"]}}}, "unknown key 'source'"),
        ({"modules": {"a": 1}}, "must be a table or a list of sources"),
    ],
)
def test_wrong_values_are_named_with_their_place(table: dict[str, object], message: str | None) -> None:
    if message is None:
        load_settings(table, environment={})
        return
    with pytest.raises(BuildError, match=message):
        load_settings(table, environment={})


def test_unknown_targets_say_where_they_were_given() -> None:
    with pytest.raises(TargetError, match=r"targets from environment LUTHIER_TARGETS: unknown target 'gfx1'"):
        load_settings({}, environment={"LUTHIER_TARGETS": "gfx1"})
    with pytest.raises(TargetError, match=r"targets from module 'm': gfx1100 has no feature xnack"):
        load_settings({"modules": {"m": {"sources": ["a"], "targets": ["gfx1100:xnack+"]}}}, environment={})


def test_unknown_config_setting_is_refused_and_foreign_ones_ignored() -> None:
    with pytest.raises(BuildError, match=r"unknown config setting 'luthier\.target'"):
        load_settings({}, config={"luthier.target": "gfx942"}, environment={})
    load_settings({}, config={"--build-option": "--quiet", "editable_mode": "strict"}, environment={})


def test_read_table(tmp_path: Path) -> None:
    assert read_table(tmp_path) is None
    project = tmp_path / "pyproject.toml"
    project.write_text('[project]\nname = "x"\n')
    assert read_table(tmp_path) is None
    project.write_text('[tool.luthier]\ntargets = ["gfx942"]\n')
    assert read_table(tmp_path) == {"targets": ["gfx942"]}
    project.write_text("[tool.luthier\n")
    with pytest.raises(BuildError, match=r"pyproject\.toml"):
        read_table(tmp_path)
    project.write_text("tool.luthier = 3\n")
    with pytest.raises(BuildError, match="must be a table"):
        read_table(tmp_path)


def test_every_setting_is_documented() -> None:
    assert all(meaning.endswith(".") for _, _, meaning in describe())
    assert {key for key, _, _ in describe()} >= {"targets", "modules", "build-dir", "code-object-version"}
    text = (Path(__file__).parents[2] / "docs/building.md").read_text()
    for key, default, meaning in describe():
        shown = f"`{default}`" if default else ""
        assert f"| `{key}` | {shown} | {meaning} |" in text, "make docs/building.md say the same"


@pytest.mark.parametrize(
    "package", ["../../x", "/x", "a/b", "a..b", ".a", "a-b", "class", "a.lambda", "a b", "a\n", ".."]
)
def test_a_package_is_a_packages_name_and_leaves_no_folder(package: str) -> None:
    with pytest.raises(BuildError, match=r"package from pyproject\.toml must be the name of a Python package"):
        load_settings({"package": package}, environment={})
    with pytest.raises(BuildError, match="package from environment LUTHIER_PACKAGE"):
        load_settings({}, environment={"LUTHIER_PACKAGE": package})


FEATURES = ["", *(a + b for a in ("", ":sramecc+", ":sramecc-") for b in ("", ":xnack+", ":xnack-") if a or b)]


def test_targets_that_exclude_each_other_are_those_of_the_bundler(toolchain: Toolchain, tmp_path: Path) -> None:
    """Pairs of the nine forms of gfx942, against clang-offload-bundler itself."""
    refused = 0
    for pair in itertools.combinations([f"gfx942{features}" for features in FEATURES], 2):
        entries = ",".join(["host-x86_64-unknown-linux-gnu-", *(f"hipv4-amdgcn-amd-amdhsa--{name}" for name in pair)])
        command = [toolchain.bundler, "--type=o", f"--targets={entries}", f"--output={tmp_path / 'out'}"]
        bundled = subprocess.run([*command, *["--input=/dev/null"] * 3], capture_output=True).returncode == 0
        if bundled:
            check_targets(pair, "here")
            check_targets(pair[::-1], "here")
            continue
        refused += 1
        with pytest.raises(BuildError, match="cannot be in one bundle"):
            check_targets(pair[::-1], "here")
        with pytest.raises(BuildError, match="cannot be in one bundle") as problem:
            check_targets(pair, "here")
        assert all(f"{name} " in str(problem.value) for name in pair)
    assert 0 < refused < 36
    with pytest.raises(BuildError, match="given twice"):
        check_targets(["gfx942:xnack-:sramecc+", "gfx942:sramecc+:xnack-"], "here")
    check_targets(["gfx90a:xnack-", "gfx942"], "here")
