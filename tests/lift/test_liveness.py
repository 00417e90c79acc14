"""Liveness against two independent oracles, on random programs."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
from lift_oracles import COMPARED, VECTORS, compare, overwrite_the_dead, reference, sample
from luthier.objects import CodeObject

PROGRAMS = int(os.environ.get("LUTHIER_FUZZ", "60"))


@pytest.mark.parametrize("seed", range(PROGRAMS))
def test_agrees_with_reference(seed: int, assembled: Callable[..., CodeObject]) -> None:
    program = sample(seed, assembled)
    expected = reference(program.steps, COMPARED, program.launched_registers)
    compare(program, expected, program.lifted.liveness)
    if set(program.index_of) == set(expected):
        for step, by_side in expected.items():
            live = program.lifted.liveness.live_before(program.index_of[step])
            assert set(live.active) & COMPARED - VECTORS == by_side[1] - VECTORS


def test_says_little_too_much(assembled: Callable[..., CodeObject]) -> None:
    """What is called live without need, over many programs."""
    needless = total = 0
    for seed in range(min(PROGRAMS, 60)):
        program = sample(seed, assembled)
        expected = reference(program.steps, VECTORS, program.launched_registers)
        more, of = compare(program, expected, program.lifted.liveness)
        needless, total = needless + more, total + of
    print(f"{needless} of {total}")
    assert needless < 0.03 * total


@pytest.mark.parametrize("seed", range(PROGRAMS))
def test_overwriting_the_dead_changes_nothing(seed: int, assembled: Callable[..., CodeObject]) -> None:
    program = sample(seed, assembled)
    overwrite_the_dead(program, program.lifted.liveness, seed, 20)
