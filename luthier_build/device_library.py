"""ROCm's device library (``ocml.bc`` and others), completed for the compiler in use.

clang links one small module per processor, ``oclc_isa_version_<processor>.bc``, and one per ABI version,
``oclc_abi_version_<n>.bc``, each holding one constant that the library's code branches on. A library that is older than
the processor or the compiler lacks some of them; a folder in the cache adds them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from luthier.cache.folder import is_own
from luthier.errors import BuildError, TargetError
from luthier.isa.targets import version_of
from luthier.support.processes import run

from luthier_build.cache import cache_dir, drop_foreign, keep_own, locked
from luthier_build.workspace import digest, digest_text, forget, is_current, remember, replacing

ABI_VERSIONS = (400, 500, 600)
"""Code object versions that clang requests (`-mcode-object-version`), times 100."""


def isa_version(processor: str) -> int:
    """Return `__oclc_ISA_version` of a processor: major * 1000 + minor * 100 + stepping, e.g. 9402 for ``gfx942``.

    Raises:
        BuildError: `processor` is not the name of a processor.
    """
    try:
        major, minor, stepping = version_of(processor)
    except TargetError as problem:
        raise BuildError(problem.message, target=processor) from None
    return major * 1000 + minor * 100 + stepping


def find_library(rocm_path: Path, resource_dir: Path) -> Path | None:
    """Return the folder with ROCm's device library from the places that ROCm and Linux distributions use, or None."""

    def candidates() -> Iterator[Path]:
        yield rocm_path / "amdgcn/bitcode"
        yield rocm_path / "lib/amdgcn/bitcode"
        for inside in ("lib/amdgcn/bitcode", "amdgcn/bitcode"):
            yield resource_dir / inside
            for llvm in ("lib/llvm*", "llvm"):
                yield from sorted(rocm_path.glob(f"{llvm}/lib/clang/*/{inside}"), reverse=True)
        yield from sorted(rocm_path.glob("lib/*/amdgcn/bitcode"))

    return next((folder for folder in candidates() if (folder / "ocml.bc").is_file()), None)


@dataclass(frozen=True)
class _Module:
    """A generated bitcode file."""

    constants: tuple[tuple[str, str, int], ...]
    """(C type, name, value)."""
    functions: tuple[tuple[str, Path], ...] = ()
    """(name, library file) of functions to link into it."""


def library_for(library: Path, processor: str, clang: Path, clang_version: str) -> Path:
    """Return `library` if it is complete for `processor`, otherwise a folder in the cache that adds what is missing.

    Args:
        clang_version: full text of ``clang --version``; generated bitcode is valid only for that compiler.
    """
    made = {
        name: _Module((("int", "__oclc_ABI_version", version),))
        for version in ABI_VERSIONS
        if not (library / (name := f"oclc_abi_version_{version}.bc")).is_file()
    }
    name = f"oclc_isa_version_{processor.removeprefix('gfx')}.bc"
    constants, functions = _no_longer_linked(library, clang_version)
    if constants or functions or not (library / name).is_file():
        made[name] = _Module((("int", "__oclc_ISA_version", isa_version(processor)), *constants), functions)
    if not made:
        return library
    key = digest_text(digest(Path(__file__)), str(library.resolve()), clang_version)[:16]
    folder = cache_dir(f"device-library/{key}")
    present = [*folder.glob("*.bc"), *folder.glob("*.record")]
    if all(map(is_own, present)) and all(is_current(folder / name, key) for name in made):
        return folder
    with locked(folder / ".lock"):
        drop_foreign(folder)
        for original in library.glob("*.bc"):
            link = folder / original.name
            if link.name not in made and not link.is_file():  # a file was generated for another processor
                _link(link, original)
        for name, module in sorted(made.items()):
            if not is_current(folder / name, key):
                forget(folder / name)
                _generate(folder / name, module, clang)
                remember(folder / name, key, (library for _, library in module.functions))
        keep_own(folder)
    return folder


def _no_longer_linked(
    library: Path, clang_version: str
) -> tuple[tuple[tuple[str, str, int], ...], tuple[tuple[str, Path], ...]]:
    """Return the constants and functions that an older library or its headers need and a newer clang does not link."""
    match = re.search(r"clang version (\d+)", clang_version)
    major = int(match[1]) if match else 0
    constants: tuple[tuple[str, str, int], ...] = ()
    if major >= 22 and (library / "oclc_daz_opt_off.bc").is_file():
        constants = (("unsigned char", "__oclc_daz_opt", 0),)  # keep denormal numbers, HIP's default
    functions: tuple[tuple[str, Path], ...] = ()
    if major >= 17 and (library / "hip.bc").is_file():
        functions = (("__atomic_work_item_fence", library / "hip.bc"),)  # fences and barriers of older headers
    return constants, functions


def _link(link: Path, original: Path) -> None:
    with replacing(link) as fresh:
        fresh.unlink()
        fresh.symlink_to(original)


def _generate(path: Path, module: _Module, clang: Path) -> None:
    """Compile constants in the constant address space; data layout and bitcode version are then those of this
    compiler."""
    hidden = '__attribute__((visibility("hidden"), weak))'
    place = f"{hidden} __attribute__((address_space(4)))"
    source = "".join(f"{place} extern const {kind} {symbol} = {value};\n" for kind, symbol, value in module.constants)
    # No code object version, because the file is linked into modules of every version.
    flags = ["--target=amdgcn-amd-amdhsa", "-nogpulib", "-w", "-Xclang", "-mcode-object-version=none"]
    for function, library in module.functions:
        # Only referenced functions are linked. Nothing uses the referencing function, so it is dropped later.
        source += f"void {function}(void); {hidden} void *__luthier_uses{function}(void) {{ return {function}; }}\n"
        flags += ["-Xclang", "-mlink-bitcode-file", "-Xclang", os.fspath(library)]
    with replacing(path) as fresh:
        run([clang, "-x", "c", *flags, "-c", "-emit-llvm", "-o", fresh, "-"], stdin=source)
