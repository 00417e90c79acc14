"""The oracles catch a mistake in each rule of liveness: every test plants one in the native analysis and shows it by a
random program; mistakes that are safe show by registers that are live without need.

Which program shows it is written beside each. When the programs change, LUTHIER_FUZZ=10 looks through 600 and names
the first that does.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable

import pytest
from effort import FUZZ
from lift_faults import FAULTS, IMPRECISE, Planted
from lift_oracles import COMPARED, Live, Sample, compare, reference, sample, waits_without_lanes
from luthier.objects import CodeObject

PROGRAMS = 60 * FUZZ if FUZZ > 1 else 0
"""Programs to look through instead of the one that is known to show a fault."""
Prepared = Callable[[int | None], tuple[Sample, Live]]


@pytest.fixture(scope="module")
def planted() -> Planted:
    return Planted()


@pytest.fixture(scope="module")
def prepared(assembled: Callable[..., CodeObject]) -> Prepared:
    """A random program by its number, and the reference for it."""

    @functools.cache
    def prepared(seed: int | None) -> tuple[Sample, Live]:
        program = waits_without_lanes(assembled) if seed is None else sample(seed, assembled)
        return program, reference(program, COMPARED)

    return prepared


@pytest.mark.rows(2)
@pytest.mark.parametrize("name", FAULTS)
def test_is_caught(name: str, prepared: Prepared, planted: Planted) -> None:
    shown_by = FAULTS[name].shown_by
    numbers = range(PROGRAMS) if PROGRAMS and shown_by is not None else (shown_by,)
    for program, expected in map(prepared, numbers):  # is right without the fault
        compare(program, expected, planted.liveness(program.lifted))
    with planted.fault(name):
        for number in numbers:
            program, expected = prepared(number)
            try:
                compare(program, expected, planted.liveness(program.lifted))
            except AssertionError:
                print(f"shown by program {number}")
                return
    pytest.fail(f"not shown by {len(numbers)} programs")


MEASURED = (*{fault.shown_by for fault in FAULTS.values() if fault.shown_by is not None}, *range(3, 15))
NEEDLESS = 0.061
"""Share of vector registers, by points and lanes, that are live without need in these programs, at most."""


def needless(planted: Planted, programs: Iterable[tuple[Sample, Live]]) -> float:
    compared = [compare(program, expected, planted.liveness(program.lifted)) for program, expected in programs]
    return sum(more for more, _ in compared) / sum(total for _, total in compared)


def test_without_faults_little_is_live_without_need(prepared: Prepared, planted: Planted) -> None:
    rate = needless(planted, map(prepared, MEASURED))
    print(rate)
    assert rate < NEEDLESS


@pytest.mark.parametrize("name", IMPRECISE)
def test_imprecision_is_caught(name: str, prepared: Prepared, planted: Planted) -> None:
    with planted.fault(name):
        rate = needless(planted, map(prepared, MEASURED))
    print(rate)
    assert rate > NEEDLESS
