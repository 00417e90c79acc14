"""The oldest setuptools that builds tool packages. `pip install --no-build-isolation` does not check it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

OLDEST = 77
"""Also required by the extra ``build``."""
_WANTED = re.compile(r"\s*setuptools\s*>=\s*(\d+)")


def wanted_by_tool(pyproject: Mapping[str, Any]) -> int:
    """Return the release of setuptools that a tool's project requires; 0 for none, or if the project is not a tool."""
    try:
        if "luthier.tools" not in pyproject["project"]["entry-points"]:
            return 0
        required = pyproject["build-system"]["requires"]
        return max((int(match[1]) for text in required if (match := _WANTED.match(str(text)))), default=0)
    except (KeyError, TypeError):  # setuptools reports a malformed file
        return 0


def why_too_old(oldest: int = OLDEST) -> str:
    """Return what is wrong with the installed setuptools and how to fix it; empty if nothing is wrong."""
    wanted = f"this package needs {oldest} or later: pip install -U 'setuptools>={oldest}'"
    try:
        from setuptools import __version__
    except ImportError:
        return f"setuptools is not installed; {wanted}"
    return f"setuptools {__version__} is too old; {wanted}" if int(__version__.partition(".")[0]) < oldest else ""
