"""Few combinations in which every two values of every two factors meet."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from typing import Any

Place = tuple[int, int]
"""The number of a factor, and of one of its values."""


def covering(factors: Mapping[str, Sequence[Any]], seed: str = "", most: int | None = None) -> list[dict[str, Any]]:
    """Return rows with a value of each factor, the same each time; the first ones have the most pairs.

    Args:
        factors: their values.
        seed: of the random choices.
        most: how many rows to return at most, by default all.
    """
    randomness = random.Random(seed)
    sizes = [len(values) for values in factors.values()]
    places = [[(factor, value) for value in range(size)] for factor, size in enumerate(sizes)]
    left = {pair for one, other in itertools.combinations(places, 2) for pair in itertools.product(one, other)}
    rows: list[dict[str, Any]] = []
    while left and len(rows) != most:
        first = sorted(left)
        made = [_row(randomness.choice(first), places, left, randomness) for _ in range(8)]
        best = max(made, key=lambda row: len(left.intersection(itertools.combinations(row, 2))))
        left.difference_update(itertools.combinations(best, 2))
        rows.append({name: values[value] for (name, values), (_, value) in zip(factors.items(), best, strict=True)})
    return rows


def _row(
    pair: tuple[Place, Place], places: Sequence[Sequence[Place]], left: set[tuple[Place, Place]], by: random.Random
) -> list[Place]:
    """Return a row with a pair, and with the value of each other factor that adds the most pairs."""
    row = list(pair)
    rest = [factor for factor in range(len(places)) if factor not in (pair[0][0], pair[1][0])]
    for factor in by.sample(rest, len(rest)):
        values = by.sample(places[factor], len(places[factor]))
        row.append(max(values, key=lambda value: sum((min(value, one), max(value, one)) in left for one in row)))
    return sorted(row)
