"""Compilation for tests.

Reading HIP's headers is three quarters of compiling a small kernel, so they are precompiled.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from kept import ROOT, kept, run, version

from luthier_build.settings import Settings
from luthier_build.toolchain import Toolchain
from luthier_build.workspace import digest

HEADER = "#include <hip/hip_runtime.h>\n"
_FIRST = re.compile(rf"(\s|//.*\n|#if.*\n)*{HEADER}")
"""Beginning of a source that defines nothing for the headers before it includes them."""
_ALIKE = re.compile(r"-D(?!__AMDGCN)\w+|-I.*|-w")
"""Flags under which headers are the same, so that one precompiled header serves all. A define is the source's own."""
_APART = re.compile(
    r"-O\d|-D__AMDGCN.*|-U__AMDGCN.*|-mwavefrontsize64|-ffp-contract=\w+|-mcode-object-version=\d|-std=c\+\+\d\d"
    r"|--(offload-arch|rocm-path|hip-version|rocm-device-lib-path)=.*"
)
"""Flags that want a header of their own."""
_HERE = re.compile(rf"{re.escape(str(ROOT))}(?=/|$)")
_DEVICE_ONLY = ("--offload-device-only", "--cuda-device-only", "--no-gpu-bundle-output")
_BY_CONTENT = ("-Xclang", "-fvalidate-ast-input-files-content")
"""Headers are told apart by content, for the one that is made and for what uses it: a new checkout has other times."""


def compiled(command: Iterable[object], inputs: Iterable[Path], name: str) -> Path:
    """Return what a compiler makes with `-o`.

    Args:
        command: the compiler and its arguments, without the output. Checkouts share what is made, except with debug
            information, which names the sources' folders.
        inputs: files whose content the result depends on, beside the compiler itself.
        name: name of the output.
    """
    arguments, files = _anywhere(str(part) for part in command), sorted(inputs)
    contents = [digest(path) for path in files]
    shared = not any(argument.startswith("-g") for argument in arguments)
    told = [_HERE.sub("", argument) if shared else argument for argument in arguments[1:]]
    key = version(arguments[0]), told, contents
    return kept(key, lambda output: run([*arguments, *_precompiled(arguments, files), "-o", str(output)]), name)


def _anywhere(flags: Iterable[str]) -> list[str]:
    """Return flags in which included headers of this checkout are copies in the cache.

    A precompiled header and the record of a build name the files that they were made of: another checkout can use them
    only where these are the same files for it.
    """
    return [_kept_copy(Path(flag)) if flag.startswith(f"{ROOT}/") and flag.endswith(".h") else flag for flag in flags]


def _kept_copy(header: Path) -> str:
    text = header.read_text()
    return str(kept(text, lambda path: path.write_text(text), header.name))


def _precompiled(command: Sequence[str], inputs: Iterable[Path]) -> list[str]:
    """Return the flags that make a compiler use a precompiled header; none where that might change the result."""
    known = {str(path) for path in inputs}
    sources = [one for one in command if one in known]
    if len(sources) != 1 or not _FIRST.match(Path(sources[0]).read_text()):
        return []
    flags, rest = [], iter(one for one in command[1:] if one != sources[0])
    for flag in rest:
        if flag in ("-x", "-include"):
            flags += [flag, next(rest)]
            if flag == "-include" and not Path(flags[-1]).is_file():
                return []  # it is found in folders that are left out here
        elif _APART.fullmatch(flag):
            flags.append(flag)
        elif flag not in _DEVICE_ONLY and not _ALIKE.fullmatch(flag):
            return []
    if flags[:2] != ["-x", "hip"] or not set(_DEVICE_ONLY[:2]) & set(command):
        return []
    return _header(command[0], flags)


def _header(clang: str, flags: Sequence[str]) -> list[str]:
    """Return the flags that name the header of this compiler under these flags."""
    included = [digest(Path(flag)) for flag in flags if flag.endswith(".h")]
    source = kept(HEADER, lambda path: path.write_text(HEADER), "header.hip")

    def make(output: Path) -> None:
        made = ["--offload-device-only", "-emit-llvm", "-c", "-Xclang", "-emit-pch", str(source), "-o", str(output)]
        run([clang, *flags, *_BY_CONTENT, *made])

    path = kept(("header", version(clang), *flags, *included), make, "header.pch")
    return [*_BY_CONTENT, "-Xclang", "-include-pch", "-Xclang", str(path)]


@dataclass(frozen=True)
class PrecompilingToolchain(Toolchain):
    """A toolchain for tool modules of one wave size whose sources begin with `HEADER`, of usual settings."""

    @classmethod
    def of(cls, toolchain: Toolchain) -> PrecompilingToolchain:
        return cls(**{field.name: getattr(toolchain, field.name) for field in fields(toolchain)})

    def device_flags(self, target: str) -> list[str]:
        flags = _anywhere(super().device_flags(target))
        return [*flags, *_header(str(self.clang), [*flags, f"-O{Settings().optimization}"])]
