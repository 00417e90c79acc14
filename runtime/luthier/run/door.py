"""Where a program meets the virtual device: at libhsakmt, or at the kernel driver when ROCr has libhsakmt inside.

Asked is the ROCr that the program would load. One that is beside the program in a way that only the program knows of is
not found: then the environment says which door (`DOOR`).
"""

from __future__ import annotations

import platform
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

DOOR = "LUTHIER_RUN_DOOR"
"""Environment variable that chooses: ``thunk`` or ``kfd``."""
RUNTIMES = ("libhsa-runtime64.so.1", "libhsa-runtime64.so")


def is_driver(base: Mapping[str, str], program: str) -> bool:
    """Whether the device has to answer in the kernel driver's place.

    Args:
        base: the program's environment.
        program: its name or path.
    """
    if DOOR in base:
        return base[DOOR] == "kfd"
    runtime = find_runtime(base, program)
    needed = [] if runtime is None else _values(runtime, "needed")
    return bool(needed) and not any(name.startswith("libhsakmt.so") for name in needed)


def find_runtime(base: Mapping[str, str], program: str) -> Path | None:
    """The ROCr that a program would load: of its own run path, the library path, ROCm's folder or the system's."""
    folders = []
    path = shutil.which(program, path=base.get("PATH"))
    if path is not None:
        origin = str(Path(path).resolve().parent)
        run_paths = [*_values(Path(path), "rpath"), *_values(Path(path), "runpath")]
        folders += [folder.replace("$ORIGIN", origin) for value in run_paths for folder in value.split(":")]
    folders += [*base.get("LD_LIBRARY_PATH", "").split(":"), f"{base.get('ROCM_PATH', '/opt/rocm')}/lib"]
    folders += [f"/usr/lib/{platform.machine()}-linux-gnu", "/usr/lib64", "/usr/lib"]
    found = (Path(folder, name) for folder in folders if folder for name in RUNTIMES)
    return next((path for path in found if path.exists()), None)


def _values(path: Path, name: str) -> list[str]:
    """Entries of the dynamic section; none of what is no program or library."""
    # Imported where it is needed: the program is to start soon.
    from elftools.common.exceptions import ELFError
    from elftools.elf.dynamic import DynamicSection
    from elftools.elf.elffile import ELFFile

    def read(file: BinaryIO) -> list[Any]:
        section = ELFFile(file).get_section_by_name(".dynamic")
        return list(section.iter_tags(f"DT_{name.upper()}")) if isinstance(section, DynamicSection) else []

    with suppress(OSError, ELFError), path.open("rb") as file:
        return [str(getattr(tag, name)) for tag in read(file)]
    return []
