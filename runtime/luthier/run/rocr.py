"""The ROCr that a program would load, predicted before it starts."""

from __future__ import annotations

import platform
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from luthier.errors import LuthierError
from luthier.objects import elf as E
from luthier.objects.place import FileSlice

_TAGS = {"rpath": 15, "runpath": 29}
"""DT_RPATH, DT_RUNPATH."""
RUNTIMES = ("libhsa-runtime64.so.1", "libhsa-runtime64.so")


def find_runtime(base: Mapping[str, str], program: str) -> Path | None:
    """Return the ROCr that a program would load.

    The search covers the program's run path, the library path, and the folders of ROCm and the system.
    """
    folders = []
    path = shutil.which(program, path=base.get("PATH"))
    if path is not None:
        origin = str(Path(path).resolve().parent)
        run_paths = [*_values(Path(path), "rpath"), *_values(Path(path), "runpath")]
        folders += [folder.replace("$ORIGIN", origin) for value in run_paths for folder in value.split(":")]
    folders += [*base.get("LD_LIBRARY_PATH", "").split(":"), f"{base.get('ROCM_PATH', '/opt/rocm')}/lib"]
    folders += [f"/usr/lib/{platform.machine()}-linux-gnu", "/usr/lib64", "/usr/lib"]
    candidates = (Path(folder, name) for folder in folders if folder for name in RUNTIMES)
    return next((path for path in candidates if path.exists()), None)


def _values(path: Path, name: str) -> list[str]:
    """Return entries of the dynamic section; none if the file is not a program or library."""
    with suppress(LuthierError):
        elf = E.ElfFile(FileSlice.of_file(path, str(path)).view, str(path))
        for section in elf.sections:
            if section.type == E.SHT_DYNAMIC:
                entries = E.DYNAMIC.unpack_all(elf.section_view(section, "dynamic section"))
                strings = elf.string_table(section.link, "its strings")
                return strings.names(entry.value for entry in entries if entry.tag == _TAGS[name])
    return []
