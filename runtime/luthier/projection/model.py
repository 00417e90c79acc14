"""Projection: the time of a launch on a machine, what bounds it, and how far everything else is.

A round is all work-groups that the device holds at once. In a round, a unit is busy for the sum of what its waves
need of it. A wave alone takes the time of its path (`luthier.projection.path`), in which the unit is idle except for
that wave's share. If waves were independent, a unit that one wave keeps busy for the share ``s`` of its path would be
idle with ``n`` waves for the share ``(1 - s) ** n``: the round takes the unit's busy time divided by the rest. The unit
for which that is longest bounds the kernel, if it is busy for at least half of it; otherwise latency does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from statistics import median

from msgspec import Struct

from luthier.errors import LuthierError
from luthier.lifting import LiftedRepresentation
from luthier.projection.caches import AccessTraffic, traffic_of
from luthier.projection.costs import InstructionCost, InstructionFacts, instruction_costs, instruction_facts
from luthier.projection.machine import MachineModel
from luthier.projection.path import MemoryCost, PathFinder, WavePath
from luthier.projection.residency import Residency, residency
from luthier.projection.work import COLUMNS, LaunchWork

LATENCY = "latency"
"""What bounds a kernel whose waves are too few to hide their own path."""
OVERHEAD = "launch overhead"
UNITS = (
    "VALU",
    "matrix",
    "SALU",
    "branch",
    "LDS",
    "vector memory",
    "L1",
    "L2",
    "Infinity Cache",
    "memory",
    "instruction fetch",
)

_HALVINGS = 12
"""Of the interval in which a bound falls."""
_ACCESSING = frozenset(("LDS", "vector memory", "scalar memory"))
"""Units that execute memory instructions."""
_OF_SIMD = frozenset(("VALU", "matrix", "SALU", "branch"))
_OF_DEVICE = frozenset(("L2", "Infinity Cache", "memory"))
"""Units that all compute units share; others are those of a compute unit."""


class UnitTime(Struct, frozen=True):
    """A unit's part of a launch."""

    name: str
    busy_us: float
    """Time that the launch would take if only this unit took time."""
    share: float
    """Of the projected time."""


class InstructionTime(Struct, frozen=True):
    """An instruction's part of a mean wave's path."""

    address: int
    text: str
    """Empty: not asked for, like its place."""
    place: str
    """Source line, or function and offset."""
    executions: float
    """Of a mean wave."""
    issue: float
    """Cycles that the wave issues it."""
    stall: float
    """Cycles that the wave waits before it issues."""
    unit: str
    """That executes it."""
    busy: float
    """Cycles of this unit that one execution takes."""
    fetched: float = 0.0
    """Bytes of instructions that it takes to fetch it, in all executions of a mean wave; likewise of its data:"""
    l2_bytes: float = 0.0
    """That it transfers from and to L2."""
    far_bytes: float = 0.0
    """That L2 does not hold."""


class Roof(Struct, frozen=True):
    """A limit of a machine."""

    name: str
    rate: float
    """Operations, or bytes, in a nanosecond."""
    of_bytes: bool


class Projection(Struct, frozen=True, kw_only=True):
    """Projected time of a launch."""

    kernel: str
    machine: str
    validation: str
    """Errors of the machine's model compared with measured times; empty: never compared."""
    time_us: float
    low_us: float
    high_us: float
    """Range by the spread of samples; it has nothing of the model's own error."""
    bound_by: str
    """Name of a unit, ``latency`` or ``launch overhead``."""
    next_us: float
    """Time if what bounds it took no time."""
    next_bound: str = ""
    """What would bound it as soon as `needed_fall` of the time of what bounds it were gone; empty: nothing."""
    needed_fall: float = 1.0
    """Share of the time of what bounds it."""
    units: tuple[UnitTime, ...]
    """Busiest first."""
    wave_cycles: float
    """Path of a mean wave alone."""
    waves_per_unit: int
    """Resident waves of a compute unit."""
    occupancy: float
    limited_by: tuple[str, ...]
    rounds: float
    """Work-groups divided by those that the device holds at once."""
    groups: int
    measured_groups: int
    instructions: tuple[InstructionTime, ...]
    """In address order."""
    notes: tuple[str, ...]
    """What the model left out."""
    launches: int = 1
    """Launches of the program that it stands for."""
    digest: str = ""
    """Of the kernel's code object; empty: unknown."""
    launched_groups: int = 0
    """Work-groups that the program launched, if `groups` are those of a minimised capture; otherwise 0."""
    operations: float = 0.0
    """Floating-point operations, and those of matrix instructions."""
    accessed_bytes: float = 0.0
    """That instructions read and write outside of LDS and private memory."""
    memory_bytes: float = 0.0
    """That go beyond L2, by the model of caches."""
    roofs: tuple[Roof, ...] = ()
    """Of the machine, as far as the kernel uses them: rates of operations, then bandwidths."""


def project(
    work: LaunchWork, lifted: LiftedRepresentation, machine: MachineModel, *, places: bool = True
) -> Projection:
    """Return the projected time of a launch on a machine.

    Args:
        lifted: the launched kernel.
        places: whether instructions have their text and source lines; reading those may take longer than all else.

    Raises:
        LuthierError: the kernel does not fit on the machine, or has instructions that it does not have.
    """
    return _LaunchModel(work, lifted, machine, places=places).projection()


def project_on_each(
    work: LaunchWork, lifted: LiftedRepresentation, machines: Iterable[MachineModel], *, places: bool = True
) -> tuple[list[Projection], list[str]]:
    """Return the projections of a launch on machines, and why others cannot run it; arguments as for `project`."""
    projections, refused = [], []
    for machine in machines:
        try:
            projections.append(project(work, lifted, machine, places=places))
        except LuthierError as problem:
            refused.append(str(problem))
    return projections, refused


def _any(probability: float, count: float) -> float:
    """Return the probability that at least one of `count` independent events happens."""
    return float(1 - (1 - probability) ** max(1.0, count))


class _LaunchModel:
    """A launch on a machine."""

    def __init__(self, work: LaunchWork, lifted: LiftedRepresentation, machine: MachineModel, *, places: bool) -> None:
        self.places = places
        if lifted.kernel.name != work.kernel:
            raise LuthierError(f"the work is of {work.kernel}, not of {lifted.kernel.name}")
        self.work, self.lifted, self.machine = work, lifted, machine
        self.residency: Residency = residency(work, machine)
        addresses, rows = work.totals()
        indices = [lifted.index_at(address) for address in addresses.tolist()]
        if None in indices:
            stray = int(addresses[indices.index(None)])
            raise LuthierError("counts an instruction that the kernel does not have", kernel=work.kernel, offset=stray)
        self.indices = [index for index in indices if index is not None]
        self.rows: dict[int, dict[str, float]] = dict(
            zip(self.indices, (dict(zip(COLUMNS, row, strict=True)) for row in rows.tolist()), strict=True)
        )
        """Index of each executed instruction -> its counts in a mean work-group."""
        self.facts: dict[int, InstructionFacts] = instruction_facts(lifted, self.indices)
        self.costs: dict[int, InstructionCost] = instruction_costs(lifted, machine, self.facts)
        self.accessing = [index for index, cost in self.costs.items() if cost.unit in _ACCESSING]
        """Indices of memory instructions."""
        for index in self.accessing:
            self._count_scratch(index, self.rows[index])
        self._let_waves_drift()
        self.waves = work.waves_of_mean_group
        """Of a mean work-group."""
        units = self.residency.units
        self.unit_count = max(1, int(machine.value("compute_units")) // units)
        self.held = min(self.residency.groups, -(-work.groups // self.unit_count))
        """Work-groups that a compute unit holds at once."""
        accesses = {index: self.rows[index] for index in self.accessing}
        resident = min(work.groups, self.held * self.unit_count)
        self.traffic: dict[int, AccessTraffic] = traffic_of(
            work, machine, accesses, self._line, lambda index: lifted.instructions[index].address, resident
        )
        self.memory = {index: self._memory_cost(index) for index in self.accessing}
        self.path: WavePath = PathFinder(lifted, machine, self.costs, self.memory).follow(
            {index: row["executions"] / self.waves for index, row in self.rows.items()}
        )
        self.busy = self._unit_cycles()
        simds = machine.target.simds_per_cu * units
        self.parallel = {name: simds if name in _OF_SIMD else units for name in UNITS}
        """Units of a compute unit, or of a work-group processor."""

    def _count_scratch(self, index: int, row: dict[str, float]) -> None:
        """Add bytes of scratch instructions, whose accesses the device does not observe."""
        access = self.facts[index].access
        if access is not None and access.space == "scratch" and not row["accesses"]:
            lanes = row["executions"] * self.work.wave_size
            row.update(scratch=lanes * (access.size or 4), quads=lanes / 4)

    def _let_waves_drift(self) -> None:
        """Count requests of waves for lines that others have brought, but that the vector cache has lost since.

        The device runs waves in step, so it counts them as hits. Barriers keep waves together on a GPU too, and data
        that fit into the cache stay there.
        """
        value, held, line = self.machine.value, self.residency, self.machine.value("l2_line")
        has_barrier = any(facts.opcode.mnemonic.startswith("s_barrier") for facts in self.facts.values())
        groups, lines = min((groups, median(lines)) for groups, lines in self.work.lines_by_groups().items())
        if has_barrier or not lines:
            return
        sharing = -(-held.groups // held.units)  # work-groups that share a vector cache
        data = lines / groups * line * sharing
        lost = value("l1_drift") * (1 - min(1.0, value("l1_size") * 1024 / data))
        for index in self.accessing:
            if self.costs[index].unit == "vector memory":
                self.rows[index]["l2"] += lost * self.rows[index]["shared"]

    def _line(self, index: int) -> float:
        """Return the bytes of an access's lines."""
        target = self.lifted.target
        if self.costs[index].unit == "scalar memory":
            return self.machine.value("scalar_line")
        access = self.facts[index].access
        stores = access is not None and access.kind != "load"
        return target.vector_store_line if stores else target.vector_cache_line

    def _lds_cycles(self, index: int) -> float:
        """Return the cycles that LDS is busy with an instruction of a mean work-group."""
        row, pairs = self.rows[index], self.machine.value("lds_pair_lanes")
        access = self.facts[index].access
        is_pair = access is not None and access.count > 1
        return max(row["lds"], row["accessing_lanes"] / pairs if pairs and is_pair else 0.0)

    def _l1_cycles(self, index: int) -> float:
        """Return the cycles that the vector cache is busy with an instruction of a mean work-group."""
        row, value = self.rows[index], self.machine.value
        executions, lanes = row["executions"], self.work.wave_size
        access = self.facts[index].access
        returned = 0.0
        if access is not None and access.kind == "load":
            returned = executions * lanes * max(4, access.size or 4) / value("return_width")
        addresses = executions * max(1.0, lanes / value("address_lanes"))
        return max(
            addresses, self.traffic[index].l1_bytes / value("l1_width"), returned, row["quads"] / value("quad_rate")
        )

    def _memory_cost(self, index: int) -> MemoryCost:
        """Return the mean cost of one execution of a memory instruction."""
        value, row, unit = self.machine.value, self.rows[index], self.costs[index].unit
        executions = row["executions"]
        lds = self._lds_cycles(index) / executions
        if unit == "LDS":
            return MemoryCost(max(lds, 1.0), value("lds_latency") + max(lds, 1.0))
        traffic = self.traffic[index]
        busy = 1.0 if unit == "scalar memory" else self._l1_cycles(index) / executions + lds
        latency = value("scalar_latency") if unit == "scalar memory" else value("l1_latency")
        if traffic.lines:
            # A wave waits for its slowest line.
            lines, requests = traffic.lines / executions, traffic.l2_requests / executions
            misses = _any(min(1.0, requests / lines), lines)
            latency += misses * max(0.0, value("l2_latency") - latency)
            far = _any(min(1.0, traffic.far_bytes / traffic.l2_bytes) if traffic.l2_bytes else 0.0, requests)
            held, beyond = (self.machine.cycles(value(name)) for name in ("mall_latency", "memory_latency"))
            mean = traffic.mall_share * held + (1 - traffic.mall_share) * beyond
            latency += misses * far * max(0.0, mean - latency)
        return MemoryCost(busy, latency + busy)

    # Units ----------------------------------------------------------------------------------------------------------

    def _unit_cycles(self) -> dict[str, float]:
        """Return the busy cycles of each unit for a mean work-group, as if a compute unit had one of each.

        Those of L2, the memory side's cache and memory are in the whole device's cycles.
        """
        value, machine = self.machine.value, self.machine
        busy = dict.fromkeys(UNITS, 0.0)
        fetched = 0.0
        for index, row in self.rows.items():
            cost = self.costs[index]
            if cost.unit in _OF_SIMD:
                busy[cost.unit] += row["executions"] * cost.busy
            elif cost.unit == "LDS":
                busy["LDS"] += max(self._lds_cycles(index), row["executions"])
            elif cost.unit == "vector memory":
                busy["LDS"] += self._lds_cycles(index)
                busy["vector memory"] += row["executions"] * max(1.0, self.work.wave_size / value("address_lanes"))
                busy["L1"] += self._l1_cycles(index)
            fetched += row["executions"] * float(self.lifted.code.size[index])
        busy["instruction fetch"] = fetched / value("fetch_width")
        every = self.traffic.values()
        busy["L2"] = sum(traffic.l2_bytes for traffic in every) / value("l2_width")
        far = sum(traffic.far_bytes for traffic in every)
        held = sum(traffic.far_bytes * traffic.mall_share for traffic in every)
        if value("mall_bandwidth"):
            busy["Infinity Cache"] = far / machine.bytes_per_cycle(value("mall_bandwidth"))
        bandwidth = machine.bytes_per_cycle(value("memory_bandwidth") * value("memory_efficiency"))
        busy["memory"] = (far - held) / bandwidth
        return busy

    def _round(self, groups: int, active: int, less: str, left: float) -> tuple[float, str]:
        """Return the cycles of work-groups that begin together on each of the active compute units, and their bound.

        Args:
            less: a unit, or `LATENCY`, that takes less time than it does.
            left: share of its time that it takes.
        """
        waves = groups * self.waves
        path = self.path.cycles * (left if less == LATENCY else 1)
        longest, bound = path, LATENCY if path else ""
        for name in UNITS:
            busy = self.busy[name] * (left if less == name else 1)
            if not busy:
                continue
            each = busy / self.waves * (active if name in _OF_DEVICE else 1)
            sharing = waves if name in _OF_DEVICE else max(1.0, waves / self.parallel[name])
            share = min(1.0, each / max(path, each))
            cycles = sharing * each / (1 - (1 - share) ** sharing)
            if cycles > longest * (1 + 1e-9):
                longest, bound = cycles, name if 2 * sharing * each >= cycles else LATENCY
        return longest, bound

    def _cycles(self, less: str = "", left: float = 0.0) -> tuple[float, str]:
        """Return the cycles of all rounds, and what bounds most of them; arguments as for `_round`."""
        groups, launch = self.work.groups, self.machine.value("workgroup_launch")
        at_once = self.held * self.unit_count
        full, rest = divmod(groups, at_once)
        total, bound = 0.0, ""
        if full:
            cycles, bound = self._round(self.held, self.unit_count, less, left)
            total = full * cycles
        if rest:
            cycles, of_rest = self._round(-(-rest // self.unit_count), min(self.unit_count, rest), less, left)
            total, bound = total + cycles, bound or of_rest
        return max(total + launch * min(groups, self.unit_count), launch * groups), bound

    def projection(self) -> Projection:
        """Return the projection."""
        work, machine = self.work, self.machine
        clock, overhead = machine.value("clock"), machine.value("launch_overhead")
        cycles, bound = self._cycles()
        if overhead > cycles / clock:
            bound, next_us = OVERHEAD, cycles / clock
        else:
            next_us = self._cycles(bound)[0] / clock + overhead
        next_bound, fall = self._fall(bound)
        time = cycles / clock + overhead
        low, high = work.spread
        times = ((name, self._bound_us(name)) for name in UNITS)
        held_waves = self.held * self.waves
        return Projection(
            kernel=work.kernel,
            machine=machine.name,
            validation=machine.validation,
            time_us=time,
            low_us=cycles / clock * low + overhead,
            high_us=cycles / clock * high + overhead,
            bound_by=bound,
            next_us=next_us,
            next_bound=next_bound,
            needed_fall=fall,
            units=tuple(
                sorted((UnitTime(name, at, at / time) for name, at in times if at), key=lambda unit: -unit.busy_us)
            ),
            wave_cycles=self.path.cycles,
            waves_per_unit=round(held_waves),
            occupancy=min(1.0, held_waves / self.residency.most_waves),
            limited_by=("grid",) if self.held < self.residency.groups else self.residency.limited_by,
            rounds=work.groups / (self.held * self.unit_count),
            groups=work.groups,
            measured_groups=work.measured_groups,
            instructions=tuple(self._instruction(index) for index in self.indices),
            notes=tuple(self._notes()),
            launched_groups=work.launched_groups,
            operations=work.groups * sum(map(self._operations, self.indices)),
            accessed_bytes=work.groups * sum(map(self._accessed, self.memory)),
            memory_bytes=work.groups * sum(traffic.far_bytes for traffic in self.traffic.values()),
            roofs=tuple(self._roofs()),
        )

    def _fall(self, bound: str) -> tuple[str, float]:
        """Return what bounds the launch next, and by which share what bounds it now has to fall for that."""
        if bound == OVERHEAD:
            cycles, other = self._cycles()
            return other, 1 - cycles / self.machine.cycles(1000 * self.machine.value("launch_overhead"))
        low, high, following = 0.0, 1.0, self._cycles(bound)[1]
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            other = self._cycles(bound, middle)[1]
            low, high, following = (low, middle, following) if other == bound else (middle, high, other)
        return following, 1 - low

    def _operations(self, index: int) -> float:
        """Return the floating-point operations of an instruction in a mean work-group."""
        row, facts = self.rows[index], self.facts[index]
        return facts.lane_operations * row["lanes"] + facts.wave_operations * row["executions"]

    def _accessed(self, index: int) -> float:
        """Return the bytes outside of LDS and private memory that an instruction of a mean work-group accesses."""
        access = self.facts[index].access
        if access is None or access.space in ("lds", "scratch"):
            return 0.0
        return self.rows[index]["accessing_lanes"] * (access.size or 4)

    def _roofs(self) -> Iterator[Roof]:
        """Yield the rates of operations of the units that the kernel uses, and the machine's bandwidths."""
        value, machine = self.machine.value, self.machine
        gigahertz = value("clock") / 1000
        instances = machine.target.simds_per_cu * value("compute_units")
        used = {cost.unit for cost in self.costs.values()}
        if "VALU" in used:
            yield Roof("VALU, 32-bit FMA", 2 * value("valu_lanes") * instances * gigahertz, False)
        matrix: dict[str, float] = {}
        for index, cost in self.costs.items():
            if cost.unit == "matrix":
                facts = self.facts[index]
                count = facts.lane_operations + facts.wave_operations
                matrix[facts.opcode.mnemonic] = count / cost.busy * instances * gigahertz
        for name, rate in matrix.items():
            yield Roof(name, rate, False)
        yield Roof("L2", value("l2_width") * gigahertz, True)
        if value("mall_bandwidth"):
            yield Roof("Infinity Cache", value("mall_bandwidth"), True)
        yield Roof("memory", value("memory_bandwidth") * value("memory_efficiency"), True)

    def _bound_us(self, name: str) -> float:
        """Return the time of the launch if only this unit took time."""
        instances = 1 if name in _OF_DEVICE else self.parallel[name] * self.unit_count
        return self.busy[name] * self.work.groups / instances / self.machine.value("clock")

    def _instruction(self, index: int) -> InstructionTime:
        instruction = self.lifted.instructions[index]
        return InstructionTime(
            instruction.address,
            instruction.text if self.places else "",
            instruction.place if self.places else "",
            self.rows[index]["executions"] / self.waves,
            float(self.path.issue[index]),
            float(self.path.stall[index]),
            self.costs[index].unit,
            self.memory[index].busy if index in self.memory else self.costs[index].busy,
            self.rows[index]["executions"] / self.waves * float(self.lifted.code.size[index]),
            self.traffic[index].l2_bytes / self.waves if index in self.traffic else 0.0,
            self.traffic[index].far_bytes / self.waves if index in self.traffic else 0.0,
        )

    def _notes(self) -> list[str]:
        notes = []
        if not self.machine.validation:
            notes.append(f"the model of {self.machine.name} was never compared with measured times")
        if self.work.target != self.machine.processor:
            notes.append(
                f"code for {self.work.target} on {self.machine.processor}: instructions, registers and cache lines are "
                "those of the code's target"
            )
        if self.work.wave_size not in self.machine.target.wave_sizes:
            notes.append(f"waves of {self.work.wave_size} lanes, which {self.machine.processor} does not have")
        if self.work.machine != self.machine.name:
            notes.append(f"accesses went through the caches of {self.work.machine}")
        if self.work.launched_groups:
            notes.append(
                f"a minimised capture: these are the times of {self.work.groups} of the "
                f"{self.work.launched_groups} work-groups that were launched"
            )
        if not self.work.is_exact:
            notes.append(f"{self.work.measured_groups} of {self.work.groups} work-groups were executed")
        return notes
