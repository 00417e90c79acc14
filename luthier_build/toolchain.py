"""Find a toolchain for HIP device code: clang with its tools, HIP's headers, ROCm's device library."""

from __future__ import annotations

import functools
import os
import re
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from luthier.errors import BuildError
from luthier.isa.targets import TargetId
from luthier.support.processes import run

from luthier_build.device_library import find_library, library_for
from luthier_build.workspace import digest, state_of

Kind = Literal["rocm", "upstream", "debian-hipcc"]

OLDEST_LLVM = 15
READABLE_LLVM = 22
"""Newest LLVM whose bitcode the runtime's LLVM reads; newer compilers are tried last."""

_SYSTEM = Path("/usr")  # where Linux distributions put HIP
_VARIABLES = ("LUTHIER_CLANG", "LUTHIER_ROCM_PATH", "ROCM_PATH", "PATH")
_HEADER_VARIABLES = ("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH")


@dataclass(frozen=True)
class Toolchain:
    """One compiler for HIP device code with its headers, libraries and tools; made by `find`."""

    clang: Path
    version: str = field(repr=False)
    """Full output of ``clang --version``; plugins and generated files are valid for exactly this version."""
    llvm_major: int
    kind: Kind
    """``rocm``: AMD's compiler; ``debian-hipcc``: the clang of Debian 12's hipcc; ``upstream``: LLVM's, with separate
    HIP headers."""
    resource_dir: Path
    rocm_path: Path
    """Folder with ``include/hip``."""
    hip_version: tuple[int, int, int]
    device_library: Path
    """Folder with ``ocml.bc``, as installed."""
    bundler: Path
    """clang-offload-bundler of the same LLVM."""

    @staticmethod
    def find(environment: Mapping[str, str] | None = None) -> Toolchain:
        """Return the toolchain for an environment (default: `os.environ`).

        The compiler is the first of: ``LUTHIER_CLANG``; the compiler of the ROCm installation in
        ``LUTHIER_ROCM_PATH``, ``ROCM_PATH``, ``/opt/rocm``; ``clang-22`` and other LLVM releases on the path. HIP's
        headers and device library come from the first of those folders that has them, then ``/usr``.

        Raises:
            BuildError: a part is missing; the message names the package or setting that supplies it.
        """
        variables = os.environ if environment is None else environment
        return _find(tuple(_in_any_folder(name, variables.get(name, "")) for name in _VARIABLES))

    def device_flags(self, target: str) -> list[str]:
        """Return the compiler flags that every HIP device compilation for `target` needs, e.g. ``gfx942:xnack-``.

        Raises:
            TargetError: the target is unknown.
            BuildError: the compiler does not know the target; or the device library lacks it, and the cache for the
                supplement is not writable.
        """
        known = TargetId.parse(target).target
        if not self.knows(target):
            raise BuildError(
                f"clang {self.llvm_major} ({self.clang}) cannot compile for {known.name}: install a newer clang and "
                f"its LLVM headers, or remove {known.name} from `targets`",
                target=target,
            )
        library = library_for(self.device_library, known.name, self.clang, self.version)
        flags = ["-x", "hip", f"--offload-arch={target}", f"--rocm-path={self.rocm_path}"]
        if self.kind != "rocm":  # older clangs do not find the version file in distributions' folders
            flags.append(f"--hip-version={'.'.join(map(str, self.hip_version))}")
        if self.kind != "rocm" or library != self.device_library:
            flags.append(f"--rocm-device-lib-path={library}")
        if self.llvm_major >= 22 and self.hip_version < (7,):
            # Older headers use this macro for the size of wavefront masks; clang 22 no longer predefines it.
            flags.append(f"-D__AMDGCN_WAVEFRONT_SIZE={known.default_wave_size}")
            flags += ["-include", os.fspath(plugin_sources() / "include/luthier/support/hip5_with_clang22.h")]
        return flags

    def knows(self, target: str) -> bool:
        """Return whether the compiler can compile for a target, as far as it lists processors."""
        listed = frozenset() if self.llvm_major >= READABLE_LLVM else _processors_of(self.clang)
        return not listed or TargetId.parse(target).target.name in listed

    @property
    def compiler(self) -> tuple[str, ...]:
        """Return an identity of the compiler that also changes with a wrapper script or a rebuild of that version."""
        program = self.clang.resolve()
        states = (state_of(path)[:2] for path in (self.clang, program))
        return (os.fspath(program), self.version, *map(str, states))

    def library_digests(self) -> list[str]:
        """Return the name and digest of each file of ROCm's device library."""
        return [f"{path.name} {digest(path)}" for path in sorted(self.device_library.glob("*.bc"))]

    @functools.cached_property
    def llvm_include(self) -> Path:
        """Return the folder with the C++ headers of exactly this LLVM, for the compiler plugin.

        Raises:
            BuildError: the headers are not installed.
        """
        beside = self.clang.resolve().parent
        config = beside / "llvm-config"
        folders = [Path(run([config, "--includedir"]).strip())] if config.is_file() else []
        folders += [beside.parent / "include", Path(f"/usr/lib/llvm-{self.llvm_major}/include")]
        for folder in folders:
            header = folder / "llvm/Config/llvm-config.h"
            if header.is_file() and _llvm_major_of(header) == self.llvm_major:
                return folder
        package = "rocm-llvm-dev" if self.kind == "rocm" else f"llvm-{self.llvm_major}-dev"
        raise BuildError(
            f"no C++ headers of LLVM {self.llvm_major} for {self.clang}, which Luthier's compiler plugin needs: "
            f"install the package {package}"
        )


def header_variables() -> dict[str, str]:
    """Return the environment variables that are set and change where compilers search for headers."""
    return {name: value for name in _HEADER_VARIABLES if (value := os.environ.get(name))}


def plugin_sources() -> Path:
    """Return the folder ``compiler_plugin`` of the installed package or the source tree."""
    parent = Path(__file__).resolve().parent
    for folder in (parent / "compiler_plugin", parent.parent / "compiler_plugin"):
        if (folder / "src/Plugin.cpp").is_file():
            return folder
    raise BuildError(f"Luthier's installation in {parent} lacks the sources of its compiler plugin")


def _in_any_folder(name: str, value: str) -> str:
    """Return the value of a variable with absolute paths, because compilers run in other folders."""
    if not value or (name == "LUTHIER_CLANG" and os.sep not in value):
        return value
    parts = value.split(os.pathsep) if name == "PATH" else [value]
    return os.pathsep.join(str(Path(part).absolute()) for part in parts)


@functools.lru_cache(maxsize=8)
def _find(settings: tuple[str, ...]) -> Toolchain:
    clang_setting, rocm_setting, rocm_path, search = settings
    roots = [Path(root) for root in (rocm_setting, rocm_path, "/opt/rocm") if root]
    if rocm_setting and not roots[0].is_dir():
        raise BuildError(f"LUTHIER_ROCM_PATH is {rocm_setting}, which is not a folder")
    clang = _find_clang(clang_setting, roots, search)
    version = run([clang, "--version"])
    match = re.search(r"clang version (\d+)", version)
    if not match:
        raise BuildError(f"{clang} is not clang: `{clang} --version` prints {version.splitlines()[:1]}")
    major = int(match[1])
    if major < OLDEST_LLVM:
        raise BuildError(
            f"{clang} is clang {major}; Luthier needs {OLDEST_LLVM} or later: "
            "set LUTHIER_CLANG, or on Debian apt install hipcc"
        )
    resource_dir = Path(run([clang, "-print-resource-dir"]).strip())

    own_root = _rocm_root_of(clang)
    places = [*([own_root] if own_root else []), *roots, _SYSTEM]
    headers = next((root for root in places if (root / "include/hip/hip_runtime.h").is_file()), None)
    if headers is None:
        raise BuildError(
            f"no HIP headers (include/hip/hip_runtime.h) in {_listed(places)}: set LUTHIER_ROCM_PATH to a ROCm "
            "installation, or apt install libamdhip64-dev"
        )
    hip_version = _hip_version(headers)
    library = next((candidate for root in (headers, *places) if (candidate := find_library(root, resource_dir))), None)
    if library is None:
        raise BuildError(
            f"no ROCm device library (amdgcn/bitcode/ocml.bc) in {_listed(places)}: set LUTHIER_ROCM_PATH to a ROCm "
            "installation, or apt install rocm-device-libs (Debian 13: rocm-device-libs-17)"
        )
    kind: Kind = "upstream"
    if own_root or "roc-" in version or "AMD clang" in version:
        kind = "rocm"
    elif major == 15 and headers == _SYSTEM:
        kind = "debian-hipcc"
    package = "rocm-llvm" if kind == "rocm" else f"clang-tools-{major}"
    bundler = _tool(clang, "clang-offload-bundler", package)
    _tool(clang, "lld", "rocm-llvm" if kind == "rocm" else f"lld-{major}")
    return Toolchain(clang, version, major, kind, resource_dir, headers, hip_version, library, bundler)


def _find_clang(setting: str, roots: list[Path], search: str) -> Path:
    if setting:
        named = shutil.which(setting, path=search or None)
        if not named:
            raise BuildError(f"LUTHIER_CLANG is {setting}, which is not a program")
        return Path(named)
    for root in roots:
        for folder in ("llvm/bin", "lib/llvm/bin"):
            if os.access(root / folder / "clang", os.X_OK):
                return root / folder / "clang"
    older = range(READABLE_LLVM, OLDEST_LLVM - 1, -1)
    newer = range(READABLE_LLVM + 1, READABLE_LLVM + 8)
    names = [*(f"clang-{major}" for major in (*older, *newer)), "clang"]
    for name in names:
        if clang := shutil.which(name, path=search or None):
            return Path(clang)
    raise BuildError(
        f"no clang in {_listed(roots)} or on the path: install ROCm and set LUTHIER_ROCM_PATH, or set LUTHIER_CLANG, "
        "or on Debian apt install hipcc g++"
    )


def _rocm_root_of(clang: Path) -> Path | None:
    """Return the ROCm installation that contains `clang` as llvm/bin/clang or lib/llvm/bin/clang, if any."""
    for path in (clang, clang.resolve()):
        parents = [*path.parents]
        if len(parents) > 3 and parents[1].name == "llvm":
            root = parents[3] if parents[2].name == "lib" else parents[2]
            if (root / "include/hip").is_dir():
                return root
    return None


def _tool(clang: Path, name: str, package: str) -> Path:
    beside = clang.resolve().parent / name
    path = beside if beside.is_file() else Path(run([clang, f"-print-prog-name={name}"]).strip())
    if not path.is_absolute():
        raise BuildError(f"no {name} for {clang}: install the package {package}")
    return path


def _hip_version(root: Path) -> tuple[int, int, int]:
    header = root / "include/hip/hip_version.h"
    try:
        text = header.read_text(errors="replace")
    except OSError as problem:
        raise BuildError(f"cannot read {header}: {problem.strerror}") from problem
    numbers = dict(re.findall(r"#define\s+HIP_VERSION_(MAJOR|MINOR|PATCH)\s+(\d+)", text))
    if len(numbers) != 3:
        raise BuildError(f"{header} defines no HIP version")
    return int(numbers["MAJOR"]), int(numbers["MINOR"]), int(numbers["PATCH"])


def _llvm_major_of(header: Path) -> int:
    match = re.search(r"#define\s+LLVM_VERSION_MAJOR\s+(\d+)", header.read_text(errors="replace"))
    return int(match[1]) if match else 0


def _listed(places: list[Path]) -> str:
    return ", ".join(str(place) for place in dict.fromkeys(places))


@functools.cache
def _processors_of(clang: Path) -> frozenset[str]:
    """Return the AMD processors that a compiler lists, on standard error; none if it cannot."""
    listed: list[str] = []
    with suppress(BuildError):
        run([clang, "--target=amdgcn-amd-amdhsa", "-nogpulib", "-print-supported-cpus"], warnings=listed.append)
    return frozenset(re.findall(r"\bgfx[\w-]+", "".join(listed)))
