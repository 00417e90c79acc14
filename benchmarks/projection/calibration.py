"""Fit a few numbers of a machine to measured times."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from luthier.errors import LuthierError
from luthier.projection import MachineModel

MOST_NUMBERS = 10
"""Of one calibration: more would follow the measured times instead of explaining them."""
_STEPS = (2.0, 1.3, 1.1)
"""Factors that numbers are changed by, from coarse to fine."""
_LARGEST = 16.0
"""Factor between a number and its calibrated value."""


def calibrated(
    machine: MachineModel,
    names: Sequence[str],
    times: Callable[[MachineModel], Sequence[float]],
    measured: Sequence[float],
    source: str,
) -> MachineModel:
    """Return the machine with numbers for which projected times are closest to measured ones.

    One number after the other is raised or lowered as long as the mean of ``|log(projected / measured)|`` gets smaller.

    Args:
        names: fields of `luthier.projection.machine.UNITS`, at most ten.
        times: returns the projected times on a machine, in the order and unit of `measured`.
        source: source of the new values.

    Raises:
        LuthierError: there are too many numbers, one is 0, or there are no times.
    """
    if not 1 <= len(names) <= MOST_NUMBERS:
        raise LuthierError(f"a calibration fits 1 to {MOST_NUMBERS} numbers, not {len(names)}")
    if zero := [name for name in names if not machine.value(name)]:
        raise LuthierError(f"{zero[0]} of {machine.name} is 0, so it cannot be scaled: leave it out")
    if not measured:
        raise LuthierError("a calibration needs measured times; there are none")

    def distance(values: dict[str, float]) -> float:
        projected = np.array(times(machine.with_values(values, source)))
        return float(np.mean(np.abs(np.log(projected / np.array(measured)))))

    values = {name: machine.value(name) for name in names}
    first = dict(values)
    best = distance(values)
    for step in _STEPS:
        changed = True
        while changed:
            changed = False
            for name in names:
                for factor in (step, 1 / step):
                    while abs(math.log(values[name] * factor / first[name])) <= math.log(_LARGEST) + 1e-9:
                        tried = {**values, name: values[name] * factor}
                        result = distance(tried)
                        if result >= best * (1 - 1e-4):
                            break
                        values, best, changed = tried, result, True
    changes = {name: float(f"{value:.4g}") for name, value in values.items() if value != first[name]}
    return machine.with_values(changes, source)
