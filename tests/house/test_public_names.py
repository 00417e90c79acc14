"""Packages whose public names are imported when they are first used: all that type checkers see, and nothing else."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import luthier
import pytest

ROOT = Path(luthier.__file__).parents[1]
LAZY = [path for path in sorted(ROOT.rglob("__init__.py")) if "lazy_names(" in path.read_text()]


@pytest.mark.parametrize("path", LAZY, ids=lambda path: path.parent.name)
def test_names_are_those_that_type_checkers_see(path: Path) -> None:
    package = importlib.import_module(".".join(path.parent.relative_to(ROOT).parts))
    (block,) = (node for node in ast.parse(path.read_bytes()).body if isinstance(node, ast.If))
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    seen = {alias.asname: (node.module, alias.name) for node in imports for alias in node.names}
    assert package.__all__ == sorted(map(str, seen))
    for name, (module, defined) in seen.items():
        assert getattr(package, str(name)) is getattr(importlib.import_module(str(module)), defined)
    with pytest.raises(AttributeError, match="'no_such_name'"):
        _ = package.no_such_name
