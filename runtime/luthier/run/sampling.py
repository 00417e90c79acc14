"""Launches of a run that virtual devices measure while they run, for projections."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from luthier.capture.grid import Part, chosen, parts, rest_of
from luthier.emulator.running.executor import ACCESS_COSTS
from luthier.emulator.running.start import Triple
from luthier.emulator.running.stats import AddressCounts
from luthier.errors import LuthierError
from luthier.objects import CodeObject
from luthier.projection import MachineModel, machine_named
from luthier.projection.kept import MeasuredLaunches, MeasuredRun
from luthier.projection.work import LaunchWork, SampleCounts, cost_model, counted, samples_of, unmeasured
from luthier.run.patching import digest_of
from luthier.run.planner import KernelPlan, PlannedCode
from luthier.wire import device_requests as requests
from luthier.wire.structures import ProtocolError

_MOST_GROUPS = 16
_Counts = NDArray[np.int64]
Executions = Iterable[tuple[PlannedCode, _Counts, _Counts, _Counts]]
"""Code with its executed records, their executions and lanes."""


class _Alike(Struct):
    """Launches of a kernel with the same sizes."""

    digest: str
    plan: KernelPlan
    grid: Triple
    block: Triple
    work: LaunchWork | None = None
    weights: tuple[float, ...] = (1.0,)
    """Of its samples, as of `SampleCounts`."""
    launches: int = 0
    problem: str = "no launch of it ended"
    """Why it is not projected, while its work has no samples."""


class LaunchSampler:
    """Chooses work-groups of launches that virtual devices measure, and keeps their work. Thread-safe.

    Of launches of a kernel with the same sizes, over all processes and devices, the first is measured.

    Args:
        machines: on which the launches will be projected. A launch goes through the caches of the first one with its
            processor, otherwise of the GPU that stands for it.
    """

    def __init__(self, machines: Sequence[MachineModel] = ()) -> None:
        self.machines = tuple(machines)
        self._lock = threading.Lock()
        self._numbers: dict[tuple[object, ...], int] = {}
        self._alike: list[_Alike] = []
        self._unknown: dict[str, None] = {}
        self._late: list[int] = []

    def choose(self, plan: KernelPlan, wanted: requests.SampleLaunch) -> requests.SampledLaunch:
        """Return how a launch is measured."""
        nothing = requests.SampledLaunch(0, b"", ())
        grid, block = (wanted.grid_x, wanted.grid_y, wanted.grid_z), (wanted.block_x, wanted.block_y, wanted.block_z)
        if not plan.of_program or 0 in (*grid, *block):
            return nothing
        object = plan.code.object
        if object is None:
            with self._lock:
                self._unknown[f"{plan.kernel.name}: its code object is unknown"] = None
            return nothing
        digest = digest_of(object)
        key = (digest, plan.kernel.name, grid, block, wanted.lds, wanted.scratch, wanted.cooperative)
        with self._lock:
            if key in self._numbers:
                return requests.SampledLaunch(self._numbers[key], b"", ())
            alike = _Alike(digest, plan, grid, block)
            self._alike.append(alike)
            number = self._numbers[key] = len(self._alike)
        target = object.target.target
        try:
            own = next((machine for machine in self.machines if machine.target is target), None)
            machine = own or machine_named(target.name)
            dynamic_lds = max(0, wanted.lds - plan.kernel.group_segment_fixed_size)
            work = unmeasured(plan.kernel, math.prod(block), dynamic_lds, machine)
            model = bytes(cost_model(work, machine))
        except LuthierError as problem:
            alike.problem = str(problem)
            return requests.SampledLaunch(number, b"", ())
        counts = _groups(grid, block)
        alike.work = replace(work, groups=math.prod(counts))
        samples = [] if wanted.cooperative else samples_of(counts, _MOST_GROUPS)
        places = [list(chosen(sample, grid, block)) for sample, _ in samples] or [list(parts(grid, block))]
        every = [(number, part) for number, sample in enumerate(places, 1) for part in sample]
        if samples:
            alike.weights = tuple(weight for _, weight in samples)
            every += [(0, part) for part in rest_of([group for sample, _ in samples for group in sample], grid, block)]
        return requests.SampledLaunch(number, model, tuple(_sampled_part(*one) for one in every))

    def sampled(self, number: int, problem: str, samples: Sequence[tuple[requests.SampleCost, Executions]]) -> None:
        """Receive the counts of a measured launch.

        Raises:
            ProtocolError: it was not asked for, or its counts are malformed.
        """
        alike = self._of(number)
        if alike.work is None or alike.work.samples:
            raise ProtocolError(f"counts of launch {number} were sent that this run did not request")
        if problem:
            alike.problem = problem
            return
        if len(samples) != len(alike.weights):
            raise ProtocolError(f"launch {number} has {len(samples)} samples, not {len(alike.weights)}")
        places = alike.plan.code.code.addresses()
        weighted = zip(samples, alike.weights, strict=True)
        measured = tuple(_counts_of(*sample, alike.plan.code, places, weight) for sample, weight in weighted)
        alike.work = replace(alike.work, samples=measured)

    def ended(self, number: int, launches: int) -> None:
        """Count launches that ended."""
        with self._lock:
            self._of(number).launches += launches

    def lose(self, process: int) -> None:
        """Note that a process did not report its last launches."""
        self._late.append(process)

    def _of(self, number: int) -> _Alike:
        if not 1 <= number <= len(self._alike):
            raise ProtocolError(f"launch {number} was never chosen")
        return self._alike[number - 1]

    def result(self) -> tuple[MeasuredRun, dict[str, CodeObject]]:
        """Return the measured launches, and their code objects by digest."""
        launches: list[MeasuredLaunches] = []
        objects: dict[str, CodeObject] = {}
        left_out = dict(self._unknown)
        for alike in self._alike:
            if alike.work is None or not alike.work.samples:
                left_out[f"{alike.plan.kernel.name}: {alike.problem}"] = None
                continue
            assert alike.plan.code.object is not None
            objects[alike.digest] = alike.plan.code.object
            launches.append(
                MeasuredLaunches(
                    object=alike.plan.object,
                    digest=alike.digest,
                    launches=max(1, alike.launches),
                    grid=alike.grid,
                    block=alike.block,
                    work=alike.work,
                )
            )
        for process in self._late:
            left_out[f"process {process} did not report its last launches"] = None
        run = MeasuredRun(launches=tuple(launches), left_out=tuple(left_out), machines=self.machines)
        return run, objects


def _groups(grid: Triple, block: Triple) -> Triple:
    x, y, z = (-(-items // size) for items, size in zip(grid, block, strict=True))
    return x, y, z


def _sampled_part(number: int, part: Part) -> requests.SampledPart:
    first, groups, items = part
    return requests.SampledPart(number, *first, *groups, *items)


def _counts_of(
    sample: requests.SampleCost, executed: Executions, code: PlannedCode, places: _Counts, weight: float
) -> SampleCounts:
    """Return the counts of a sample.

    Args:
        code: that runs.
        places: addresses of its records.

    Raises:
        ProtocolError: the counts are malformed, or of other code.
    """
    if len(sample.costs) % ACCESS_COSTS.itemsize or not sample.groups:
        raise ProtocolError("the costs of a sample are malformed")
    counts = AddressCounts(*(np.zeros(0, np.int64),) * 3)
    for planned, record, executions, lanes in executed:
        if planned is not code:
            raise ProtocolError(f"a sample has counts of code {planned.number}, which does not run")
        counts = AddressCounts(places[record], executions, lanes)
    try:
        costs = np.frombuffer(sample.costs, ACCESS_COSTS)
        return counted(sample.groups, sample.waves, counts, costs, places, weight)
    except ValueError as problem:
        raise ProtocolError(f"the counts of a sample are malformed: {problem}") from None
