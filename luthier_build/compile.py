"""Device code: HIP sources to one offload bundle with a code object, and its embedded bitcode, for every target."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from luthier import __version__
from luthier.errors import BuildError
from luthier.processes import run

from luthier_build.bitcode import read_contents
from luthier_build.jobs import run_all
from luthier_build.plugin import include_dir, plugin_flags, plugin_for
from luthier_build.settings import ModuleSettings, Settings
from luthier_build.toolchain import Toolchain
from luthier_build.workspace import (
    digest,
    digest_text,
    forget,
    inputs_of,
    is_current,
    read_depfile,
    remember,
    replacing,
    write_atomic,
)

Report = Callable[[str], object]
"""Takes one line (or several, for compiler warnings) of progress."""


@dataclass(frozen=True)
class DeviceModule:
    """What compiling one device module gave."""

    name: str
    bundle: Path
    """Offload bundle with one code object a target, each with its bitcode in section ``.llvmbc``."""
    objects: dict[str, Path]
    """Target id -> code object, in the order of the settings."""
    sources: tuple[Path, ...]
    dependencies: tuple[Path, ...]
    """Every file that the compiler read, sources and system headers included."""
    compiled: tuple[str, ...]
    """Targets compiled by this call; the others were up to date."""
    arguments: tuple[str, ...] = field(repr=False)
    """The compiler's arguments for the first target, without plugin, input and output."""


@dataclass(frozen=True)
class _Object:
    """One compilation: a module for a target."""

    module: str
    target: str
    output: Path
    project: Path
    command: tuple[str, ...]
    """Everything but the output and the dependency file, so that it names the work and not the place."""
    plugin: tuple[str, ...]
    key: str
    source: str
    sources: tuple[Path, ...] = field(repr=False)


def module_flags(module: ModuleSettings, settings: Settings, project: Path) -> list[str]:
    """The compiler flags that a module's settings ask for, the same for every target and every build system.

    Paths stay relative to the project, where the compiler runs, so that the same sources give the same bytes
    wherever they lie.
    """
    flags = [f"-O{settings.optimization}", f"-ffile-prefix-map={project}=."]
    if settings.code_object_version:
        flags.append(f"-mcode-object-version={settings.code_object_version}")
    flags += [f"-I{folder}" for folder in (*module.include_dirs, *settings.include_dirs)]
    flags += [f"-D{define}" for define in (*settings.defines, *module.defines)]
    for source in module.sources[:-1]:  # one unit: one bitcode module, one set of variables a target
        flags += ["-include", source]
    return [*flags, *settings.flags, *module.flags]


def unit_id(module: ModuleSettings, settings: Settings) -> str:
    """The compilation-unit id given to clang: equal for every target of one module, different for different modules.

    clang's own would depend on the folder the project lies in.
    """
    return digest_text(settings.package, module.name, *module.sources)[:16]


def _identity(toolchain: Toolchain) -> tuple[str, ...]:
    """What the compiler is, so that another one (or the same path upgraded) makes everything anew."""
    return (os.fspath(toolchain.clang.resolve()), toolchain.version, digest(plugin_for(toolchain)), __version__)


def _device_headers(folder: Path) -> Path:
    """Luthier's device headers, copied into the build folder.

    An isolated build runs Luthier from a folder that is gone afterwards; the copy keeps dependencies and the
    compilation database true, and is only written to when a header changed.
    """
    source, copy = include_dir(), folder / "include"
    for header in source.rglob("*"):
        if header.is_file():
            write_atomic(copy / header.relative_to(source), header.read_bytes())
    return copy


def _plan(
    module: ModuleSettings,
    settings: Settings,
    toolchain: Toolchain,
    project: Path,
    folder: Path,
    identity: Sequence[str],
) -> list[_Object]:
    sources = tuple(project / source for source in module.sources)
    for source in sources:
        if not source.is_file():
            raise BuildError(f"module {module.name!r}: no source {source}", object=str(source))
    plugin = tuple(plugin_flags(toolchain))
    headers = folder / "include"
    objects = []
    for target in module.targets or settings.targets:
        command = (
            os.fspath(toolchain.clang),
            "--cuda-device-only",
            "--no-gpu-bundle-output",
            *toolchain.device_flags(target),
            *module_flags(module, settings, project),
            f"-I{headers}",
            f"-ffile-prefix-map={headers}=luthier-include",
            f"-cuid={unit_id(module, settings)}",
        )
        objects.append(
            _Object(
                module.name,
                target,
                folder / module.name / f"{module.name}-{target.replace(':', '_')}.hsaco",
                project,
                command,
                plugin,
                digest_text(*command, "", *plugin, "", *module.sources, "", *identity),
                module.sources[-1],
                sources,
            )
        )
    return objects


def _compile(job: _Object, label: str, settings: Settings, report: Report) -> None:
    report(f"{label} {job.module}: compiling for {job.target}")
    forget(job.output)
    with replacing(job.output) as fresh, replacing(job.output.with_suffix(".d")) as depfile:
        # -MD is dropped by the driver when only device code is made, so the frontend is asked itself.
        dependency = ["-dependency-file", str(depfile), "-sys-header-deps", "-MT", job.output.name]
        command = [
            *job.command,
            *job.plugin,
            *(part for option in dependency for part in ("-Xclang", option)),
            "-c",
            job.source,
            "-o",
            str(fresh),
        ]
        if settings.verbose:
            report(" ".join(command))
        run(command, cwd=job.project, warnings=lambda text: report(text.rstrip()))
        read_contents(fresh, job.target)  # refuses an object without hooks' bitcode
        inputs = [Path(os.path.normpath(job.project / name)) for name in read_depfile(depfile)]
    remember(job.output, job.key, inputs)


def _bundle(module: ModuleSettings, objects: Sequence[_Object], settings: Settings, toolchain: Toolchain) -> Path:
    """One file with every target's code object, as HIP's runtime loads it (LLVM, "Clang Offload Bundler")."""
    output = objects[0].output.with_name(f"{module.name}.hipfb")
    flags = ["--compress"] if settings.compress else []
    key = digest_text(*flags, *(item.target for item in objects), str(toolchain.llvm_major))
    if is_current(output, key):
        return output
    forget(output)
    # HIP expects a host entry first; an empty one stands for "the host code is elsewhere".
    entries = ["host-x86_64-unknown-linux-gnu-", *(f"hipv4-amdgcn-amd-amdhsa--{item.target}" for item in objects)]
    with replacing(output) as fresh:
        run(
            [
                toolchain.bundler,
                "--type=o",
                "--bundle-align=4096",
                *flags,
                f"--targets={','.join(entries)}",
                "--input=/dev/null",
                *(f"--input={item.output}" for item in objects),
                f"--output={fresh}",
            ]
        )
    remember(output, key, [item.output for item in objects])
    return output


def compile_modules(
    modules: Sequence[ModuleSettings],
    settings: Settings,
    toolchain: Toolchain,
    *,
    project: Path,
    folder: Path,
    report: Report = print,
) -> list[DeviceModule]:
    """Compile device modules for their targets, every (module, target) side by side, only what is not up to date.

    Args:
        project: folder that sources and include folders are relative to.
        folder: a folder held by `workspace.build_folder`.

    Raises:
        BuildError: a missing source, or the compiler's own message.
    """
    project, folder = project.resolve(), folder.resolve()
    _device_headers(folder)
    identity = _identity(toolchain)
    planned = {module.name: _plan(module, settings, toolchain, project, folder, identity) for module in modules}
    everything = [job for jobs in planned.values() for job in jobs]
    stale = [job for job in everything if not is_current(job.output, job.key)]
    work = [
        functools.partial(_compile, job, f"[{number}/{len(stale)}]", settings, report)
        for number, job in enumerate(stale, 1)
    ]
    run_all(work, settings.jobs)
    write_atomic(folder / "compile_commands.json", _compile_commands(everything))
    made = []
    for module in modules:
        objects = planned[module.name]
        made.append(
            DeviceModule(
                module.name,
                _bundle(module, objects, settings, toolchain),
                {job.target: job.output for job in objects},
                objects[0].sources,
                tuple(sorted({path for job in objects for path in inputs_of(job.output)})),
                tuple(job.target for job in objects if job in stale),
                objects[0].command[1:],
            )
        )
    return made


def _compile_commands(objects: Iterable[_Object]) -> str:
    """The compilation database for editors; without the plugin, which an editor's clang may be unable to load."""
    rows = [
        {
            "directory": str(job.project),
            "file": str(source),
            "output": str(job.output),
            "arguments": [*job.command, "-c", str(source)],
        }
        for job in objects
        for source in job.sources
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
        name: of the module; default: the stem of the last source.
        project: what relative sources are relative to; default: the current folder.
    """
    base = (project or Path.cwd()).resolve()
    named = [os.path.relpath(base / source, base) for source in sources]
    if not named:
        raise BuildError("no sources to compile")
    module = ModuleSettings(name or Path(named[-1]).stem, tuple(named))
    chosen = replace(settings or Settings(), targets=tuple(targets))
    return compile_modules([module], chosen, toolchain or Toolchain.find(), project=base, folder=folder, report=report)[
        0
    ]


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
        BuildError: the compiler's own message; `output` is then as it was.
    """
    chosen = toolchain or Toolchain.find()
    with replacing(output) as fresh:
        command = [
            os.fspath(chosen.clang),
            *chosen.device_flags(target),
            "--cuda-device-only",
            "--no-gpu-bundle-output",
        ]
        run([*command, "-O2", *flags, "-c", source, "-o", fresh])
    return output
