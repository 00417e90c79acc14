"""The SCons tool: device modules, tool packages and patched objects as SCons targets.

Use it from an installed Luthier, in an SConstruct::

    from luthier_build import scons
    env = Environment(tools=["default", scons.generate])
    env.LuthierTool()                                        # everything in [tool.luthier] of pyproject.toml
    env.LuthierDeviceModule("out", ["a.hip"], LUTHIER_TARGETS=["gfx942"])
    env.LuthierPatched("app.counted.hsaco", "app.hsaco", LUTHIER_TOOL="instr_count")

or as the site tool ``luthier_device`` from `site_scons`. (A site tool ``luthier`` would hide the Python package.)

Construction variables: every setting of ``[tool.luthier]`` as ``LUTHIER_<NAME>``; they override the environment and
pyproject.toml. ``LUTHIER`` is the command `luthier`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import os
import re
import secrets
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import SCons.Errors
from luthier.errors import LuthierError
from luthier.module.packages import follow_sources
from luthier.terminal import say_raw, say_text
from luthier.tool import find_tool
from SCons.Action import Action
from SCons.Builder import Builder
from SCons.Scanner import FindPathDirs, ScannerBase
from SCons.Scanner.C import CScanner

from luthier_build.layout import package_folder
from luthier_build.package import artefact_names, check_replaceable, describe_objects, find_toolchain, python_files
from luthier_build.plugin import include_dir
from luthier_build.settings import ModuleSettings, Settings, load_settings, read_table
from luthier_build.stubs import GENERATED
from luthier_build.toolchain import Toolchain
from luthier_build.units import BuildUnit, compile_unit, plan_units, write_bundle
from luthier_build.workspace import digest, digest_text, made_by, write_together

_SETTINGS = [item.name for item in dataclasses.fields(Settings) if "help" in item.metadata]
_c_scanner = CScanner()
_NAMING = re.compile(r"(-I|-isystem|-iquote|-idirafter|(?P<file>-include|-imacros))(?P<name>.*)")
"""Compiler flags that name a folder of headers or a file to include; without a name, the next argument is the name."""


def exists(env: Any) -> bool:
    """Return whether the tool can be used (called by SCons); builders report missing programs themselves."""
    return True


def generate(env: Any) -> None:
    """Add the builders to a construction environment."""
    env.SetDefault(
        LUTHIER=[sys.executable, "-P", "-c", "import sys; from luthier.cli.main import main; sys.exit(main())"],
        LUTHIER_TOOL="",
        LUTHIER_PATCHFLAGS=[],
    )
    scanner = ScannerBase(_includes, "luthier includes", path_function=FindPathDirs("CPPPATH"), recursive=True)
    key = {"varlist": ["LUTHIER_KEY"]}
    env["BUILDERS"]["LuthierCodeObject"] = Builder(
        action=Action(_compile, _say_compile, **key), source_scanner=scanner, emitter=_compilation_database
    )
    env["BUILDERS"]["LuthierModuleFiles"] = Builder(
        action=Action(_describe, _say_describe, **key), source_scanner=scanner, multi=False
    )
    env["LUTHIER_TOOL_CONTENT"] = _tool_content
    env["BUILDERS"]["LuthierPatched"] = Builder(
        action=Action(_patch, _say_patch, varlist=["LUTHIER_TOOL", "LUTHIER_PATCHFLAGS", "LUTHIER_TOOL_CONTENT"])
    )
    env.AddMethod(device_module, "LuthierDeviceModule")
    env.AddMethod(tool, "LuthierTool")


def device_module(env: Any, destination: Any, source: Sequence[Any], name: str = "", **overrides: Any) -> list[Any]:
    """Build one device module in a folder: `env.LuthierDeviceModule(destination, source, name="")`.

    Args:
        destination: the folder, usually that of a Python package.
        source: HIP sources, compiled as one unit.
        name: default: the stem of the last source.
        overrides: construction variables, e.g. ``LUTHIER_TARGETS``.

    Returns:
        The nodes of the bundle, the manifest, the Python module and the stub.
    """
    project = env.Dir(".").srcnode()
    sources = tuple(env.File(item).srcnode().get_path(project) for item in env.Flatten([source]))
    module = ModuleSettings(name or Path(sources[-1]).stem, sources)
    local = env.Clone(**overrides) if overrides else env
    settings = dataclasses.replace(_settings(local, {}), modules=(module,))
    return _module(local, module, settings, env.Dir(destination), project)


def tool(env: Any, project: Any = ".", destination: Any = None) -> list[Any]:
    """Build the package described by ``[tool.luthier]``: `env.LuthierTool(project=".", destination=None)`.

    Args:
        project: the folder of pyproject.toml; the device modules are byte for byte the same as from pip.
        destination: folder that receives the package's folder; default: ``build/scons`` in the project.

    Returns:
        The nodes of the device modules' files and of the Python files of the package and its subpackages. Install data
        files with `env.InstallAs`.
    """
    root = env.Dir(project).srcnode()
    try:
        table = read_table(Path(root.abspath))
    except LuthierError as problem:
        raise SCons.Errors.UserError(str(problem)) from problem
    if table is None:
        raise SCons.Errors.UserError(f"no [tool.luthier] in {root.File('pyproject.toml')}")
    settings = _settings(env, table)
    if not settings.package:
        raise SCons.Errors.UserError("set `package` in [tool.luthier]: builds with SCons need it")
    parts = settings.package.split(".")
    folder = (env.Dir(destination) if destination else root.Dir("build/scons")).Dir("/".join(parts))
    nodes = []
    for module in settings.modules:
        nodes += _module(env, module, settings, folder, root)
    package = root.Dir(os.path.relpath(package_folder(Path(root.abspath), settings.package), root.abspath))
    made = {folder.rel_path(node) for node in nodes}
    for file in _python_files(package):
        name = package.rel_path(file)
        if name not in made and GENERATED not in file.get_text_contents():
            nodes += env.InstallAs(folder.File(name), file)
    return nodes


def _python_files(package: Any) -> Iterator[Any]:
    """Yield the Python files of a package and its subpackages, including files that are yet to be built."""
    yield from (*package.glob("*.py"), *package.glob("py.typed"))
    for inner in package.glob("*/__init__.py"):
        yield from _python_files(inner.dir)


def _settings(env: Any, table: dict[str, Any]) -> Settings:
    given: dict[str, object] = {}
    for name in _SETTINGS:
        value = env.get(f"LUTHIER_{name.upper()}")
        if value is not None and name != "modules":
            given[name] = tuple(env.Flatten(env.subst_list([value])[0])) if isinstance(value, (list, tuple)) else value
    try:
        return load_settings(
            table, flags={name: _plain(value) for name, value in given.items()}, environment=env["ENV"]
        )
    except LuthierError as problem:
        raise SCons.Errors.UserError(str(problem)) from problem


def _plain(value: object) -> object:
    """Return SCons's strings as `str`."""
    return tuple(str(part) for part in value) if isinstance(value, tuple) else value


def _module(env: Any, module: ModuleSettings, settings: Settings, folder: Any, project: Any) -> list[Any]:
    artefacts = [folder.File(name) for name in artefact_names(module)]
    try:
        check_replaceable(Path(node.abspath) for node in artefacts)  # before SCons removes targets to build them
        toolchain = find_toolchain(settings)
        headers = include_dir()
        units = plan_units(module, settings, toolchain, project=Path(project.abspath), headers=headers)
    except LuthierError as problem:
        raise SCons.Errors.UserError(str(problem)) from problem
    sources = [project.File(source) for source in module.sources]
    folders, files = _named_in([*settings.flags, *module.flags])
    search = [project.Dir(name) for name in (*module.include_dirs, *settings.include_dirs, *folders)]
    common = {
        "CPPPATH": [*search, env.Dir(str(headers))],
        "LUTHIER_INCLUDED": [file for name in files if (file := env.FindFile(name, [project, *search]))],
        "LUTHIER_TOOLCHAIN": toolchain,
        "LUTHIER_SETTINGS": settings,
    }
    # By package and destination: two tools of a project, or two variants of one, may each have a module `device`.
    where = digest_text(os.path.relpath(folder.abspath, project.abspath))[:8]
    intermediate = project.Dir("/".join(filter(None, ("build/scons.objects", settings.package, module.name, where))))
    objects = []
    for unit in units:
        (node,) = env.LuthierCodeObject(
            intermediate.File(unit.file_name), sources, LUTHIER_UNIT=unit, LUTHIER_KEY=unit.key, **common
        )
        # The plugin is not a header, and the scanner may miss headers that are named by macros.
        env.Depends(node, [env.File(name) for name in _plugin_files(unit)])
        env.Clean(node, intermediate.File(f"{Path(unit.file_name).stem}.d"))
        objects.append(node)
    return list(
        env.LuthierModuleFiles(
            artefacts,
            [*objects, *sources],
            LUTHIER_UNITS=units,
            LUTHIER_KEY=[unit.key for unit in units]
            + [settings.package, str(settings.compress), str(settings.check_hooks)],
            **common,
        )
    )


def _plugin_files(unit: BuildUnit) -> set[str]:
    return {flag.partition("=")[2] for flag in unit.plugin if flag.startswith("-fpass-plugin=")}


def _named_in(flags: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the folders of headers and the files to include that are named by compiler flags."""
    folders: list[str] = []
    files: list[str] = []
    words = iter([flag for flag in flags if flag != "-Xclang"])
    for word in words:
        if match := _NAMING.fullmatch(word):
            place = files if match["file"] else folders
            place.append(match["name"] or next(words, ""))
    return folders, files


def _includes(node: Any, env: Any, path: Any) -> list[Any]:
    """Return the files that a HIP source includes, itself or by flags; code objects, which are sources too, include
    none."""
    return [] if str(node).endswith(".hsaco") else [*env["LUTHIER_INCLUDED"], *_c_scanner(node, env, path)]


def _compile(target: list[Any], source: list[Any], env: Any) -> int:
    return _reported(lambda: compile_unit(env["LUTHIER_UNIT"], Path(target[0].abspath)))


def _say_compile(target: list[Any], source: list[Any], env: Any) -> str:
    unit: BuildUnit = env["LUTHIER_UNIT"]
    if env["LUTHIER_SETTINGS"].verbose:
        return shlex.join(unit.full_command(Path(target[0].path), Path(target[0].path).with_suffix(".d")))
    return f"compiling {unit.module} for {unit.target}"


def _describe(target: list[Any], source: list[Any], env: Any) -> int:
    return _reported(lambda: _write_module(target, source, env))


def _write_module(target: list[Any], source: list[Any], env: Any) -> None:
    units: list[BuildUnit] = env["LUTHIER_UNITS"]
    toolchain: Toolchain = env["LUTHIER_TOOLCHAIN"]
    settings: Settings = env["LUTHIER_SETTINGS"]
    objects = {unit.target: Path(node.abspath) for unit, node in zip(units, source, strict=False)}
    first = units[0]
    manifest = describe_objects(
        first.module, settings.package, toolchain, objects, first.sources, first.command[1:], first.project
    )
    if settings.check_hooks:
        from luthier_build.check import check_objects

        check_objects(objects, settings.jobs)
    bundle, description, python, stub = (Path(node.abspath) for node in target)
    files = python_files(manifest, python, stub)
    write_bundle(objects, bundle, toolchain, compress=settings.compress)
    write_together({**files, description: manifest.to_json()})


def _say_describe(target: list[Any], source: list[Any], env: Any) -> str:
    return f"bundling {target[0]}"


def _patch(target: list[Any], source: list[Any], env: Any) -> int:
    from luthier.support.processes import run

    def work() -> None:
        say_raw(run(_patch_command(target, source, env)), end="")

    return _reported(work)


def _patch_command(target: list[Any], source: list[Any], env: Any) -> list[str]:
    tools = [word for name in env.Flatten([env["LUTHIER_TOOL"]]) for word in ("-t", env.subst(name))]
    flags = [env.subst(flag) for flag in env.Flatten([env["LUTHIER_PATCHFLAGS"]])]
    return [*env.Flatten([env["LUTHIER"]]), "patch", *tools, *flags, "-o", target[0].abspath, source[0].abspath]


def _say_patch(target: list[Any], source: list[Any], env: Any) -> str:
    return f"patching {source[0]} with {env.subst('$LUTHIER_TOOL')} into {target[0]}"


def _tool_content(target: Any, source: Any, env: Any, for_signature: bool) -> str:
    """Return a digest of the tools of a patched object, so that it is patched again when a tool or Luthier changes.

    SCons calls it after building everything that the object depends on, including a tool of the same project.
    """
    words = [env.subst(word) for word in env.Flatten([env["LUTHIER_TOOL"]])]
    return digest_text(made_by("check"), *(_content_of(word) for word in words if word))


def _content_of(tool: str) -> str:
    """Return a digest of all files (host sources, bundles, manifests) of the package of a tool, named as for ``-t``."""
    try:
        _, point, _ = find_tool(tool)
        importlib.invalidate_caches()
        spec = importlib.util.find_spec(point.module.partition(".")[0])
    except (LuthierError, ImportError, ValueError):
        spec = None
    if spec is None or not (spec.submodule_search_locations or spec.origin):
        return secrets.token_hex(8)  # installed only for another Python: cannot be checked, so never up to date
    roots = [Path(folder) for folder in spec.submodule_search_locations or ()]
    for root in roots:
        with contextlib.suppress(LuthierError):  # patching reports the error
            follow_sources(root)
    files = {
        str(path.relative_to(root)): path
        for root in roots
        for path in root.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    } or {"": Path(str(spec.origin))}
    return digest_text(point.value, *(f"{name} {digest(files[name])}" for name in sorted(files)))


def _reported(work: Any) -> int:
    """Run `work`; return 0, or 1 after reporting an error, for which SCons then names the target and stops."""
    try:
        work()
    except LuthierError as problem:
        say_text(problem, file=sys.stderr)
        return 1
    return 0


class _DatabaseCommand:
    """Interface that SCons's tool `compilation_db` expects of an action: the command as text."""

    @staticmethod
    def strfunction(target: Any, source: Any, env: Any, executor: Any = None, overrides: Any = None) -> str:
        unit: BuildUnit = env["LUTHIER_UNIT"]
        return shlex.join([*unit.command, "-c", source.abspath])


def _compilation_database(target: list[Any], source: list[Any], env: Any) -> tuple[list[Any], list[Any]]:
    """Emitter: add the sources to the compilation database if the environment makes one."""
    entries = _database_entries()
    if entries is not None and "CompilationDatabase" in env["BUILDERS"]:
        entries.extend((target[0], item, env, _DatabaseCommand) for item in source)
    return target, source


def _database_entries() -> list[Any] | None:
    module = sys.modules.get("SCons.Tool.compilation_db")
    entries = getattr(module, "__COMPILATION_DB_ENTRIES", None)
    return entries if isinstance(entries, list) else None
