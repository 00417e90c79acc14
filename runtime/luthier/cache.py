"""Where Luthier keeps what is costly to make again: one folder for the user, a part of it for each kind of thing."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Mapping
from pathlib import Path

VARIABLE = "LUTHIER_CACHE_DIR"
UNUSED_FOR = 30 * 24 * 3600
"""Seconds, after which what nobody used is forgotten."""


def cache_root(environment: Mapping[str, str] | None = None) -> Path | None:
    """The folder that ``LUTHIER_CACHE_DIR`` names, else ``$XDG_CACHE_HOME/luthier``, else ``~/.cache/luthier``; None if
    the variable is empty, which turns the cache off, or where no home folder is known, which is told. Nothing is made.
    """
    variables = os.environ if environment is None else environment
    setting = variables.get(VARIABLE)
    if setting is not None:
        return Path(setting) if setting else None
    base = variables.get("XDG_CACHE_HOME")
    if base:
        return Path(base) / "luthier"
    try:
        return Path.home() / ".cache" / "luthier"
    except RuntimeError:  # as in a container: a user whom the system does not know, and no HOME
        _tell_once(f"luthier: no home folder is known, so nothing is kept for the next time; {VARIABLE} can name one")
        return None


@functools.cache
def _tell_once(message: str) -> None:
    print(message, file=sys.stderr)
