"""Find ROCm's libraries on this machine, with their versions."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from luthier.errors import LuthierError
from luthier.support.processes import run

ROCR, HIP = "libhsa-runtime64.so", "libamdhip64.so"


@dataclass(frozen=True)
class Library:
    """A shared library."""

    path: Path
    version: str
    """Version in the file name, or ""."""


def find(name: str) -> Library | None:
    """Return the library that a program would load: ``name`` or ``name.N``, the highest version of several."""
    for folder in _folders():
        paths = [path for path in folder.glob(f"{name}*") if re.fullmatch(r"(\.\d+)*", path.name.removeprefix(name))]
        if paths:
            versions = {path: _version(path, name) for path in paths if path.exists()}
            if versions:
                best = max(versions, key=lambda path: [int(part) for part in versions[path].split(".") if part])
                return Library(best.resolve(), versions[best])
    return None


def _version(path: Path, name: str) -> str:
    """Return the version in the name of the file that a library resolves to; if its name differs, that in its own."""
    names = (path.resolve().name, path.name)
    pattern = rf"{re.escape(name)}\.?((?:\d+\.?)*)"
    return next(match[1] for file_name in names if (match := re.fullmatch(pattern, file_name)))


def _folders() -> Iterator[Path]:
    """Yield ROCm's own folder, then the folders that the loader searches, in its order."""
    yield Path(os.environ.get("ROCM_PATH", "/opt/rocm")) / "lib"
    yield from map(Path, filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(":")))
    try:
        listed = run(["/sbin/ldconfig", "-p"])
    except LuthierError:
        listed = ""
    folders = dict.fromkeys(Path(line.rpartition("=> ")[2]).parent for line in listed.splitlines() if "=> /" in line)
    yield from folders or [Path("/usr/lib/x86_64-linux-gnu"), Path("/usr/lib64"), Path("/usr/lib")]
