"""Public names of a package that are imported when they are first used."""

from __future__ import annotations

import functools
import importlib
import re
import sys
from collections.abc import Callable
from typing import Any

_IMPORT = re.compile(r"^ +from ([\w.]+) import (\w+) as \2$", re.MULTILINE)


def lazy_names(package: str) -> Callable[[str], Any]:
    """Return a ``__getattr__`` for a package (PEP 562) that imports public names when they are first used.

    They are what the package's source imports for type checkers, a line each: ``from module import Name as Name``. So
    each name stands there once. These names are the package's ``__all__``, too.

    Args:
        package: the package's ``__name__``.
    """

    @functools.cache
    def module_of() -> dict[str, str]:
        # ...__spec__.loader: whatever imported the package, from a folder or an archive, has its source
        spec = sys.modules[package].__spec__
        source = getattr(spec and spec.loader, "get_source", lambda name: None)(package)
        if source is None:
            raise ImportError(f"the source of {package} is needed: its names are imported by what stands there")
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
