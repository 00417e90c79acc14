"""Projections as tables and sentences."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from luthier.objects.names import spellings
from luthier.projection.model import LATENCY, OVERHEAD, InstructionTime, Projection
from luthier.support.table import Table
from luthier.support.wording import counted

_SHOWN_UNITS = 3
_SHOWN_INSTRUCTIONS = 3
_BYTES: Mapping[str, tuple[str, Callable[[InstructionTime], float]]] = {
    "L2": ("bytes through L2", lambda row: row.l2_bytes),
    "Infinity Cache": ("bytes that L2 does not hold", lambda row: row.far_bytes),
    "memory": ("bytes that L2 does not hold", lambda row: row.far_bytes),
    "instruction fetch": ("bytes of instructions", lambda row: row.fetched),
}
"""Unit that moves bytes -> which bytes, and those of an instruction."""


def kernel_table(projections: Sequence[Projection]) -> Table:
    """Return a table with a row for each kernel on each machine; its launches are added up."""
    rows = []
    for launches in _by_kernel(projections).values():
        longest = longest_of(launches)
        time = sum(launch.launches * launch.time_us for launch in launches)
        rows.append(
            (
                longest.kernel,
                longest.machine,
                sum(launch.launches for launch in launches),
                round(time, 2),
                _range(launches),
                longest.bound_by,
                _busiest(launches, time),
                f"{100 * longest.occupancy:.0f} % ({', '.join(longest.limited_by)})",
                longest.validation or "never",
            )
        )
    return Table(
        "projected times",
        (
            *("kernel", "GPU", "launches", "projected us", "range", "bound by", "busy", "occupancy (limit)"),
            "compared with measured times",
        ),
        rows,
    )


def longest_of(launches: Sequence[Projection]) -> Projection:
    """Return the launches that take longest together, whose bound and occupancy stand for all."""
    return max(launches, key=lambda launch: launch.launches * launch.time_us)


def totals(projections: Sequence[Projection]) -> list[str]:
    """Return a sentence for each machine: the time of all launches together."""
    times: defaultdict[str, float] = defaultdict(float)
    launches: defaultdict[str, int] = defaultdict(int)
    for launch in projections:
        times[launch.machine] += launch.launches * launch.time_us
        launches[launch.machine] += launch.launches
    return [f"{name}: projected {time:,.2f} us for {counted(launches[name], 'launch')}" for name, time in times.items()]


def line_table(projections: Sequence[Projection], top: int = 20) -> Table:
    """Return a table of source lines, those first at which waves spend most cycles.

    Args:
        top: lines of each kernel and machine; 0: all.
    """
    rows = []
    for launches in _by_kernel(projections).values():
        sums: defaultdict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
        every = sum(launch.launches for launch in launches)
        for launch in launches:
            for row in launch.instructions:
                for at, value in enumerate((row.executions, row.issue, row.stall)):
                    sums[row.place][at] += value * launch.launches / every
        whole = sum(issue + stall for _, issue, stall in sums.values()) or 1.0
        places = sorted(sums.items(), key=lambda item: -(item[1][1] + item[1][2]))
        rows += [
            (
                launches[0].kernel,
                launches[0].machine,
                place,
                round(executions, 1),
                round(issue, 1),
                round(stall, 1),
                round(100 * (issue + stall) / whole, 1),
            )
            for place, (executions, issue, stall) in places[: top or None]
        ]
    return Table(
        "projected cycles of a wave alone, by source line",
        ("kernel", "GPU", "line", "instructions", "issue cycles", "stall cycles", "share %"),
        rows,
    )


def explained(projection: Projection) -> list[str]:
    """Return sentences on what bounds a launch."""
    units = {unit.name: unit for unit in projection.units}
    time, bound = projection.time_us, projection.bound_by
    lines = [
        f"{spellings(projection.kernel)[-1]} on {projection.machine}: projected {time:.2f} us"
        + ("" if projection.low_us == projection.high_us else f", {_range([projection])} by its samples")
    ]
    if bound in units:
        lines.append(f"bound by {bound}, which is busy {100 * units[bound].share:.0f} % of the time")
        lines += _users(projection, bound)
    elif bound == LATENCY:
        lines.append("bound by latency: too few waves hide what each of them waits for")
    elif bound == OVERHEAD:
        lines.append("bound by the overhead of a launch")
    lines.append(f"it would take {projection.next_us:.2f} us if that took no time")
    if projection.next_bound:
        lines.append(f"if that fell by {100 * projection.needed_fall:.0f} %, {projection.next_bound} would bound it")
    busy = [f"{unit.name} {100 * unit.share:.0f} %" for unit in projection.units if unit.name != bound]
    if busy:
        lines.append(f"other units are busy: {', '.join(busy[:_SHOWN_UNITS])}")
    stalled = sum(row.stall for row in projection.instructions)
    wave = projection.wave_cycles
    if wave:
        lines.append(f"a wave alone takes {wave:.0f} cycles, and waits {100 * stalled / wave:.0f} % of them")
    for row in sorted(projection.instructions, key=lambda row: -row.stall)[:_SHOWN_INSTRUCTIONS]:
        if row.stall >= 0.01 * wave:
            lines.append(f"  {row.stall:.0f} cycles before {row.text} at {row.place}")
    share, limits = 100 * projection.occupancy, " and ".join(projection.limited_by)
    lines.append(
        f"{projection.waves_per_unit} waves are resident on a compute unit, {share:.0f} % of the most; "
        f"limited by {limits}"
    )
    return lines + [f"note: {note}" for note in projection.notes]


def _users(projection: Projection, unit: str) -> list[str]:
    """Return the instructions that keep a unit busy most."""
    if unit in _BYTES:
        what, of = _BYTES[unit]
        rows = [(of(row), f"{of(row):,.0f} {what} of a wave", row) for row in projection.instructions]
    else:
        name = "vector memory" if unit == "L1" else unit
        rows = [
            (row.executions * row.busy, f"{row.busy:.1f} cycles each", row)
            for row in projection.instructions
            if row.unit == name
        ]
    whole = sum(part for part, _, _ in rows) or 1.0
    busiest = sorted(rows, key=lambda row: -row[0])[:_SHOWN_INSTRUCTIONS]
    return [f"  {100 * part / whole:.0f} %: {row.text} at {row.place}, {how}" for part, how, row in busiest if part]


def _by_kernel(projections: Sequence[Projection]) -> dict[tuple[str, str], list[Projection]]:
    groups: dict[tuple[str, str], list[Projection]] = {}
    for projection in projections:
        groups.setdefault((projection.kernel, projection.machine), []).append(projection)
    return groups


def _range(launches: Sequence[Projection]) -> str:
    low = sum(launch.launches * launch.low_us for launch in launches)
    high = sum(launch.launches * launch.high_us for launch in launches)
    sampled = any(launch.measured_groups < launch.groups for launch in launches)
    return f"{low:.2f} to {high:.2f}" if low != high else "samples alike" if sampled else "all ran"


def _busiest(launches: Sequence[Projection], time: float) -> str:
    sums: defaultdict[str, float] = defaultdict(float)
    for launch in launches:
        for unit in launch.units:
            sums[unit.name] += launch.launches * unit.busy_us
    busiest = sorted(sums.items(), key=lambda item: -item[1])[:_SHOWN_UNITS]
    return ", ".join(f"{name} {100 * busy / time:.0f} %" for name, busy in busiest)
