"""Disk cache of payloads: LLVM compiles a hook with its arguments once for each target, across processes.

An entry is LLVM's assembly with the meanings of its markers. Its key is everything that determines it: the module's
bitcode, the hook, its arguments, the target, and the code that compiles (`luthier.cache.provenance`).
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from luthier.cache.folder import cache_folder
from luthier.cache.provenance import PAYLOADS, Provenance, provenance_of
from luthier.cache.store import Store
from luthier.payload.arguments import PayloadAssembly


@functools.lru_cache(maxsize=8)
def _store(folder: Path) -> Store:
    made_by = provenance_of(*PAYLOADS)
    return Store(folder / f"{made_by.digest}.sqlite", made_by.unchanged)


os.register_at_fork(after_in_child=_store.cache_clear)  # SQLite's connections do not survive a fork


def kept(
    key: tuple[object, ...], make: Callable[[], PayloadAssembly], also: Sequence[Provenance] = ()
) -> PayloadAssembly:
    """Return a cached payload, or make and cache it.

    Args:
        key: values with a unique `repr`.
        also: further code that makes the payload.

    Raises:
        LuthierError: as for `make`; errors are not cached.
    """
    key = (*key, *(provenance.digest for provenance in also))
    value: PayloadAssembly = _kept(key, make, msgspec.json.encode, _payload, also)
    return value


def kept_numbers(key: tuple[object, ...], make: Callable[[], dict[str, int]]) -> dict[str, int]:
    """Return cached numbers by name that take LLVM long to compute, or make and cache them."""
    return _kept(key, make, lambda numbers: json.dumps(numbers).encode(), _numbers)


T = TypeVar("T")


def _kept(
    key: tuple[object, ...],
    make: Callable[[], T],
    write: Callable[[T], bytes],
    read: Callable[[bytes], T | None],
    also: Sequence[Provenance] = (),
) -> T:
    """Return a cached value, or make and cache it.

    Args:
        read: decodes an entry; returns None if it is invalid.
    """
    folder = cache_folder("payloads")
    if folder is None:
        return make()
    store = _store(folder)
    digest = hashlib.sha256(repr(key).encode()).digest()
    stored = store.get([digest]).get(digest)
    if stored is not None and (value := read(stored)) is not None:
        return value
    value = make()
    if all(provenance.unchanged() for provenance in also):
        store.put({digest: write(value)})
    return value


def _numbers(text: bytes) -> dict[str, int] | None:
    try:
        numbers = json.loads(text)
    except ValueError:
        return None
    return numbers if isinstance(numbers, dict) and all(type(value) is int for value in numbers.values()) else None


def _payload(text: bytes) -> PayloadAssembly | None:
    try:
        return msgspec.json.decode(text, type=PayloadAssembly)
    except msgspec.DecodeError:
        return None
