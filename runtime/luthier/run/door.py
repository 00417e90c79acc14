"""Where a program meets the virtual device: at libhsakmt, or at the kernel driver when ROCr has libhsakmt inside.

Libhsakmt's place is for a ROCr that wants no more functions of it than are there. Asked is the ROCr that the program
would load. One that is beside the program in a way that only the program knows of is
not found: then the environment says which door (`DOOR`).
"""

from __future__ import annotations

import platform
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from luthier.errors import LuthierError
from luthier.objects import elf as E
from luthier.objects.place import Place

DOOR = "LUTHIER_RUN_DOOR"
"""Environment variable that chooses: ``thunk`` or ``kfd``."""
_TAGS = {"needed": 1, "rpath": 15, "runpath": 29}
"""DT_NEEDED, DT_RPATH, DT_RUNPATH."""
RUNTIMES = ("libhsa-runtime64.so.1", "libhsa-runtime64.so")


def is_driver(base: Mapping[str, str], program: str, thunk: Path) -> bool:
    """Whether the device has to answer in the kernel driver's place.

    Args:
        base: the program's environment.
        program: its name or path.
        thunk: what stands in for libhsakmt.
    """
    if DOOR in base:
        return base[DOOR] == "kfd"
    runtime = find_runtime(base, program)
    return runtime is not None and (has_thunk_inside(runtime) or bool(missing_functions(runtime, thunk)))


def has_thunk_inside(runtime: Path) -> bool:
    """Whether a ROCr talks to the kernel driver itself, as from ROCm 6 on, and does not load libhsakmt."""
    needed = _values(runtime, "needed")
    return bool(needed) and not any(name.startswith("libhsakmt.so") for name in needed)


def missing_functions(runtime: Path, thunk: Path) -> list[str]:
    """Functions of libhsakmt that a ROCr wants and a library in its place does not have: the device can only be met
    behind the real one."""
    has = {name for name, is_defined in _functions(thunk) if is_defined}
    wants = {name for name, is_defined in _functions(runtime) if not is_defined and name.startswith("hsaKmt")}
    return sorted(wants - has)


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


def _functions(path: Path) -> list[tuple[str, bool]]:
    """Names in the table of dynamic symbols, and whether they are defined there; none of what is no library."""
    with suppress(LuthierError):
        elf = E.ElfFile(Place.of_file(path, str(path)).view, str(path))
        for section in elf.sections:
            if section.type == E.SHT_DYNSYM:
                symbols = E.SYMBOL.unpack_all(elf.section_view(section, "dynamic symbols"))
                names = elf.string_table(section.link, "their names").names(symbol.name for symbol in symbols)
                return [(name, one.section != E.SHN_UNDEF) for name, one in zip(names, symbols, strict=True)]
    return []


def _values(path: Path, name: str) -> list[str]:
    """Entries of the dynamic section; none of what is no program or library."""
    with suppress(LuthierError):
        elf = E.ElfFile(Place.of_file(path, str(path)).view, str(path))
        for section in elf.sections:
            if section.type == E.SHT_DYNAMIC:
                entries = E.DYNAMIC.unpack_all(elf.section_view(section, "dynamic section"))
                strings = elf.string_table(section.link, "its strings")
                return strings.names(entry.value for entry in entries if entry.tag == _TAGS[name])
    return []
