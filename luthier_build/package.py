"""A whole tool: every device module compiled, described, and put into the tool's Python package."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from luthier import __version__
from luthier.errors import BuildError

from luthier_build import sources, stubs
from luthier_build.bitcode import read_contents
from luthier_build.compile import DeviceModule, compile_modules
from luthier_build.manifest import Manifest, make_manifest
from luthier_build.settings import ModuleSettings, Settings
from luthier_build.stubs import GENERATED
from luthier_build.toolchain import Toolchain
from luthier_build.units import Report
from luthier_build.workspace import build_folder, digest_text, forget, is_current, remember, write_atomic

HEADER_SUFFIXES = frozenset({".h", ".hpp", ".hh", ".hxx", ".cuh", ".inc", ".inl"})


@dataclass(frozen=True)
class BuiltModule:
    """The files of one device module as they are installed."""

    device: DeviceModule
    manifest: Manifest
    artefacts: tuple[Path, ...]


def artefact_names(module: ModuleSettings) -> tuple[str, ...]:
    """The files a device module adds to its package."""
    return tuple(f"{module.name}{suffix}" for suffix in (".hipfb", ".json", ".py", ".pyi"))


def source_files(settings: Settings, project: Path) -> list[str]:
    """What a source distribution must carry: the sources and the headers beside them and in include folders.

    Paths are relative to the project.

    Raises:
        BuildError: a source outside the project, which no source distribution could carry.
    """
    found: set[Path] = set()
    project = project.resolve()
    for module in settings.modules:
        for source in module.sources:
            path = (project / source).resolve()
            if not path.is_relative_to(project):
                raise BuildError(f"module {module.name!r}: source {source} lies outside the project {project}")
            found.add(path)
            found.update(path for path in path.parent.iterdir() if path.suffix in HEADER_SUFFIXES)
        for folder in (*module.include_dirs, *settings.include_dirs):
            base = (project / folder).resolve()
            if base.is_relative_to(project) and base.is_dir():
                found.update(path for path in base.rglob("*") if path.suffix in HEADER_SUFFIXES)
    return sorted(str(path.relative_to(project)) for path in found)


def compile_tool(
    settings: Settings,
    *,
    project: Path,
    destination: Path,
    toolchain: Toolchain | None = None,
    report: Report = print,
) -> list[BuiltModule]:
    """Build every device module of a tool and put its artefacts into `destination`, the folder of its package.

    Raises:
        BuildError: no toolchain, a compiler error, a hook that cannot be called, a folder that cannot be written.
    """
    if not settings.modules:
        raise BuildError("no device modules: add a table [tool.luthier.modules.NAME] with sources to pyproject.toml")
    source_files(settings, project)
    if settings.verbose:
        for name, origin in settings.origins.items():
            report(f"{name.replace('_', '-')} = {getattr(settings, name)!r} (from {origin})")
    chosen = toolchain or find_toolchain(settings)
    built = []
    with build_folder((project / settings.build_dir).resolve()) as folder:
        devices = compile_modules(settings.modules, settings, chosen, project=project, folder=folder, report=report)
        for device in devices:
            manifest = describe_module(device, settings.package, chosen, project.resolve(), folder)
            paths = tuple(destination / name for name in artefact_names(settings.module(device.name)))
            built.append(BuiltModule(device, manifest, paths))
            if settings.check_hooks:
                check_hooks(device, folder, settings.jobs)
        for module in built:  # only now, so that an error in any module leaves the package as it was
            bundle, description, python, stub = module.artefacts
            write_python(module.manifest, python, stub)
            write_atomic(bundle, module.device.bundle.read_bytes())
            write_atomic(description, module.manifest.to_json())
    return built


def write_python(manifest: Manifest, python: Path, stub: Path) -> None:
    """Write the Python module and its stub, unless that would replace a file of the author's."""
    if python.exists() and GENERATED not in python.read_text(errors="replace"):
        raise BuildError(f"{python} exists and would be replaced by the device module of that name: rename one of them")
    write_atomic(python, stubs.python_module(manifest))
    write_atomic(stub, stubs.stub(manifest))


def check_hooks(device: DeviceModule, folder: Path, jobs: int) -> None:
    """Refuse a module with a hook that cannot be spliced, unless these very objects were found good before.

    Raises:
        BuildError: each reason, with the hook's place and targets.
    """
    stamp = folder / device.name / f"{device.name}.checked"
    key = digest_text(__version__, version("llvmlite"))
    if not is_current(stamp, key):
        from luthier_build.check import check_objects  # LLVM, which a build with nothing to do can spare

        forget(stamp)
        check_objects(device.objects, jobs)
        write_atomic(stamp, "Every hook can be spliced.\n")
        remember(stamp, key, device.objects.values())


def find_toolchain(settings: Settings) -> Toolchain:
    """The toolchain that the settings name, else the best one found."""
    return Toolchain.find({**os.environ, "LUTHIER_CLANG": settings.clang} if settings.clang else None)


def describe_module(device: DeviceModule, package: str, toolchain: Toolchain, project: Path, folder: Path) -> Manifest:
    """The manifest, made anew only if a code object or a source changed."""
    output = folder / device.name / f"{device.name}.json"
    inputs: Sequence[Path] = [*device.objects.values(), *device.dependencies]
    key = digest_text(package, __version__, str(toolchain.llvm_major), str(sources.available()), *device.arguments)
    if is_current(output, key):
        return Manifest.read(output)
    forget(output)
    manifest = describe_objects(
        device.name, package, toolchain, device.objects, device.sources, device.arguments, project
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
) -> Manifest:
    """The manifest of a module from its code objects (target -> path) and, where libclang is there, its sources.

    Args:
        arguments: the compiler's, without plugin, input and output.

    Raises:
        BuildError: a hook that cannot be called.
    """
    declarations = {}
    if sources.available():
        declarations = sources.read_declarations(toolchain, arguments, source_paths[-1], project)
    contents = [read_contents(path, target) for target, path in objects.items()]
    compiler = toolchain.version.partition("\n")[0]
    return make_manifest(package, name, f"{name}.hipfb", compiler, contents, declarations)
