"""Suggestions for a name that does not exist."""

from __future__ import annotations

from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return ``; did you mean 'x'?`` for the known name that is most like a wrong one, or "" if none is like it."""
    import difflib  # not needed where all is well

    names = list(known)
    folded = {one.lower().replace("-", "_"): one for one in names}
    found = difflib.get_close_matches(name.lower().replace("-", "_"), folded, 1)
    return f"; did you mean {folded[found[0]]!r}?" if found else ""
