"""Writes wire_layout.h: what `luthier.run.protocol` says of messages and shared memory, for C++. Run by the build."""

from __future__ import annotations

import runpy
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "luthier" / "run" / "protocol.py"


def header() -> str:
    """The text. `luthier` must be on the module path."""
    return str(runpy.run_path(str(SOURCE))["header"]())
