"""Keeps equal findings as one, and makes them of what native code has seen."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence

from msgspec import Struct

from luthier.errors import DeviceError, EmulationError
from luthier.findings.calls import Sites, first_call
from luthier.findings.finding import Finding, NearbyAllocation, Other, Unchecked
from luthier.findings.floats import cause
from luthier.findings.kinds import DECISIONS, FLOAT_KINDS, KIND_OF_NUMBER, PAIRED, FindingKind
from luthier.objects import CodeObject
from luthier.objects.source import SourceFrame
from luthier.wire.messages import Sighting

NO_LANE = 0xFFFFFFFF
"""Lane of a `Sighting` of scalar values."""
_IN_MEMORY = "memory:"
"""Begins the URIs of code objects that ROCr has loaded from memory."""
_OUTSIDE, _NOWHERE, _STOPPED = (kind.label for kind in (FindingKind.OUTSIDE, FindingKind.NOWHERE, FindingKind.STOPPED))
InstructionSite = tuple[int, str, tuple[SourceFrame, ...], str]
"""Virtual address, text and source of an instruction, innermost first, and why that is not known; empty where it is."""


class KernelCode(Struct, frozen=True):
    """Code of a kernel in which something is found."""

    kernel: str
    """Symbol."""
    object: str
    """Name of the code object."""
    instruction: Callable[[int], InstructionSite]
    """Called with an instruction's record."""
    of_program: bool = True
    """Whether the program launches it, not a runtime for itself."""


class PairSighting(Struct, frozen=True):
    """A missing wait or a hazard, as a launch met it."""

    kind: str
    """One of `luthier.findings.kinds.WATCHED`."""
    record: int
    other: int | None
    """Record of the operation, or of the instruction before; None: there is none."""
    rule: str
    detail: str
    """As of `Finding`."""
    lane: int
    """-1: none."""
    wave: int
    group: int


class FindingSet:
    """Findings of launches, equal ones as one. Safe from several threads.

    Args:
        kinds: what is wanted, of `luthier.findings.kinds.KINDS`.
    """

    def __init__(self, kinds: Collection[str]) -> None:
        self.kinds = frozenset(kinds)
        self._lock = threading.Lock()
        self._findings: dict[tuple[str | int, ...], Finding] = {}
        self._unchecked: dict[Unchecked, None] = {}

    @property
    def findings(self) -> list[Finding]:
        """Return all findings so far, in the order in which they came."""
        with self._lock:
            return list(self._findings.values())

    @property
    def unchecked(self) -> list[Unchecked]:
        """Return what could not be checked so far."""
        with self._lock:
            return list(self._unchecked)

    def leave(self, unchecked: Unchecked) -> None:
        """Take what could not be checked."""
        with self._lock:
            self._unchecked[unchecked] = None

    def keep(self, finding: Finding) -> None:
        """Take a finding."""
        with self._lock:
            known = self._findings.setdefault(finding.key, finding)
            if known is not finding:
                known.merge(finding)

    def add(
        self,
        process: int,
        seen: Sighting,
        code: KernelCode | None,
        other: KernelCode | None = None,
        calls: Sequence[Sites] = ((), (), ()),
    ) -> None:
        """Take what native code has seen.

        Args:
            code: code of the kernel that did it; None if no kernel did.
            other: code of another launch that has to do with it; None if there is none.
            calls: that did it, if no kernel did, that asked for the allocation, and that gave it back.

        Raises:
            DeviceError: there is no such kind, or nothing else has to do with it.
        """
        kind = self.wanted(seen.kind)
        if kind is None:
            return
        if seen.has_other and kind not in PAIRED:
            raise DeviceError(f"a finding of the kind {kind} that tells of another access")
        finding = Finding(kind, process, address=seen.address, count=seen.count)
        finding.allocation = self.allocation(process, seen)
        call, finding.allocated, finding.freed = (first_call(sites) for sites in calls)
        if code is not None:
            locate(finding, seen, code, other)
        elif (at := finding.allocated if kind == "leak" else call) is not None:
            finding.object, finding.offset, finding.frames = at.object, at.offset, at.frames
        if kind in DECISIONS and seen.lane == NO_LANE:
            finding.lane = -1
        if kind in FLOAT_KINDS:
            finding.detail = cause(kind, finding.instruction, seen.operands)
        if kind == _NOWHERE:
            finding.detail = self.place_of(process, seen.address)
            if finding.detail or not finding.is_near:
                finding.allocation = finding.allocated = finding.freed = None
        self.keep(finding)

    def add_fault(self, process: int, fault: EmulationError, code: KernelCode, record: int | None, launch: int) -> None:
        """Take what stopped a launch.

        Args:
            code: code of the kernel.
            record: of its instruction; None if it is not about one.
            launch: its number among those of the kernel in the process.
        """
        wrong = fault.wrong
        if wrong is None or record is None:
            why = fault.message.partition("\n")[0]
            self.leave(Unchecked(process, code.kernel, "what comes after it stopped", why))
            return
        finding = Finding(_STOPPED, process, code.kernel, code.object, *code.instruction(record))
        finding.lane, finding.wave, finding.group = wrong.lane, wrong.wave, wrong.group
        finding.first_launch = finding.last_launch = launch
        if wrong.space:
            finding.kind, finding.address, finding.size = _NOWHERE, wrong.address, wrong.size
        else:
            finding.detail = wrong.what
        if wrong.space == "LDS":
            finding.kind, finding.in_lds, finding.allocation = _OUTSIDE, True, NearbyAllocation(0, wrong.extent, 0)
        if finding.kind in self.kinds:
            self.keep(finding)

    def add_pair(self, process: int, seen: PairSighting, code: KernelCode, launch: int) -> None:
        """Take a missing wait or a hazard that a launch of a process met."""
        if seen.kind not in self.kinds:
            return
        finding = Finding(seen.kind, process, code.kernel, code.object, *code.instruction(seen.record))
        finding.rule, finding.detail = seen.rule, seen.detail
        finding.lane, finding.wave, finding.group = seen.lane, seen.wave, seen.group
        finding.first_launch = finding.last_launch = launch
        if seen.other is not None:
            finding.other = Other(code.object, *code.instruction(seen.other), wave=seen.wave, group=seen.group)
        self.keep(finding)

    def allocation(self, process: int, seen: Sighting) -> NearbyAllocation | None:
        """Return the allocation that something was seen of; None: none is known."""
        return NearbyAllocation(seen.base, seen.extent, seen.allocation) if seen.base or _is_lds(seen) else None

    def place_of(self, process: int, address: int) -> str:
        """Return what an address is where a device has no memory; empty if nothing is known of it."""
        return ""

    def wanted(self, number: int) -> str | None:
        """Return the kind of what was seen; None if it is not wanted.

        Raises:
            DeviceError: there is no such kind.
        """
        kind = KIND_OF_NUMBER.get(number)
        if kind is None:
            raise DeviceError(f"a finding of the unknown kind {number}")
        return kind.label if kind.label in self.kinds else None


def _is_lds(seen: Sighting) -> bool:
    return bool(seen.in_lds and seen.extent)


def locate(finding: Finding, seen: Sighting, code: KernelCode, other: KernelCode | None) -> None:
    """Put into a finding where it was seen, and the other instruction that has to do with it."""
    finding.kernel, finding.object = code.kernel, code.object
    finding.offset, finding.instruction, finding.frames, finding.no_source = code.instruction(seen.record)
    finding.in_lds = bool(seen.in_lds)
    if seen.has_other:
        second = other or code
        finding.other = Other(
            second.object,
            *second.instruction(seen.other_record),
            lane=seen.other_lane,
            wave=seen.other_wave,
            group=seen.other_group,
            size=seen.other_size,
            address=seen.other_address,
            kernel="" if other is None else other.kernel,
            launch=seen.other_launch,
        )
    finding.lane, finding.wave, finding.group, finding.size = seen.lane, seen.wave, seen.group, seen.size
    finding.first_launch = finding.last_launch = seen.launch


def instruction_site(address: int, text: str, object: CodeObject | None) -> InstructionSite:
    """Return where an instruction is.

    Args:
        address: its virtual address.
        object: the code object that it is from; None if that is not known.
    """
    if object is None:
        return address, text, (), "its code object is not known"
    location = object.source.at(address)
    if location is not None:
        return address, text, location.frames, ""
    problem = "; ".join(object.source.problems) or "debug information has none for this instruction"
    if object.name.startswith(_IN_MEMORY) and not object.source.present:
        problem += " (the program may have compiled it itself: -g is an option of that, too)"
    return address, text, (), problem
