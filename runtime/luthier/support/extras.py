"""Packages that `pip install luthier` leaves to extras: they are imported where a feature needs them."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

from luthier.errors import LuthierError

_EXTRA_OF = {
    "pyarrow": ("report", "tables of run folders"),
    "duckdb": ("report", "summaries of traces"),
    "graphlay": ("report", "graphs on the report page"),
    "youplot": ("report", "charts on the report page"),
    "pandas": ("plot", "data frames"),
    "matplotlib": ("plot", "plots"),
    "dask": ("cluster", "workers on several machines"),
    "distributed": ("cluster", "workers on several machines"),
}


def extra(module: str) -> Any:
    """Import a module of an extra's package.

    Raises:
        LuthierError: the package is not installed; the message has the command that installs it.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError:
        require(module)
        raise


def require(module: str) -> None:
    """Raise an error unless the package of a module is installed; nothing is imported.

    Raises:
        LuthierError: as `extra`.
    """
    package = module.partition(".")[0]
    if importlib.util.find_spec(package) is None:
        name, purpose = _EXTRA_OF[package]
        raise LuthierError(f"{package} is not installed, which {purpose} need: pip install 'luthier[{name}]'")
