"""Where Luthier keeps what is costly to make again: one folder for the user, a part of it for each kind of thing."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

VARIABLE = "LUTHIER_CACHE_DIR"
UNUSED_FOR = 30 * 24 * 3600
"""Seconds, after which what nobody used is forgotten."""


def cache_root(environment: Mapping[str, str] | None = None) -> Path | None:
    """The folder that ``LUTHIER_CACHE_DIR`` names, else ``$XDG_CACHE_HOME/luthier``, else ``~/.cache/luthier``; None if
    the variable is empty, which turns the cache off. Nothing is made.

    Raises:
        RuntimeError: there is no home folder.
    """
    variables = os.environ if environment is None else environment
    setting = variables.get(VARIABLE)
    if setting is not None:
        return Path(setting) if setting else None
    return Path(variables.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "luthier"
