"""Compare projected times with published measured ones, beside two baselines and a simulator.

    python benchmarks/projection/validate.py CHECKOUT CACHE --gpu MI250X --calibrate convolution --validate dedispersion

With --calibrate, a few numbers of the machine are fitted to launches from one half of the drawn configurations of a
kernel (or of the launches of all programs). The errors are those of launches outside this half. Each is also compared
with

- a plain roofline: the larger of floating-point operations over the peak rate, and of bytes of all buffers over the
  memory's bandwidth;
- the measured time of the same configuration on another GPU, times the best constant;
- the time that MGPUSim gives, where it is published.

``--keep`` keeps the errors in ``results.json`` beside this program, and in the table of docs/projection.md; measured
times are not kept.
"""

from __future__ import annotations

import argparse
import itertools
import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

import luthier
import msgspec
import numpy as np
from agreement import agreement, best_constant, halves
from kernel_launches import source_of
from luthier.errors import LuthierError
from luthier.lifting import LiftedRepresentation
from luthier.projection import LaunchWork, MachineModel, project
from luthier.projection.calibration import calibrated
from luthier.projection.costs import instruction_costs, instruction_facts
from measure_kernels import READERS, SEED, KernelMeter, drawn, timed
from msgspec import Struct
from timed_kernels import HUB, TimedKernel

RESULTS = Path(__file__).with_name("results.json")
DOCUMENT = Path(__file__).parents[2] / "docs/projection.md"
MARKERS = "<!-- errors: made by benchmarks/projection/validate.py -->\n\n", "\n<!-- end of errors -->"
OTHER = {"MI250X": "W7800", "W6600": "MI250X", "W7800": "MI250X"}
"""GPU -> the one whose measured times are the second baseline."""
_RDNA = ("address_lanes", "return_width", "l2_width", "l2_latency", "mall_bandwidth", "memory_efficiency")
NUMBERS = {
    "MI250X": ("lds_pair_lanes", "return_width", "quad_rate", "l2_width", "l2_latency", "memory_efficiency"),
    "W6600": _RDNA,
    "W7800": _RDNA,
    **dict.fromkeys(READERS, ("mall_bandwidth", "memory_efficiency", "launch_overhead")),
}
"""Numbers of a machine that are fitted: at most ten."""
OF_COMPUTE_UNIT = frozenset(("lds_pair_lanes", "return_width", "quad_rate", "address_lanes"))
"""Of these, those that GPUs of one family share."""


def is_compiled_otherwise(kernel: TimedKernel) -> bool:
    """Return whether the code of a configuration surely differs much from the code that was measured.

    Clang 15 unrolls convolution wholly for 12 results of a work-item and spills kilobytes. The measured times of all
    GPUs are too short for that.
    """
    parameters = kernel.parameters
    return kernel.name == "convolution" and parameters["tile_size_x"] * parameters["tile_size_y"] == 12


class Projected(Struct, frozen=True):
    """A timed kernel with its projected times."""

    kernel: TimedKernel
    projected_ms: float
    roofline_ms: float
    bound_by: str


class Row(Struct, frozen=True):
    """A row of the table of errors."""

    gpu: str
    kernel: str
    method: str
    calibrated_on: str
    launches: int
    rank_correlation: float | None
    mean_error: float
    weighted_error: float
    median_ratio: float
    fastest_among: float


@cache
def lifted_kernel(path: Path, symbol: str) -> LiftedRepresentation:
    """Return a lifted kernel of a code object."""
    return luthier.lift(luthier.load_object(path), symbol)


class Projector:
    """Projects timed kernels of a GPU.

    Args:
        meter: measures what is not in the cache yet.
    """

    def __init__(self, meter: KernelMeter) -> None:
        self.meter = meter

    def lifted(self, kernel: TimedKernel, work: LaunchWork) -> LiftedRepresentation:
        """Return the lifted kernel of a launch."""
        return lifted_kernel(self.meter.compiled(kernel), work.kernel)

    def measurable(self, kernels: Iterable[TimedKernel]) -> Iterator[TimedKernel]:
        """Yield the kernels that can be measured; print why others cannot."""
        for kernel in kernels:
            try:
                self.meter.measured(kernel)
                yield kernel
            except LuthierError as problem:
                print(f"not measured: {kernel.name} {kernel.label}: {problem}", file=sys.stderr)

    def time_ms(self, kernel: TimedKernel, machine: MachineModel) -> tuple[float, str]:
        """Return the projected time of all launches, and what bounds the longest one."""
        measured = self.meter.measured(kernel)
        each = [project(work, self.lifted(kernel, work), machine, places=False) for work in measured.works]
        longest = max(each, key=lambda projection: projection.time_us)
        memsets = source_of(kernel).memsets * machine.value("launch_overhead")
        return (sum(projection.time_us for projection in each) + memsets) / 1000, longest.bound_by

    def roofline_ms(self, kernel: TimedKernel, machine: MachineModel) -> float:
        """Return the time of the plain roofline."""
        measured, lanes = self.meter.measured(kernel), machine.value("valu_lanes") * machine.target.simds_per_cu
        rate = 2 * lanes * machine.value("compute_units") * machine.value("clock") * 1e3
        total = 0.0
        for work, size in zip(measured.works, measured.buffers, strict=True):
            lifted, (addresses, rows) = self.lifted(kernel, work), work.totals()
            indices = [index for address in addresses.tolist() if (index := lifted.index_at(address)) is not None]
            facts = instruction_facts(lifted, indices)
            costs = instruction_costs(lifted, machine, facts)
            operations = cycles = 0.0
            for index, row in zip(indices, rows.tolist(), strict=True):
                operations += floating_operations(facts[index].opcode.mnemonic) * row[1]
                cycles += costs[index].busy * row[0] if costs[index].unit == "matrix" else 0.0
            units = machine.target.simds_per_cu * machine.value("compute_units")
            matrix = cycles / units / machine.value("clock") / 1e3
            arithmetic = operations / rate + matrix
            total += max(arithmetic * work.groups, size / machine.value("memory_bandwidth") / 1e6)
        return total

    def projected(self, kernels: Iterable[TimedKernel], machine: MachineModel) -> list[Projected]:
        """Return the projections of timed kernels; print why others cannot be measured."""
        results = []
        for kernel in self.measurable(kernels):
            time, bound = self.time_ms(kernel, machine)
            results.append(Projected(kernel, time, self.roofline_ms(kernel, machine), bound))
        return results


@cache
def floating_operations(mnemonic: str) -> int:
    """Return the floating-point operations of a lane in an execution of a vector instruction.

    The second operation of a dual instruction is not in its first mnemonic: it counts like the first one.
    """
    match = re.match(r"v_(pk_|dual_)?(add|sub|subrev|mul|fma|fmac|mac|mad|fmamk|fmaak)_(f16|f32|f64)", mnemonic)
    if match is None:
        return 0
    return (2 if match[1] else 1) * (2 if match[2].startswith(("fm", "ma")) else 1)


def table(gpu: str, calibrated_on: str, results: Sequence[Projected], other: Mapping[str, float]) -> list[Row]:
    """Return the errors of projections and baselines over the same launches.

    Args:
        other: measured times on another GPU by label; empty: there are none.
    """
    names = {row.kernel.name for row in results}
    name = f"{len(names)} programs" if len(names) > 1 else "".join(names)

    def row(method: str, projected: Callable[[Projected], float | None], *, scaled: bool = False) -> Row | None:
        pairs = [(time, each.kernel.time_ms) for each in results if (time := projected(each)) is not None]
        if len(pairs) < 3:
            return None
        times, measured = map(np.array, zip(*pairs, strict=True))
        if scaled:
            times = times * best_constant(times, measured)
        result = agreement(times, measured)
        rho = None if math.isnan(result.rank_correlation) else round(result.rank_correlation, 3)
        errors = (result.mean_error, result.weighted_error, result.median_ratio, result.fastest_among)
        return Row(gpu, name, method, calibrated_on, result.launches, rho, *(round(error, 3) for error in errors))

    own = any(is_compiled_otherwise(each.kernel) for each in results)
    rows = [
        row("luthier", lambda each: each.projected_ms),
        row(
            "luthier, without tiles of 12",
            lambda each: each.projected_ms if own and not is_compiled_otherwise(each.kernel) else None,
        ),
        row("luthier, where MGPUSim has a time", lambda each: each.kernel.simulated_ms and each.projected_ms),
        row("MGPUSim", lambda each: each.kernel.simulated_ms),
        row("plain roofline", lambda each: each.roofline_ms),
        row("plain roofline, best constant", lambda each: each.roofline_ms, scaled=True),
        row("time on another GPU, best constant", lambda each: other.get(each.kernel.label), scaled=True),
    ]
    return [each for each in rows if each is not None]


def written(rows: Sequence[Row], path: Path = RESULTS) -> None:
    """Replace the rows of the same GPUs, kernels and calibrations in the file of results."""

    def key(row: Row) -> tuple[str, str, str]:
        return row.gpu, row.kernel, row.calibrated_on

    new = set(map(key, rows))
    ordered = sorted([*(row for row in read_results(path) if key(row) not in new), *rows], key=key)
    path.write_bytes(b"[\n" + b",\n".join(map(msgspec.json.encode, ordered)) + b"\n]\n")


def read_results(path: Path = RESULTS) -> list[Row]:
    """Return the kept rows."""
    if not path.is_file():
        return []
    return msgspec.json.decode(path.read_bytes(), type=list[Row])


def as_markdown(rows: Sequence[Row]) -> str:
    """Return a table for docs/projection.md."""
    lines = [
        "| GPU | launches of | fitted to | method | n | rank correlation | mean error | weighted error "
        "| projected / measured | fastest among |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        rho = "" if row.rank_correlation is None else f"{row.rank_correlation:.2f}"
        lines.append(
            f"| {row.gpu} | {row.kernel} | {row.calibrated_on} | {row.method} | {row.launches} | {rho} "
            f"| {row.mean_error:.0%} | {row.weighted_error:.0%} | {row.median_ratio:.2f} | {row.fastest_among:.1%} |"
        )
    return "\n".join(lines) + "\n"


def documented(text: str, rows: Sequence[Row]) -> str:
    """Return the document with the table of these rows between its markers."""
    before, first, rest = text.partition(MARKERS[0])
    _, last, after = rest.partition(MARKERS[1])
    if not first or not last:
        raise LuthierError(f"{DOCUMENT} lacks the markers of the table, {' and '.join(MARKERS)}: put them back")
    return before + first + as_markdown(rows) + last + after


def main(arguments: Sequence[str] | None = None) -> int:
    """Calibrate, project and compare as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("cache", type=Path)
    parser.add_argument("--gpu", choices=NUMBERS, required=True)
    parser.add_argument("--calibrate", default="", help="a kernel; default: the machine's numbers as they are")
    parser.add_argument("--calibrate-on", choices=NUMBERS, help="another GPU, whose compute units' numbers are taken")
    parser.add_argument("--validate", default=",".join(HUB), help="kernels, with commas")
    parser.add_argument("--count", type=int, default=60, help="of configurations of a kernel")
    parser.add_argument("--fit", type=int, default=30, help="the most launches to fit numbers to (default: 30)")
    parser.add_argument("--clang", help="compiler; default: the one that `luthier doctor` names")
    parser.add_argument("--points", type=Path, help="write measured and projected times here")
    parser.add_argument("--keep", action="store_true", help="write the errors to results.json")
    options = parser.parse_args(arguments)
    if min(options.count, options.fit) < 1:
        parser.error("--count and --fit must be at least 1")
    try:
        rows = validated(options)
        if options.keep:
            written(rows)
            DOCUMENT.write_text(documented(DOCUMENT.read_text(), read_results()))
    except LuthierError as problem:
        print(f"validate: {problem}", file=sys.stderr)
        return 1
    print(as_markdown(rows), end="")
    return 0


def fitted(projector: Projector, options: argparse.Namespace) -> tuple[MachineModel, set[tuple[str, str]], str]:
    """Return a GPU's machine with fitted numbers, the configurations of the half that they are from, and what it is."""
    meter, gpu = projector.meter, options.calibrate_on or options.gpu
    kernels = drawn(timed(options.checkout, options.calibrate, gpu), options.count)
    half = [kernels[index] for index in halves(len(kernels), SEED)[0]]
    seen = {kernel.key for kernel in half}
    half = list(itertools.islice(projector.measurable(half), options.fit))
    chosen = f"{len(half)} of {options.calibrate}"
    machine = calibrated(
        meter.machine,
        NUMBERS[gpu],
        lambda changed: [projector.time_ms(kernel, changed)[0] for kernel in half],
        [kernel.time_ms for kernel in half],
        f"fitted to {chosen}",
    )
    for name in NUMBERS[gpu]:
        print(f"{name}: {meter.machine.value(name):g} -> {machine.value(name):g}")
    return machine, seen, chosen


def validated(options: argparse.Namespace) -> list[Row]:
    """Return the table of errors."""
    meter = KernelMeter(options.checkout, options.cache, options.gpu, options.clang)
    projector, machine = Projector(meter), meter.machine
    seen: set[tuple[str, str]] = set()
    chosen = "nothing"
    if options.calibrate:
        fitting = projector
        if options.calibrate_on:
            fitting = Projector(KernelMeter(options.checkout, options.cache, options.calibrate_on, options.clang))
        machine, seen, chosen = fitted(fitting, options)
        if options.calibrate_on:
            carried = OF_COMPUTE_UNIT.intersection(NUMBERS[options.calibrate_on])
            chosen = f"{chosen} on {options.calibrate_on}"
            machine = meter.machine.with_values({name: machine.value(name) for name in carried}, f"fitted to {chosen}")
    rows: list[Row] = []
    points: list[Projected] = []
    for name in options.validate.split(","):
        kernels = [
            kernel
            for kernel in drawn(timed(options.checkout, name, options.gpu), options.count)
            if name != options.calibrate or kernel.key not in seen
        ]
        results = projector.projected(kernels, machine)
        other = OTHER.get(options.gpu)
        times = {kernel.label: kernel.time_ms for kernel in timed(options.checkout, name, other)} if other else {}
        rows += table(options.gpu, chosen, results, times)
        points += results
    if options.points:
        options.points.write_bytes(msgspec.json.encode(points))
    return rows


if __name__ == "__main__":
    sys.exit(main())
