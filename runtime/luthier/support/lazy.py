"""Public names of a package that are imported when they are first used."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def lazy_names(package: str, module_of: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a ``__getattr__`` for a package (PEP 562) that takes each name from the module that defines it.

    Args:
        package: the package's ``__name__``.
        module_of: for each public name the module to import it from.
    """

    def __getattr__(name: str) -> Any:
        module = module_of.get(name)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(module), name)
        return vars(sys.modules[package]).setdefault(name, value)

    return __getattr__
