"""One unit of device compilation (a module for a target): its command, how to run it, and how to bundle units.

Build systems that track dependencies themselves (SCons) use this; `luthier_build.compile` adds tracking for the others.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from luthier import __version__
from luthier.errors import BuildError, LuthierError
from luthier.module import DeviceContents
from luthier.module.embedded import read_object
from luthier.objects import load_object
from luthier.support.processes import run

from luthier_build.plugin import include_dir, plugin_flags, plugin_for
from luthier_build.precompiled import Beginning, compile_after, is_part
from luthier_build.settings import ModuleSettings, Settings
from luthier_build.toolchain import Toolchain, header_variables
from luthier_build.workspace import digest, digest_text, read_depfile, replacing

Report = Callable[[str], object]
"""Receives one line of progress (several for compiler warnings)."""


@dataclass(frozen=True)
class BuildUnit:
    """One compilation: a module for a target."""

    module: str
    target: str
    project: Path
    """Working folder of the compiler; sources are relative to it."""
    command: tuple[str, ...]
    """Compiler and flags, without plugin, source and output."""
    plugin: tuple[str, ...]
    """Flags that load the plugin."""
    source: str
    sources: tuple[Path, ...] = field(repr=False)
    beginning: Beginning | None = field(repr=False)
    """Text before the source that other units may share; None if it cannot be shared."""
    key: str = field(repr=False)
    """Changes with command, environment, compiler, device library, plugin or Luthier, but not with inputs."""

    @property
    def file_name(self) -> str:
        """Name of the code object."""
        return f"{self.module}-{self.target.replace(':', '_')}.hsaco"

    def full_command(self, output: Path, depfile: Path) -> list[str]:
        """Return the complete command."""
        # The driver ignores -MD for device-only compilations, so pass the frontend's options.
        dependency = ["-dependency-file", str(depfile), "-sys-header-deps", "-MT", self.file_name]
        through = [part for option in dependency for part in ("-Xclang", option)]
        return [*self.command, *self.plugin, *through, "-c", self.source, "-o", str(output)]


def module_flags(module: ModuleSettings, settings: Settings, project: Path) -> list[str]:
    """Return the compiler flags for a module's settings, the same for every target and build system.

    Paths are relative to the project, where the compiler runs, so that equal sources give equal bytes in any folder.
    """
    flags = [f"-O{settings.optimization}", f"-ffile-prefix-map={project}=."]
    if settings.code_object_version:
        flags.append(f"-mcode-object-version={settings.code_object_version}")
    flags += [f"-I{folder}" for folder in (*module.include_dirs, *settings.include_dirs)]
    flags += [f"-D{define}" for define in (*settings.defines, *module.defines)]
    for source in module.sources[:-1]:  # one unit: one bitcode module, one set of variables for each target
        flags += ["-include", source]
    return [*flags, *settings.flags, *module.flags]


def unit_id(module: ModuleSettings, settings: Settings) -> str:
    """Return the compilation-unit id for clang: equal for every target of a module, different for other modules.

    clang's default depends on the project's folder.
    """
    return digest_text(settings.package, module.name, *module.sources)[:16]


def plan_units(
    module: ModuleSettings, settings: Settings, toolchain: Toolchain, *, project: Path, headers: Path
) -> list[BuildUnit]:
    """Return the units of a module, one for each target.

    Args:
        project: absolute; the module's sources are relative to it.
        headers: the folder with ``luthier/luthier.h``.

    Raises:
        BuildError: there is no plugin for the toolchain.
    """
    sources = tuple(project / source for source in module.sources)
    plugin = tuple(plugin_flags(toolchain))
    identity = (
        *toolchain.compiler,
        *toolchain.library_digests(),
        digest(plugin_for(toolchain)),
        __version__,
        str(header_variables()),
    )
    # Flags may name one of Luthier's headers, whose folder differs in every isolated build.
    installed = os.fspath(include_dir())
    units = []
    flags = module_flags(module, settings, project)
    for target in module.targets or settings.targets:
        command = (
            os.fspath(toolchain.clang),
            "--cuda-device-only",
            "--no-gpu-bundle-output",
            *(flag.replace(installed, os.fspath(headers)) for flag in toolchain.device_flags(target)),
            *flags,
            f"-I{headers}",
            f"-ffile-prefix-map={headers}=luthier-include",
            f"-cuid={unit_id(module, settings)}",
        )
        key = digest_text(*command, "", *plugin, "", *module.sources, "", *identity)
        beginning = Beginning.of(toolchain, target, flags, project)
        units.append(
            BuildUnit(module.name, target, project, command, plugin, module.sources[-1], sources, beginning, key)
        )
    return units


def compile_unit(unit: BuildUnit, output: Path, *, verbose: bool = False, report: Report = print) -> list[Path]:
    """Run the compiler and check its output; on failure, there is no `output`.

    Returns:
        Every file that the compiler read.

    Raises:
        BuildError: the compiler fails (with its message), or the object has no hooks.
    """
    with replacing(output) as fresh, replacing(output.with_suffix(".d")) as depfile:
        command = unit.full_command(fresh, depfile)
        if verbose:
            report(" ".join(command))
        precompiled = compile_after(
            unit.beginning,
            unit.project / unit.source,
            command,
            cwd=unit.project,
            warnings=lambda text: report(text.rstrip()),
        )
        read_contents(fresh, unit.target)  # refuses an object without hooks' bitcode
        read = [Path(os.path.normpath(unit.project / name)) for name in read_depfile(depfile)]
        return [*(path for path in read if not is_part(path)), *precompiled]


def read_contents(path: Path, target: str) -> DeviceContents:
    """Return the contents of a code object made by `compile_unit`.

    Raises:
        BuildError: it is not a code object, or has no bitcode of Luthier's plugin.
    """
    try:
        return read_object(load_object(path))
    except LuthierError as problem:
        raise BuildError(
            f"the compiler's output is not a device module: {problem.message}", object=path.name, target=target
        ) from problem


def write_bundle(objects: Mapping[str, Path], output: Path, toolchain: Toolchain, *, compress: bool = False) -> None:
    """Write an offload bundle with every target's code object, for HIP's runtime.

    See LLVM, "Clang Offload Bundler".

    Args:
        objects: target id -> code object.
    """
    # HIP expects a host entry first; an empty entry means that the host code is elsewhere.
    entries = ["host-x86_64-unknown-linux-gnu-", *(f"hipv4-amdgcn-amd-amdhsa--{target}" for target in objects)]
    with replacing(output) as fresh:
        run(
            [
                toolchain.bundler,
                "--type=o",
                "--bundle-align=4096",
                *(["--compress"] if compress else []),
                f"--targets={','.join(entries)}",
                "--input=/dev/null",
                *(f"--input={path}" for path in objects.values()),
                f"--output={fresh}",
            ]
        )
