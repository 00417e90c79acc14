"""``python -m luthier_build``: print the folders of this installation that other build systems need.

``cmake-dir`` contains ``LuthierConfig.cmake``, for ``-DLuthier_DIR``; ``pkgconfig-dir`` contains ``luthier.pc``, for
``PKG_CONFIG_PATH``; ``include-dir`` contains ``luthier/luthier.h``, for ``-I``.
"""

from __future__ import annotations

import argparse
import re
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

from luthier import __version__
from luthier.errors import LuthierError
from luthier.terminal import say_raw, say_text

from luthier_build.cache import cache_dir, drop_if_foreign, keep_own
from luthier_build.plugin import include_dir
from luthier_build.workspace import digest_text, write_atomic

_PKGCONFIG = """\
includedir={include}
bindir={commands}
cc=${{bindir}}/luthier-cc
hipcc=${{bindir}}/luthier-hipcc

Name: luthier
Description: Headers for hooks; its variables cc and hipcc name what compiles them
Version: {version}
Cflags: -I${{includedir}}
"""


def cmake_dir() -> Path:
    """Return the folder with ``LuthierConfig.cmake``."""
    return Path(__file__).resolve().parent / "cmake"


def pkgconfig_dir() -> Path:
    """Return a folder with ``luthier.pc`` for this installation, written into the user's cache.

    Raises:
        BuildError: the cache cannot be written.
    """
    include, commands = (_escaped(path) for path in (include_dir(), Path(sysconfig.get_path("scripts"))))
    text = _PKGCONFIG.format(include=include, commands=commands, version=__version__)
    folder = cache_dir(f"pkgconfig/{digest_text(text)[:16]}")
    drop_if_foreign(folder / "luthier.pc")
    write_atomic(folder / "luthier.pc", text)
    keep_own(folder / "luthier.pc")
    return folder


def _escaped(path: Path) -> str:
    return re.sub(r"([\s\"'\\$#])", r"\\\1", str(path))


_FOLDERS: dict[str, Callable[[], Path]] = {
    "cmake-dir": cmake_dir,
    "pkgconfig-dir": pkgconfig_dir,
    "include-dir": include_dir,
}


def main(arguments: list[str] | None = None) -> int:
    """Print a folder and return the exit status."""
    parser = argparse.ArgumentParser("python -m luthier_build", description=__doc__.partition("\n")[0])
    parser.add_argument("folder", choices=[*_FOLDERS])
    try:
        say_raw(_FOLDERS[parser.parse_args(arguments).folder]())
    except LuthierError as problem:
        say_text(f"luthier_build: error: {problem}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
