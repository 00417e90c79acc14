"""Packages with entry points, as an installer leaves them, on the path of a test."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest


def plant(
    folder: Path, monkeypatch: pytest.MonkeyPatch, group: str, points: str, code: str, name: str = "other_one"
) -> None:
    """Put a distribution of one module into a new folder, which comes first on the path.

    Args:
        points: lines of the group of entry points.
        code: of the module, which is called as the distribution is.
    """
    site = folder / f"site-{name}"
    metadata = site / f"{name}-2.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: 2.0\n")
    (metadata / "entry_points.txt").write_text(f"[{group}]\n{points}\n")
    (site / f"{name}.py").write_text(code)
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.delitem(sys.modules, name, raising=False)
    importlib.invalidate_caches()
