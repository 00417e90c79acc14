"""Strict JSON, without NaN and infinities, which every reader accepts."""

from __future__ import annotations

import json
import math
from typing import Any


def dumps(value: Any, **how: Any) -> str:
    """Return a value as JSON, with numbers that JSON lacks as text: ``"nan"``, ``"inf"``, ``"-inf"``.

    Args:
        how: further arguments of `json.dumps`.
    """
    try:
        return json.dumps(value, allow_nan=False, **how)
    except ValueError:  # rare, so most values are not copied
        return json.dumps(plain(value), allow_nan=False, **how)


def plain(value: Any) -> Any:
    """Return a value with NaN and infinities as text, at any depth."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def number(value: Any) -> Any:
    """Return the number for a text of `plain`; any other value is returned unchanged."""
    return float(value) if value in _TEXTS else value


_TEXTS = tuple(map(str, (math.nan, math.inf, -math.inf)))
