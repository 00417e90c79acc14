"""JSON as readers other than Python's accept it."""

from __future__ import annotations

import json
from typing import Any


def strictly(text: str) -> Any:
    """Return what JSON says; NaN and infinities, which Python's reader takes, too, are errors."""

    def refuse(name: str) -> None:
        raise ValueError(f"{name} is no JSON")

    return json.loads(text, parse_constant=refuse)
