"""Checks of what kernels do with memory, made while every instruction is looked at.

``uninitialised``: reads of bytes that neither host nor kernel has written, in memory of `EmulatedDevice.allocate` and
in LDS. ``races``: two waves, or two lanes of one instruction, touch the same byte of LDS between two barriers, at
least one of them with a write that is no atomic. Different instructions of one wave are in order and never race.
``bounds``: accesses beyond the end of LDS, which read 0 or write nothing.

A stepped instruction logs the addresses that it has checked; here they meet one flag (or owner) a byte.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Collection, Iterable, Iterator, Sequence

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace
from numpy.typing import NDArray

from luthier.emulator import layout
from luthier.emulator.binding.program import Code
from luthier.emulator.inspection.access_kinds import Kind, kind_in_lds, kind_of
from luthier.emulator.inspection.debug import Step
from luthier.emulator.inspection.hazards import HAZARDS, HazardWatch, LaunchHazard, hazard_watch
from luthier.emulator.inspection.sighted import SIGHTED, Sighted, sighted, wanted
from luthier.emulator.inspection.waits import WAITS, WaitFinding, WaitWatch, wait_watch
from luthier.emulator.running.executor import Block
from luthier.emulator.running.memory import Allocation, Memory
from luthier.emulator.running.worker import Access
from luthier.errors import DeviceError
from luthier.objects.source import SourceLocation, SourceMap, in_source
from luthier.wire.messages import Sighting

UNINITIALISED, RACES, BOUNDS = "uninitialised", "races", "bounds"
CHECKS = (UNINITIALISED, RACES, BOUNDS, WAITS, HAZARDS)
SYNONYMS = {"init": UNINITIALISED, "memory": BOUNDS}
"""Names of `luthier sanitize` for checks of a device."""

_TITLES = {
    UNINITIALISED: "read of uninitialised memory",
    RACES: "race",
    BOUNDS: "access beyond the end of LDS",
}


class CheckWarning(UserWarning):
    """A kernel did something that a check looks for."""


_VERBS = {Kind.READ: "reads", Kind.WRITE: "writes", Kind.ATOMIC: "updates atomically"}


class Party(Struct, frozen=True):
    """The other side of a race."""

    address: int
    """Virtual address of its instruction."""
    text: str
    kind: Kind
    wave: int
    lane: int

    def __str__(self) -> str:
        return f"wave {self.wave} lane {self.lane} {_VERBS[self.kind]} it at {self.address:#x} ({self.text})"


class Finding(Struct, frozen=True):
    """Finding of a check at one instruction: its first occurrence, and how often."""

    check: str
    """One of `CHECKS`."""
    kernel: str
    address: int
    """Virtual address of the instruction."""
    text: str
    kind: Kind
    workgroup: int
    wave: int
    lane: int | None
    """None of a scalar load."""
    place: int
    """First byte: a device address, or an offset in LDS."""
    where: str
    """The place in words."""
    other: Party | None = None
    """Other access of a race."""
    count: int = 1
    """Lane accesses of which this is the first."""
    source: SourceLocation | None = None
    """Source location of the instruction, if debug information has one."""

    def __str__(self) -> str:
        who = f"work-group {self.workgroup} wave {self.wave}" + ("" if self.lane is None else f" lane {self.lane}")
        second = "" if self.other is None else f"; without a barrier between, {self.other}"
        more = f"; {self.count} such accesses" if self.count > 1 else ""
        return (
            f"{_TITLES[self.check]} in {self.kernel} at {self.address:#x} ({self.text}): "
            f"{who} {_VERBS[self.kind]} {self.where}{second}{more}{in_source(self.source)}"
        )


AnyFinding = Finding | WaitFinding | LaunchHazard | Sighted


def with_sources(findings: Iterable[AnyFinding], source: SourceMap) -> tuple[AnyFinding, ...]:
    """Return the findings with the source lines of their instructions."""
    if not source.present:
        return tuple(findings)
    return tuple(replace(finding, source=source.at(finding.address)) for finding in findings)


def warn(findings: Iterable[object]) -> None:
    """Warn of each finding, where the kernel was launched."""
    for finding in findings:
        warnings.warn(str(finding), CheckWarning, stacklevel=4)


class Shadow(Struct):
    """Bytes of an allocation that were written."""

    allocation: Allocation
    written: NDArray[np.bool_]


class Checks:
    """Checks of a device, with the state of its memory from launch to launch."""

    def __init__(self, names: str | Collection[str], memory: Memory) -> None:
        chosen = [names] if isinstance(names, str) else list(names)
        known = (*CHECKS, *SIGHTED, *SYNONYMS)
        for name in chosen:
            if name not in known:
                raise DeviceError(f"no check {name!r}; there are: {', '.join(known)}")
        self.names = frozenset(SYNONYMS.get(name, name) for name in chosen)
        stepped = self.names - {WAITS, HAZARDS, *SIGHTED}
        if stepped and wanted(self.names):
            raise DeviceError(
                f"{', '.join(sorted(self.names & SIGHTED.keys()))} cannot be checked together with "
                f"{', '.join(sorted(stepped))}: open a device for each"
            )
        self._memory = memory
        self._shadows: dict[int, Shadow] = {}

    def watch(self, allocation: Allocation) -> None:
        """Add new memory, nothing in which is written."""
        if UNINITIALISED in self.names and allocation.size:
            self._shadows[allocation.address] = Shadow(allocation, np.zeros(allocation.size, np.bool_))

    def written(self, address: int, size: int) -> None:
        """Note that the host wrote `size` bytes of one allocation."""
        for shadow in self.shadows():
            start = address - shadow.allocation.address
            if 0 <= start < shadow.allocation.size:
                shadow.written[start : start + size] = True

    def checker(self, kernel: str) -> LaunchChecker | None:
        """Return the observer of every instruction of a launch of a kernel; None if none is needed."""
        return LaunchChecker(self.names, kernel, self.shadows()) if self.names - {WAITS, HAZARDS, *SIGHTED} else None

    @property
    def sighted(self) -> int:
        """Return what native code is to look for: `layout.OBSERVE_RACES` and the like."""
        return wanted(self.names)

    def seen(self, sightings: Collection[Sighting], code: Code, kernel: str) -> Iterator[Sighted]:
        """Yield the findings of what native code has seen in a launch."""
        return sighted(sightings, self.names, code, kernel)

    def launch_watch(self, code: Code, kernel: str) -> LaunchWatch | None:
        """Return the native watch of a launch; None if none is needed."""
        parts: list[WaitWatch | HazardWatch] = []
        if HAZARDS in self.names:
            parts.append(hazard_watch(code, kernel))
        if WAITS in self.names:
            parts.append(wait_watch(code, kernel))
        return LaunchWatch(parts) if parts else None

    def shadows(self) -> list[Shadow]:
        """Return the shadows of the allocations that still exist, in the order of their addresses."""
        for address, shadow in list(self._shadows.items()):
            if self._memory.find(address) is not shadow.allocation:
                del self._shadows[address]
        return [self._shadows[address] for address in sorted(self._shadows)]


_NOBODY = -1


class _Touches:
    """The first wave, and one other, that touched each byte of LDS in one way since the last barrier."""

    def __init__(self, size: int) -> None:
        self.epoch, self.wave, self.lane, self.record = (np.full((2, size), _NOBODY, np.int64) for _ in range(4))

    def find(self, places: NDArray[np.int64], epoch: int, wave: int) -> NDArray[np.int64]:
        """Return for each place the slot of a touch by another wave in this epoch, or -1."""
        others = (self.epoch[:, places] == epoch) & (self.wave[:, places] != wave)
        return np.where(others[0], 0, np.where(others[1], 1, _NOBODY))

    def add(self, places: NDArray[np.int64], lanes: NDArray[np.int64], epoch: int, wave: int, record: int) -> None:
        """Note a touch."""
        first = self.epoch[0, places] != epoch
        other = ~first & (self.wave[0, places] != wave) & (self.epoch[1, places] != epoch)
        for slot, chosen in ((0, first), (1, other)):
            at = places[chosen]
            self.epoch[slot, at] = epoch
            self.wave[slot, at] = wave
            self.lane[slot, at] = lanes[chosen]
            self.record[slot, at] = record


class _Group(Struct):
    """LDS of the work-group that runs."""

    number: int
    lds: int
    """Host address."""
    size: int
    written: NDArray[np.bool_]
    touches: dict[Kind, _Touches]
    epochs: dict[int, int] = field(default_factory=dict)
    """Barriers that each wave has passed."""


class LaunchWatch:
    """Watches one launch natively.

    Args:
        parts: what it is watched for.
    """

    def __init__(self, parts: Sequence[WaitWatch | HazardWatch]) -> None:
        self._parts = parts
        self._block = Block(layout.WATCH, {name: value for part in parts for name, value in part.fields.items()})
        self.address = self._block.address

    def findings(self) -> tuple[WaitFinding | LaunchHazard, ...]:
        """Return the findings of all parts."""
        read = functools.partial(self._block.read, layout.WATCH)
        return tuple(finding for part in self._parts for finding in part.findings(read))


class LaunchChecker:
    """The checks of one launch that look at memory."""

    def __init__(self, names: Collection[str], kernel: str, shadows: list[Shadow]) -> None:
        self._names = names
        self._kernel = kernel
        self._shadows = shadows
        self._starts = np.array([shadow.allocation.address for shadow in self._shadows], np.uint64)
        self._findings: dict[tuple[object, ...], Finding] = {}
        self._before: Step | None = None
        self._group: _Group | None = None

    def findings(self) -> tuple[Finding, ...]:
        """Return the findings, in the order of first occurrence."""
        return tuple(self._findings.values())

    def observe(self, step: Step) -> None:
        """Observe a wave that is about to execute an instruction: everything before it is done."""
        accesses = step.worker.take_accesses()
        if self._before is not None:
            for access in accesses:
                if len(access.lanes):
                    self._check(self._before, access)
        group = self._group
        if group is None or group.number != step.workgroup:
            size = step.worker.group_field("lds_size")
            group = self._group = _Group(
                step.workgroup,
                step.worker.group_field("lds"),
                size,
                np.zeros(size, np.bool_),
                {kind: _Touches(size) for kind in Kind} if RACES in self._names else {},
            )
        if _mnemonic(step) in ("s_barrier", "s_barrier_wait"):
            group.epochs[step.wave] = group.epochs.get(step.wave, 0) + 1
        self._before = step

    def _check(self, step: Step, access: Access) -> None:
        kind = kind_of(_mnemonic(step))
        group = self._group
        assert group is not None
        if access.outside:
            if BOUNDS in self._names:
                self._bounds(step, access, group)
            return
        # Some lanes of a FLAT instruction may be in LDS, others not.
        offsets = (access.places - np.uint64(group.lds)).astype(np.int64)
        inside = (offsets >= 0) & (offsets < group.size)
        if inside.any():
            self._lds(step, kind_in_lds(_mnemonic(step)), access, offsets[inside], access.lanes[inside], group)
            if inside.all():
                return
        if UNINITIALISED in self._names:
            self._device(step, kind, access)

    # Uninitialised reads --------------------------------------------------------------------------------------------

    def _device(self, step: Step, kind: Kind, access: Access) -> None:
        if not self._shadows:
            return
        owners = np.searchsorted(self._starts, access.places, side="right") - 1
        for owner in np.unique(owners[owners >= 0]).tolist():
            shadow = self._shadows[owner]
            base = shadow.allocation.address
            chosen = (owners == owner) & (access.places < np.uint64(shadow.allocation.end))
            offsets = (access.places[chosen] - np.uint64(base)).astype(np.int64)
            bad = self._touch(shadow.written, kind, offsets, access.size)
            if bad is not None:
                index, byte, count = bad
                lane = None if access.scalar else int(access.lanes[chosen][index])
                where = f"{access.size} bytes at {base + offsets[index]:#x}, of which the one at {base + byte:#x} "
                where += f"({byte} bytes into {shadow.allocation.label} of {shadow.allocation.size} bytes) "
                where += "was never written"
                place = int(base + offsets[index])
                self._report(UNINITIALISED, step, kind, lane, place, where, count, (base,))

    def _touch(
        self, written: NDArray[np.bool_], kind: Kind, offsets: NDArray[np.int64], size: int
    ) -> tuple[int, int, int] | None:
        """Update the flags. If something was read that was never written: the first index into `offsets` for which that
        is so, its first bad byte, and for how many."""
        if len(offsets) == 0:
            return None
        places = offsets[:, None] + np.arange(size)
        found = None
        if kind is not Kind.WRITE:
            missing = ~written[places]
            bad = np.flatnonzero(missing.any(axis=1))
            if len(bad):
                index = int(bad[0])
                found = index, int(places[index][np.argmax(missing[index])]), len(bad)
        if kind is not Kind.READ:
            written[places] = True
        return found

    # LDS ------------------------------------------------------------------------------------------------------------

    def _bounds(self, step: Step, access: Access, group: _Group) -> None:
        place = int(access.places[0])
        lane = None if access.scalar else int(access.lanes[0])
        where = f"{access.size} bytes of LDS at offset {place:#x} of {group.size} bytes"
        self._report(BOUNDS, step, kind_in_lds(_mnemonic(step)), lane, place, where, len(access.lanes), ())

    def _lds(
        self,
        step: Step,
        kind: Kind,
        access: Access,
        offsets: NDArray[np.int64],
        lanes: NDArray[np.intp],
        group: _Group,
    ) -> None:
        if UNINITIALISED in self._names:
            bad = self._touch(group.written, kind, offsets, access.size)
            if bad is not None:
                index, byte, count = bad
                place = int(offsets[index])
                where = f"{access.size} bytes of LDS at offset {place:#x}, of which the one at {byte:#x} "
                where += "was never written"
                self._report(UNINITIALISED, step, kind, int(lanes[index]), place, where, count, ("lds",))
        if RACES in self._names:
            places = (offsets[:, None] + np.arange(access.size)).ravel()
            owners = np.repeat(lanes, access.size).astype(np.int64)
            self._races(step, kind, access.size, places, owners, group)

    def _races(
        self,
        step: Step,
        kind: Kind,
        size: int,
        places: NDArray[np.int64],
        lanes: NDArray[np.int64],
        group: _Group,
    ) -> None:
        epoch, wave, record = group.epochs.get(step.wave, 0), step.wave, step.record
        against = tuple(Kind) if kind is Kind.WRITE else (Kind.WRITE,)
        for other_kind in against:
            touches = group.touches[other_kind]
            slots = touches.find(places, epoch, wave)
            hits = np.flatnonzero(slots >= 0)
            if len(hits):
                index = int(hits[0])
                at = int(slots[index]), int(places[index])
                party = self._party(step, int(touches.record[at]), other_kind, touches.wave[at], touches.lane[at])
                count = len(np.unique(lanes[hits]))
                self._race(step, kind, size, int(lanes[index]), int(places[index]), party, count)
        if kind is Kind.WRITE:
            _, firsts, counts = np.unique(places, return_index=True, return_counts=True)
            if (counts > 1).any():
                index = int(firsts[counts > 1][0])
                again = int(np.flatnonzero(places == places[index])[1])
                party = self._party(step, record, kind, wave, lanes[again])
                count = int(counts.sum() - len(counts)) // size or 1
                self._race(step, kind, size, int(lanes[index]), int(places[index]), party, count)
        group.touches[kind].add(places, lanes, epoch, wave, record)

    def _party(self, step: Step, record: int, kind: Kind, wave: int, lane: int) -> Party:
        return Party(step.code.address_of(record), step.code.text(record), kind, int(wave), int(lane))

    def _race(self, step: Step, kind: Kind, size: int, lane: int, byte: int, other: Party, count: int) -> None:
        where = f"{size} bytes of LDS, among them the one at offset {byte:#x}"
        self._report(RACES, step, kind, lane, byte, where, count, (other.address,), other)

    # Reports --------------------------------------------------------------------------------------------------------

    def _report(
        self,
        check: str,
        step: Step,
        kind: Kind,
        lane: int | None,
        place: int,
        where: str,
        count: int,
        key: tuple[object, ...],
        other: Party | None = None,
    ) -> None:
        """Add one finding per instruction and `key`; further ones are only counted."""
        whole = (check, step.record, kind, *key)
        known = self._findings.get(whole)
        if known is not None:
            self._findings[whole] = replace(known, count=known.count + count)
            return
        code = step.code
        self._findings[whole] = Finding(
            check,
            self._kernel,
            code.address_of(step.record),
            code.text(step.record),
            kind,
            step.workgroup,
            step.wave,
            lane,
            place,
            where,
            other,
            count,
        )


def _mnemonic(step: Step) -> str:
    """Return the mnemonic of the instruction at a step, without the encoding; empty past the end of the code."""
    found = step.code.locate(step.record)
    if found is None or found[0].opcode[found[1]] < 0:
        return ""
    return step.code.isa.opcode(int(found[0].opcode[found[1]])).mnemonic
