"""Settings of a tool's build: one dataclass, read from four sources.

The first source that has a value takes precedence: a command-line flag, a configuration setting of the build
frontend (``pip install -C luthier.targets=gfx942 .``), the environment (``LUTHIER_TARGETS``), the project's
``pyproject.toml`` or `setup.py`.
"""

from __future__ import annotations

import dataclasses
import keyword
import os
import re
import shlex
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from luthier.errors import BuildError, TargetError
from luthier.isa.targets import TargetId

DEFAULT_TARGETS = ("gfx90a", "gfx942", "gfx1100")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


def is_python_name(text: str) -> bool:
    """Return whether a text is a Python identifier and not a keyword."""
    return _NAME.match(text) is not None and not keyword.iskeyword(text)


def _setting(help: str, default: Any) -> Any:
    """Return a dataclass field with its documentation (read by `describe`)."""
    return field(default=default, metadata={"help": help})


@dataclass(frozen=True)
class Settings:
    """The table ``[tool.luthier]``; its keys are the field names with ``-`` instead of ``_``."""

    package: str = _setting("Import package that receives the device modules; default: the project's only package.", "")
    modules: tuple[ModuleSettings, ...] = _setting("Device modules, one table `[tool.luthier.modules.NAME]` each.", ())
    targets: tuple[str, ...] = _setting("Target ids to compile for, e.g. `gfx942:xnack-`.", DEFAULT_TARGETS)
    include_dirs: tuple[str, ...] = _setting("Folders of headers, relative to the project.", ())
    defines: tuple[str, ...] = _setting("Preprocessor definitions, `NAME` or `NAME=VALUE`.", ())
    flags: tuple[str, ...] = _setting("Additional compiler flags, after all others.", ())
    optimization: str = _setting("Optimization level: 1, 2, 3 or s.", "3")
    code_object_version: int = _setting("Code object version 4, 5 or 6; 0: the compiler's default.", 0)
    check_hooks: bool = _setting("Check that every hook can be spliced, for every target.", True)
    compress: bool = _setting("Compress the offload bundles.", False)
    clang: str = _setting("Path or name of the compiler; default: the best one installed.", "")
    jobs: int = _setting("Number of parallel compilations; 0: as many as processors and memory allow.", 0)
    build_dir: str = _setting("Folder for intermediate files, kept between builds.", "build/luthier")
    editable_rebuild: bool = _setting(
        "Rebuild hooks when an editable install is used after their sources changed.", True
    )
    verbose: bool = _setting("Show every command and the source of each setting.", False)
    origins: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    """Setting -> source of its value."""

    def module(self, name: str) -> ModuleSettings:
        """Return the device module `name`.

        Raises:
            BuildError: there is no such module; the message lists the modules.
        """
        for module in self.modules:
            if module.name == name:
                return module
        known = ", ".join(module.name for module in self.modules) or "none"
        raise BuildError(f"no device module {name!r} in [tool.luthier.modules]; there are: {known}")


@dataclass(frozen=True)
class ModuleSettings:
    """The table ``[tool.luthier.modules.NAME]``: settings of one device module that add to or replace common ones."""

    name: str
    """Name of the Python attribute and stem of the artefacts."""
    sources: tuple[str, ...] = _setting("HIP sources, relative to the project; compiled together as one unit.", ())
    targets: tuple[str, ...] = _setting("Target ids that replace the common ones.", ())
    include_dirs: tuple[str, ...] = _setting("Folders of headers, before the common ones.", ())
    defines: tuple[str, ...] = _setting("Definitions, after the common ones.", ())
    flags: tuple[str, ...] = _setting("Compiler flags, after the common ones.", ())


_LISTS_IN_TEXT = {"targets": None, "include_dirs": None, "defines": ";", "flags": " "}
"""Separators of lists written as one string: shell words (" "), ";", or comma, ";" or blank (None)."""


def describe() -> list[tuple[str, str, str]]:
    """Return (key, default, help text) of every setting, for command lines and documentation."""
    return [
        (item.name.replace("_", "-"), str(item.default), item.metadata["help"])
        for item in dataclasses.fields(Settings)
        if "help" in item.metadata
    ]


def _value(name: str, raw: object, origin: str) -> Any:
    """Return `raw` (from TOML or text) converted to the type of the setting `name`.

    Raises:
        BuildError: the value has another type; the message names `origin`.
    """
    key = name.replace("_", "-")
    default = next(item.default for item in dataclasses.fields(Settings) if item.name == name)
    if isinstance(default, bool):
        if isinstance(raw, str) and raw.lower() in ("1", "true", "yes", "on", "0", "false", "no", "off", ""):
            return raw.lower() in ("1", "true", "yes", "on")
        if isinstance(raw, bool):
            return raw
        raise BuildError(f"{key} from {origin} must be true or false, not {raw!r}")
    if isinstance(default, int):
        if isinstance(raw, int) and not isinstance(raw, bool):
            return raw
        if isinstance(raw, str) and raw.strip().isdecimal():
            return int(raw)
        raise BuildError(f"{key} from {origin} must be a whole number, not {raw!r}")
    if isinstance(default, tuple):
        if isinstance(raw, str):
            separator = _LISTS_IN_TEXT[name]
            if separator is None:
                return tuple(part for part in re.split(r"[,;\s]+", raw) if part)
            try:
                parts = shlex.split(raw) if separator == " " else [part for part in raw.split(separator) if part]
            except ValueError as problem:
                raise BuildError(f"{key} from {origin}: {problem}: {raw!r}") from problem
            return _strings(key, parts, origin)
        return _strings(key, raw, origin)
    if isinstance(raw, (str, int)) and not isinstance(raw, bool):
        return str(raw)
    raise BuildError(f"{key} from {origin} must be a string, not {raw!r}")


def _strings(key: str, raw: object, origin: str) -> tuple[str, ...]:
    if not isinstance(raw, (list, tuple)) or not all(isinstance(part, str) for part in raw):
        raise BuildError(f"{key} from {origin} must be a list of strings, not {raw!r}")
    if not all(raw):  # a compiler flag would take the next argument as its value
        raise BuildError(f"{key} from {origin} contains an empty string: {raw!r}")
    return tuple(raw)


def _modules(raw: object, origin: str) -> tuple[ModuleSettings, ...]:
    if not isinstance(raw, Mapping):
        raise BuildError(f"modules from {origin} must be tables [tool.luthier.modules.NAME], not {raw!r}")
    known = {item.name for item in dataclasses.fields(ModuleSettings)} - {"name"}
    modules = []
    for name, table in raw.items():
        place = f"module {name!r} in {origin}"
        if not is_python_name(name) or name == "__init__":
            raise BuildError(f"{place}: the name of a module must be a Python identifier and not a keyword")
        if isinstance(table, (list, tuple)):  # the short form NAME = ["a.hip"]
            table = {"sources": table}
        if not isinstance(table, Mapping):
            raise BuildError(f"{place} must be a table or a list of sources, not {table!r}")
        values = {}
        for key, value in table.items():
            attribute = key.replace("-", "_")
            if attribute not in known:
                raise BuildError(f"{place}: unknown key {key!r}; known: {', '.join(sorted(known)).replace('_', '-')}")
            values[attribute] = _strings(key, value, place)
        if not values.get("sources"):
            raise BuildError(f"{place} has no sources")
        modules.append(ModuleSettings(name, **values))
    return tuple(modules)


def read_table(project: Path) -> dict[str, Any] | None:
    """Return the table ``[tool.luthier]`` of the project's ``pyproject.toml``, or None."""
    table = read_pyproject(project).get("tool", {}).get("luthier")
    if table is not None and not isinstance(table, dict):
        raise BuildError(f"{project / 'pyproject.toml'}: [tool.luthier] must be a table")
    return table


def read_pyproject(project: Path) -> dict[str, Any]:
    """Return the contents of the project's ``pyproject.toml``; empty if there is none."""
    path = project / "pyproject.toml"
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except FileNotFoundError:
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise BuildError(f"{path}: {problem}") from problem


def load_settings(
    table: Mapping[str, Any],
    *,
    table_origin: str = "pyproject.toml",
    flags: Mapping[str, object] | None = None,
    flag_origin: str = "flag --{}",
    config: Mapping[str, object] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Settings:
    """Return settings from their four sources; `Settings.origins` has the source of each value.

    Args:
        table: contents of ``[tool.luthier]`` or of the `setup.py` keyword ``luthier=``.
        table_origin: name of `table` in messages.
        flags: values of command-line flags by field name; None: not given.
        flag_origin: name of a flag in messages.
        config: configuration settings of the build frontend; only keys ``luthier.NAME`` are read.
        environment: default `os.environ`; only ``LUTHIER_NAME`` of known settings are read.

    Raises:
        BuildError: a key is unknown, or a value has the wrong type; the message names the source.
        TargetError: a target does not exist.
    """
    environment = os.environ if environment is None else environment
    fields = [item.name for item in dataclasses.fields(Settings) if "help" in item.metadata]
    spelled = {name.replace("_", "-"): name for name in fields}
    for key in table:
        if key.replace("_", "-") not in spelled:
            raise BuildError(f"unknown key {key!r} in {table_origin} [tool.luthier]; known: {', '.join(spelled)}")
    given_table = {key.replace("-", "_"): value for key, value in table.items()}
    given_config = {}
    for key, value in (config or {}).items():
        if key.startswith("luthier."):
            name = key.removeprefix("luthier.")
            if name.replace("_", "-") not in spelled or name == "modules":
                raise BuildError(f"unknown config setting {key!r}; known: {', '.join(f'luthier.{k}' for k in spelled)}")
            given_config[name.replace("-", "_")] = value
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for name in fields:
        variable = f"LUTHIER_{name.upper()}"
        if name == "modules":
            if name in given_table:
                values[name], origins[name] = _modules(given_table[name], table_origin), table_origin
            continue
        for raw, origin in (
            ((flags or {}).get(name), flag_origin.format(name.replace("_", "-"))),
            (given_config.get(name), f"config setting luthier.{name.replace('_', '-')}"),
            (environment.get(variable), f"environment {variable}"),
            (given_table.get(name), table_origin),
        ):
            if raw is not None:
                values[name], origins[name] = _value(name, raw, origin), origin
                break
        else:
            origins[name] = "default"
    settings = Settings(**values, origins=origins)
    _check(settings)
    return settings


def _check(settings: Settings) -> None:
    if settings.code_object_version not in (0, 4, 5, 6):
        raise BuildError(
            f"code-object-version from {settings.origins['code_object_version']} must be 4, 5 or 6, "
            f"not {settings.code_object_version}"
        )
    if settings.optimization not in ("1", "2", "3", "s"):
        raise BuildError(
            f"optimization from {settings.origins['optimization']} must be 1, 2, 3 or s, not {settings.optimization!r}"
            " (hooks need optimization, and the plugin reads annotations after it)"
        )
    if not settings.targets:
        raise BuildError(f"targets from {settings.origins['targets']} is empty")
    if settings.package and not all(is_python_name(part) for part in settings.package.split(".")):
        raise BuildError(
            f"package from {settings.origins['package']} must be the name of a Python package, such as my_tool or "
            f"my_tool.hooks, not {settings.package!r}"
        )
    check_targets(settings.targets, settings.origins["targets"])
    for module in settings.modules:
        check_targets(module.targets, f"module {module.name!r}")


def check_targets(targets: Sequence[str], origin: str) -> None:
    """Check that one offload bundle can hold all targets; `origin` is the source of the list.

    A loader cannot choose between ``gfx942`` and ``gfx942:xnack-`` (LLVM, "Clang Offload Bundler", "Target ID
    Definition"). The bundler reports this too, but only after everything has been compiled.

    Raises:
        BuildError: a target is given twice, or two targets exclude each other.
        TargetError: a target does not exist.
    """
    identities: dict[TargetId, str] = {}
    for target in targets:
        try:
            identity = TargetId.parse(target)
        except TargetError as problem:
            raise TargetError(f"targets from {origin}: {problem.message}", target=target) from None
        if identity in identities:
            raise BuildError(f"targets from {origin}: {target} is given twice")
        identities[identity] = target
    first: dict[str, TargetId] = {}
    for identity in sorted(identities, key=str):  # the bundler's order
        known = first.setdefault(identity.target.name, identity)
        if any(
            getattr(identity, feature) is not None and getattr(known, feature) is None
            for feature in ("sramecc", "xnack")
        ):
            raise BuildError(
                f"targets from {origin}: {identities[known]} and {identities[identity]} cannot be in one bundle, "
                "because a loader cannot choose between them: give every target of a processor the same features"
            )
