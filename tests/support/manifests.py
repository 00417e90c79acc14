"""Damage to the manifests of device modules: keys missing, twice, of other types, absurd values, a text that ends."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

VALUES: tuple[Any, ...] = (
    *(None, True, 0, -1, 7, 1 << 63, 1 << 70, 1.5, float("nan"), "", "\x1b[2J\u202e\ud800", "x" * 10_000, "../../x"),
    *([], {}, [[]], [None], {"": 0}, ["a", 1], [{}]),
)
"""Values that replace a value."""


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path to every value in JSON except the whole."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inside in inner:
        yield (*path, key)
        yield from places(inside, (*path, key))


def damaged(text: str) -> Iterator[tuple[str, str]]:
    """Yield every manifest with one error at one place: what that is, and its text."""
    whole = json.loads(text)
    for *way, key in places(whole):
        for what in ("absent", "renamed", "twice", "another", *range(len(VALUES))):
            value = copy.deepcopy(whole)
            holder = value
            for step in way:
                holder = holder[step]
            if what == "absent":
                del holder[key]
            elif what == "twice" and isinstance(holder, list):
                holder.append(holder[key])
            elif what == "renamed" and isinstance(holder, dict):
                holder["owner" if "symbol" in holder else f"{key}x"] = holder.pop(key)
            elif what == "another" and isinstance(holder[key], str | int):
                holder[key] = holder[key] + "x" if isinstance(holder[key], str) else holder[key] + 1
            elif isinstance(what, int):
                holder[key] = VALUES[what]
            else:
                continue
            yield f"{'.'.join(map(str, (*way, key)))}: {what}", json.dumps(value)
    for key in whole:
        for other in VALUES:  # the later one counts
            yield f"{key} twice", text.rstrip()[:-1] + f", {json.dumps(key)}: {json.dumps(other)}}}"
    for end in range(0, len(text), 7):
        yield f"ends at {end}", text[:end]
    for depth in (1000, 100_000):
        yield f"{depth} deep", "[" * depth + "]" * depth
    yield "a large number", text.replace('"version": 1', f'"version": {"1" * 10_000}')
