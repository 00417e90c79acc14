"""How much the tests try.

`make test` tries a sample of the largest tables, another one each day; `make test-all` sets LUTHIER_TEST_ALL and tries
everything, or of it one part in twelve with SHARD=3/12. LUTHIER_FUZZ=n makes random tests n times as long.
"""

from __future__ import annotations

import functools
import os
import subprocess
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from luthier.isa.targets import TARGETS

Item = TypeVar("Item")
SHARD = os.environ.get("LUTHIER_TEST_SHARD", "")
"""``3/12``: the third of twelve parts of all tests; empty: all of them."""

EVERYTHING = bool(os.environ.get("LUTHIER_TEST_ALL"))
FUZZ = int(os.environ.get("LUTHIER_FUZZ", "1"))

EMULATED = (
    *("gfx906", "gfx908", "gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1101", "gfx1102", "gfx1103"),
    *("gfx1150", "gfx1151", "gfx1200", "gfx1201"),
)
"""Targets of the emulated device that differ in more than their number."""
FAMILIES = ("gfx906", "gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1201")
"""One target of each generation."""
assert set(FAMILIES) <= set(EMULATED) <= set(TARGETS)


@functools.cache
def rotation() -> int:
    """The day of the tested commit, as a number: `sample` chooses by it, so that a failure can be repeated."""
    command = ["git", "-C", str(Path(__file__).parent), "log", "-1", "--format=%ct"]
    done = subprocess.run(command, capture_output=True, text=True)
    return int(done.stdout) // 86400 if done.returncode == 0 else 0


def sample(items: Sequence[Item], share: int, turn: int = 0) -> list[Item]:
    """Every `share`-th item, on other days and for another `turn` other ones; all of them when everything is tested."""
    return list(items) if EVERYTHING else list(items[(rotation() + turn) % share :: share])


def is_todays(name: str, share: int) -> bool:
    """Whether a test that runs on one day in `share` runs today; always when everything is tested."""
    return EVERYTHING or (zlib.crc32(name.encode()) + rotation()) % share == 0


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
