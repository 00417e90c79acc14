"""Fit a few numbers of a machine to measured times."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from luthier.errors import LuthierError
from luthier.lifting import LiftedRepresentation
from luthier.projection.kept import MeasuredLaunches
from luthier.projection.machine import SIZES, UNITS, MachineModel
from luthier.projection.model import LATENCY, OVERHEAD, Projection, project
from luthier.support.suggestions import did_you_mean
from luthier.support.wording import counted

MOST_NUMBERS = 10
"""Of one calibration: more would follow the measured times instead of explaining them."""
NUMBERS: Mapping[str, tuple[str, ...]] = {
    OVERHEAD: ("launch_overhead",),
    LATENCY: ("memory_latency", "l2_latency", "mall_latency", "l1_latency", "lds_latency", "workgroup_launch"),
    "memory": ("memory_efficiency",),
    "Infinity Cache": ("mall_bandwidth",),
    "L2": ("l2_width",),
    "L1": ("return_width", "quad_rate", "l1_width"),
    "vector memory": ("address_lanes",),
    "LDS": ("lds_pair_lanes",),
    "SALU": ("salu_issue",),
    "branch": ("branch_taken",),
    "VALU": ("trans_factor", "multiply_factor", "wide_factor"),
    "instruction fetch": ("fetch_width",),
}
"""What bounds a launch -> the numbers of a machine that then decide, the least known first."""
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
        LuthierError: there are too many numbers, one is 0 or a size, or there are no times.
    """
    if not 1 <= len(names) <= MOST_NUMBERS:
        raise LuthierError(f"a calibration fits 1 to {MOST_NUMBERS} numbers, not {len(names)}")
    if zero := [name for name in names if not machine.value(name)]:
        raise LuthierError(f"{zero[0]} of {machine.name} is 0, so it cannot be scaled: leave it out")
    if sizes := [name for name in names if UNITS[name] in SIZES]:
        raise LuthierError(f"{sizes[0]} is a size, which is known: leave it out")
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
                        try:
                            result = distance(tried)
                        except LuthierError:  # no machine has this value, such as a share above 1
                            break
                        if result >= best * (1 - 1e-4):
                            break
                        values, best, changed = tried, result, True
    changes = {name: float(f"{value:.4g}") for name, value in values.items() if value != first[name]}
    return machine.with_values(changes, source)


class TimedLaunches(NamedTuple):
    """Measured launches of a run, with their time on a GPU."""

    launches: MeasuredLaunches
    lifted: LiftedRepresentation
    """Their kernel."""
    time_us: float
    """Of one launch."""


class Calibration(Struct, frozen=True):
    """A machine whose numbers were fitted to measured times."""

    machine: MachineModel
    fitted: dict[str, tuple[float, float]]
    """Number -> its value before and after."""
    times: int
    before: float
    """Mean of |projected - measured| / measured; likewise:"""
    after: float


def calibrate(
    machine: MachineModel, timed: Sequence[TimedLaunches], source: str, names: Sequence[str] = ()
) -> Calibration:
    """Return the machine with numbers fitted to measured times.

    Args:
        source: source of the new values.
        names: numbers to fit; none: those that decide most of these launches' times, at most one for two times.

    Raises:
        LuthierError: as for `calibrated`, or a launch cannot run on the machine.
    """
    if unknown := next((name for name in names if name not in UNITS), None):
        raise LuthierError(f"machines have no number {unknown!r}{did_you_mean(unknown, UNITS)}")
    measured = [one.time_us for one in timed]

    def projected(tried: MachineModel) -> list[Projection]:
        return [project(one.launches.work, one.lifted, tried, places=False) for one in timed]

    def error(projections: Iterable[Projection]) -> float:
        pairs = zip(projections, measured, strict=True)
        return sum(abs(one.time_us - time) / time for one, time in pairs) / len(measured)

    first = projected(machine)
    names = names or _deciding(machine, first)[: max(1, min(MOST_NUMBERS, len(timed) // 2))]
    fitted = calibrated(machine, names, lambda tried: [one.time_us for one in projected(tried)], measured, source)
    after = error(projected(fitted))
    changed = {name: (machine.value(name), fitted.value(name)) for name in names}
    noted = f"fitted to {counted(len(timed), 'measured time')}; on these, the mean error is {100 * after:.0f} %"
    fitted = replace(fitted, name=f"{machine.name}, calibrated", validation=noted)
    return Calibration(fitted, changed, len(timed), error(first), after)


def _deciding(machine: MachineModel, projections: Sequence[Projection]) -> list[str]:
    """Return the numbers that decide the times of launches, those of most launches first."""
    bounds = Counter(one.bound_by for one in projections)
    bounds.update(Counter(one.next_bound for one in projections if one.next_bound))
    names = [name for bound, _ in bounds.most_common() for name in NUMBERS.get(bound, ()) if machine.value(name)]
    if not names:
        raise LuthierError("what bounds these launches has no number to fit: name numbers with --fit")
    return list(dict.fromkeys(names))


def machine_text(machine: MachineModel) -> str:
    """Return a machine as the text of a TOML file."""
    lines = [f"{name} = {_quoted(getattr(machine, name))}" for name in ("name", "processor", "validation")]
    for name, unit in UNITS.items():
        quantity = getattr(machine, name)
        fields = f"value = {quantity.value!r}, unit = {json.dumps(unit)}, source = {_quoted(quantity.source)}"
        lines.append(f"{name} = {{ {fields} }}")
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    """Return a text as a TOML string; bytes of names of files that are not UTF-8 become question marks."""
    return json.dumps(text.encode(errors="replace").decode(), ensure_ascii=False).replace("\x7f", "\\u007f")
