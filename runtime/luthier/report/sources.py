"""Source files that a page shows: where they are now, and what of them goes into it."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath

from msgspec import Struct

FILE_BYTES = 2 << 20
"""Bytes of the largest file that is read."""
ALL_BYTES = 8 << 20
"""Bytes of all files of a page together."""
SUFFIXES = frozenset(
    {
        *("c", "cc", "cpp", "cxx", "c++", "cl", "cu", "hip", "s", "asm", "ll", "mlir", "py"),
        *("h", "hh", "hpp", "hxx", "h++", "cuh", "inc", "inl", "ipp", "tpp"),
        *("f", "for", "f90", "f95", "f03", "f08"),
    }
)
"""Names of files that are read end in one of these: paths come from a run, which a stranger may have made, and pages
are sent to others."""


class SourceFile(Struct, frozen=True):
    """One file, as a page has it."""

    path: str
    """Path as the compiler knew it."""
    lines: Sequence[str] | None
    """None if it is not in the page."""
    note: str
    """Why it is not, or what is doubtful about it; empty: nothing."""
    place: str = ""
    """Where it was read."""


def read_sources(paths: Iterable[str], roots: Sequence[Path], began_ns: int | None = None) -> list[SourceFile]:
    """Return files by the paths that the compiler knew them by, as long as there is room.

    Args:
        paths: the most important ones first.
        roots: folders to look in, with as many of the last parts of a path as there are; before the path itself.
        began_ns: when the run began, in nanoseconds since 1970: files that were written later may be others.
    """
    found, room = [], ALL_BYTES
    for path in paths:
        one, size = _read(path, roots, room, began_ns)
        room -= size
        found.append(one)
    return found


def _read(path: str, roots: Sequence[Path], room: int, began_ns: int | None) -> tuple[SourceFile, int]:
    if PurePosixPath(path).suffix.lower().removeprefix(".") not in SUFFIXES:
        return SourceFile(path, None, "its name does not end as that of a source file"), 0
    missing = "it was not found; --source-path FOLDER says where to look"
    for root, place in _candidates(path, roots):
        for candidate in _spelled(place):
            try:
                about, data = _load(candidate, root, min(FILE_BYTES, room))
            except _Elsewhere as problem:
                missing = str(problem)
                continue
            except (OSError, ValueError):  # ValueError: a null character in the path
                continue
            if data is None:
                return SourceFile(path, None, f"it has {about.st_size:,} bytes, too many for the page"), 0
            late = began_ns is not None and about.st_mtime_ns > began_ns
            note = "it was changed after the run began, so lines may not be those that ran" if late else ""
            return SourceFile(path, data.decode("utf-8", "replace").splitlines(), note, str(candidate)), len(data)
    return SourceFile(path, None, missing), 0


class _Elsewhere(Exception):
    """A file is not where its path says."""


def _load(path: Path, root: Path | None, most: int) -> tuple[os.stat_result, bytes | None]:
    """Return a regular file, without its contents if it has more bytes than `most`. It must lie where its path says: a
    stranger's run names paths, and may come with links.

    Args:
        root: the folder that it must be in, by both real paths; None: its path must have no links.

    Raises:
        _Elsewhere: it does not.
        OSError: there is no such file.
        ValueError: that is no path.
    """
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        about, real = os.fstat(file.fileno()), Path(os.readlink(f"/proc/self/fd/{file.fileno()}"))
        if not stat.S_ISREG(about.st_mode):
            raise FileNotFoundError(path)
        if not (real == Path(os.path.normpath(path)) if root is None else real.is_relative_to(root.resolve())):
            raise _Elsewhere("it is behind a link; --source-path FOLDER names the folder that it really is in")
        if real.suffix.lower().removeprefix(".") not in SUFFIXES or real.is_relative_to("/proc"):
            raise _Elsewhere("it is really another file, which is no source file")
        return about, file.read() if about.st_size <= most else None


def _candidates(path: str, roots: Sequence[Path]) -> Iterator[tuple[Path | None, Path]]:
    """Yield the folder that a file must be in, and where it may be; the longest ends of its path first."""
    parts = [part for part in PurePosixPath(path).parts if part not in ("/", ".")]
    if ".." not in parts:
        for at in range(len(parts)):
            for root in roots:
                yield root, root.joinpath(*parts[at:])
    if path.startswith("/"):
        yield None, Path(path)


def _spelled(path: Path) -> Iterator[Path]:
    """Yield the files that a path may be: in names that are no UTF-8, a run has U+FFFD for what could not be read."""
    if _UNREAD not in str(path):
        yield path
        return
    for folder in _spelled(path.parent):
        if _UNREAD not in path.name:
            yield folder / path.name
            continue
        with suppress(OSError, ValueError):  # ValueError: as above
            yield from (one for one in folder.iterdir() if os.fsencode(one.name).decode(errors="replace") == path.name)


_UNREAD = "\N{REPLACEMENT CHARACTER}"
