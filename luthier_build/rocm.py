"""ROCm's libraries on this machine: which there are, and of which version."""

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
    """Version in its file name; "" if there is none."""


def find(name: str) -> Library | None:
    """Return the library that a program would get: ``name`` or ``name.N``, the highest of several."""
    for folder in _folders():
        found = [path for path in folder.glob(f"{name}*") if re.fullmatch(r"(\.\d+)*", path.name.removeprefix(name))]
        if found:
            versions = {path: _version(path, name) for path in found if path.exists()}
            if versions:
                best = max(versions, key=lambda path: [int(part) for part in versions[path].split(".") if part])
                return Library(best.resolve(), versions[best])
    return None


def _version(path: Path, name: str) -> str:
    """Return the version in the name of the file that a library leads to; in its own if that is called otherwise."""
    names = (path.resolve().name, path.name)
    return next(found[1] for one in names if (found := re.fullmatch(rf"{re.escape(name)}\.?((?:\d+\.?)*)", one)))


def _folders() -> Iterator[Path]:
    """Yield the folders where the loader looks, in its order, after ROCm's own folder."""
    yield Path(os.environ.get("ROCM_PATH", "/opt/rocm")) / "lib"
    yield from map(Path, filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(":")))
    try:
        listed = run(["/sbin/ldconfig", "-p"])
    except LuthierError:
        listed = ""
    folders = dict.fromkeys(Path(line.rpartition("=> ")[2]).parent for line in listed.splitlines() if "=> /" in line)
    yield from folders or [Path("/usr/lib/x86_64-linux-gnu"), Path("/usr/lib64"), Path("/usr/lib")]
