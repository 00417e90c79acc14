"""Compile HIP sources to one offload bundle with a code object and its embedded bitcode for every target."""

from __future__ import annotations

import functools
import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from luthier.errors import BuildError

from luthier_build.jobs import run_all
from luthier_build.plugin import include_dir
from luthier_build.precompiled import Beginning, compile_after
from luthier_build.settings import ModuleSettings, Settings, check_targets
from luthier_build.toolchain import Toolchain
from luthier_build.units import BuildUnit, Report, compile_unit, plan_units, write_bundle
from luthier_build.workspace import (
    digest,
    digest_text,
    forget,
    inputs_of,
    is_current,
    remember,
    replacing,
    write_atomic,
)


@dataclass(frozen=True)
class DeviceModule:
    """Result of compiling one device module."""

    name: str
    bundle: Path
    """Offload bundle with one code object per target, each with its bitcode in section ``.llvmbc``."""
    objects: dict[str, Path]
    """Target id -> code object, in the order of the settings."""
    sources: tuple[Path, ...]
    dependencies: tuple[Path, ...]
    """Every file that the compiler read, including sources and system headers."""
    compiled: tuple[str, ...]
    """Targets compiled by this call; the others were up to date."""
    arguments: tuple[str, ...] = field(repr=False)
    """The compiler's arguments for the first target, without plugin, input and output."""


def copy_headers(folder: Path) -> Path:
    """Copy Luthier's device headers into the build folder; files that are already equal are not written.

    An isolated build runs Luthier from a temporary folder. The copy keeps paths in dependencies and in the compilation
    database valid.
    """
    source, copy = include_dir(), folder / "include"
    for header in source.rglob("*"):
        if header.is_file():
            write_atomic(copy / header.relative_to(source), header.read_bytes())
    return copy


def _compile(unit: BuildUnit, output: Path, label: str, settings: Settings, report: Report) -> None:
    report(f"{label} {unit.module}: compiling for {unit.target}")
    forget(output)
    start = time.time_ns()
    inputs = compile_unit(unit, output, verbose=settings.verbose, report=report)
    remember(output, unit.key, inputs, start)


def _bundle(name: str, objects: Mapping[str, Path], folder: Path, settings: Settings, toolchain: Toolchain) -> Path:
    output = folder / name / f"{name}.hipfb"
    maker = Path(__file__).with_name("units.py")
    key = digest_text(str(settings.compress), toolchain.version, digest(maker), *objects)
    if not is_current(output, key, objects.values()):
        forget(output)
        write_bundle(objects, output, toolchain, compress=settings.compress)
        remember(output, key, objects.values())
    return output


def _check_temporary() -> None:
    """Raise a `BuildError` if the environment's folder for temporary files is not writable; clang's error does not name
    it."""
    name = next((name for name in ("TMPDIR", "TMP", "TEMP", "TEMPDIR") if os.environ.get(name)), None)
    if name and not (os.path.isdir(os.environ[name]) and os.access(os.environ[name], os.W_OK | os.X_OK)):
        raise BuildError(f"{name} is {os.environ[name]}, which is not a writable folder")


def compile_modules(
    modules: Sequence[ModuleSettings],
    settings: Settings,
    toolchain: Toolchain,
    *,
    project: Path,
    folder: Path,
    report: Report = print,
) -> list[DeviceModule]:
    """Compile every (module, target) that is not up to date, in parallel.

    Args:
        project: folder that sources and include folders are relative to.
        folder: a folder held by `workspace.build_folder`.

    Raises:
        BuildError: a source is missing, or the compiler fails (with its message).
    """
    project, folder = project.resolve(), folder.resolve()
    for module in modules:
        for source in module.sources:
            if not (project / source).is_file():
                raise BuildError(f"module {module.name!r}: source {project / source} does not exist", object=source)
    headers = copy_headers(folder)
    planned = {
        module.name: plan_units(module, settings, toolchain, project=project, headers=headers) for module in modules
    }
    outputs = {unit: folder / unit.module / unit.file_name for units in planned.values() for unit in units}
    stale = [unit for unit, output in outputs.items() if not is_current(output, unit.key, unit.sources)]
    work = [
        functools.partial(_compile, unit, outputs[unit], f"[{number}/{len(stale)}]", settings, report)
        for number, unit in enumerate(stale, 1)
    ]
    if work:
        _check_temporary()
    run_all(work, settings.jobs)
    write_atomic(folder / "compile_commands.json", _compile_commands(outputs))
    made = []
    for name, units in planned.items():
        objects = {unit.target: outputs[unit] for unit in units}
        made.append(
            DeviceModule(
                name,
                _bundle(name, objects, folder, settings, toolchain),
                objects,
                units[0].sources,
                tuple(sorted({path for output in objects.values() for path in inputs_of(output)})),
                tuple(unit.target for unit in units if unit in stale),
                units[0].command[1:],
            )
        )
    return made


def _compile_commands(outputs: Mapping[BuildUnit, Path]) -> str:
    """Return the compilation database for editors, without the plugin: an editor's clang may fail to load it."""
    rows = [
        {
            "directory": str(unit.project),
            "file": str(source),
            "output": str(output),
            "arguments": [*unit.command, "-c", str(source)],
        }
        for unit, output in outputs.items()
        for source in unit.sources
    ]
    return json.dumps(rows, indent=1)


def compile_device(
    sources: Sequence[str | os.PathLike[str]],
    targets: Sequence[str],
    settings: Settings | None = None,
    toolchain: Toolchain | None = None,
    *,
    folder: Path,
    name: str | None = None,
    project: Path | None = None,
    report: Report = print,
) -> DeviceModule:
    """Compile one device module outside a project: a test, a notebook, another build system.

    Args:
        folder: a folder held by `workspace.build_folder`.
        name: name of the module; default: the stem of the last source.
        project: base folder of relative sources; default: the current folder.
    """
    base = (project or Path.cwd()).resolve()
    named = [os.path.relpath(base / source, base) for source in sources]
    if not named:
        raise BuildError("no sources to compile")
    module = ModuleSettings(name or Path(named[-1]).stem, tuple(named))
    check_targets(targets, "the caller")
    chosen = replace(settings or Settings(), targets=tuple(targets))
    toolchain = toolchain or Toolchain.find()
    return compile_modules([module], chosen, toolchain, project=base, folder=folder, report=report)[0]


def compile_application(
    source: str | os.PathLike[str],
    target: str,
    output: Path,
    *,
    flags: Sequence[str] = (),
    toolchain: Toolchain | None = None,
) -> Path:
    """Compile an application's kernels to a code object, without Luthier's plugin; for tests and examples of tools.

    Raises:
        BuildError: the compiler fails (with its message); `output` is unchanged.
    """
    chosen = toolchain or Toolchain.find()
    with replacing(output) as fresh:
        command = [
            os.fspath(chosen.clang),
            *chosen.device_flags(target),
            "--cuda-device-only",
            "--no-gpu-bundle-output",
        ]
        beginning = Beginning.of(chosen, target, ["-O2", *flags])
        compile_after(beginning, Path(source), [*command, "-O2", *flags, "-c", os.fspath(source), "-o", str(fresh)])
    return output
