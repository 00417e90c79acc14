"""Projected times of a run on the page: kernels on GPUs, their units, a roofline, and cycles by instruction."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from luthier.projection import Projection
from luthier.projection.kept import MeasuredRun, kept_run
from luthier.projection.text import longest_of
from luthier.report.rows import KernelNumbers
from luthier.run.folder import RunFolder
from luthier.support.table import Cell, Table

TOOL = "projected"
"""Name under which cycles of instructions are shown, like those of a tool."""


def measured_run(run: RunFolder) -> MeasuredRun:
    """Return a run's measured launches; none if it measured none, or their file is damaged."""
    return kept_run(run.path) or MeasuredRun(launches=())


def projected(run: MeasuredRun, numbers: KernelNumbers) -> dict[str, Any]:
    """Return the page's data of projections: GPUs with their roofs, and each kernel on each of them.

    Args:
        numbers: of the kernels.
    """
    gpus: dict[str, dict[str, Any]] = {}
    for launch in run.projections:
        gpu = gpus.setdefault(launch.machine, {"name": launch.machine, "validation": launch.validation, "roofs": {}})
        gpu["roofs"] |= {roof.name: [roof.rate, roof.of_bytes] for roof in launch.roofs}
    place = {name: at for at, name in enumerate(gpus)}
    rows = [_row(launches, numbers, place) for launches in _by_kernel(run.projections).values()]
    notes = dict.fromkeys(note for launch in run.projections for note in launch.notes)
    return {
        "gpus": list(gpus.values()),
        "kernels": rows,
        "notes": list(notes),
        "left_out": [*run.left_out, *run.refused],
    }


def _by_kernel(projections: Sequence[Projection]) -> dict[tuple[str, str, str], list[Projection]]:
    groups: defaultdict[tuple[str, str, str], list[Projection]] = defaultdict(list)
    for launch in projections:
        groups[launch.kernel, launch.digest, launch.machine].append(launch)
    return groups


def _row(launches: Sequence[Projection], numbers: KernelNumbers, gpus: dict[str, int]) -> dict[str, Any]:
    longest = longest_of(launches)

    def whole(name: str) -> float:
        return float(sum(launch.launches * getattr(launch, name) for launch in launches))

    units: defaultdict[str, float] = defaultdict(float)
    for launch in launches:
        for unit in launch.units:
            units[unit.name] += launch.launches * unit.busy_us
    return {
        "kernel": numbers.of(longest.kernel, longest.digest),
        "gpu": gpus[longest.machine],
        "launches": sum(launch.launches for launch in launches),
        **{name: whole(name) for name in ("time_us", "low_us", "high_us", "operations", "accessed_bytes")},
        "memory_bytes": whole("memory_bytes"),
        "units": sorted(units.items(), key=lambda unit: -unit[1]),
        "bound_by": longest.bound_by,
        "next_bound": longest.next_bound,
        "needed_fall": longest.needed_fall,
        "occupancy": longest.occupancy,
        "limited_by": list(longest.limited_by),
        "sampled": any(launch.measured_groups < launch.groups for launch in launches),
    }


def cycle_tables(run: MeasuredRun, numbers: KernelNumbers) -> Iterator[tuple[int, Table]]:
    """Yield each kernel's number and table: cycles that a wave alone issues and stalls at each instruction, by GPU.

    Args:
        numbers: of the kernels.
    """
    gpus = list(dict.fromkeys(launch.machine for launch in run.projections))
    kernels: defaultdict[tuple[str, str], list[Projection]] = defaultdict(list)
    for launch in run.projections:
        kernels[launch.kernel, launch.digest].append(launch)
    for (kernel, digest), launches in kernels.items():
        sums: defaultdict[int, list[float]] = defaultdict(lambda: [0.0] * (2 * len(gpus)))
        every: defaultdict[str, int] = defaultdict(int)
        for launch in launches:
            every[launch.machine] += launch.launches
        for launch in launches:
            share, at = launch.launches / every[launch.machine], 2 * gpus.index(launch.machine)
            for row in launch.instructions:
                sums[row.address][at] += share * row.stall
                sums[row.address][at + 1] += share * row.issue
        columns = [f"{what} cycles on {gpu}" for gpu in gpus for what in ("stall", "issue")]
        rows: list[tuple[Cell, ...]] = [
            (address, *(round(value, 1) for value in values)) for address, values in sorted(sums.items())
        ]
        yield numbers.of(kernel, digest), Table(kernel, ("address", *columns), rows)
