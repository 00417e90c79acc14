"""`luthier cache`: list or remove the folders of Luthier's cache."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from luthier.cache.folder import VARIABLE, cache_root, require_own
from luthier.cli.common import STANDARD_OUTPUT, add_json_argument, put_json, terminal_width
from luthier.errors import LuthierError
from luthier.support.table import Table
from luthier.terminal import say, say_text

KINDS = {
    "emulator": "machine code of the emulated device's operations",
    "payloads": "hooks, compiled for their arguments",
    "patched": "instrumented kernels",
    "compilations": "what ROCm's runtimes compile when they start",
    "provenance": "digests of the sources that the other entries depend on",
    "entry-points": "installed tools and other extensions",
    "inline": "device modules of `luthier.load_inline`",
    "plugins": "compiler plugins",
    "device-library": "HIP device libraries for newer targets",
    "precompiled": "precompiled HIP headers",
    "pkgconfig": "files for pkg-config",
    "wrapper": "properties of compilers, for luthier-hipcc",
}
"""Folder of the cache -> its contents. `clear` removes other folders only if they are named."""
_DAY = 24 * 3600


class KeptFolder(Struct, frozen=True):
    """A folder of the cache."""

    name: str
    path: str
    bytes: int
    files: int
    used: float
    """Time of the newest file, in seconds since 1970; 0 if the folder is empty."""

    @classmethod
    def at(cls, path: Path) -> KeptFolder:
        """Measure a folder; files that disappear meanwhile are not counted."""
        sizes, last = [], 0.0
        for folder, _, names in os.walk(path):
            for name in names:
                try:
                    status = os.lstat(os.path.join(folder, name))
                except OSError:
                    continue
                sizes.append(status.st_size)
                last = max(last, status.st_mtime)
        return cls(path.name, str(path), sum(sizes), len(sizes), last)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("action", nargs="?", choices=("show", "clear"), default="show", help="default: show")
    parser.add_argument("names", nargs="*", metavar="NAME", help="folders of the cache (default: all made by Luthier)")
    parser.add_argument("--size", action="store_true", help="print only the size in bytes")
    add_json_argument(parser, "the folders")


def run(args: argparse.Namespace) -> int:
    """Run the command and return its exit status."""
    if args.size and args.json:
        raise LuthierError("--size prints one number: give it without --json, which has the size of each folder")
    root = cache_root()
    if args.action == "clear":
        return _clear(root, args.names)
    folders = _chosen(root, args.names)
    if args.size:
        say(sum(folder.bytes for folder in folders))
        return 0
    if args.json:
        put_json(args.json, msgspec.to_builtins(folders))
    if args.json == STANDARD_OUTPUT:
        return 0
    if root is None:
        say(f"no cache: {VARIABLE} is empty, or the home folder is unknown")
    else:
        table = Table(str(root), ("folder", "MB", "files", "days ago", "contents"), _rows(folders))
        say_text(table.text(terminal_width(sys.stdout)))
    return 0


def _chosen(root: Path | None, names: Sequence[str]) -> list[KeptFolder]:
    """Return the named folders of the cache; without names, all.

    Raises:
        LuthierError: the cache has no such folder.
    """
    inside = root.iterdir() if root is not None and root.is_dir() else ()
    folders = {path.name: path for path in sorted(inside) if path.is_dir() and not path.is_symlink()}
    for name in names:
        if name not in folders:
            raise LuthierError(
                f"the cache has no folder {name!r}; it has {', '.join(folders) or 'none'}", object=str(root)
            )
    return [KeptFolder.at(folders[name]) for name in names or folders]


def _rows(folders: Sequence[KeptFolder]) -> list[tuple[str, float, int, float | None, str]]:
    now = time.time()
    rows = [
        (
            folder.name,
            round(folder.bytes / 1e6, 1),
            folder.files,
            round(max(0, now - folder.used) / _DAY, 1) if folder.files else None,
            KINDS.get(folder.name, "not made by Luthier: `clear` removes it only by name"),
        )
        for folder in folders
    ]
    total = sum(folder.bytes for folder in folders)
    return [*rows, ("all", round(total / 1e6, 1), sum(folder.files for folder in folders), None, "")]


def _clear(root: Path | None, names: Sequence[str]) -> int:
    """Remove the named folders of the cache; without names, those that Luthier makes.

    Raises:
        LuthierError: the cache has no such folder, other users can write to it, or it cannot be removed.
    """
    removed = [folder for folder in _chosen(root, names) if names or folder.name in KINDS]
    for folder in removed:
        try:
            require_own(Path(folder.path))
            shutil.rmtree(folder.path)
        except OSError as problem:
            raise LuthierError(f"cannot remove {folder.path}: {problem.strerror or problem}") from None
    size = sum(folder.bytes for folder in removed) / 1e6
    say(f"removed {', '.join(folder.name for folder in removed) or 'nothing'}: {size:.1f} MB")
    return 0
