"""The oldest setuptools that builds tool packages. `pip install --no-build-isolation` asks nobody for it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

OLDEST = 77
"""What the extra ``build`` requires, too."""
_WANTED = re.compile(r"\s*setuptools\s*>=\s*(\d+)")


def wanted_by_tool(pyproject: Mapping[str, Any]) -> int:
    """Return the release of setuptools that a tool's project asks for; 0 where it asks for none, or is no tool's."""
    try:
        if "luthier.tools" not in pyproject["project"]["entry-points"]:
            return 0
        required = pyproject["build-system"]["requires"]
        return max((int(wanted[1]) for one in required if (wanted := _WANTED.match(str(one)))), default=0)
    except (KeyError, TypeError):  # what is malformed, setuptools says
        return 0


def why_too_old(oldest: int = OLDEST) -> str:
    """Return what is wrong with the setuptools that is installed, and what to do; empty if nothing is."""
    wanted = f"this package needs {oldest} or later: pip install -U 'setuptools>={oldest}'"
    try:
        from setuptools import __version__
    except ImportError:
        return f"setuptools is not installed; {wanted}"
    return f"setuptools {__version__} is too old; {wanted}" if int(__version__.partition(".")[0]) < oldest else ""
