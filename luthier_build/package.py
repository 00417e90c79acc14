"""Build a whole tool: compile and describe every device module, and install it into the tool's Python package."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from luthier.errors import BuildError
from luthier.module import ModuleManifest
from luthier.module.manifest import FORMAT
from luthier.objects.bundles import FAT_BINARY_MAGICS

from luthier_build import sources, stubs
from luthier_build.compile import DeviceModule, compile_modules
from luthier_build.manifest import make_manifest
from luthier_build.settings import ModuleSettings, Settings
from luthier_build.stubs import GENERATED
from luthier_build.toolchain import Toolchain, header_variables
from luthier_build.units import Report, read_contents
from luthier_build.workspace import (
    build_folder,
    digest_text,
    forget,
    is_current,
    made_by,
    remember,
    write_atomic,
    write_together,
    writing,
)

HEADER_SUFFIXES = frozenset({".h", ".hpp", ".hh", ".hxx", ".cuh", ".inc", ".inl"})
_INCLUDE = re.compile(r"""^[ \t]*\#[ \t]*include[ \t]*[<"]([^>"\n]+)[>"]""", re.MULTILINE)


@dataclass(frozen=True)
class BuiltModule:
    """The installed files of one device module."""

    device: DeviceModule
    manifest: ModuleManifest
    artefacts: tuple[Path, ...]
    start: int
    """Time (`time.time_ns`) before its sources were read."""


def artefact_names(module: ModuleSettings) -> tuple[str, ...]:
    """Return the files that a device module adds to its package."""
    return tuple(f"{module.name}{suffix}" for suffix in (".hipfb", ".json", ".py", ".pyi"))


def source_files(settings: Settings, project: Path) -> list[str]:
    """Return the files for a source distribution: sources, and the headers next to them and in include folders.

    Paths are relative to the project. For a symbolic link, both the link and its target are returned.

    Raises:
        BuildError: a source is outside the project, so that a source distribution cannot contain it.
    """
    files: set[Path] = set()
    project = project.resolve()
    for module in settings.modules:
        folders = [_named(project / name) for name in (*module.include_dirs, *settings.include_dirs)]
        for folder in folders:
            if folder.resolve().is_relative_to(project) and folder.is_dir():
                files.update(path for path in folder.rglob("*") if path.suffix in HEADER_SUFFIXES)
        for source in module.sources:
            path = _named(project / source)
            if not path.resolve().is_relative_to(project):
                raise BuildError(f"module {module.name!r}: source {source} lies outside the project {project}")
            if path.parent.is_dir():
                files.update(path for path in path.parent.iterdir() if path.suffix in HEADER_SUFFIXES)
            _add_included(path, folders, project, files)
    every = {*files, *(path.resolve() for path in files)}
    return sorted(str(path.relative_to(project)) for path in every if path.is_relative_to(project))


def _named(path: Path) -> Path:
    """Return a path without ``.`` and ``..``, with symbolic links kept."""
    return Path(os.path.normpath(path))


def _add_included(path: Path, folders: Sequence[Path], project: Path, files: set[Path]) -> None:
    """Add to `files` the file at `path` and, recursively, the files in the project that it includes."""
    waiting = [path]
    seen = set()
    while waiting:
        file = waiting.pop()
        if file in seen:
            continue
        seen.add(file)
        files.add(file)
        try:
            names = _INCLUDE.findall(file.read_text(errors="replace"))
        except OSError:
            continue  # the compilation reports a missing source
        for name in names:
            for folder in (file.parent, *folders):
                included = _named(folder / name)
                if included.resolve().is_relative_to(project) and included.is_file():
                    waiting.append(included)


def compile_tool(
    settings: Settings,
    *,
    project: Path,
    destination: Path,
    toolchain: Toolchain | None = None,
    report: Report = print,
    whole: bool = True,
) -> list[BuiltModule]:
    """Build every device module of a tool and write its artefacts to `destination`, the folder of the tool's package.

    Args:
        whole: the settings list all device modules of the package; artefacts of other modules are removed.

    Raises:
        BuildError: no toolchain, a compiler error, a hook that cannot be called, a folder that cannot be written, or a
            file of the author in place of an artefact.
    """
    if not settings.modules:
        raise BuildError("no device modules: add a table [tool.luthier.modules.NAME] with sources to pyproject.toml")
    source_files(settings, project)
    for declared in settings.modules:
        check_replaceable(destination / name for name in artefact_names(declared))
    if settings.verbose:
        for name, origin in settings.origins.items():
            report(f"{name.replace('_', '-')} = {getattr(settings, name)!r} (from {origin})")
    chosen = toolchain or find_toolchain(settings)
    built = []
    start = time.time_ns()
    with build_folder((project / settings.build_dir).resolve()) as folder:
        devices = compile_modules(settings.modules, settings, chosen, project=project, folder=folder, report=report)
        for device in devices:
            manifest = describe_module(device, settings.package, chosen, project.resolve(), folder, report)
            paths = tuple(destination / name for name in artefact_names(settings.module(device.name)))
            built.append(BuiltModule(device, manifest, paths, start))
            if settings.check_hooks:
                check_hooks(device, folder, settings.jobs)
        # Written last and together, so that an error in any module leaves the package unchanged.
        files: dict[Path, bytes | str] = {}
        for module in built:
            bundle, description, python, stub = module.artefacts
            files |= python_files(module.manifest, python, stub)
            files |= {bundle: module.device.bundle.read_bytes(), description: module.manifest.to_json()}
        write_together(files)
    if whole:
        remove_stale(destination, settings, report)
    return built


def python_files(manifest: ModuleManifest, python: Path, stub: Path) -> dict[Path, str]:
    """Return the Python module and its stub: path -> text."""
    return {python: stubs.python_module(manifest), stub: stubs.stub(manifest)}


def check_replaceable(artefacts: Iterable[Path]) -> None:
    """Check that artefacts replace only files made by a build.

    Raises:
        BuildError: an artefact would replace another file.
    """
    for path in artefacts:
        if path.is_file() and not _is_made(path):
            raise BuildError(
                f"{path} exists and would be replaced by the device module of that name: rename one of them"
            )


def _is_made(artefact: Path) -> bool:
    """Return whether a build made the file."""
    content = artefact.read_bytes()
    if artefact.suffix == ".hipfb":
        return content.startswith(FAT_BINARY_MAGICS)
    return (FORMAT if artefact.suffix == ".json" else GENERATED).encode() in content


def remove_stale(folder: Path, settings: Settings, report: Report = print) -> None:
    """Remove from a package the files generated for device modules that are no longer in the settings.

    Files without the mark `GENERATED` are the author's, and stay.
    """
    current = {module.name for module in settings.modules}
    for python in sorted(folder.glob("*.py")):
        name, text = python.stem, ""
        with contextlib.suppress(OSError):  # the link of an editor's lock, or an unreadable file
            text = python.read_text(errors="replace")
        if name in current or f'"""Device module {name!r} of {settings.package}. {GENERATED}' not in text:
            continue
        report(f"removing device module {name}, which [tool.luthier.modules] no longer has")
        for artefact in artefact_names(ModuleSettings(name)):
            with writing(folder / artefact):
                (folder / artefact).unlink(missing_ok=True)


def check_hooks(device: DeviceModule, folder: Path, jobs: int) -> None:
    """Check that all hooks of a module can be spliced, unless the same objects have passed before.

    Raises:
        BuildError: each reason, with the hook's source location and targets.
    """
    stamp = folder / device.name / f"{device.name}.checked"
    key = digest_text(made_by("check"), version("llvmlite"))
    if not is_current(stamp, key, device.objects.values()):
        from luthier_build.check import check_objects  # imports LLVM, which an up-to-date build does not need

        forget(stamp)
        check_objects(device.objects, jobs)
        write_atomic(stamp, "Every hook can be spliced.\n")
        remember(stamp, key, device.objects.values())


def find_toolchain(settings: Settings) -> Toolchain:
    """Return the toolchain named in the settings, or the best one installed."""
    return Toolchain.find({**os.environ, "LUTHIER_CLANG": settings.clang} if settings.clang else None)


def describe_module(
    device: DeviceModule,
    package: str,
    toolchain: Toolchain,
    project: Path,
    folder: Path,
    report: Report = print,
) -> ModuleManifest:
    """Return the manifest; make it again only if a code object or a source has changed."""
    output = folder / device.name / f"{device.name}.json"
    inputs: Sequence[Path] = [*device.objects.values(), *device.dependencies]
    environment = str(toolchain.llvm_major), str(sources.available()), str(header_variables())
    key = digest_text(package, made_by("manifest"), *environment, *device.arguments, "", *device.objects)
    if is_current(output, key, device.objects.values()):
        return ModuleManifest.read(output)
    forget(output)
    manifest = describe_objects(
        device.name, package, toolchain, device.objects, device.sources, device.arguments, project, report
    )
    write_atomic(output, manifest.to_json())
    remember(output, key, inputs)
    return manifest


def describe_objects(
    name: str,
    package: str,
    toolchain: Toolchain,
    objects: Mapping[str, Path],
    source_paths: Sequence[Path],
    arguments: Sequence[str],
    project: Path,
    report: Report = print,
) -> ModuleManifest:
    """Return the manifest of a module from its code objects (target -> path) and, with libclang, its sources.

    Args:
        arguments: arguments of the compiler, without plugin, input and output.

    Raises:
        BuildError: a hook cannot be called.
    """
    declarations = {}
    if sources.available():
        declarations = sources.read_declarations(toolchain, arguments, source_paths[-1], project, report)
    contents = [read_contents(path, target) for target, path in objects.items()]
    compiler = toolchain.version.partition("\n")[0]
    return make_manifest(package, name, f"{name}.hipfb", compiler, contents, declarations)
