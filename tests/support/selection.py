"""Selection of the collected tests that run."""

from __future__ import annotations

import heapq
import zlib
from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import combinations
from pathlib import Path

import pytest
from costs import affordable
from effort import EVERYTHING, SHARD

COLLECTED = pytest.StashKey[set[Path]]()
"""Files that tests were collected from."""
TABLES = pytest.StashKey[set[str]]()
"""Node ids of the parametrized tests that were collected, without the rows."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take none of the tests marked `thorough`, and of a table only rows that `rows_of_tables` chooses: `make test-all`
    has everything, and who names a test gets it. A shard takes its part of all that is left."""
    config.stash[COLLECTED] = {item.path for item in items}
    config.stash[TABLES] = {_table(item) for item in items if hasattr(item, "callspec")}
    chosen = items
    if not (EVERYTHING or any("::" in argument for argument in config.args)):
        chosen = [item for item in items if item.get_closest_marker("thorough") is None]
        rows = rows_of_tables(chosen)
        chosen = [item for item in chosen if not hasattr(item, "callspec") or item.nodeid in rows]
    try:
        chosen = [item for item in chosen if is_in_shard(item.nodeid, SHARD)]
    except ValueError as problem:
        raise pytest.UsageError(str(problem)) from None
    kept = {item.nodeid for item in chosen}
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in kept])
    items[:] = chosen


def rows_of_tables(items: Iterable[pytest.Item]) -> set[str]:
    """Return the node ids of the rows to run, of each parametrized test as many as `affordable` says at most.

    Of tables marked `covering(strength)` they are those in which that many values meet wherever they do in the whole
    table. Of others they are all, or if there is no time for all, first those that have a value of their own.
    """
    tables: dict[str, list[pytest.Item]] = {}
    for item in items:
        if hasattr(item, "callspec"):
            tables.setdefault(_table(item), []).append(item)
    chosen: set[str] = set()
    for name, table in tables.items():
        worth = table[0].get_closest_marker("worth")
        most = affordable(name, *(worth.args if worth else ()))
        covers = table[0].get_closest_marker("covering")
        strength, *names = covers.args if covers else (1,)
        rows = {item.nodeid: factors(item, names) for item in table}
        if covers:
            chosen |= covering(rows, strength, most)
        elif most is None or len(rows) <= most:
            chosen |= rows.keys()
        else:
            first = covering(rows, 1, most)
            rest = sorted(rows.keys() - first, key=lambda name: zlib.crc32(name.encode()))
            chosen |= {*first, *rest[: most - len(first)]}
    return chosen


def _table(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0]


def factors(item: pytest.Item, names: Sequence[str]) -> dict[str, Hashable]:
    """Return the value of each parameter of a test, or of those that are named; a tuple has as many factors as
    values."""
    values: dict[str, Hashable] = {}
    for name, value in item.callspec.params.items() if hasattr(item, "callspec") else ():
        if names and name not in names:
            continue
        simple = isinstance(value, tuple) and all(isinstance(one, str | int) for one in value)
        for place, part in enumerate(value if simple else (value,)):
            known = isinstance(part, str | int | float | bool | None)
            values[f"{name} {place}"] = part if known else item.callspec.indices[name]
    return values


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
        name: set(combinations(sorted(row.items(), key=lambda pair: pair[0]), min(strength, len(row))))
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
        ValueError: there is no such part.
    """
    if not shard:
        return True
    number, _, count = (int(part) if part.isdecimal() else 0 for part in shard.partition("/"))
    if not 1 <= number <= count:
        raise ValueError(f"SHARD={shard}: want a part of all, as 3/12")
    return zlib.crc32(name.encode()) % count == number - 1
