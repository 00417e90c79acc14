"""What installed packages add: found at once after they were installed, and read from disk once."""

from __future__ import annotations

import importlib
import sys
from importlib import metadata
from pathlib import Path

import pytest
from luthier.support import extensions


def install(folder: Path, name: str) -> None:
    kept = folder / f"{name}-1.dist-info"
    kept.mkdir()
    (kept / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
    (kept / "entry_points.txt").write_text(f"[luthier.tools]\n{name} = {name}:Tool\n")


def names() -> set[str]:
    return {point.name for point in extensions.points_of("luthier.tools")}


def test_what_is_installed_later_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = names()
    monkeypatch.syspath_prepend(tmp_path)
    assert names() == before
    install(tmp_path, "first_of_all")
    importlib.invalidate_caches()
    assert names() == before | {"first_of_all"}
    monkeypatch.setattr(sys, "path", [one for one in sys.path if one != str(tmp_path)])
    assert names() == before


def test_packages_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    names()

    def read(**asked: str) -> None:
        raise AssertionError("read again")

    monkeypatch.setattr(extensions, "entry_points", read)
    assert names() == {point.name for point in metadata.entry_points(group="luthier.tools")}
    assert extensions.points_of("no such group") == ()
