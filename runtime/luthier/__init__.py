"""Luthier: instrumentation of AMD GPU programs with hooks written in HIP."""

from __future__ import annotations

from luthier.errors import LuthierError

__version__ = "0.1.0"
__all__ = ["LuthierError", "__version__"]
