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
from _pytest.python import CallSpec
from effort import EVERYTHING, SHARD

COLLECTED = pytest.StashKey[set[Path]]()
"""Files that tests were collected from."""


@pytest.hookimpl(trylast=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Leave out the rows of a table that do not run, before pytest makes a test of each."""
    if all_run(metafunc.config) or not metafunc._calls:
        return
    marks = list(metafunc.definition.iter_markers())
    calls = {f"{metafunc.definition.nodeid}[{call.id}]": call for call in metafunc._calls}
    rows = rows_of_table({name: call for name, call in calls.items() if not is_thorough([*call.marks, *marks])}, marks)
    # Pytest makes a test without parameters of a table without rows. The next hook leaves out the whole table.
    metafunc._calls = [call for name, call in calls.items() if name in rows] or metafunc._calls


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect tests marked `thorough`.

    `make test-all` runs everything, and so does a command line that names a test. A shard runs its part of the rest.
    """
    config.stash[COLLECTED] = {item.path for item in items}
    chosen = [item for item in items if all_run(config) or not is_thorough(item.iter_markers())]
    try:
        chosen = [item for item in chosen if is_in_shard(item.nodeid, SHARD)]
    except ValueError as problem:
        raise pytest.UsageError(str(problem)) from None
    kept = {item.nodeid for item in chosen}
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in kept])
    items[:] = chosen


def all_run(config: pytest.Config) -> bool:
    """Return whether neither marks nor tables leave out tests."""
    return EVERYTHING or any("::" in argument for argument in config.args)


def is_thorough(marks: Iterable[pytest.Mark | pytest.MarkDecorator]) -> bool:
    """Return whether a test with these marks runs under `make test-all` alone."""
    return any(mark.name == "thorough" for mark in marks)


def rows_of_table(calls: Mapping[str, CallSpec], marks: Iterable[pytest.Mark]) -> set[str]:
    """Return the names of the rows to run of a parametrized test.

    A test without the mark `rows` runs all its rows. `rows(most, *names)` runs the first `most` rows of `spread`, over
    the named parameters or all of them.
    """
    mark = next((mark for mark in marks if mark.name == "rows"), None)
    if mark is None:
        return set(calls)
    most, *names = mark.args or (None,)
    return spread({name: factors(call, names) for name, call in calls.items()}, most)


def factors(call: CallSpec, names: Sequence[str]) -> dict[str, Hashable]:
    """Return the value of each named parameter of a row, or of all. A tuple is a factor for each of its values."""
    values: dict[str, Hashable] = {}
    for name, value in call.params.items():
        if names and name not in names:
            continue
        parts = value if isinstance(value, tuple) and all(isinstance(part, str | int) for part in value) else (value,)
        for place, part in enumerate(parts):
            known = isinstance(part, str | int | float | bool | None)
            values[f"{name} {place}"] = part if known else call.indices[name]
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
