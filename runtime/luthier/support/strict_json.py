"""Writing JSON that every reader takes: it has no NaN and no infinities."""

from __future__ import annotations

import json
import math
from typing import Any


def dumps(value: Any, **how: Any) -> str:
    """Return a value as JSON, with the numbers that JSON does not have as text: ``"nan"``, ``"inf"``, ``"-inf"``.

    Args:
        how: further arguments of `json.dumps`.
    """
    try:
        return json.dumps(value, allow_nan=False, **how)
    except ValueError:  # rare: most values need not be copied
        return json.dumps(plain(value), allow_nan=False, **how)


def plain(value: Any) -> Any:
    """Return a value with what JSON has no number for as text, at any depth."""
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def number(value: Any) -> Any:
    """Return the number that `plain` gave as text, anything else as it is."""
    return float(value) if value in _TEXTS else value


_TEXTS = tuple(str(one) for one in (math.nan, math.inf, -math.inf))
