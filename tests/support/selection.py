"""Selection of the collected tests that run."""

from __future__ import annotations

import heapq
import zlib
from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import combinations
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest
from effort import EVERYTHING, SHARD

COLLECTED = pytest.StashKey[set[Path]]()
"""Files that tests were collected from."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect tests marked `thorough`, and the rows of tables that `rows_of_tables` leaves out.

    `make test-all` runs everything, and so does a command line that names a test. A shard runs its part of the rest.
    """
    config.stash[COLLECTED] = {item.path for item in items}
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
    """Return the node ids of the rows to run of each parametrized test.

    A test without the mark `rows` runs all its rows. `rows(most, *names)` runs the first `most` rows of `spread`, over
    the named parameters or all of them.
    """
    tables: dict[str, list[pytest.Item]] = {}
    for item in items:
        if hasattr(item, "callspec"):
            tables.setdefault(item.nodeid.partition("[")[0], []).append(item)
    chosen: set[str] = set()
    for table in tables.values():
        mark = table[0].get_closest_marker("rows")
        if mark is None:
            chosen.update(item.nodeid for item in table)
        else:
            most, *names = mark.args or (None,)
            chosen |= spread({item.nodeid: factors(item, names) for item in table}, most)
    return chosen


def factors(item: pytest.Item, names: Sequence[str]) -> dict[str, Hashable]:
    """Return the value of each named parameter of a test, or of all. A tuple is a factor for each of its values."""
    values: dict[str, Hashable] = {}
    for name, value in item.callspec.params.items() if hasattr(item, "callspec") else ():
        if names and name not in names:
            continue
        simple = isinstance(value, tuple) and all(isinstance(part, str | int) for part in value)
        for place, part in enumerate(value if simple else (value,)):
            known = isinstance(part, str | int | float | bool | None)
            values[f"{name} {place}"] = part if known else item.callspec.indices[name]
    return values


def spread(rows: Mapping[str, Mapping[str, Hashable]], most: int | None = None) -> set[str]:
    """Return the names of `most` rows of a table that differ as much as possible.

    The next row is always the one with the most values, then the most pairs of values, that no row before it has. A
    hash of the names decides between equal ones.

    Args:
        rows: by name, the value of each factor; not every row needs the same factors.
        most: without it, as many rows as have every value.
    """
    values = {name: set(row.items()) for name, row in rows.items()}
    pairs = {name: set(combinations(sorted(row.items(), key=itemgetter(0)), 2)) for name, row in rows.items()}
    new_values, new_pairs = set[Any]().union(*values.values()), set[Any]().union(*pairs.values())
    # A row never gains by what others cover, so only the first of the queue needs to be counted again.
    queue = [(-len(values[name]), -len(pairs[name]), zlib.crc32(name.encode()), name) for name in rows]
    heapq.heapify(queue)
    chosen: set[str] = set()
    while queue and (new_values if most is None else len(chosen) < most):
        *_, order, name = heapq.heappop(queue)
        gain = (-len(values[name] & new_values), -len(pairs[name] & new_pairs))
        if queue and gain > queue[0][:2]:
            heapq.heappush(queue, (*gain, order, name))
        else:
            chosen.add(name)
            new_values -= values[name]
            new_pairs -= pairs[name]
    return chosen


def is_in_shard(name: str, shard: str) -> bool:
    """Return whether a test is in a part of all tests, whichever machine asks; each test is in exactly one.

    Args:
        name: the test's.
        shard: as `SHARD`.

    Raises:
        ValueError: the shard is not a part between the first and the last.
    """
    if not shard:
        return True
    number, _, count = (int(part) if part.isdecimal() else 0 for part in shard.partition("/"))
    if not 1 <= number <= count:
        raise ValueError(f"SHARD={shard}: want a part of all, as 3/12")
    return zlib.crc32(name.encode()) % count == number - 1
