"""Cache of what is costly to make again: one folder per user, with a subfolder for each kind of content.

The cache holds machine code and compiler plugins. So nothing is used that anybody but this user and root could have put
there: this is reported once, and everything goes on as if nothing had been cached (docs/security.md).
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from luthier.errors import CacheError
from luthier.terminal import say_text

VARIABLE = "LUTHIER_CACHE_DIR"
UNUSED_FOR = 30 * 24 * 3600
"""Seconds after which unused content is removed."""
_MOST_LINKS = 40
"""Symbolic links of a path, as many as Linux follows."""
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_told: set[str] = set()


def cache_root(environment: Mapping[str, str] | None = None) -> Path | None:
    """Return the root folder of the cache, without creating it or checking whose it is.

    It is the folder that ``LUTHIER_CACHE_DIR`` names, else ``$XDG_CACHE_HOME/luthier``, which a relative path is not
    (XDG Base Directory Specification), else ``~/.cache/luthier``; None if the variable is empty, which turns the cache
    off, or where no home folder is known, which is reported.
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
    except RuntimeError:  # as in a container: a user whom the system does not know, and no HOME
        tell(f"no home folder is known, so nothing is kept for the next time; {VARIABLE} can name one")
        return None


def cache_folder(name: str, environment: Mapping[str, str] | None = None) -> Path | None:
    """Return folder `name` of the cache, creating it where it is missing; an existing one may be read-only.

    Return None if the cache is turned off or cannot be used. That others could have written its contents is reported
    once, on standard error.
    """
    try:
        return find_folder(name, environment)
    except CacheError as problem:
        tell(f"the cache is not used: {problem}")
    except OSError:
        pass  # it costs time, not correctness
    return None


def find_folder(name: str, environment: Mapping[str, str] | None = None) -> Path | None:
    """Return folder `name` of the cache like `cache_folder`, but raise where it cannot be used.

    Return None only if the cache is off: see `cache_root`.

    Raises:
        CacheError: others could have written what is in it.
        OSError: it cannot be made.
    """
    problem: CacheError | None = None
    for root in _places(environment):
        try:
            return make_folder(root / name)
        except CacheError as found:
            problem = problem or found
    if problem is not None:
        raise problem
    return None


def _places(environment: Mapping[str, str] | None) -> Iterator[Path]:
    """Yield the folders where the cache is looked for.

    Where the environment has its home folder from somebody else, as under ``sudo -E``, this user's own follows.
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
    """Return a folder, creating it and its parents for this user alone where they are missing.

    Raises:
        CacheError: others could have written what is in it, or put another in its place.
        OSError: it cannot be made.
    """
    require_own(path)
    for folder in reversed([path, *path.parents]):
        if not folder.is_dir():
            folder.mkdir(mode=0o700, exist_ok=True)
    require_own(path)  # another may have been quicker where everybody may make files
    return path


def require_own(path: Path) -> None:
    """Do nothing if nobody but this user and root could have written a file or a folder, or put another in its place.

    Every folder on the way is looked at, from the root on and behind symbolic links: once one of them is known to be in
    the right hands, nobody else can exchange what is in it. What is not there yet is nobody's.

    Raises:
        CacheError: who could.
        OSError: it cannot be found out.
    """
    here, links = "/", 0
    status = os.lstat(here)
    pending = _parts(os.path.join(os.getcwd(), path))
    while True:
        if problem := _problem(status, on_the_way=bool(pending)):
            raise CacheError(f"{here} {problem}")
        if not pending:
            return
        name = pending.pop()
        inner = os.path.dirname(here) if name == ".." else os.path.join(here, name)
        try:
            found = os.lstat(inner)
        except FileNotFoundError:
            return
        if not stat.S_ISLNK(found.st_mode):
            here, status = inner, found
            continue
        links += 1
        if problem := _problem(found, on_the_way=True) or ("is a circle of links" if links > _MOST_LINKS else ""):
            raise CacheError(f"{inner} {problem}")
        target = os.readlink(inner)
        pending += _parts(target)
        if target.startswith("/"):
            here, status = "/", os.lstat("/")


def is_own(path: Path) -> bool:
    """Return whether a file, link or folder exists and nobody but this user and root can have written it.

    Its parent folders are not checked.
    """
    try:
        status = os.lstat(path)
    except OSError:
        return False
    return not _problem(status, on_the_way=False)


def _parts(path: str) -> list[str]:
    """Return the names in a path, the last one first."""
    return [name for name in reversed(path.split("/")) if name not in ("", ".")]


def _problem(status: os.stat_result, *, on_the_way: bool) -> str:
    """Return what is wrong with the owner and the permissions of a file, folder or link; empty if nothing is.

    Args:
        on_the_way: what is in it is looked at, too: in a folder with the sticky bit nobody exchanges what is another's.
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
    """Say something on standard error, once in a process."""
    if warning not in _told:
        _told.add(warning)
        say_text(f"luthier: warning: {warning}", file=sys.stderr, flush=True)
