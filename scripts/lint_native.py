"""Run clang-tidy over the native code: the sources that setup.py compiles, and those of the compiler plugin.

`.clang-tidy` selects the checks. The flags of a source come from the code that compiles it: `setup.py compile_commands`
and `luthier_build.plugin`. A source without findings is not checked again (Luthier's cache folder keeps that) until it,
a file of the project that it includes, its flags, `.clang-tidy` or clang-tidy changes. Other headers, such as LLVM's,
are assumed not to change.

Use: python scripts/lint_native.py [--analyse]    (exit code 1 if there are findings; --analyse: also run clang's static
analyser, which takes five times as long as everything else)
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
"""Checks of `.clang-tidy` that are left out by default."""
OTHER_COMPILERS = ("-Qunused-arguments", "-Wno-unknown-warning-option")
"""Flags that let clang accept the flags of another compiler."""
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*["<]([^">\n]+)[">]', re.MULTILINE)


@dataclass(frozen=True)
class Unit:
    """A source, and the flags that it is compiled with in the folder of the project."""

    source: Path
    flags: tuple[str, ...]


def native_units(root: Path = ROOT) -> list[Unit]:
    """Return the sources that setup.py compiles, and make the headers that they include.

    Raises:
        BuildError: setup.py fails.
    """
    run([sys.executable, "setup.py", "-q", "compile_commands", "--build-temp", BUILD], cwd=root)
    entries = json.loads((root / BUILD / "compile_commands.json").read_text())
    # The first argument is the compiler, the last two name the source.
    return [Unit(root / entry["file"], tuple(entry["arguments"][1:-2])) for entry in entries]


def plugin_units(root: Path = ROOT) -> list[Unit]:
    """Return the sources of the compiler plugin, as one that includes them: reading LLVM's headers is most of the work.

    Raises:
        BuildError: the toolchain of the plugin is missing.
    """
    flags = tuple(plugin_compile_flags(Toolchain.find()))
    source = root / BUILD / "compiler_plugin.cpp"
    source.write_text("".join(f'#include "{path.name}"\n' for path in sorted((plugin_sources() / "src").glob("*.cpp"))))
    return [Unit(source, flags)]


def include_folders(unit: Unit, root: Path) -> list[Path]:
    """Return the folders of the project in which includes of a source are searched."""
    flags = unit.flags
    named = [flag[2:] or following for flag, following in zip(flags, (*flags[1:], ""), strict=True) if flag[:2] == "-I"]
    folders = [(root / folder).resolve() for folder in named]
    return [folder for folder in folders if folder.is_relative_to(root) and ".venv" not in folder.parts]


def closure(unit: Unit, root: Path = ROOT) -> list[Path]:
    """Return the files of the project that a source may include, itself first; preprocessor conditions are ignored."""
    folders, paths = include_folders(unit, root), [unit.source.resolve()]
    for path in paths:  # grows meanwhile
        for name in INCLUDE.findall(path.read_text("utf-8")):
            for folder in (path.parent, *folders):
                included = (folder / name).resolve()
                if included.is_file() and included not in paths:
                    paths.append(included)
    return paths


def key_of(unit: Unit, version: str, root: Path = ROOT, checks: str = "") -> bytes:
    """Return a digest of everything that determines a source's findings, independent of the project's location."""
    flags = [flag.replace(os.fspath(root), ".") for flag in unit.flags]
    digest = hashlib.sha256(json.dumps([version, checks, flags]).encode())
    for path in (CONFIGURATION, *closure(unit, root)):
        name, content = os.path.relpath(path, root).encode(), path.read_bytes()
        digest.update(b"%d %s %d " % (len(name), name, len(content)) + content)
    return digest.digest()


def findings(unit: Unit, root: Path = ROOT, checks: str = "") -> str:
    """Return clang-tidy's findings in a source; empty if there are none.

    Args:
        checks: added to those of `.clang-tidy`, or removed from them.
    """
    tidy = [os.fspath(TIDY), "--quiet", f"--config-file={CONFIGURATION}", f"--checks={checks}"]
    command = [*tidy, os.fspath(unit.source), "--", *unit.flags, *OTHER_COMPILERS]
    try:
        run(["sh", "-c", 'exec "$@" 2>&1', "sh", *command], cwd=root)  # findings are on standard output
    except BuildError as problem:
        return str(problem)
    return ""


def check(units: Sequence[Unit], kept: Store, root: Path = ROOT, checks: str = "") -> tuple[list[str], int]:
    """Return the findings in sources, and the number of sources that were checked: those without a kept result."""
    version = run([TIDY, "--version"])
    keys = {unit: key_of(unit, version, root, checks) for unit in units}
    known = kept.get(keys.values())
    changed = [unit for unit in units if keys[unit] not in known]

    def check_unit(unit: Unit) -> str:
        text = findings(unit, root, checks)
        if not text:
            kept.put({keys[unit]: b""})  # at once: an aborted run keeps its results
        return text

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        return [text for text in pool.map(check_unit, changed) if text], len(changed)


def unchecked(units: Iterable[Unit], root: Path = ROOT) -> Iterator[Path]:
    """Yield the sources that are neither compiled nor included by a compiled one."""
    reached = {path for unit in units for path in closure(unit, root)}
    for folder in FOLDERS:
        yield from (path for path in sorted((root / folder).rglob("*.cpp")) if path.resolve() not in reached)


def main() -> int:
    """Print the findings; return 1 if there are any."""
    parser = argparse.ArgumentParser(description="Run clang-tidy over the native code.")
    parser.add_argument("--analyse", action="store_true", help="also run the static analyser")
    checks = "" if parser.parse_args().analyse else WITHOUT_ANALYSER
    units = native_units()
    try:
        units += plugin_units()
    except BuildError as problem:
        say_text(f"clang-tidy: the compiler plugin is not checked: {problem}", file=sys.stderr)
    for path in unchecked(units):
        say(f"clang-tidy: not checked, because it is not compiled: {path.relative_to(ROOT)}", file=sys.stderr)
    folder = cache_root()
    kept = Store(folder / "lint" / "native.sqlite") if folder else Store(ROOT / BUILD / "lint.sqlite")
    texts, checked = check(units, kept, ROOT, checks)
    for text in texts:
        say_text(text)
    say(f"clang-tidy: {len(units)} sources, {checked} of them changed, {len(texts)} with findings")
    return bool(texts)


if __name__ == "__main__":
    sys.exit(main())
