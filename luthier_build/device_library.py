"""ROCm's device library (``ocml.bc`` and the like) as the compiler at hand wants it.

clang links one small module per processor, ``oclc_isa_version_<processor>.bc``, and one per ABI version,
``oclc_abi_version_<n>.bc``, each holding one constant that the library's code branches on. A library older than the
processor or the compiler lacks some of them; a folder that adds them makes it work again.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

from luthier.errors import BuildError
from luthier.processes import run

from luthier_build.cache import cache_dir
from luthier_build.workspace import replacing

ABI_VERSIONS = (400, 500, 600)
"""Hundred times the code object versions that clang asks for (`-mcode-object-version`)."""

# Not computable from the name: the library takes a generic processor for one of its members.
_GENERIC_ISA_VERSIONS = {
    "gfx9-generic": 9000,
    "gfx9-4-generic": 9402,
    "gfx10-1-generic": 10100,
    "gfx10-3-generic": 10300,
    "gfx11-generic": 11003,
    "gfx12-generic": 12000,
}


def isa_version(processor: str) -> int:
    """`__oclc_ISA_version` of a processor: major * 1000 + minor * 100 + stepping, e.g. 9402 for ``gfx942``.

    Raises:
        BuildError: not the name of a processor.
    """
    if processor in _GENERIC_ISA_VERSIONS:
        return _GENERIC_ISA_VERSIONS[processor]
    match = re.fullmatch(r"gfx([0-9]+)([0-9a-f])([0-9a-f])", processor)
    if not match:
        raise BuildError(f"unknown processor {processor!r}", target=processor)
    major, minor, stepping = match.groups()
    return int(major) * 1000 + int(minor, 16) * 100 + int(stepping, 16)


def find_library(rocm_path: Path, resource_dir: Path) -> Path | None:
    """The folder with ROCm's device library, looked for where ROCm and Linux distributions put it; None if absent."""

    def candidates() -> Iterator[Path]:
        yield rocm_path / "amdgcn/bitcode"
        yield rocm_path / "lib/amdgcn/bitcode"
        yield resource_dir / "lib/amdgcn/bitcode"
        for pattern in ("lib/llvm*/lib/clang/*/lib/amdgcn/bitcode", "llvm/lib/clang/*/lib/amdgcn/bitcode"):
            yield from sorted(rocm_path.glob(pattern), reverse=True)
        yield from sorted(rocm_path.glob("lib/*/amdgcn/bitcode"))

    return next((folder for folder in candidates() if (folder / "ocml.bc").is_file()), None)


def library_for(library: Path, processor: str, clang: Path, clang_version: str) -> Path:
    """`library` itself if it has all that `processor` needs, else a folder in the cache that adds what is missing.

    Args:
        clang_version: full text of ``clang --version``; generated bitcode is only for that compiler.
    """
    abi = {f"oclc_abi_version_{version}.bc": ("__oclc_ABI_version", version) for version in ABI_VERSIONS}
    isa = f"oclc_isa_version_{processor.removeprefix('gfx')}.bc"
    wanted = {isa: ("__oclc_ISA_version", isa_version(processor)), **abi}
    missing = {name: constant for name, constant in wanted.items() if not (library / name).is_file()}
    if not missing:
        return library
    generator = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
    key = hashlib.sha256(f"{library.resolve()}\0{clang_version}\0{generator}".encode()).hexdigest()[:16]
    folder = cache_dir(f"device-library/{key}")
    for original in library.glob("*.bc"):
        _link(folder / original.name, original)
    for name, (symbol, value) in missing.items():
        if not (folder / name).is_file():
            _generate(folder / name, symbol, value, clang)
    return folder


def _link(link: Path, original: Path) -> None:
    if link.is_symlink() and os.readlink(link) == os.fspath(original):
        return
    with replacing(link) as fresh:
        fresh.unlink()
        fresh.symlink_to(original)


def _generate(path: Path, symbol: str, value: int, clang: Path) -> None:
    """One constant in the constant address space, compiled so that data layout and bitcode are this compiler's."""
    source = f'__attribute__((address_space(4), visibility("hidden"), weak)) extern const int {symbol} = {value};\n'
    # No code object version: the file is linked into modules of every version.
    target = ["--target=amdgcn-amd-amdhsa", "-nogpulib", "-w", "-Xclang", "-mcode-object-version=none"]
    with replacing(path) as fresh:
        run([clang, "-x", "c", *target, "-c", "-emit-llvm", "-o", fresh, "-"], stdin=source)
