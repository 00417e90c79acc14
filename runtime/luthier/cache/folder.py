"""Cache of expensive results: one folder per user, with a subfolder for each kind of content.

The cache holds machine code and compiler plugins. So it is not used if anybody but this user and root could have
written to it: this is reported once, and Luthier continues as if the cache were empty (docs/security.md).
"""

from __future__ import annotations

import os
import stat
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from luthier.errors import CacheError
from luthier.terminal import say_text

VARIABLE = "LUTHIER_CACHE_DIR"
UNUSED_FOR = 30 * 24 * 3600
"""Seconds after which unused content is removed."""
_MOST_LINKS = 40
"""The most symbolic links of a path that Linux follows."""
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_reported: set[str] = set()


def cache_root(environment: Mapping[str, str] | None = None) -> Path | None:
    """Return the root folder of the cache, without creating it or checking its owner.

    It is the folder in ``LUTHIER_CACHE_DIR``, otherwise ``$XDG_CACHE_HOME/luthier`` if that is absolute (XDG Base
    Directory Specification), otherwise ``~/.cache/luthier``. None if ``LUTHIER_CACHE_DIR`` is empty, which turns the
    cache off, or if there is no home folder, which is reported.
    """
    variables = os.environ if environment is None else environment
    setting = variables.get(VARIABLE)
    if setting is not None:
        return Path(setting).absolute() if setting else None  # compilers run in other folders
    base = variables.get("XDG_CACHE_HOME")
    if base and os.path.isabs(base):
        return Path(base) / "luthier"
    try:
        return Path.home() / ".cache" / "luthier"
    except RuntimeError:  # an unknown user without HOME, as in containers
        tell(f"no home folder is known, so results are not cached; {VARIABLE} can name a folder")
        return None


def cache_folder(name: str, environment: Mapping[str, str] | None = None) -> Path | None:
    """Return folder `name` of the cache, creating it if it is missing; an existing one may be read-only.

    Return None if the cache is turned off or cannot be used. If others could have written its contents, report that
    once on standard error.
    """
    try:
        return find_folder(name, environment)
    except CacheError as problem:
        tell(f"the cache is not used: {problem}")
    except OSError:
        pass  # it costs time, not correctness
    return None


def find_folder(name: str, environment: Mapping[str, str] | None = None) -> Path | None:
    """Return folder `name` of the cache like `cache_folder`, but raise an error if it cannot be used.

    Return None only if the cache is off: see `cache_root`.

    Raises:
        CacheError: others could have written its contents.
        OSError: it cannot be made.
    """
    problem: CacheError | None = None
    for root in _places(environment):
        try:
            return make_folder(root / name)
        except CacheError as refusal:
            problem = problem or refusal
    if problem is not None:
        raise problem
    return None


def bounded_folder(name: str, most_bytes: int) -> Path | None:
    """Return folder `name` of the cache like `cache_folder`, without the files that have not been used for
    `UNUSED_FOR`, and with at most `most_bytes`: those used last.
    """
    folder = cache_folder(name)
    if folder is None:
        return None
    with suppress(OSError):
        files = []
        for entry in os.scandir(folder):
            with suppress(OSError):  # another process removed it
                if not entry.is_dir():
                    files.append((entry.stat(follow_symlinks=False), entry.path))
        oldest, total = time.time() - UNUSED_FOR, 0
        for status, path in sorted(files, key=lambda file: -file[0].st_mtime):
            total += status.st_size
            if total > most_bytes or status.st_mtime < oldest:
                with suppress(OSError):  # another process removed it
                    os.unlink(path)
    return folder


def _places(environment: Mapping[str, str] | None) -> Iterator[Path]:
    """Yield the folders where the cache is searched for.

    If HOME belongs to another user, as under ``sudo -E``, the folder in this user's own home follows.
    """
    variables = os.environ if environment is None else environment
    root = cache_root(variables)
    if root is None:
        return
    yield root
    if VARIABLE not in variables:
        with suppress(KeyError, ImportError):
            import pwd

            own = Path(pwd.getpwuid(os.geteuid()).pw_dir) / ".cache/luthier"
            if own != root and own.parents[1].is_dir():
                yield own


def make_folder(path: Path) -> Path:
    """Return a folder, creating it and its parents for this user alone if they are missing.

    Raises:
        CacheError: others could have written its contents, or replaced it.
        OSError: it cannot be made.
    """
    require_own(path)
    for folder in reversed([path, *path.parents]):
        if not folder.is_dir():
            folder.mkdir(mode=0o700, exist_ok=True)
    require_own(path)  # in a folder for everybody, another user may have been quicker
    return path


def require_own(path: Path) -> None:
    """Check that nobody but this user and root could have written a file or a folder, or replaced it.

    Every folder of the path is checked, from the root on and through symbolic links: if it is safe, nobody else can
    replace its entries. A path that does not exist is safe.

    Raises:
        CacheError: another user could, with the reason.
        OSError: the path cannot be examined.
    """
    place, links = "/", 0
    status = os.lstat(place)
    pending = _parts(os.path.join(os.getcwd(), path))
    while True:
        if problem := _problem(status, on_the_way=bool(pending)):
            raise CacheError(f"{place} {problem}")
        if not pending:
            return
        name = pending.pop()
        inner = os.path.dirname(place) if name == ".." else os.path.join(place, name)
        try:
            inner_status = os.lstat(inner)
        except FileNotFoundError:
            return
        if not stat.S_ISLNK(inner_status.st_mode):
            place, status = inner, inner_status
            continue
        links += 1
        if problem := _problem(inner_status, on_the_way=True) or (
            "is a circle of links" if links > _MOST_LINKS else ""
        ):
            raise CacheError(f"{inner} {problem}")
        target = os.readlink(inner)
        pending += _parts(target)
        if target.startswith("/"):
            place, status = "/", os.lstat("/")


def is_own(path: Path) -> bool:
    """Return whether a file, link or folder exists and nobody but this user and root could have written it.

    Its parent folders are not checked.
    """
    try:
        status = os.lstat(path)
    except OSError:
        return False
    return not _problem(status, on_the_way=False)


def _parts(path: str) -> list[str]:
    """Return the names in a path, last name first."""
    return [name for name in reversed(path.split("/")) if name not in ("", ".")]


def _problem(status: os.stat_result, *, on_the_way: bool) -> str:
    """Return the problem with the owner or the permissions of a file, folder or link; empty if there is none.

    Args:
        on_the_way: its entry is checked as well: a folder with the sticky bit protects entries of other users.
    """
    if status.st_uid not in (0, os.geteuid()):
        return f"belongs to {_name_of(status.st_uid)}"
    sticky = on_the_way and stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX
    if status.st_mode & _OTHERS_WRITE and not stat.S_ISLNK(status.st_mode) and not sticky:
        return f"can be written by others (mode {stat.S_IMODE(status.st_mode):o})"
    return ""


def _name_of(user: int) -> str:
    try:
        import pwd

        return f"{pwd.getpwuid(user).pw_name}, another user"
    except (KeyError, ImportError):
        return f"another user ({user})"


def tell(warning: str) -> None:
    """Print a warning on standard error, once per process."""
    if warning not in _reported:
        _reported.add(warning)
        say_text(f"luthier: warning: {warning}", file=sys.stderr, flush=True)
