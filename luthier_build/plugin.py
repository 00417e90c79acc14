"""Build the compiler plugin on demand for the compiler in use, cache it per user, and pass it to clang."""

from __future__ import annotations

import functools
import os
import re
import shlex
import shutil
from pathlib import Path

from luthier.cache.folder import is_own
from luthier.errors import BuildError
from luthier.support.processes import run

from luthier_build.cache import FIX, cache_dir, drop_if_foreign, keep_own, locked
from luthier_build.own_commands import is_wrapper
from luthier_build.toolchain import Toolchain, plugin_sources
from luthier_build.workspace import digest, digest_text, forget, is_current, record_of, remember, replacing

_FLAGS = (
    "-std=c++17",
    "-O1",
    "-DNDEBUG",
    "-fPIC",
    "-shared",
    "-fno-exceptions",
    "-fno-rtti",  # needs nothing of LLVM's, whether LLVM was built with or without
)


def include_dir() -> Path:
    """Return the folder for ``-I`` with which device code can ``#include <luthier/luthier.h>``."""
    return plugin_sources() / "include"


def own_files() -> list[Path]:
    """Return the files of Luthier that affect device modules: its headers and the sources of the plugin."""
    return sorted(path for path in plugin_sources().glob("*/**/*") if path.is_file())


def plugin_for(toolchain: Toolchain) -> Path:
    """Return the plugin for exactly this compiler; build it if it is not in the cache.

    Raises:
        BuildError: LLVM's headers or a C++ compiler are missing, the cache cannot be written, or the plugin does not
            compile or load.
    """
    return _plugin(toolchain, cache_dir("plugins"), _given_compiler())


@functools.lru_cache(maxsize=8)
def _plugin(toolchain: Toolchain, cache: Path, given: tuple[str, ...]) -> Path:
    # The compiler may have been replaced since `Toolchain.find`; it rejects another compiler's plugin, or crashes.
    clang, version = toolchain.clang, toolchain.version
    if run([clang, "--version"]) != version:
        raise BuildError(f"{clang} changed during the build; run the build again")
    folder = plugin_sources() / "src"
    sources = sorted(folder.glob("*.cpp"))
    contents = (f"{path.name} {digest(path)}" for path in sorted(folder.iterdir()))
    key = digest_text(version, os.fspath(clang.resolve()), digest(Path(__file__)), *contents, *given)
    plugin = cache / f"luthier-llvm{toolchain.llvm_major}-{key[:16]}.so"
    record = record_of(plugin)
    if is_own(plugin) and is_own(record) and is_current(plugin, key):
        return plugin
    if not os.access(cache, os.W_OK | os.X_OK):
        raise BuildError(f"no compiler plugin for {clang} in the cache {cache}, which is not writable; {FIX}")
    with locked(plugin.with_suffix(".lock")):
        for path in (plugin, record):
            drop_if_foreign(path)
        if not is_current(plugin, key):  # another process may have built it
            forget(plugin)
            with replacing(plugin) as fresh:
                _build(sources, toolchain, given, fresh)
            remember(plugin, key, ())
            keep_own(plugin, record)
    return plugin


def _build(sources: list[Path], toolchain: Toolchain, given: tuple[str, ...], output: Path) -> None:
    # One translation unit, because parsing LLVM's headers is most of the work.
    unit = "".join(f'#include "{source.name}"\n' for source in sources)
    run([*(given or _host_compiler(toolchain)), *plugin_compile_flags(toolchain), "-o", output, "-"], stdin=unit)
    try:
        run([toolchain.clang, f"-fpass-plugin={output}", "-x", "c", "-c", "-o", os.devnull, os.devnull])
    except BuildError as problem:
        if not re.search(r"failed with exit code \d+$", problem.message):  # clang was killed
            raise
        raise BuildError(
            f"the compiler plugin built with the headers in {toolchain.llvm_include} does not load into "
            f"{toolchain.clang}: the two are from different builds of LLVM\n{problem}"
        ) from problem


def plugin_compile_flags(toolchain: Toolchain) -> list[str]:
    """Return the flags that build the plugin for a compiler, without the source.

    Raises:
        BuildError: LLVM's headers are missing.
    """
    return [
        *("-x", "c++", *_FLAGS, "-I", os.fspath(plugin_sources() / "src")),
        *("-isystem", os.fspath(toolchain.llvm_include)),
        *("-D_GNU_SOURCE", "-D__STDC_CONSTANT_MACROS", "-D__STDC_FORMAT_MACROS", "-D__STDC_LIMIT_MACROS"),
    ]


def _given_compiler() -> tuple[str, ...]:
    """Return the command in CXX, such as ``ccache g++``; empty for hipcc or a wrapper of it, which compile user code,
    not the plugin."""
    setting = os.environ.get("CXX", "")
    try:
        words = [setting] if shutil.which(setting) else shlex.split(setting)
    except ValueError as problem:
        raise BuildError(f"CXX is {setting}: {problem}") from problem
    programs = [shutil.which(word) for word in words]
    if any("hipcc" in os.path.basename(word) for word in words) or any(is_wrapper(path) for path in programs if path):
        return ()
    if words and not programs[0]:
        raise BuildError(f"CXX is {setting}, which is not a program")
    return tuple(words)


def _host_compiler(toolchain: Toolchain) -> list[str]:
    beside = toolchain.clang.with_name("clang++")
    for name in ("g++", "c++", "clang++", os.fspath(beside)):
        if compiler := shutil.which(name):
            return [compiler]
    packages = f"g++ llvm-{toolchain.llvm_major}-dev"
    raise BuildError(f"no C++ compiler to build Luthier's compiler plugin: apt install {packages}, or set CXX")


def plugin_flags(toolchain: Toolchain) -> list[str]:
    """Return compiler flags that load the plugin only for device code.

    Compiler caches do not hash ``-fpass-plugin``, and ``-MD`` does not list it. ``-fplugin`` of the same file and a
    dependency entry make a new plugin cause a rebuild.
    """
    plugin = plugin_for(toolchain)
    return [
        "-Xarch_device",
        f"-fpass-plugin={plugin}",
        f"-fplugin={plugin}",
        "-Xclang",
        f"-fdepfile-entry={plugin}",
    ]
