"""Payloads kept on disk: LLVM compiles a hook with its arguments once for each target, in whatever process.

What is kept is the assembly that LLVM made and what its markers mean. It goes by everything that it follows from: the
module's bitcode, the hook, its arguments, the target, and what compiles (`luthier.cache.provenance`).
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
    """Return what is kept of a payload; else make and keep it.

    Args:
        key: of values whose `repr` says all about them.
        also: what else makes it.

    Raises:
        LuthierError: as for `make`; that is not kept.
    """
    key = (*key, *(one.digest for one in also))
    value: PayloadAssembly = _kept(key, make, msgspec.json.encode, _payload, also)
    return value


def kept_numbers(key: tuple[object, ...], make: Callable[[], dict[str, int]]) -> dict[str, int]:
    """Return numbers by name that LLVM takes long to compute; make and keep them if they are not kept."""
    return _kept(key, make, lambda numbers: json.dumps(numbers).encode(), _numbers)


T = TypeVar("T")


def _kept(
    key: tuple[object, ...],
    make: Callable[[], T],
    write: Callable[[T], bytes],
    read: Callable[[bytes], T | None],
    also: Sequence[Provenance] = (),
) -> T:
    """Return a kept value, or make and keep it.

    Args:
        read: gives None if the text does not say what it should.
    """
    folder = cache_folder("payloads")
    if folder is None:
        return make()
    store = _store(folder)
    digest = hashlib.sha256(repr(key).encode()).digest()
    found = store.get([digest]).get(digest)
    if found is not None and (value := read(found)) is not None:
        return value
    value = make()
    if all(one.unchanged() for one in also):
        store.put({digest: write(value)})
    return value


def _numbers(text: bytes) -> dict[str, int] | None:
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) and all(type(one) is int for one in found.values()) else None


def _payload(text: bytes) -> PayloadAssembly | None:
    try:
        return msgspec.json.decode(text, type=PayloadAssembly)
    except msgspec.DecodeError:
        return None
