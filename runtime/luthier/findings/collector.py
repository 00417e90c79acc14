"""Merges equal findings, and makes findings from sightings of native code."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection

from msgspec import Struct

from luthier.arch.target import Target
from luthier.errors import DeviceError, EmulationError
from luthier.findings.calls import AllocationSites, Sites, first_call
from luthier.findings.finding import Finding, NearbyAllocation, Origin, Other, Unchecked
from luthier.findings.floats import cause
from luthier.findings.kinds import DECISIONS, FLOAT_KINDS, KIND_OF_NUMBER, LANES, PAIRED, FindingKind
from luthier.findings.unsafe_atomics import is_unsafe, why_unsafe
from luthier.objects import CodeObject
from luthier.objects.source import SourceFrame
from luthier.wire.messages import Sighting

NO_LANE = 0xFFFFFFFF
"""Lane of a `Sighting` of scalar values."""
_IN_MEMORY = "memory:"
"""Prefix of the URIs of code objects that ROCr loaded from memory."""
USES = ("decides a branch", "decides an address", "decides the active lanes", "is stored to memory")
"""Uses of an undefined value, by `luthier.emulator.layout.DECIDES_BRANCH` and the next numbers."""
_INACTIVE, _BEYOND = FindingKind.INACTIVE_LANE.label, FindingKind.BEYOND_WAVE.label
_OUTSIDE, _NOWHERE, _STOPPED = (kind.label for kind in (FindingKind.OUTSIDE, FindingKind.NOWHERE, FindingKind.STOPPED))
_RELEASE = FindingKind.MISSING_RELEASE.label
_UNSAFE_ATOMIC = FindingKind.UNSAFE_ATOMIC.label
_FENCES = (_RELEASE, FindingKind.MISSING_ACQUIRE.label)
UNKNOWN_MEMORY = AllocationSites()
InstructionSite = tuple[int, str, tuple[SourceFrame, ...], str]
"""Virtual address, text and source frames (innermost first) of an instruction, and why it has none; "" if it has."""


class KernelCode(Struct, frozen=True):
    """Code of a kernel with a finding."""

    kernel: str
    """Symbol."""
    object: str
    """Name of the code object."""
    instruction: Callable[[int], InstructionSite]
    """Returns the site of the instruction with this record."""
    of_program: bool = True
    """Whether the program launched it, not a runtime."""
    used_loads: Callable[[int, Collection[int]], Collection[int] | None] = lambda record, loads: None
    """Returns which of some loads an instruction may use the results of, all by record; None if unknown."""
    target: Target | None = None
    """Target of the code; None if unknown."""


class PairSighting(Struct, frozen=True):
    """A missing wait or a hazard in a launch."""

    kind: str
    """One of `luthier.findings.kinds.WATCHED`."""
    record: int
    other: int | None
    """Record of the operation or the earlier instruction; None if there is none."""
    rule: str
    detail: str
    """As in `Finding`."""
    lane: int
    """-1: no lane."""
    wave: int
    group: int


class FindingSet:
    """Findings of launches; equal findings are merged. Thread-safe.

    Args:
        kinds: wanted kinds, of `luthier.findings.kinds.KINDS`.
    """

    def __init__(self, kinds: Collection[str]) -> None:
        self.kinds = frozenset(kinds)
        self._lock = threading.Lock()
        self._findings: dict[tuple[str | int, ...], Finding] = {}
        self._unchecked: dict[Unchecked, None] = {}

    @property
    def findings(self) -> list[Finding]:
        """Return all findings so far, in order of arrival."""
        with self._lock:
            return list(self._findings.values())

    @property
    def unchecked(self) -> list[Unchecked]:
        """Return what could not be checked so far."""
        with self._lock:
            return list(self._unchecked)

    def leave(self, unchecked: Unchecked) -> None:
        """Record what could not be checked."""
        with self._lock:
            self._unchecked[unchecked] = None

    def keep(self, finding: Finding) -> None:
        """Add a finding."""
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
        calls: Sites = (),
        memory: AllocationSites = UNKNOWN_MEMORY,
        origin: Origin | None = None,
    ) -> None:
        """Add a finding for a sighting of native code.

        Args:
            code: code of the kernel that caused it; None if no kernel did.
            other: code of the other launch that is involved; None if there is none.
            calls: the calls that caused it, if no kernel did.
            memory: the allocation that it belongs to.
            origin: from where an undefined value comes.

        Raises:
            DeviceError: the kind is unknown, or does not involve another access.
        """
        kind = self.wanted(seen.kind)
        if kind is None:
            return
        if seen.has_other and kind not in PAIRED:
            raise DeviceError(f"a finding of kind {kind} cannot involve another access")
        finding = Finding(kind, process, address=seen.address, count=seen.count)
        finding.allocation = self.allocation(process, seen)
        call = first_call(calls)
        finding.belongs_to(memory)
        finding.origin = origin
        if code is not None:
            locate(finding, seen, code, other)
        elif (at := finding.allocated if kind == "leak" else call) is not None:
            finding.object, finding.is_python, finding.frames = at.object, at.is_python, at.frames
            finding.offset = 0 if at.is_python else at.offset
        if kind in DECISIONS | LANES and seen.lane == NO_LANE:
            finding.lane = -1
        if kind == _INACTIVE:
            doubt = ", or that was never written," * bool(self.kinds & DECISIONS)
            finding.detail = f"a value that a shuffle took from an inactive lane{doubt} {USES[seen.operands]}"
        if kind == _BEYOND:
            finding.detail = (
                "it names lanes from 32 on, which a wave of 32 lanes does not have: those 32 lower are taken"
            )
        if kind in _FENCES and code is not None and code.target is not None:
            finding.detail = _missing_fence(kind, code.target, apart=seen.group != seen.other_group)
        if kind == _UNSAFE_ATOMIC and code is not None and code.target is not None:
            if not is_unsafe(code.target, finding.instruction):
                return
            finding.detail = why_unsafe(code.target, seen.operands)
        if kind in FLOAT_KINDS:
            finding.detail = cause(kind, finding.instruction, seen.operands)
        if kind == _NOWHERE:
            finding.detail = self.place_of(process, seen.address)
            if finding.detail or not finding.is_near:
                finding.allocation = finding.allocated = finding.freed = None
        self.keep(finding)

    def add_fault(self, process: int, fault: EmulationError, code: KernelCode, record: int | None, launch: int) -> None:
        """Add a finding for a fault that stopped a launch.

        Args:
            code: code of the kernel.
            record: record of the instruction; None if the fault belongs to none.
            launch: number among the kernel's launches in the process.
        """
        wrong = fault.wrong
        if wrong is None or record is None:
            why = fault.message.partition("\n")[0]
            self.leave(Unchecked(process, code.kernel, "everything after it stopped", why))
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
        """Add a missing wait or a hazard that a launch met."""
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
        """Return the allocation that a sighting belongs to; None if unknown."""
        return NearbyAllocation(seen.base, seen.extent, seen.allocation) if seen.base or _is_lds(seen) else None

    def place_of(self, process: int, address: int) -> str:
        """Describe an address at which the device has no memory; "" if nothing is known about it."""
        return ""

    def wanted(self, number: int) -> str | None:
        """Return the kind with a number; None if it is not wanted.

        Raises:
            DeviceError: the kind is unknown.
        """
        kind = KIND_OF_NUMBER.get(number)
        if kind is None:
            raise DeviceError(f"a finding has the unknown kind {number}")
        return kind.label if kind.label in self.kinds else None


def _is_lds(seen: Sighting) -> bool:
    return bool(seen.in_lds and seen.extent)


def _missing_fence(kind: str, target: Target, *, apart: bool) -> str:
    """Describe the missing fence between two accesses; `apart`: of two work-groups."""
    parts = target.release_fence if kind == _RELEASE else target.acquire_fence
    scope = "agent" if apart else "workgroup"
    if not apart:  # the cache, or the wait, within a work-group
        parts = parts[-1:]
    needed = ", then ".join(parts)
    if not apart:
        needed = needed.replace("SCOPE_DEV", "SCOPE_SE")
    if kind == _RELEASE:
        return (
            f"the other access may not be visible: a release fence of the scope {scope} ({needed}) is missing between "
            "it and the atomic that sets the flag or frees the lock"
        )
    return (
        f"it may see what was there before the other access: an acquire fence of the scope {scope} ({needed}) is "
        "missing after the atomic that sees the flag or takes the lock"
    )


def locate(finding: Finding, seen: Sighting, code: KernelCode, other: KernelCode | None) -> None:
    """Set the location of a finding, and the other instruction that is involved."""
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
    """Return the site of an instruction.

    Args:
        address: virtual address.
        object: its code object; None if unknown.
    """
    if object is None:
        return address, text, (), "its code object is unknown"
    location = object.source.at(address)
    if location is not None:
        return address, text, location.frames, ""
    problem = "; ".join(object.source.problems) or "debug information has none for this instruction"
    if object.name.startswith(_IN_MEMORY) and not object.source.present:
        problem += " (if the program compiled it at run time, that needs -g, too)"
    return address, text, (), problem
