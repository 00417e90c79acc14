"""The folder that keeps intermediate files between builds: ownership, lock, atomic outputs, and what is up to date.

An output is up to date when its record says it was made by the same key (command, compiler, plugin) from inputs with
the same contents, and it still has the contents it was made with. Time stamps decide nothing, so a fresh checkout, a
touched header or a clock that jumps never cause a stale or a needless build.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import json
import os
import re
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO

from luthier.cache.folder import UNUSED_FOR
from luthier.errors import BuildError
from luthier.support.files import umask

MARKER = ".luthier-build"
_MARKER_TEXT = "This folder belongs to Luthier's build and may be deleted at any time.\n"

_PREREQUISITE = re.compile(r"(?:\\[ #]|\$\$|\S)+")
_digests: dict[tuple[str, tuple[int, ...]], str] = {}


def state_of(path: Path) -> tuple[int, ...]:
    """Return what a file's contents have not changed under: size, time stamps and inode.

    Whoever puts a file in another's place may give it the size and the time of change of that one (tar, `cp -p`), but
    not its ``ctime``.
    """
    state = path.stat()
    return state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino


def digest(path: Path) -> str:
    """Return the SHA-256 of the file's contents, in hexadecimal; cached in the process until the file is written to."""
    key = os.fspath(path), state_of(path)
    if key not in _digests:
        _digests[key] = hashlib.sha256(path.read_bytes()).hexdigest()
    return _digests[key]


def digest_text(*parts: str) -> str:
    """Return the SHA-256 of a list of strings; different lists give different digests."""
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape")).hexdigest()


_DESCRIBERS = (
    *("cache", "device_library", "manifest", "own_commands", "plugin", "precompiled", "settings", "sources"),
    *("toolchain", "units", "workspace", "wrapper_tables"),
)
MAKERS = {
    "manifest": ("OBJECTS", _DESCRIBERS),
    "check": ("PATCHES", ("check", "jobs")),
    "inline": ("PATCHES", (*_DESCRIBERS, "check", "compile", "inline", "jobs", "package", "stubs")),
}
"""By what is made: the list of `luthier.cache.provenance` with what it takes of Luthier, and the modules of this
package, with all that these import (tests/cache/test_provenance.py)."""


@functools.cache
def made_by(what: str) -> str:
    """Return the digest of the sources of the makers of one of `MAKERS`.

    It is in the keys of what they make: two commits may have one version number.
    """
    from luthier.cache import provenance  # slow to import

    below, makers = MAKERS[what]
    own = provenance.provenance_of(*(f"luthier_build.{name}" for name in makers), root=Path(__file__).parents[1])
    others = provenance.provenance_of(*getattr(provenance, below))
    # What is written while it runs is not what this process has imported, and has made things by.
    fresh = "" if own.unchanged() and others.unchanged() else secrets.token_hex()
    return digest_text(own.digest, others.digest, fresh)


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Say of an `OSError` in the block, such as a full disk, that it kept `path` from being written.

    Raises:
        BuildError: in its place.
    """
    try:
        yield
    except OSError as problem:
        raise BuildError(f"cannot write {path}: {problem.strerror or problem}", object=str(path)) from problem


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Provide a fresh path beside `path` that takes its place when the block ends, and vanishes if the block fails.

    Raises:
        BuildError: the folder cannot be written, or the disk is full.
    """
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.stem}-", suffix=path.suffix, dir=path.parent)
        os.close(handle)
        fresh = Path(name)
        try:
            yield fresh
            fresh.chmod(0o666 & ~umask())
            fresh.replace(path)
        finally:
            fresh.unlink(missing_ok=True)


def write_atomic(path: Path, data: bytes | str) -> bool:
    """Give `path` this content, whole or not at all; False if it had it already (and was left alone)."""
    return bool(write_together({path: data}))


def write_together(files: Mapping[Path, bytes | str]) -> list[Path]:
    """Give every path its content: all of them, or none if one cannot be written.

    Returns:
        The paths that did not have theirs already.

    Raises:
        BuildError: a folder cannot be written, or the disk is full.
    """
    written = []
    with contextlib.ExitStack() as together:  # each takes its place only when all have been written
        for path, data in files.items():
            content = data.encode() if isinstance(data, str) else data
            with contextlib.suppress(OSError):
                if path.read_bytes() == content:
                    continue
            fresh = together.enter_context(replacing(path))
            with writing(path):
                fresh.write_bytes(content)
            written.append(path)
    return written


@contextlib.contextmanager
def build_folder(path: Path) -> Iterator[Path]:
    """Provide the folder, made and marked as ours, for this process alone while the block runs.

    Another build waits.

    Raises:
        BuildError: the folder holds something that Luthier's build did not make, or cannot be written.
    """
    with _held(path) as lock:
        with writing(path / MARKER):
            if not lock.tell():
                os.write(lock.fileno(), _MARKER_TEXT.encode())
            os.utime(lock.fileno())
        yield path


def _held(path: Path) -> IO[str]:
    """Return the folder's marker, locked."""
    while True:
        try:
            path.mkdir(parents=True, exist_ok=True)
            present = os.listdir(path)
            if present and MARKER not in present:  # one look, so that another build starting now does not confuse it
                raise BuildError(
                    f"{path} exists and was not made by Luthier's build (it has no {MARKER}); "
                    "choose another build-dir or remove it",
                    object=str(path),
                )
            lock = (path / MARKER).open("a+")
        except OSError as problem:
            raise BuildError(f"cannot use build folder {path}: {problem.strerror}", object=str(path)) from problem
        fcntl.flock(lock, fcntl.LOCK_EX)
        if os.fstat(lock.fileno()).st_nlink:
            return lock
        lock.close()  # it was removed meanwhile, as one that nobody used


def forget_unused(folder: Path, most: int) -> None:
    """Remove build folders in `folder` that nobody used for `luthier.cache.folder.UNUSED_FOR`, and of the others those
    beyond the `most` that were used last. One that is in use stays, and so does what cannot be removed."""
    used = {}
    for marker in folder.glob(f"*/{MARKER}"):
        with contextlib.suppress(OSError):
            used[marker] = marker.stat().st_mtime
    newest = sorted(used, key=lambda marker: -used[marker])
    for number, marker in enumerate(newest):
        if number < most and used[marker] > time.time() - UNUSED_FOR:
            continue
        with contextlib.suppress(OSError), marker.open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for path in marker.parent.iterdir():  # the marker last: a folder without it is nobody's
                if path.is_dir():
                    shutil.rmtree(path)
                elif path != marker:
                    path.unlink()
            marker.unlink()
            marker.parent.rmdir()


def record_of(output: Path) -> Path:
    """Return the file that records what an output was made from."""
    return output.with_name(output.name + ".record")


def is_current(output: Path, key: str, inputs: Iterable[Path] = ()) -> bool:
    """Return whether `output` was made by `key` from inputs that have not changed since, and is whole.

    Args:
        inputs: files that must be among them. The record of a copied folder names those of the original.
    """
    try:
        record = json.loads(record_of(output).read_text())
        return bool(
            record["key"] == key
            and record["output"] == digest(output)
            and record["inputs"].keys() >= set(map(os.fspath, inputs))
            and all(digest(Path(name)) == known for name, known in record["inputs"].items())
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False  # never made, half made, or an input is gone: make it


def written_since(path: Path, start: int) -> bool:
    """Return whether a file was written, replaced or removed between `start` (`time.time_ns`) and now.

    A process that read it meanwhile may have read what it was before. A time still to come tells of a wrong clock, not
    of that.
    """
    try:
        state = path.stat()
        return any(start <= stamp <= time.time_ns() for stamp in (state.st_mtime_ns, state.st_ctime_ns))
    except OSError:
        return True


def forget(output: Path) -> None:
    """Drop the record before `output` is made anew, so that an interrupted build cannot pass for a finished one."""
    with writing(output):
        record_of(output).unlink(missing_ok=True)


def remember(output: Path, key: str, inputs: Iterable[Path], start: int | None = None) -> None:
    """Record that `output` is now complete, made by `key` from `inputs`.

    Args:
        start: when (`time.time_ns`) they began to be read. One that was written since may be in `output` as it was
            before or as it is now: the record then fits neither.
    """
    with writing(output):
        states = {
            os.fspath(path): "" if start is not None and written_since(path, start) else digest(path) for path in inputs
        }
        record = {"key": key, "output": digest(output), "inputs": states}
    write_atomic(record_of(output), json.dumps(record, indent=0))


def inputs_of(output: Path) -> tuple[Path, ...]:
    """Return the inputs recorded for `output`; empty if there is no record."""
    try:
        return tuple(Path(name) for name in json.loads(record_of(output).read_text())["inputs"])
    except (OSError, ValueError, KeyError, TypeError):
        return ()


def read_depfile(path: Path) -> list[str]:
    """Return the prerequisites in a Makefile-style dependency file of clang.

    ``\\ ``, ``\\#`` and ``$$`` are unescaped.

    Raises:
        BuildError: there is no such file, or no rule in it.
    """
    try:
        text = path.read_text(errors="surrogateescape")
    except OSError as problem:
        raise BuildError(f"the compiler wrote no dependency file {path}: {problem.strerror}") from problem
    _, colon, rest = text.replace("\\\n", " ").partition(": ")
    if not colon:
        raise BuildError(f"{path}: no rule in dependency file", object=str(path))
    prerequisites = _PREREQUISITE.findall(rest.split("\n", 1)[0])
    return [re.sub(r"\\([ #])|\$(\$)", r"\1\2", name) for name in prerequisites]
