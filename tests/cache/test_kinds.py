"""`luthier cache` knows every folder that Luthier makes in the cache."""

from __future__ import annotations

import re
from pathlib import Path

from luthier.cli.cache import KINDS

ROOT = Path(__file__).parents[2]
MADE = re.compile(r"(?:cache_folder|cache_dir|bounded_folder)\(f?\"([a-z-]+)")


def test_every_folder_is_known() -> None:
    sources = [
        path.read_text() for folder in ("runtime/luthier", "luthier_build") for path in (ROOT / folder).rglob("*.py")
    ]
    folders = {name for source in sources for name in MADE.findall(source)}
    assert {"emulator", "inline", "pkgconfig"} <= folders <= KINDS.keys()
