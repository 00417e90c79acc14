"""Effort of the tests.

`make test` tries a fixed part of the largest tables, the same on every day and machine; `make test-all` sets
LUTHIER_TEST_ALL and tries everything, or of it one part in twelve with SHARD=3/12. LUTHIER_FUZZ=n makes random tests n
times as long.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

import pytest
from _pytest.mark import ParameterSet
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
GENERATIONS = (*FAMILIES, "gfx908", "gfx950", "gfx1010", "gfx1250")
"""One target of each set of instructions."""
assert set(FAMILIES) <= set(EMULATED) <= set(TARGETS)
assert set(GENERATIONS) <= set(TARGETS)


def of_target(name: str, *values: object) -> ParameterSet:
    """Return parameters of a test of a target, left to `make test-all` where it is none of `GENERATIONS`."""
    return pytest.param(*values, marks=[] if name in GENERATIONS else [pytest.mark.thorough])


def some(cases: Sequence[object], share: int) -> list[ParameterSet]:
    """Return parameters of a test; all but every `share`-th run in `make test-all` only."""
    return [
        pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=[pytest.mark.thorough] * bool(at % share))
        for at, case in enumerate(cases)
    ]


EVERY_TARGET = [of_target(name, name) for name in TARGETS]
EVERY_ISA = [of_target(name, name, size) for name, target in TARGETS.items() for size in target.wave_sizes]


def sample(items: Sequence[Item], share: int, turn: int = 0) -> list[Item]:
    """Return every `share`-th item, for another `turn` other ones; all of them when everything is tested."""
    return list(items) if EVERYTHING else list(items[turn % share :: share])
