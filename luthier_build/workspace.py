"""The folder for intermediate files between builds: ownership, lock, atomic outputs, and up-to-date checks.

An output is up to date if its record has the same key (command, compiler, plugin), inputs with the same contents, and
the output's current contents. Time stamps are not used, so that a fresh checkout, a touched header or a wrong clock
never cause a stale or an unnecessary build.
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
    """Return size, time stamps and inode of a file; while they are the same, so are its contents.

    A program that replaces a file may preserve size and modification time (tar, `cp -p`), but not the ``ctime``.
    """
    state = path.stat()
    return state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino


def digest(path: Path) -> str:
    """Return the SHA-256 of the file's contents in hexadecimal, cached in the process until `state_of` changes."""
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
"""Product -> (list in `luthier.cache.provenance` of the parts of Luthier that affect it, modules of this package that
make it, including their imports; tests/cache/test_provenance.py)."""


@functools.cache
def made_by(what: str) -> str:
    """Return the digest of the sources that make a product of `MAKERS`.

    It is part of the products' keys, because two commits may have the same version number.
    """
    from luthier.cache import provenance  # slow to import

    below, makers = MAKERS[what]
    own = provenance.provenance_of(*(f"luthier_build.{name}" for name in makers), root=Path(__file__).parents[1])
    runtime = provenance.provenance_of(*getattr(provenance, below))
    # If a source has changed since this process imported it, the digest does not describe the running code.
    fresh = "" if own.unchanged() and runtime.unchanged() else secrets.token_hex()
    return digest_text(own.digest, runtime.digest, fresh)


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Convert an `OSError` in the block, such as a full disk, to an error about writing `path`.

    Raises:
        BuildError: in place of the `OSError`.
    """
    try:
        yield
    except OSError as problem:
        raise BuildError(f"cannot write {path}: {problem.strerror or problem}", object=str(path)) from problem


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Provide a new file next to `path` that replaces it when the block ends, and is removed if the block fails.

    Raises:
        BuildError: the folder is not writable, or the disk is full.
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
    """Write `data` to `path` atomically; return False, without writing, if the file has this content already."""
    return bool(write_together({path: data}))


def write_together(files: Mapping[Path, bytes | str]) -> list[Path]:
    """Write all files, or none if one cannot be written.

    Returns:
        The paths whose contents have changed.

    Raises:
        BuildError: a folder is not writable, or the disk is full.
    """
    written = []
    with contextlib.ExitStack() as together:  # replace files only after all have been written
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
    """Create and mark the build folder, and lock it while the block runs; another build waits.

    Raises:
        BuildError: the folder has contents that Luthier's build did not make, or is not writable.
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
            if present and MARKER not in present:  # one listing, because another build may be creating the marker
                raise BuildError(
                    f"{path} exists and was not made by Luthier's build (it has no {MARKER}): "
                    "choose another build-dir or remove it",
                    object=str(path),
                )
            lock = (path / MARKER).open("a+")
        except OSError as problem:
            raise BuildError(f"cannot use build folder {path}: {problem.strerror}", object=str(path)) from problem
        fcntl.flock(lock, fcntl.LOCK_EX)
        if os.fstat(lock.fileno()).st_nlink:
            return lock
        lock.close()  # another process has removed the folder as unused


def forget_unused(folder: Path, most: int) -> None:
    """Remove build folders in `folder` that were unused for `luthier.cache.folder.UNUSED_FOR`, and all but the `most`
    last used. Folders in use and folders that cannot be removed stay."""
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
            for path in marker.parent.iterdir():  # the marker last: without it, no build may use the folder
                if path.is_dir():
                    shutil.rmtree(path)
                elif path != marker:
                    path.unlink()
            marker.unlink()
            marker.parent.rmdir()


def record_of(output: Path) -> Path:
    """Return the path of an output's record."""
    return output.with_name(output.name + ".record")


def is_current(output: Path, key: str, inputs: Iterable[Path] = ()) -> bool:
    """Return whether `output` is complete and was made with `key` from inputs that have not changed.

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
        return False  # never made, incomplete, or an input is missing


def written_since(path: Path, start: int) -> bool:
    """Return whether a file was written, replaced or removed between `start` (`time.time_ns`) and now.

    A process that read the file since `start` may have read the previous contents. A time in the future means a wrong
    clock and does not count.
    """
    try:
        state = path.stat()
        return any(start <= stamp <= time.time_ns() for stamp in (state.st_mtime_ns, state.st_ctime_ns))
    except OSError:
        return True


def forget(output: Path) -> None:
    """Remove the record before `output` is made again, so that an interrupted build does not count as complete."""
    with writing(output):
        record_of(output).unlink(missing_ok=True)


def remember(output: Path, key: str, inputs: Iterable[Path], start: int | None = None) -> None:
    """Record that `output` is complete and was made with `key` from `inputs`.

    Args:
        start: time (`time.time_ns`) before they were read. The record never matches an input written since, because
            `output` may contain either version of it.
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
    """Return the prerequisites in clang's Makefile-style dependency file, with ``\\ ``, ``\\#`` and ``$$`` unescaped.

    Raises:
        BuildError: the file does not exist or has no rule.
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
