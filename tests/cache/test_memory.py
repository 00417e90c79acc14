"""Entries that a bounded cache keeps and drops, compared with a linear list."""

from __future__ import annotations

import random
import threading

import pytest
from luthier.cache.memory import BoundedCache


@pytest.mark.parametrize("most", [1, 3, 10])
@pytest.mark.parametrize("by_size", [False, True], ids=["number", "size"])
def test_those_used_longest_ago_go(most: int, by_size: bool) -> None:
    gone: list[tuple[int, int]] = []
    size_of = (lambda key, value: value) if by_size else None
    cache = BoundedCache[int, int](most, size_of, lambda *item: gone.append(item))
    rng = random.Random(most)
    kept: list[tuple[int, int]] = []  # the last one used is the last
    dropped: list[tuple[int, int]] = []
    for _ in range(2000):
        key = rng.randrange(12)
        present = [one for one in kept if one[0] == key]
        expected = present[0][1] if present else None
        match rng.randrange(3):
            case 0:
                assert cache.get(key) == expected
            case 1:
                assert cache.use(key) == expected
                kept = [one for one in kept if one[0] != key] + present
            case _:
                value = rng.randrange(1, 5)
                assert cache.put(key, value) == value
                kept = [*[one for one in kept if one[0] != key], (key, value)]
                while len(kept) > 1 and sum(one[1] if by_size else 1 for one in kept) > most:
                    dropped.append(kept.pop(0))
        assert len(cache) == len(kept)
        assert gone == dropped
    assert dropped
    assert [cache.get(key) for key, _ in kept] == [value for _, value in kept]


def test_several_threads() -> None:
    """Sizes are counted correctly, so that the cache is full at the end."""
    cache = BoundedCache[int, int](50)

    def work(seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(3000):
            key = rng.randrange(200)
            if cache.use(key) not in (None, key):
                raise AssertionError(key)
            cache.put(key, key)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(cache) == 50
    assert all(cache.get(key) in (None, key) for key in range(200))
