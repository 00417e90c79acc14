"""Rebuild device modules in a source tree (from an editable install or `luthier build`) when their sources change.

Such a build writes a record next to the modules: every file that it read, and the variables that choose the compiler's
headers. Code that loads the modules calls `refresh`, which rebuilds them if anything has changed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from luthier.errors import BuildError, LuthierError
from luthier.isa.targets import TargetId
from luthier.module import ModuleManifest
from luthier.module.demand import first_of
from luthier.module.packages import RECORD
from luthier.terminal import say, say_text

from luthier_build.package import BuiltModule, compile_tool
from luthier_build.plugin import own_files
from luthier_build.settings import ModuleSettings, Settings, load_settings, read_table
from luthier_build.toolchain import header_variables, plugin_sources
from luthier_build.workspace import digest, digest_text, made_by, state_of, write_atomic, written_since

VARIABLE = "LUTHIER_EDITABLE_REBUILD"
UNCERTAIN: list[int | str] = [-1]
"""State, in a record, of a file that was written during the build; the next use rebuilds the modules."""
_FILES_OF_SETTINGS = ("pyproject.toml", "setup.py")


def _states(paths: Iterable[Path]) -> dict[str, list[int | str] | None]:
    """Return the digest and `state_of` each file; None for a missing file."""
    states: dict[str, list[int | str] | None] = {}
    for path in sorted(set(paths)):
        states[str(path)] = None
        with contextlib.suppress(OSError):
            states[str(path)] = [digest(path), *state_of(path)]
    return states


def _is_same(path: Path, known: list[int | str] | None) -> bool:
    """Return whether a file has the recorded contents; touching or copying a file does not change them."""
    try:
        state = [*state_of(path)]
        return known is not None and (known[1:] == state or known[:1] == [digest(path)])
    except OSError:
        return known is None


def _own_state() -> str:
    """Return a digest of the parts of Luthier that affect device modules."""
    sources = plugin_sources()
    return digest_text(made_by("manifest"), *(f"{path.relative_to(sources)} {digest(path)}" for path in own_files()))


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""


def write_record(
    destination: Path,
    project: Path,
    settings: Settings,
    built: Iterable[BuiltModule],
    table: Mapping[str, Any] | None = None,
) -> None:
    """Write the record of a build into the source tree.

    Args:
        settings: with all targets, including those that are not compiled yet.
        table: the value of ``setup(luthier=…)``, if it replaces ``[tool.luthier]``.
    """
    project = project.resolve()
    # Explicit values of this build apply to the next build too; values in the file are read again.
    given = {
        name: getattr(settings, name)
        for name, origin in settings.origins.items()
        if origin.startswith(("flag", "config setting", "environment"))
    }
    sources = {project / name for name in _FILES_OF_SETTINGS}
    sources.update(path for module in built for path in module.device.dependencies)
    states = _states(sources | {path.absolute() for module in built for path in module.artefacts})
    start = min((module.start for module in built), default=None)
    for path in sources:
        own = path.is_relative_to(project / settings.build_dir)  # copies of Luthier's headers
        if start is not None and not own and path.exists() and written_since(path, start):
            states[str(path)] = UNCERTAIN
    record = {
        "targets": {module.name: module.targets or settings.targets for module in settings.modules},
        "luthier": _own_state(),
        "project": str(project),
        "folder": str(destination.resolve()),
        "package": settings.package,
        "given": given,
        "table": table,
        "setup": _digest(project / "setup.py"),
        "rebuild": settings.editable_rebuild,
        "inputs": states,
        "variables": header_variables(),
    }
    write_atomic(destination / RECORD, json.dumps(record, indent=0) + "\n")


def for_targets(settings: Settings, choose: Callable[[ModuleSettings, Sequence[str]], Sequence[str]]) -> Settings:
    """Return settings with fewer targets of each module.

    Args:
        choose: returns the targets to keep, given a module and all of its targets.
    """
    modules = [
        dataclasses.replace(module, targets=tuple(choose(module, module.targets or settings.targets)))
        for module in settings.modules
    ]
    return dataclasses.replace(settings, modules=tuple(modules))


def for_first_targets(settings: Settings, target: TargetId | None = None) -> Settings:
    """Return settings with one target for each module: the application's `target` or, without one, the first."""
    return for_targets(settings, lambda _, targets: [first_of(targets, target)])


def _built(folder: Path, module: str) -> tuple[str, ...]:
    """Return the targets that a module has been compiled for."""
    return ModuleManifest.read(folder / f"{module}.json").targets


def _missing(folder: Path, record: Mapping[str, Any], target: TargetId | None) -> dict[str, list[str]]:
    """Return module -> targets to compile, for modules that lack code for an application's target."""
    missing: dict[str, list[str]] = {}
    if target is None:
        return missing
    for module, targets in record.get("targets", {}).items():
        built = _built(folder, module)
        chosen = first_of(targets, target)
        if chosen not in built and TargetId.parse(chosen).serves(target):
            missing[module] = [name for name in targets if name in (*built, chosen)]
    return missing


def refresh(folder: Path, target: TargetId | None = None) -> None:
    """Rebuild the device modules in a package's folder if their sources have changed; print what is compiled.

    Only code for one target is compiled: the application's or, without one, the first. If existing modules lack code
    for the application's target, it is added.

    Do nothing in a folder without a record. If the setting `editable-rebuild` or the variable `VARIABLE` is off, only
    print to standard error that the modules are stale.

    Raises:
        BuildError: sources have changed and the modules cannot be built.
    """
    path = folder / RECORD
    if not path.is_file():
        return
    try:
        record = json.loads(path.read_text())
        package, project, table = str(record["package"]), Path(record["project"]), record["table"]
        changed = [name for name, known in record["inputs"].items() if not _is_same(Path(name), known)]
        changed += ["Luthier"] if record.get("luthier") != _own_state() else []
        then, now = dict(record.get("variables", {})), header_variables()
        changed += [name for name in sorted({*then, *now}) if then.get(name) != now.get(name)]
        again = f"pip install --no-build-isolation -e {project}"
        rebuild = os.environ.get(VARIABLE, "1" if record["rebuild"] else "0")
        given, setup = dict(record["given"]), record["setup"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as problem:
        raise BuildError(f"{path} is damaged ({problem!r}): remove it and reinstall the tool") from problem
    missing = {} if changed else _missing(folder, record, target)
    if not changed and not missing:
        return
    why = f"{changed[0]} has changed since" if changed else f"no code for {target} was compiled when"
    if rebuild.lower() in ("0", "off", "no", "false", ""):
        say(
            f"luthier: {package}: {why} the device modules were built; they are used unchanged ({VARIABLE} is off). "
            f"Rebuild them with `{again}`",
            file=sys.stderr,
        )
        return

    def report(line: str) -> None:
        say_text(f"luthier: {package}: {line}", file=sys.stderr, flush=True)

    try:
        if table is not None and setup != _digest(project / "setup.py"):
            raise BuildError(f"setup.py, which contains their settings, has changed: run `{again}`")
        table_now = table if table is not None else read_table(project)
        if table_now is None:
            raise BuildError(f"no [tool.luthier] in {project / 'pyproject.toml'}")
        settings = load_settings(table_now, flags=given, environment={})
        settings = dataclasses.replace(settings, package=package)
        chosen = for_first_targets(settings, target)
        if missing:
            chosen = for_targets(settings, lambda module, _: missing.get(module.name) or _built(folder, module.name))
        built = compile_tool(chosen, project=project, destination=folder, report=report)
        settings = dataclasses.replace(
            settings, origins={name: "flag" if name in given else "" for name in settings.origins}
        )
        write_record(folder, project, settings, built, table)
    except LuthierError as problem:
        raise BuildError(
            f"{why} the device modules of {package} were built, and they cannot be built "
            f"again ({VARIABLE}=0 uses them unchanged): {problem}"
        ) from problem
