"""Source files on a page: find them and read them within the page's limits."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath

from msgspec import Struct

FILE_BYTES = 2 << 20
"""Maximum size of a file in bytes."""
ALL_BYTES = 8 << 20
"""Maximum size of all files of a page in bytes."""
SUFFIXES = frozenset(
    {
        *("c", "cc", "cpp", "cxx", "c++", "cl", "cu", "hip", "s", "asm", "ll", "mlir", "py"),
        *("h", "hh", "hpp", "hxx", "h++", "cuh", "inc", "inl", "ipp", "tpp"),
        *("f", "for", "f90", "f95", "f03", "f08"),
    }
)
"""Only files with these suffixes are read: a run may come from an untrusted source and name any path, and pages are
sent to other users."""


class SourceFile(Struct, frozen=True):
    """A source file on a page."""

    path: str
    """Path recorded by the compiler."""
    lines: Sequence[str] | None
    """None if it is not on the page."""
    note: str
    """Why it is missing or doubtful; "" if it is neither."""
    place: str = ""
    """Path from which it was read."""


def read_sources(paths: Iterable[str], roots: Sequence[Path], began_ns: int | None = None) -> list[SourceFile]:
    """Read files by the paths recorded by the compiler, up to the page's limit.

    Args:
        paths: most important ones first.
        roots: folders to search first, with as many trailing parts of a path as exist.
        began_ns: start of the run in nanoseconds since 1970: files written later may differ from the ones compiled.
    """
    sources, room = [], ALL_BYTES
    for path in paths:
        source, size = _read(path, roots, room, began_ns)
        room -= size
        sources.append(source)
    return sources


def _read(path: str, roots: Sequence[Path], room: int, began_ns: int | None) -> tuple[SourceFile, int]:
    if PurePosixPath(path).suffix.lower().removeprefix(".") not in SUFFIXES:
        return SourceFile(path, None, "its name does not have the suffix of a source file"), 0
    missing = "it was not found; --source-path FOLDER adds a folder to search"
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
                return SourceFile(path, None, f"its {about.st_size:,} bytes exceed the page's limit"), 0
            late = began_ns is not None and about.st_mtime_ns > began_ns
            note = "it was changed after the run began, so lines may differ from those that ran" if late else ""
            return SourceFile(path, data.decode("utf-8", "replace").splitlines(), note, str(candidate)), len(data)
    return SourceFile(path, None, missing), 0


class _Elsewhere(Exception):
    """A file is not at the place that its path names."""


def _load(path: Path, root: Path | None, most: int) -> tuple[os.stat_result, bytes | None]:
    """Return a regular file, without contents if it has more than `most` bytes. Links must not lead elsewhere, since
    an untrusted run names the paths.

    Args:
        root: folder that must contain it, by real paths; None: its path must contain no links.

    Raises:
        _Elsewhere: the file is elsewhere, or is not a source file.
        OSError: there is no such file.
        ValueError: the path is invalid.
    """
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        about, real = os.fstat(file.fileno()), Path(os.readlink(f"/proc/self/fd/{file.fileno()}"))
        if not stat.S_ISREG(about.st_mode):
            raise FileNotFoundError(path)
        if not (real == Path(os.path.normpath(path)) if root is None else real.is_relative_to(root.resolve())):
            raise _Elsewhere("its path contains a link; pass the real folder with --source-path FOLDER")
        if real.suffix.lower().removeprefix(".") not in SUFFIXES or real.is_relative_to("/proc"):
            raise _Elsewhere("it is a link to a file that is not a source file")
        return about, file.read() if about.st_size <= most else None


def _candidates(path: str, roots: Sequence[Path]) -> Iterator[tuple[Path | None, Path]]:
    """Yield a required folder and a possible path of a file, longest trailing parts first."""
    parts = [part for part in PurePosixPath(path).parts if part not in ("/", ".")]
    if ".." not in parts:
        for at in range(len(parts)):
            for root in roots:
                yield root, root.joinpath(*parts[at:])
    if path.startswith("/"):
        yield None, Path(path)


def _spelled(path: Path) -> Iterator[Path]:
    """Yield files that a path may denote: runs record U+FFFD for bytes of names that are not UTF-8."""
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
