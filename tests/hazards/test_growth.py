"""The work of checks and of patching is linear in the code: blocks followed, not time."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from growth_programs import branches, call_sites, callees, chain, loops
from luthier.hazards.wait_counters import Outstanding, check_waits
from luthier.hazards.wait_counters.dataflow import WaitPaths
from luthier.lifting import lift
from luthier.lifting.model import LiftedKernel
from luthier.objects import CodeObject

Count = Callable[[Callable[[LiftedKernel], object], CodeObject], int]
SMALL, LARGE = 80, 240
"""Sizes of programs. As many loads are outstanding as the counter holds, 63, so growth below that would be larger."""


@pytest.fixture
def followed(monkeypatch: pytest.MonkeyPatch) -> Count:
    """Return a function that counts the blocks that an analysis follows in all kernels of an object."""
    blocks: list[int] = []
    follow = WaitPaths.follow

    def counted(paths: WaitPaths, block: int, *arguments: object, **options: object) -> object:
        blocks.append(block)
        return follow(paths, block, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(WaitPaths, "follow", counted)

    def count(analysis: Callable[[LiftedKernel], object], object: CodeObject) -> int:
        blocks.clear()
        for kernel in object.kernels:
            analysis(lift(object, kernel))
        return len(blocks)

    return count


@pytest.mark.parametrize("analysis", [Outstanding, check_waits])
@pytest.mark.parametrize("make", [callees, call_sites, loops, branches])
def test_blocks_followed(
    make: Callable[[int], CodeObject], analysis: Callable[[LiftedKernel], object], followed: Count
) -> None:
    small, large = (followed(analysis, make(size)) for size in (SMALL, LARGE))
    assert large <= 1.25 * LARGE / SMALL * small


@pytest.mark.parametrize("make", [callees, chain])
def test_a_function_is_followed_once_for_all_positions(make: Callable[[int], CodeObject], followed: Count) -> None:
    object = make(SMALL)
    blocks = len(lift(object, "k").blocks)
    assert followed(Outstanding, object) <= 8 * blocks


def test_each_producer_is_searched_once(followed: Count) -> None:
    """Each load is used 12 blocks later, and its register is loaded again after 24."""
    object = branches(SMALL)
    assert len(check_waits(lift(object, "k")).findings) > SMALL // 2
    assert followed(check_waits, object) <= 60 * len(lift(object, "k").blocks)
