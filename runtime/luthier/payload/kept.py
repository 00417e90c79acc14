"""Payloads kept on disk: LLVM compiles a hook with its arguments once for each target, in whatever process.

What is kept is the assembly that LLVM made and what its markers mean. It goes by everything that it follows from: the
module's bitcode, the hook, its arguments, the target, LLVM and these sources.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TypeVar

import llvmlite

from luthier import _mc
from luthier.cache import cache_root
from luthier.payload.codegen import Input, PayloadAssembly
from luthier.payload.plain import PlainCount
from luthier.store import Store

_ROOT = Path(__file__).parents[1]
_SOURCES = ("isa", "module", "payload")


def _state_of(path: str) -> tuple[str, int, int]:
    """A file's name, size and time of change: contents would take longer to read than what is kept."""
    status = os.stat(path)
    return path, status.st_size, status.st_mtime_ns


# Before anything is compiled: what changes later may not be what was imported.
_FOUND = [_state_of(str(path)) for folder in _SOURCES for path in sorted((_ROOT / folder).rglob("*.py"))]
_STATE = hashlib.sha256(repr((_FOUND, _mc.LLVM_VERSION, llvmlite.__version__)).encode()).hexdigest()[:24]


def _unchanged() -> bool:
    try:
        return all(_state_of(found[0]) == found for found in _FOUND)
    except OSError:
        return False


@functools.lru_cache(maxsize=8)
def _store(root: Path) -> Store:
    return Store(root / "payloads" / f"{_STATE}.sqlite", _unchanged)


os.register_at_fork(after_in_child=_store.cache_clear)  # SQLite's connections do not survive a fork


def kept(key: tuple[object, ...], make: Callable[[], PayloadAssembly]) -> PayloadAssembly:
    """What is kept of a payload; else it is made and kept.

    Args:
        key: of values whose `repr` says all about them.

    Raises:
        LuthierError: as `make`; that is not kept.
    """
    return _kept(key, make, lambda payload: json.dumps(asdict(payload)).encode(), _payload)


def kept_numbers(key: tuple[object, ...], make: Callable[[], dict[str, int]]) -> dict[str, int]:
    """The same of numbers by name, that LLVM takes long to tell."""
    return _kept(key, make, lambda numbers: json.dumps(numbers).encode(), _numbers)


T = TypeVar("T")


def _kept(
    key: tuple[object, ...], make: Callable[[], T], write: Callable[[T], bytes], read: Callable[[bytes], T | None]
) -> T:
    """
    Args:
        read: gives None if the text does not say what it should.
    """
    root = cache_root()
    if root is None:
        return make()
    store = _store(root)
    digest = hashlib.sha256(repr(key).encode()).digest()
    found = store.get([digest]).get(digest)
    if found is not None and (value := read(found)) is not None:
        return value
    value = make()
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
        fields = json.loads(text)
        inputs = tuple(Input(**one) for one in fields.pop("inputs"))
        outputs, plain = tuple(fields.pop("outputs")), fields.pop("plain")
        return PayloadAssembly(
            inputs=inputs, outputs=outputs, plain=None if plain is None else PlainCount(**plain), **fields
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
