"""Suggestions for a name that does not exist."""

from __future__ import annotations

from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return ``; did you mean 'x'?`` for the known name most similar to a wrong one, or "" if none is similar."""
    import difflib  # only needed for errors

    folded = {known_name.lower().replace("-", "_"): known_name for known_name in known}
    name = name.lower().replace("-", "_")
    parts = [known_name for known_name in folded if len(name) > 2 and known_name.startswith(name)]
    matches = difflib.get_close_matches(name, folded, 1) or parts[:1]
    return f"; did you mean {folded[matches[0]]!r}?" if matches else ""
