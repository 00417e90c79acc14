"""Finds accesses outside of the program's allocations, to freed memory, and outside of LDS."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any

import numpy as np
from luthier import (
    ApiEvent,
    Immediate,
    Instruction,
    InstrumentationTask,
    Launch,
    Run,
    Sites,
    Table,
    Tool,
    ToolModule,
    immediate,
)
from luthier.errors import HookError
from luthier.findings.finding import UNKNOWN, Finding, NearbyAllocation, Unchecked
from luthier.findings.kinds import FindingKind
from numpy.typing import NDArray

from luthier_memcheck.allocations import END, NOWHERE, OUTSIDE, Allocations, Name, Stretch, map_of, mapped
from luthier_memcheck.allocations import Ranges as Addresses
from luthier_memcheck.held import SLOTS, Held, Ranges, numbers_of
from luthier_memcheck.launch_loads import launch_loads

DEVICE = ToolModule.from_package(__name__, "device")
SITES, STRETCHES = 1 << 14, 1 << 14
"""Largest numbers of accesses, and of parts of the addresses, as in device.hip."""
SIZES = (1, 2, 4, 8, 12, 16, 32, 64)
"""Bytes of accesses, by column of `KNOWN`."""
KNOWN = np.dtype(
    [
        ("nothing", "<u8", 2),
        ("last", "<u4", SITES),
        ("stretches", [("begin", "<u8"), ("room", "<u8")], (STRETCHES, len(SIZES))),
    ]
)
"""Record of all addresses, as in device.hip; so are those of a launch and of a finding."""
LAUNCH = np.dtype(
    [("number", "<u4"), ("groups", "<u4", 3), ("items", "<u4", 2), ("lds", "<u4"), ("room", "<u4", len(SIZES))]
)
FINDING = np.dtype(
    [(name, "<u8") for name in ("key", "lanes", "address")]
    + [(name, "<u4") for name in ("launch", "group", "place", "lds")]
)
NO_GROUP = (1 << 32) - 1
"""Number of an unknown work-group on the device."""
FIRST_NAME = 2
"""Number of the first name of a stretch: 0 is before LDS, 1 after it."""
SPACES = ("global", "flat", "scalar", "lds")
BAD_FREES = {FindingKind.DOUBLE_FREE: "double-free", FindingKind.INVALID_FREE: "invalid-free"}
COLUMNS = (
    *("kind", "kernel", "source", "address", "instruction", "access", "bytes", "at", "side", "distance"),
    *("allocation", "of bytes", "work-group", "wave", "lane", "launch", "lanes"),
)


class Memcheck(Tool):
    """Compares each address with its instruction's last allocation, or else searches all of them."""

    @dataclass(frozen=True)
    class Options:
        """Options: what is checked and shown."""

        lds: bool = True
        """Also check accesses to LDS."""
        nowhere: bool = True
        """Find addresses without memory, by the process's map at each launch."""
        top: int = 100
        """Findings to show, in the order of the code; 0: all."""

    def __init__(self, **options: object) -> None:
        super().__init__(**options)
        self.checked = Sites(SITES)
        self.allocations: defaultdict[int, Allocations] = defaultdict(Allocations)
        """By process."""
        self._held: dict[tuple[str, str], list[Held]] = {}
        """Ranges held in registers, by code object and kernel."""
        self._slots = 0
        self._stretches: dict[int, list[Stretch]] = {}
        """By identity of `Allocations`."""
        self._names: dict[Name, int] = {}
        self._bad_frees: list[Finding] = []
        self._written: dict[tuple[int, int], tuple[int, frozenset[str], Addresses | None]] = {}
        """State of each process and device: version of the allocations, names of the variables, and mapped ranges."""
        self._launches = self._crowded = self._elsewhere = 0

    def instrument(self, task: InstrumentationTask) -> None:
        """Insert a hook before every access to memory or LDS, except to kernel arguments and the dispatch packet."""
        own = launch_loads(task.lifted)
        ranges = Ranges(task, self._slots)
        left_out = {"scratch"} if self.options.lds else {"scratch", "lds"}
        for instruction in task.instructions:
            access = instruction.memory
            if access is None or access.space in left_out or instruction.index in own:
                continue
            if access.space not in SPACES:
                self._elsewhere += 1
                task.leave_out("buffers and images are not checked")
            else:
                self.checked.add(task, instruction, partial(_insert, task, instruction, ranges))
        ranges.insert(DEVICE)
        self._slots += len(ranges.held)
        self._held[task.lifted.object.name, task.lifted.kernel.name] = list(ranges.held.values())

    def at_memory_event(self, event: ApiEvent) -> None:
        """Record allocations, frees and bad frees."""
        if event.name != "complained":
            self.allocations[event.pid].tell(event)
        elif kind := BAD_FREES.get(FindingKind(event.arguments["kind"])):
            address, base, size = (event.arguments[name] for name in ("address", "base", "size"))
            self._bad_frees.append(
                Finding(kind, event.pid, address=address, allocation=NearbyAllocation(base, size, 0))
            )

    def at_kernel_launch(self, launch: Launch) -> None:
        """Write the launch and the allocations to the device."""
        variables = {variable.name: variable for variable in launch.variables()}
        if not launch.instrumented or not variables:
            return
        where, allocations = (launch.pid, launch.gpu), self.allocations[launch.pid]
        state = allocations.version, frozenset(variables), mapped(map_of(launch.pid) if self.options.nowhere else b"")
        if self._written.get(where) != state:
            if not self.tell(allocations, variables, state[-1]):
                self._crowded += 1
                launch.instrumented = False
                return
            self._written[where] = state
        self._launches += 1
        record = launch_record(launch.number, launch.grid, launch.block, launch.group_segment)
        held = self.held(allocations, (launch.object.name, launch.kernel.name), launch.kernarg, launch.group_segment)
        _write(variables, {"launch": record, "held": held})

    def held(self, allocations: Allocations, kernel: tuple[str, str], kernarg: bytes, lds: int) -> NDArray[np.uint64]:
        """Return the ranges that kernels hold in registers, in the layout of device.hip.

        Args:
            kernel: its code object and name.
            kernarg: contents of its arguments.
            lds: bytes of a work-group.
        """
        stretches = self._stretches.get(id(allocations), [])

        def around(address: int) -> Stretch | None:
            at = bisect_right(stretches, address, key=attrgetter("begin")) - 1
            return stretches[at] if at >= 0 and stretches[at].name is None else None

        numbers = np.zeros((SLOTS, 2), np.uint64)
        for slot, both in numbers_of(self._held.get(kernel, ()), kernarg, lds, around):
            numbers[slot] = both
        return numbers

    def tell(self, allocations: Allocations, variables: Mapping[str, Any], where: Addresses | None = None) -> bool:
        """Write a process's allocations into the tool's variables on a device.

        Args:
            where: the mapped ranges, as of `Allocations.stretches`.

        Returns:
            Whether there was room for them.
        """
        stretches = list(allocations.stretches(where))
        self._stretches[id(allocations)] = stretches
        if len(stretches) > STRETCHES:
            return False
        known, names = np.zeros((), KNOWN), np.zeros(STRETCHES, np.uint32)
        table = known["stretches"]
        for number, stretch in enumerate(stretches):
            table["begin"][number] = stretch.begin
            if stretch.name is None:
                table["room"][number] = _room(stretch.end - stretch.begin)
            else:
                names[number] = self._names.setdefault(stretch.name, FIRST_NAME + len(self._names))
        _write(variables, {"known": known, "names": names, "stretch_count": len(stretches)})
        return True

    def findings(self, run: Run) -> list[Finding]:
        """Return the findings so far: equal ones merged, in the order of the code."""
        names = {number: name for name, number in self._names.items()}
        findings = [
            self._finding(record, variable.pid, names)
            for variable in run.variables("findings")
            for record in variable.read(FINDING)
            if record["key"]
        ]
        findings.sort(key=attrgetter("first_launch"))
        known: dict[tuple[str | int, ...], Finding] = {}
        for finding in (*findings, *self._bad_frees):
            first = known.setdefault(finding.key, finding)
            if first is not finding:
                first.merge(finding)
        return sorted(known.values(), key=attrgetter("kernel", "offset"))

    def _finding(self, record: NDArray[np.void], pid: int, names: Mapping[int, Name]) -> Finding:
        """Return a finding of the device."""
        name, number = divmod(int(record["key"]), 1 << 32)
        site, meant = self.checked.sites[number - 1], names.get(name)
        kind = OUTSIDE if meant is None else meant.kind
        made = site.finding(kind, pid)
        made.wave, made.lane = divmod(int(record["place"]), 64)
        made.group, made.address, made.count = (int(record[name]) for name in ("group", "address", "lanes"))
        if made.group == NO_GROUP:
            made.group = UNKNOWN
        made.size = site.instruction.memory.size or 0 if site.instruction.memory else 0
        made.in_lds = meant is None
        made.allocation = NearbyAllocation(0, int(record["lds"]), 0) if meant is None else meant.allocation
        if kind == NOWHERE and not made.is_near:
            made.allocation = None
        made.first_launch = made.last_launch = int(record["launch"])
        return made

    def report(self, run: Run) -> Iterable[Table]:
        """Yield the findings, and what was not checked."""
        findings = self.findings(run)
        title = f"bad accesses: {len(findings)} findings" if findings else "bad accesses"
        sources = {(site.kernel, site.object, site.address): site.source for site in self.checked.sites}
        rows = [
            _row(finding, sources.get((finding.kernel, finding.object, finding.offset), ""))
            for finding in findings[: self.options.top or None]
        ]
        yield Table(title, COLUMNS, rows)
        checked = (
            ("instructions", len(self.checked.sites)),
            ("launches", self._launches),
            ("allocations", sum(one.made for one in self.allocations.values())),
        )
        yield Table("checked", ("what", "count"), checked)
        if missing := self._missing(run):
            yield Table("not checked", ("what", "count"), missing)
        yield from self.checked.tables()

    def _missing(self, run: Run) -> list[tuple[str, int]]:
        """Return what was not checked, with the number of times."""
        blind = sum(not self.allocations[pid].version for pid, _ in self._written)
        unseen = int(bool(self.checked.sites and not self._launches))
        rows = (
            ("launches that the tool did not see: nothing was checked", unseen),
            ("devices of processes without a known allocation", blind),
            ("instructions that access buffers, possibly stacks, or images", self._elsewhere),
            ("lanes without room for their findings", run.total("lost")),
            ("launches that ran uninstrumented: too many allocations", self._crowded),
        )
        return [row for row in rows if row[1]]

    def unchecked(self, run: Run) -> Iterable[Unchecked]:
        """Yield what was not checked."""
        for what, count in self._missing(run):
            yield Unchecked(0, "", "bounds of memory", f"{what} ({count})")
        yield from self.checked.unchecked("bounds")


def _write(variables: Mapping[str, Any], values: Mapping[str, NDArray[Any] | int]) -> None:
    """Write those variables that exist; variables that no kernel uses do not."""
    for name in values.keys() & variables.keys():
        variables[name].write(values[name])


def _row(finding: Finding, source: str) -> tuple[object, ...]:
    """Return a finding as a row."""
    whole = finding.allocation
    where = (None, None) if whole is None else ("LDS" if finding.in_lds else hex(whole.address), whole.size)
    about = hex(finding.address), finding.side, finding.distance if whole else None, *where
    if not finding.kernel:
        return finding.kind, "", "", "", "", "", None, *about, None, None, None, None, finding.count
    code = finding.kernel, source, hex(finding.offset), finding.instruction, finding.access, finding.size
    group = None if finding.group == UNKNOWN else finding.group
    return finding.kind, *code, *about, group, finding.wave, finding.lane, finding.first_launch, finding.count


def _room(count: int) -> list[int]:
    """Return the number of addresses, of `count`, at which an access of each size may begin to end within them."""
    return [min(max(count - size + 1, 0), END - 1) for size in SIZES]


def launch_record(number: int, grid: Sequence[int], block: Sequence[int], lds: int) -> NDArray[np.void]:
    """Return the record of a launch.

    Args:
        number: of the launch.
        grid: work-items in three dimensions.
        block: of a work-group.
        lds: bytes of it.
    """
    groups = [-(-items // one) for items, one in zip(grid, block, strict=True)]
    return np.array((number, groups, block[:2], lds, _room(lds)), LAUNCH)


def _insert(task: InstrumentationTask, instruction: Instruction, ranges: Ranges, site: Immediate) -> None:
    """Insert the hook before an access.

    Raises:
        HookError: its address or size is not available, or there is no hook for its size.
    """
    access = instruction.memory
    assert access is not None
    size, z = task.access_size(instruction), task.third_workgroup_id
    if size not in SIZES:
        raise HookError(f"accesses of {size} bytes are not checked")
    tests = ranges.tests(instruction)
    column, where = SIZES.index(size), (task.lifted.wave_size, NO_GROUP if z is None else z)
    for which in range(access.count):
        address = task.effective_address(instruction, which)
        if access.space == "lds":
            task.insert_hook_before(instruction, DEVICE.access_lds, address, site, column, *where, only_if=tests)
        else:
            at = immediate(KNOWN.fields["last"][1] + 4 * int(site.value))
            once = access.space == "scalar"
            given = (address, at, size, column, once, *where)
            task.insert_hook_before(instruction, DEVICE.access, *given, only_if=tests)
