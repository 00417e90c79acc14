"""Unmodified HIP programs under the real libamdhip64 and ROCr: they check their results themselves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import TARGETS, Outcome

SAYS = {
    "variables": "total 24800\n",
    "streams": "streams\n",
    "reduction": "sums\n",
    "histogram": "counted\n",
    "graph": "graph 125\n",
    "print": "".join(
        f"work-item {item} of group {group} says {number} and {0.5 * number:.2f}\n"
        for group, item, number in ((0, 0, 7), (0, 1, 7), (1, 0, 7), (1, 1, 7), (0, 0, 8))
    ),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", SAYS)
def test_a_program_is_right(
    build_program: Callable[[str], Path], luthier_run: Callable[..., Outcome], name: str, target: str
) -> None:
    outcome = luthier_run(f"emu:{target}", build_program(name))
    assert (outcome.code, outcome.out, outcome.err) == (0, SAYS[name], "")


@pytest.mark.parametrize(("target", "wave"), [("gfx906", 64), ("gfx90a", 64), ("gfx1030", 32)])
def test_the_program_sees_the_device(
    build_program: Callable[[str], Path], luthier_run: Callable[..., Outcome], target: str, wave: int
) -> None:
    outcome = luthier_run(f"emu:{target}", build_program("saxpy"))
    assert outcome.code == 0, outcome
    assert outcome.out.startswith(target)
    assert outcome.out.endswith(f"waves of {wave}\n")
