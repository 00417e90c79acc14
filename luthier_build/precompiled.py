"""Precompiled headers of what every HIP source includes first, made once for a compiler, a target and flags.

Parsing clang's and HIP's headers takes most of the time of compiling a tool's device code. A precompiled header holds
what the compiler reads before a source's own text, so the output is identical. Where that is not certain, none is
used: with debug information or without optimisation, where the order of the output may differ, or with unknown flags.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from luthier.cache.folder import UNUSED_FOR, is_own
from luthier.errors import BuildError
from luthier.support.processes import run

from luthier_build.cache import cache_dir, keep_own, locked
from luthier_build.plugin import include_dir
from luthier_build.toolchain import Toolchain, header_variables
from luthier_build.workspace import (
    MARKER,
    digest,
    digest_text,
    forget,
    inputs_of,
    is_current,
    read_depfile,
    record_of,
    remember,
    replacing,
    write_atomic,
)

MOST = 64
"""Number of precompiled headers to keep, about 12 MB each."""
_MOST_NAMES = 5_000
_FOLDER = "precompiled"
_HIP = "#include <hip/hip_runtime.h>\n"
_STARTS_WITH_HIP = re.compile(rf"(\s|//.*\n)*{_HIP}")
_WITHOUT_EFFECT = re.compile(r"-w|-W(?!p,|l,|a,)[\w=+-]+|-ffile-prefix-map=.*|-cuid=.*|-DLUTHIER_\w+(=.*)?")
"""Flags that do not affect the headers."""
_KNOWN = re.compile(
    r"-O[123sz]|-[DUI].+|-std=[\w+]+|-m(no-)?[\w=+-]+|-ffp-contract=\w+|-f(no-)?(fast-math|unroll-loops|inline)"
    r"|--(offload-arch|rocm-path|hip-version|rocm-device-lib-path)=.*"
)
"""Flags that need their own precompiled header."""


@dataclass(frozen=True)
class Beginning:
    """The text that a compiler reads before a source's own."""

    clang: Path
    compiler: tuple[str, ...]
    """Identifies the compiler."""
    flags: tuple[str, ...]
    folder: Path
    """Working folder of the compiler."""
    included: str = ""
    """The first file included by flags."""

    @classmethod
    def of(
        cls, toolchain: Toolchain, target: str, flags: Sequence[str] = (), folder: Path | None = None
    ) -> Beginning | None:
        """Return the beginning of HIP device code with `flags` besides those of the target; None if it is uncertain."""
        if header_variables():
            return None
        own, included = _split_includes(flag for flag in flags if not _WITHOUT_EFFECT.fullmatch(flag))
        if not all(map(_KNOWN.fullmatch, own)) or not any(flag.startswith("-O") for flag in own):
            return None
        # Flags that mean the same in every folder share one header.
        relative = any(flag.startswith("-I") and not os.path.isabs(flag[2:]) for flag in own)
        where = (folder or Path.cwd()) if relative else Path("/")
        return cls(toolchain.clang, toolchain.compiler, (*toolchain.device_flags(target), *own), where, *included[:1])

    def flags_for(self, source: Path) -> tuple[list[str], tuple[Path, ...]]:
        """Return the flags that use a precompiled header for a source, and the files in the header.

        Both are empty if there is none; a header is made at the second request.
        """
        try:
            text = f"#include <{self.included}>\n" if self.included else source.read_text(errors="replace")
        except OSError:
            return [], ()
        header = self._header(_HIP if _STARTS_WITH_HIP.match(text) else "")
        if header is None:
            return [], ()
        inputs = (path for path in inputs_of(header) if not is_part(path))
        return ["-Xclang", "-include-pch", "-Xclang", str(header)], tuple(inputs)

    def _header(self, text: str) -> Path | None:
        """Return the precompiled form of a text; None at the first request, or if it cannot be made or stored."""
        try:
            cache = cache_dir(_FOLDER)
            flags = [_kept_copy(flag, cache) for flag in self.flags]
            names = [self._names_in(flag[2:]) for flag in self.flags if flag.startswith("-I")]
            if None in names:
                return None
            key = digest_text(
                digest(Path(__file__)),
                *self.compiler,
                os.fspath(self.folder),
                *flags,
                "",
                text,
                "",
                str(names),
            )
            header = cache / f"{key[:32]}.pch"
            if _usable(header, key):
                return header
            if not os.access(cache, os.W_OK | os.X_OK):
                return None
            with locked(cache / ".lock"):
                if _usable(header, key):
                    return header
                asked = header.with_suffix(".asked")
                if not asked.exists():
                    asked.touch()
                    return None
                _forget_unused(cache)
                self._make(header, key, flags, text)
            return header
        except BuildError:  # compiling the source itself reports the error
            return None

    def _names_in(self, include: str) -> list[str] | None:
        """Return the names of all files in an include folder, since a new header may hide one of HIP's; None if there
        are too many. Hidden folders and build folders are skipped.
        """
        root, names = os.path.join(self.folder, include), list[str]()
        for folder, inner, files in os.walk(root, followlinks=True):
            if MARKER in files:
                inner.clear()
                continue
            inner[:] = [name for name in inner if not name.startswith(".")]
            names += [f"{folder.removeprefix(root)}/{name}" for name in (*inner, *files)]
            if len(names) > _MOST_NAMES:
                return None
        return sorted(names)

    def _make(self, header: Path, key: str, flags: Sequence[str], text: str) -> None:
        source = header.with_suffix(".h")
        write_atomic(source, text)
        forget(header)
        start = time.time_ns()
        with replacing(header) as fresh, replacing(header.with_suffix(".d")) as depfile:
            # Instantiate the headers' templates once, too; without time stamps, only contents matter.
            options = ["-emit-pch", "-fpch-instantiate-templates", "-fno-pch-timestamp"]
            options += ["-dependency-file", str(depfile), "-sys-header-deps", "-MT", header.name]
            through = [part for option in options for part in ("-Xclang", option)]
            command = [os.fspath(self.clang), "--cuda-device-only", "--no-gpu-bundle-output", *flags, "-w", *through]
            run([*command, "-S", os.fspath(source), "-o", str(fresh)], cwd=self.folder)
            read = [Path(os.path.normpath(self.folder / name)) for name in read_depfile(depfile)]
        remember(header, key, [path for path in read if path != source], start)
        keep_own(header, record_of(header))


def compile_after(
    beginning: Beginning | None,
    source: Path,
    command: Sequence[str],
    *,
    cwd: Path | None = None,
    warnings: Callable[[str], object] | None = None,
) -> tuple[Path, ...]:
    """Run a compiler's command, with a precompiled header if there is one.

    Returns:
        The files in the header; the compiler did not read these itself.

    Raises:
        BuildError: the compiler fails (with its message).
    """
    flags, inputs = beginning.flags_for(source) if beginning else ([], ())
    if flags:
        output: list[str] = []
        with contextlib.suppress(BuildError):  # the run without the header reports errors
            run([*command, *flags], cwd=cwd, warnings=output.append)
            for text in output:
                if warnings:
                    warnings(text)
            return inputs
    run(command, cwd=cwd, warnings=warnings)
    return ()


def _split_includes(flags: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the flags without ``-include FILE``, and the files."""
    rest, files, each = [], [], iter(flags)
    for flag in each:
        if flag == "-include":
            files.append(next(each, ""))
        else:
            rest.append(flag)
    return rest, files


def is_part(path: Path) -> bool:
    """Return whether a file belongs to the precompiled headers, and not to the user."""
    with contextlib.suppress(BuildError):
        return os.path.normpath(path.parent) == os.path.normpath(cache_dir(_FOLDER))
    return False


def _kept_copy(flag: str, cache: Path) -> str:
    """Return the flag; replace the path of a Luthier header by that of a copy, because its folder differs by build."""
    if not flag.startswith(f"{include_dir()}{os.sep}"):
        return flag
    header = Path(flag)
    copy = cache / f"{header.stem}-{digest(header)[:16]}.h"
    if not is_own(copy):
        write_atomic(copy, header.read_bytes())
        keep_own(copy)
    return str(copy)


def _usable(header: Path, key: str) -> bool:
    """Return whether a precompiled header is complete, up to date, and writable only by this user."""
    if not (is_own(header) and is_own(record_of(header)) and is_current(header, key)):
        return False
    with contextlib.suppress(OSError):
        os.utime(header)
    return True


def _files_of(header: Path) -> Iterator[Path]:
    for suffix in (".asked", ".d", ".h", ".pch"):
        yield header.with_suffix(suffix)
    yield record_of(header)


def _forget_unused(cache: Path) -> None:
    """Remove precompiled headers that have not been used for `UNUSED_FOR`, and all but the `MOST` last used."""
    used = {}
    for header in cache.glob("*.pch"):
        with contextlib.suppress(OSError):
            used[header] = header.stat().st_mtime
    for number, header in enumerate(sorted(used, key=lambda header: -used[header])):
        if number >= MOST - 1 or used[header] < time.time() - UNUSED_FOR:
            for path in _files_of(header):
                with contextlib.suppress(OSError):
                    path.unlink()
