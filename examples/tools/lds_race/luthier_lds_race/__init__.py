"""Finds races in LDS: unordered accesses of a work-group's waves to the same bytes, one of them a write."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from luthier import Immediate, Instruction, InstrumentationTask, Launch, Run, Sites, Table, Tool, ToolModule
from luthier.errors import HookError, ToolError
from luthier.findings.finding import Finding, Unchecked
from luthier.findings.kinds import FindingKind
from luthier.isa import OperandKind
from luthier.tool.site_sums import MeasuredSite
from luthier.tool.task import HookArgument
from numpy.typing import NDArray

DEVICE = ToolModule.from_package(__name__, "device")
SITES = 1 << 14
"""Number of accesses with their own number, as in device.hip."""
GROUPS = 32
"""Work-groups watched at a time."""
KINDS = {"load": 0, "store": 1, "atomic": 2}
WORDS = {"load": "read", "store": "write", "atomic": "atomic"}
STEPS = {"S_BARRIER": 2, "S_BARRIER_SIGNAL_IMM": 1, "S_BARRIER_SIGNAL_ISFIRST_IMM": 1, "S_BARRIER_WAIT": 1}
"""Supported barriers, each as a number of half barriers."""
WORKGROUP = -1
"""Number of the barrier of the whole work-group."""
PAIR = np.dtype(
    [(name, "<u8") for name in ("sites", "times")] + [(name, "<u4") for name in ("offset", "group", "earlier", "later")]
)
"""Record of a pair, as in device.hip."""
RACES = "races in LDS"
UNWATCHED = {
    "unwatched": "waves of work-groups that were not watched",
    "beyond": "lanes whose access was beyond the watched part of LDS",
    "lost": "races that were not recorded for lack of room",
    "worn": "waves and accesses after too many launches or barriers",
}
"""Variable of device.hip -> what it counts."""


class LdsRace(Tool):
    """Watches LDS accesses and barriers of some work-groups of each launch."""

    @dataclass(frozen=True)
    class Options:
        """Options: the watched accesses."""

        first: int = 0
        """Watch 32 work-groups of each launch, from this number on."""
        lanes: bool = False
        """Also report lanes of one wave, which no barrier orders, but which run in lockstep."""
        top: int = 50
        """Pairs of instructions to show, most frequent first; 0: all."""

    def __init__(self, **options: object) -> None:
        super().__init__(**options)
        if not 0 <= self.options.first < 1 << 31:
            raise ToolError(f"option first of lds_race must be the number of a work-group, not {self.options.first}")
        self.watched = Sites(SITES)
        self.unchecked_kernels: list[tuple[str, str]] = []
        """Kernels that are not checked, with reasons."""

    def instrument(self, task: InstrumentationTask) -> None:
        """Insert hooks at the start, at barriers and before accesses that may be to LDS."""
        accesses = [one for one in task.instructions if _may_access(one)]
        if not accesses:
            return
        kernel = task.lifted.kernel.name
        barriers = {one: _steps(one) for one in task.instructions if one.is_barrier}
        unknown = next((one for one, steps in barriers.items() if steps is None), None)
        if unknown is not None:
            self.unchecked_kernels.append(
                (kernel, f"{unknown.text} at {unknown.address:#x} is a barrier of another kind")
            )
            task.leave_out(self.unchecked_kernels[-1][1])
            return
        inserted = len(task.insertions)
        z = task.third_workgroup_id
        about = self.options.first, task.lifted.wave_size, 0 if z is None else z
        try:
            task.insert_hook_at_kernel_entry(DEVICE.starts, *about, z is not None)
            for instruction, steps in barriers.items():
                task.insert_hook_before(instruction, DEVICE.barrier, steps or 0, *about)
        except HookError as problem:
            del task.insertions[inserted:]
            self.unchecked_kernels.append((kernel, problem.message))
            task.leave_out(problem.message)
            return
        # The size of pieces divides that of all accesses, since adjacent bytes may belong to different waves.
        sizes = [one.memory.size for one in accesses if one.memory is not None and one.memory.size]
        shift = min(2, *(size.bit_length() - 1 for size in sizes)) if sizes else 0
        kinds = sum({1 << KINDS[one.memory.kind] for one in accesses if one.memory is not None})
        for instruction in accesses:
            self._watch(task, instruction, shift, kinds, about)

    def _watch(
        self,
        task: InstrumentationTask,
        instruction: Instruction,
        shift: int,
        kinds: int,
        where: tuple[HookArgument, ...],
    ) -> None:
        access = instruction.memory
        assert access is not None
        about = shift, KINDS[access.kind], kinds, self.options.lanes, *where

        def insert(number: Immediate) -> None:
            if access.space not in ("lds", "flat") or "LDS" in instruction.opcode.pseudo.split("_"):
                raise HookError("its LDS address is not available to hooks")
            size = task.access_size(instruction)
            hook = DEVICE.access if access.space == "lds" else DEVICE.access_flat
            for which in range(access.count):
                task.insert_hook_before(
                    instruction, hook, task.effective_address(instruction, which), number, size, *about
                )

        self.watched.add(task, instruction, insert, WORDS[access.kind])

    def at_kernel_launch(self, launch: Launch) -> None:
        """Serialise launches: concurrent ones would share the records of a work-group."""

    def findings(self, run: Run) -> Iterable[Finding]:
        """Yield the races by process."""
        for variable in run.variables("pairs"):
            for pair in variable.read(PAIR):
                if pair["sites"]:
                    yield self._finding(pair, variable.pid)

    def _finding(self, pair: NDArray[np.void], process: int) -> Finding:
        """Return a pair of accesses as a finding: the later access, with the earlier one as the other."""
        earlier, later = (self.watched.sites[number] for number in _sites(pair))
        is_read_of_atomic = {earlier.facts, later.facts} == {WORDS["load"], WORDS["atomic"]}
        made = later.finding((FindingKind.UNORDERED_READ if is_read_of_atomic else FindingKind.RACE).label, process)
        made.in_lds, made.address, made.count = True, int(pair["offset"]), int(pair["times"])
        made.size, made.group = _bytes(later), int(pair["group"])
        made.wave, made.lane = divmod(int(pair["later"]), 64)
        made.other = earlier.as_other
        made.other.size, made.other.address, made.other.group = _bytes(earlier), made.address, made.group
        made.other.wave, made.other.lane = divmod(int(pair["earlier"]), 64)
        return made

    def unchecked(self, run: Run) -> Iterable[Unchecked]:
        """Yield what was not watched."""
        for kernel, reason in self.unchecked_kernels:
            yield Unchecked(0, kernel, RACES, reason)
        for name, what in UNWATCHED.items():
            if count := run.total(name):
                yield Unchecked(0, "", RACES, f"{what} ({count})")
        yield from self.watched.unchecked(RACES)

    def report(self, run: Run) -> Iterable[Table]:
        """Yield races, and what was watched and what was not."""
        pairs: dict[tuple[int, int], list[int]] = {}
        for variable in run.variables("pairs"):
            for pair in variable.read(PAIR):
                if not pair["sites"]:
                    continue
                entry = pairs.setdefault(_sites(pair), [0, *(int(pair[name]) for name in PAIR.names[2:])])
                entry[0] += int(pair["times"])
        rows: list[tuple[object, ...]] = []
        for (first, second), (times, offset, group, *who) in sorted(pairs.items(), key=lambda item: -item[1][0]):
            earlier, later = self.watched.sites[first], self.watched.sites[second]
            waves = [f"{one >> 6}:{one & 63}" for one in who]
            sites = earlier.source, hex(earlier.address), earlier.text, later.source, hex(later.address), later.text
            rows.append((later.kernel, f"{earlier.facts}, {later.facts}", *sites, hex(offset), group, *waves, times))
        columns = (
            "kernel",
            "kind",
            "source",
            "earlier",
            "instruction",
            "source",
            "later",
            "instruction",
            "LDS",
            "work-group",
        )
        title = f"races: {len(rows)} pairs of instructions" if rows else "races"
        yield Table(title, (*columns, "wave:lane", "wave:lane", "times"), rows[: self.options.top or None])
        barriers = run.total("barriers")
        counts = (
            ("waves watched", run.total("watched")),
            ("barriers that waves reached", barriers),
            ("barriers without active lanes, which were not seen", barriers - run.total("passed")),
            *((what, run.total(name)) for name, what in UNWATCHED.items()),
        )
        yield Table("watched", ("what", "count"), [row for row in counts if row[1]])
        yield Table("not checked", ("kernel", "reason"), self.unchecked_kernels)
        yield from self.watched.tables()


def _sites(pair: NDArray[np.void]) -> tuple[int, int]:
    """Return the numbers of the earlier and the later access of a pair."""
    sites = int(pair["sites"]) - 1
    return sites & 0x3FFF, sites >> 14


def _bytes(site: MeasuredSite) -> int:
    """Return the bytes that a lane accesses at a site; 0 if unknown."""
    access = site.instruction.memory
    return 0 if access is None else access.size or 0


def _may_access(instruction: Instruction) -> bool:
    access = instruction.memory
    if access is None:
        return False
    return access.space in ("lds", "flat") or "LDS" in instruction.opcode.pseudo.split("_")


def _steps(barrier: Instruction) -> int | None:
    """Return the number of half barriers of the whole work-group; None for another kind of barrier."""
    steps = STEPS.get(barrier.opcode.pseudo)
    numbers = [value for kind, value in barrier.operands if kind == OperandKind.IMMEDIATE]
    return steps if all(value in (WORKGROUP, 0xFFFF, 0xFFFFFFFF) for value in numbers) else None
