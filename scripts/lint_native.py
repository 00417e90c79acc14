"""Run clang-tidy over the native code: the sources that setup.py compiles, and those of the compiler plugin.

What is looked for stands in `.clang-tidy`. How a source is compiled is asked of what compiles it: `setup.py
compile_commands` and `luthier_build.plugin`. A source without findings is not looked at again (Luthier's cache folder
keeps that) until it, a file of the project that it includes, its flags, `.clang-tidy` or clang-tidy changes. Headers of
others, as LLVM's, are taken not to change.

Use: python scripts/lint_native.py [--analyse]    (exit code 1 if there are findings; --analyse: the static analyser of
clang, too, which takes five times as long as all else)
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from luthier.cache.folder import cache_root
from luthier.cache.store import Store
from luthier.errors import BuildError
from luthier.support.processes import run
from luthier.terminal import say, say_text

from luthier_build.plugin import plugin_compile_flags
from luthier_build.toolchain import Toolchain, plugin_sources

ROOT = Path(__file__).resolve().parents[1]
CONFIGURATION = ROOT / ".clang-tidy"
TIDY = Path(sys.executable).with_name("clang-tidy")
BUILD = Path("build/native")
"""Folder for the compilation database and the headers that are made."""
FOLDERS = ("runtime/native", "compiler_plugin/src")
WITHOUT_ANALYSER = "-clang-analyzer-*"
"""Checks that are left out of what `.clang-tidy` says, or none."""
OTHER_COMPILERS = ("-Qunused-arguments", "-Wno-unknown-warning-option")
"""Flags for clang, where what else is given are flags for another compiler."""
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*["<]([^">\n]+)[">]', re.MULTILINE)


@dataclass(frozen=True)
class Unit:
    """A source, and the flags that it is compiled with in the folder of the project."""

    source: Path
    flags: tuple[str, ...]


def native_units(root: Path = ROOT) -> list[Unit]:
    """Return the sources that setup.py compiles; it makes the headers that they include.

    Raises:
        BuildError: setup.py fails.
    """
    run([sys.executable, "setup.py", "-q", "compile_commands", "--build-temp", BUILD], cwd=root)
    entries = json.loads((root / BUILD / "compile_commands.json").read_text())
    # The first argument is the compiler, the last two name the source.
    return [Unit(root / entry["file"], tuple(entry["arguments"][1:-2])) for entry in entries]


def plugin_units(root: Path = ROOT) -> list[Unit]:
    """Return the sources of the compiler plugin, as one that includes them: to read LLVM's headers is most of the work.

    Raises:
        BuildError: what it is built with is missing.
    """
    flags = tuple(plugin_compile_flags(Toolchain.find()))
    source = root / BUILD / "compiler_plugin.cpp"
    source.write_text("".join(f'#include "{path.name}"\n' for path in sorted((plugin_sources() / "src").glob("*.cpp"))))
    return [Unit(source, flags)]


def include_folders(unit: Unit, root: Path) -> list[Path]:
    """Return the folders of the project in which a source's includes are looked for."""
    flags = unit.flags
    named = [flag[2:] or following for flag, following in zip(flags, (*flags[1:], ""), strict=True) if flag[:2] == "-I"]
    found = [(root / folder).resolve() for folder in named]
    return [folder for folder in found if folder.is_relative_to(root) and ".venv" not in folder.parts]


def closure(unit: Unit, root: Path = ROOT) -> list[Path]:
    """Return the files of the project that a source may include, itself first; conditions are not looked at."""
    folders, found = include_folders(unit, root), [unit.source.resolve()]
    for path in found:  # grows meanwhile
        for name in INCLUDE.findall(path.read_text("utf-8")):
            for folder in (path.parent, *folders):
                inner = (folder / name).resolve()
                if inner.is_file() and inner not in found:
                    found.append(inner)
    return found


def key_of(unit: Unit, version: str, root: Path = ROOT, checks: str = "") -> bytes:
    """Return a digest of all that a source's findings follow from; the same wherever the project lies."""
    flags = [flag.replace(os.fspath(root), ".") for flag in unit.flags]
    digest = hashlib.sha256(json.dumps([version, checks, flags]).encode())
    for path in (CONFIGURATION, *closure(unit, root)):
        name, content = os.path.relpath(path, root).encode(), path.read_bytes()
        digest.update(b"%d %s %d " % (len(name), name, len(content)) + content)
    return digest.digest()


def findings(unit: Unit, root: Path = ROOT, checks: str = "") -> str:
    """Return what clang-tidy says of a source; empty if it finds nothing.

    Args:
        checks: added to those of `.clang-tidy`, or taken from them.
    """
    tidy = [os.fspath(TIDY), "--quiet", f"--config-file={CONFIGURATION}", f"--checks={checks}"]
    command = [*tidy, os.fspath(unit.source), "--", *unit.flags, *OTHER_COMPILERS]
    try:
        run(["sh", "-c", 'exec "$@" 2>&1', "sh", *command], cwd=root)  # findings are on standard output
    except BuildError as problem:
        return str(problem)
    return ""


def check(units: Sequence[Unit], kept: Store, root: Path = ROOT, checks: str = "") -> tuple[list[str], int]:
    """Return what is found in sources, and how many were looked at: those that are not kept as without findings."""
    version = run([TIDY, "--version"])
    keys = {unit: key_of(unit, version, root, checks) for unit in units}
    known = kept.get(keys.values())
    changed = [unit for unit in units if keys[unit] not in known]

    def look_at(unit: Unit) -> str:
        found = findings(unit, root, checks)
        if not found:
            kept.put({keys[unit]: b""})  # at once: a run that is ended is not lost
        return found

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        return [found for found in pool.map(look_at, changed) if found], len(changed)


def unchecked(units: Iterable[Unit], root: Path = ROOT) -> Iterator[Path]:
    """Yield the sources that are neither compiled here nor included by one that is."""
    reached = {path for unit in units for path in closure(unit, root)}
    for folder in FOLDERS:
        yield from (path for path in sorted((root / folder).rglob("*.cpp")) if path.resolve() not in reached)


def main() -> int:
    """Print what is found; the exit code says whether anything is."""
    parser = argparse.ArgumentParser(description="Run clang-tidy over the native code.")
    parser.add_argument("--analyse", action="store_true", help="have the static analyser look, too")
    checks = "" if parser.parse_args().analyse else WITHOUT_ANALYSER
    units = native_units()
    try:
        units += plugin_units()
    except BuildError as problem:
        say_text(f"clang-tidy: the compiler plugin is not checked: {problem}", file=sys.stderr)
    for path in unchecked(units):
        say(f"clang-tidy: not checked, as it is not compiled here: {path.relative_to(ROOT)}", file=sys.stderr)
    folder = cache_root()
    kept = Store(folder / "lint" / "native.sqlite") if folder else Store(ROOT / BUILD / "lint.sqlite")
    found, looked_at = check(units, kept, ROOT, checks)
    for text in found:
        say_text(text)
    say(f"clang-tidy: {len(units)} sources, {looked_at} of them changed, {len(found)} with findings")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
