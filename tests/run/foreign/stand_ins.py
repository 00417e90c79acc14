"""Build libraries that a module is linked with and the machine does not have. All their functions fail.

    python stand_ins.py MODULE FOLDER

Frameworks are linked with libraries for profilers and for several GPUs. Programs that call none of these need only that
the loader is content.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

PREFIXES = {"librccl": "nccl", "librocprofiler-sdk": "rocprofiler_"}
"""Prefixes of the functions of libraries that do not version their symbols."""


def output_of(*command: str | Path) -> str:
    """Return what a command prints."""
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def versions_of(module: Path) -> dict[str, list[str]]:
    """Return the versions of symbols that a module needs of each library (.gnu.version_r)."""
    versions: dict[str, list[str]] = {}
    for library, version in re.findall(r"File: (\S+)|Name: (\S+) +Flags", output_of("readelf", "-VW", module)):
        if library:
            needed = versions.setdefault(library, [])
        elif versions:
            needed.append(version)
    return versions


def build(module: Path, folder: Path) -> None:
    """Build each library that the loader does not find for a module."""
    symbols = defaultdict(list)
    for name, version in re.findall(r" U (\w+)(?:@(\S+))?$", output_of("nm", "-D", module), re.MULTILINE):
        symbols[version].append(name)
    versions = versions_of(module)
    folder.mkdir(parents=True, exist_ok=True)
    for library in re.findall(r"^\s+(\S+) => not found", output_of("ldd", module), re.MULTILINE):
        prefix = PREFIXES.get(library.partition(".")[0], " ")
        nodes = {version: symbols[version] for version in versions.get(library, ())}
        functions = {name for names in nodes.values() for name in names}
        functions |= {name for name in symbols[""] if name.startswith(prefix)}
        source, script = folder / f"{library}.c", folder / f"{library}.map"
        source.write_text("".join(f"int {name}(void) {{ return -1; }}\n" for name in sorted(functions)))
        named = "".join(f"{version} {{ global: {'; '.join(names)}; }};\n" for version, names in nodes.items())
        script.write_text(named or "{ global: *; };\n")
        print(f"stand-in of {library} with {len(functions)} functions that fail", file=sys.stderr)
        options = [f"-Wl,-soname,{library}", f"-Wl,--version-script={script}", "-o", str(folder / library)]
        output_of("gcc", "-shared", "-fPIC", "-w", str(source), *options)


if __name__ == "__main__":
    build(Path(sys.argv[1]), Path(sys.argv[2]))
