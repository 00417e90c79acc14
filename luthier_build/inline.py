"""Compile a device module from a source string, for `luthier.load_inline`.

Each source has its own build folder in the user's cache, named by source and settings. The records in the folder
(`luthier_build.workspace`) detect changes of headers and compiler. Its lock lets one process or thread compile while
the others wait for the result. Creating a folder removes folders that were unused for a month.
"""

from __future__ import annotations

import dataclasses
import linecache
import re
import sys
from collections.abc import Mapping
from pathlib import Path

from luthier.errors import BuildError
from luthier.isa.targets import TargetId
from luthier.module import ModuleManifest
from luthier.module.demand import first_of
from luthier.terminal import say_text

from luthier_build.cache import cache_dir, drop_foreign, keep_own
from luthier_build.compile import compile_modules
from luthier_build.package import check_hooks, describe_module, find_toolchain
from luthier_build.settings import ModuleSettings, Settings, is_python_name, load_settings
from luthier_build.workspace import build_folder, digest_text, forget_unused, made_by, write_atomic

PACKAGE = "inline"
MOST = 256
"""Number of sources to keep, about a megabyte each."""
_MARK = "MARK_LUTHIER_DEVICE_MODULE"
_HEADERS = ("-include", "hip/hip_runtime.h", "-include", "luthier/luthier.h")


def compile_inline(
    source: str, name: str, given: Mapping[str, object], caller: str, target: TargetId | None = None
) -> tuple[bytes, ModuleManifest, tuple[TargetId, ...], bool]:
    """Return the offload bundle and the manifest of a source for one target, from the cache if possible.

    Also return the targets that it may be compiled for, and whether any other processor is allowed too.

    Args:
        name: name of the module.
        given: settings by field name; the environment supplies the others, as for every build.
        caller: file that contains `source` as a literal; errors then refer to lines of that file.
        target: the application's target; None if unknown.

    Raises:
        BuildError: there is no compiler, the compiler fails, or a hook cannot be spliced.
        TargetError: a target does not exist.
    """
    if not is_python_name(name):
        raise BuildError(f"the name of a device module must be a Python identifier, not {name!r}")
    try:
        source.encode()
    except UnicodeEncodeError as problem:
        raise BuildError(f"the source of {name} cannot be written as UTF-8: {problem}") from problem
    file_name = f"{name}.hip"
    text = source if re.search(rf"\b{_MARK}\b", source) else f"{source}\n{_MARK}\n"
    module = ModuleSettings(name, (file_name,))
    settings = load_settings({}, flags=_lists(given), flag_origin="argument {}")
    offered, every = settings.targets, settings.origins["targets"] == "default"
    settings = dataclasses.replace(
        settings,
        package=PACKAGE,
        targets=(first_of(offered, target, every=every),),
        modules=(module,),
        flags=(*_HEADERS, *settings.flags),
        # The compiler runs in the cache, where relative paths are not valid.
        include_dirs=tuple(str(Path(folder).absolute()) for folder in settings.include_dirs),
    )
    toolchain = find_toolchain(settings)
    key = digest_text(text, str(toolchain.clang), made_by("inline"), *_what_matters(settings))

    def report(line: str) -> None:
        say_text(f"luthier: {_placed(line, source, file_name, caller)}", file=sys.stderr, flush=True)

    cache = cache_dir("inline")
    if not (cache / key[:32]).exists():
        forget_unused(cache, MOST - 1)
    with build_folder(cache_dir(f"inline/{key[:32]}")) as folder:
        drop_foreign(folder)
        write_atomic(folder / file_name, text)
        try:
            (device,) = compile_modules(
                [module], settings, toolchain, project=folder, folder=folder / "build", report=report
            )
            manifest = describe_module(device, PACKAGE, toolchain, folder, folder / "build", report)
            if not manifest.hooks:
                raise BuildError("no hooks in the source: start the definition of a hook with LUTHIER_HOOK_ANNOTATE")
            if settings.check_hooks:
                check_hooks(device, folder / "build", settings.jobs)
        except BuildError as problem:
            problem.args = (_placed(problem.message, source, file_name, caller),)
            problem.message = problem.args[0]
            raise
        finally:
            keep_own(folder)
        return device.bundle.read_bytes(), manifest, tuple(map(TargetId.parse, offered)), every


def _lists(given: Mapping[str, object]) -> dict[str, object]:
    """Return settings in which a string given for a list becomes a list of that string."""
    lists = {item.name for item in dataclasses.fields(Settings) if isinstance(item.default, tuple)}
    return {name: [value] if name in lists and isinstance(value, str) else value for name, value in given.items()}


def _what_matters(settings: Settings) -> list[str]:
    """Return the settings that affect the output, as text."""
    left_out = ("origins", "jobs", "verbose", "build_dir", "editable_rebuild")
    return [
        f"{item.name}={getattr(settings, item.name)!r}"
        for item in dataclasses.fields(settings)
        if item.name not in left_out
    ]


def _placed(text: str, source: str, file_name: str, caller: str) -> str:
    """Return `text` with each ``name.hip:line`` replaced by the line in the caller's file; unchanged if the source is
    not found there."""
    start = _first_line(source, caller)
    if start is None:
        return text

    def place(match: re.Match[str]) -> str:
        return f"{caller}:{int(match[1]) + start - 1}:"

    return re.sub(rf"(?<![^\s'\"(/]){re.escape(file_name)}:(\d+):", place, text)


def _first_line(source: str, caller: str) -> int | None:
    """Return the line of a Python file or notebook cell where a string literal begins; None unless it occurs exactly
    once."""
    text = "".join(linecache.getlines(caller))
    return text.count("\n", 0, text.index(source)) + 1 if source and text.count(source) == 1 else None
