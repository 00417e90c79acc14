"""Selection of the collected tests that run."""

from __future__ import annotations

import heapq
import zlib
from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import combinations
from pathlib import Path

import pytest
from effort import EVERYTHING, SHARD

COLLECTED = pytest.StashKey[set[Path]]()
"""Files that tests were collected from."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take of tables marked `covering(strength)` the rows in which that many values meet wherever they do in the whole
    table, at most the `most` with the most of them, and none of the tests marked `thorough`: `make test-all` has
    everything, and who names a test gets it. A shard takes its part of all that is left."""
    config.stash[COLLECTED] = {item.path for item in items}
    named = any("::" in argument for argument in config.args)
    chosen = items if EVERYTHING or named else [item for item in items if item.get_closest_marker("thorough") is None]
    if not (EVERYTHING or named):
        rows = covering_rows(chosen)
        chosen = [item for item in chosen if item.get_closest_marker("covering") is None or item.nodeid in rows]
    try:
        chosen = [item for item in chosen if is_in_shard(item.nodeid, SHARD)]
    except ValueError as problem:
        raise pytest.UsageError(str(problem)) from None
    kept = {item.nodeid for item in chosen}
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in kept])
    items[:] = chosen


def covering_rows(items: Iterable[pytest.Item]) -> set[str]:
    """Return the node ids of tests in covering arrays of their tables."""
    tables: dict[tuple[str, int, int | None], dict[str, dict[str, Hashable]]] = {}
    for item in items:
        if mark := item.get_closest_marker("covering"):
            strength, *names = mark.args
            table = item.nodeid.partition("[")[0], strength, mark.kwargs.get("most")
            tables.setdefault(table, {})[item.nodeid] = factors(item, names)
    return {name for (_, strength, most), rows in tables.items() for name in covering(rows, strength, most)}


def factors(item: pytest.Item, names: Sequence[str]) -> dict[str, Hashable]:
    """Return the value of each parameter of a test, or of those that are named; a tuple has as many factors as
    values."""
    found: dict[str, Hashable] = {}
    for name, value in item.callspec.params.items() if hasattr(item, "callspec") else ():
        if names and name not in names:
            continue
        simple = isinstance(value, tuple) and all(isinstance(one, str | int) for one in value)
        for place, one in enumerate(value if simple else (value,)):
            known = isinstance(one, str | int | float | bool | None)
            found[f"{name} {place}"] = one if known else item.callspec.indices[name]
    return found


def covering(rows: Mapping[str, Mapping[str, Hashable]], strength: int, most: int | None = None) -> set[str]:
    """Return the names of few rows of a table in which all values meet that meet anywhere in it.

    The array is greedy: the row with the most new combinations comes next. Rows that are as good as each other are
    taken by a hash of their names, so that factors beyond `strength` vary, too.

    Args:
        rows: by name, the value of each factor; not every row needs the same factors.
        strength: how many values are to meet: 1, each value of each factor; 2, every pair of values that any row has.
        most: rows that are chosen at most: those in which the most values meet.
    """
    meetings = {
        name: set(combinations(sorted(row.items(), key=lambda one: one[0]), min(strength, len(row))))
        for name, row in rows.items()
    }
    left = set().union(*meetings.values())
    # A row never gains by what others cover, so only the first of the queue needs to be counted again.
    queue = [(-len(found), zlib.crc32(name.encode()), name) for name, found in meetings.items()]
    heapq.heapify(queue)
    chosen: set[str] = set()
    while left and (most is None or len(chosen) < most):
        _, order, name = heapq.heappop(queue)
        gain = len(meetings[name] & left)
        if queue and gain < -queue[0][0]:
            heapq.heappush(queue, (-gain, order, name))
        else:
            chosen.add(name)
            left -= meetings[name]
    return chosen


def is_in_shard(name: str, shard: str) -> bool:
    """Return whether a test is in a part of all tests, whichever machine asks; each test is in exactly one.

    Args:
        name: the test's.
        shard: as `SHARD`.

    Raises:
        ValueError: the part is none of so many.
    """
    if not shard:
        return True
    number, _, count = (int(part) if part.isdecimal() else 0 for part in shard.partition("/"))
    if not 1 <= number <= count:
        raise ValueError(f"SHARD={shard}: want a part of all, as 3/12")
    return zlib.crc32(name.encode()) % count == number - 1
