"""Public names of a package that are imported on first use."""

from __future__ import annotations

import functools
import importlib
import re
import sys
from collections.abc import Callable
from typing import Any

_IMPORT = re.compile(r"^ +from ([\w.]+) import (\w+) as \2$", re.MULTILINE)


def lazy_names(package: str) -> Callable[[str], Any]:
    """Return a ``__getattr__`` for a package (PEP 562) that imports public names on first use.

    The names are those that the package's source imports for type checkers, one per line: ``from module import Name as
    Name``. They are also the package's ``__all__``.

    Args:
        package: the package's ``__name__``.
    """

    @functools.cache
    def module_of() -> dict[str, str]:
        # The loader of the package has its source, from a folder or an archive.
        spec = sys.modules[package].__spec__
        source = getattr(spec and spec.loader, "get_source", lambda name: None)(package)
        if source is None:
            raise ImportError(f"the source of {package} is missing: its public names are read from it")
        return {name: module for module, name in _IMPORT.findall(source)}

    def __getattr__(name: str) -> Any:
        if name == "__all__":
            return sorted(module_of())
        module = module_of().get(name)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(module), name)
        return vars(sys.modules[package]).setdefault(name, value)

    return __getattr__
