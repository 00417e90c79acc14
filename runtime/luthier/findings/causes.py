"""Findings with what follows from them: a program has fewer causes than wrong instructions."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct, field

from luthier.findings.finding import Finding, source_of

_CONSEQUENCES = {"init": ("memory",), "race": ("memory",), "fp": ("memory",), "host": ("memory", "host")}
"""Check -> checks whose finding at the same instruction or call is the cause."""
_CALL_ERROR = "call-error"
"""The only kind of `host` that follows from others: HIP refuses what they found."""


class Cause(Struct):
    """A finding, and those that are folded under it."""

    finding: Finding
    repeats: list[Finding] = field(default_factory=list)
    """The same at other instructions of its source line."""
    consequences: list[Finding] = field(default_factory=list)
    """What follows from it at the same instructions or calls."""

    @property
    def all(self) -> list[Finding]:
        """Return all findings, the cause first."""
        return [self.finding, *self.repeats, *self.consequences]


def causes(findings: Iterable[Finding]) -> list[Cause]:
    """Return the causes of findings, in their order.

    Two findings have one cause if they are of one kind, at instructions of one source line of one kernel, on the same
    side of an allocation, and the other accesses are of one line, too; or if one, at the same instruction or call, is a
    bad access of memory.
    """
    findings = list(findings)
    at_place: dict[tuple[str | int, ...], list[Finding]] = {}
    for finding in findings:
        at_place.setdefault(_place(finding), []).append(finding)
    roots: dict[int, Finding] = {}
    for finding in findings:
        why = _CONSEQUENCES.get(finding.check, ())
        if finding.check != "host" or finding.kind == _CALL_ERROR:
            for other in at_place[_place(finding)]:
                if other.check in why and other.kind not in (finding.kind, "leak"):
                    roots[id(finding)] = other
                    break
    by_line: dict[tuple[str | int, ...], Cause] = {}
    cause_of: dict[int, Cause] = {}
    for finding in findings:
        if id(finding) in roots:
            continue
        cause = by_line.get(_line(finding))
        if cause is None:
            cause = by_line[_line(finding)] = Cause(finding)
        else:
            cause.repeats.append(finding)
        cause_of[id(finding)] = cause
    for finding in findings:
        if id(finding) in roots:
            cause_of[id(roots[id(finding)])].consequences.append(finding)
    return list(by_line.values())


def _place(finding: Finding) -> tuple[str | int, ...]:
    """Return the instruction or call of a finding."""
    if not finding.object:
        return (id(finding),)
    return finding.process if finding.call or not finding.kernel else 0, *finding.site


def _line(finding: Finding) -> tuple[str | int, ...]:
    """Return the key that findings of one cause share, besides consequences."""
    frame = source_of(finding.frames)
    if not finding.kernel or frame is None or not frame.line:
        return (id(finding),)
    beside: tuple[str | int, ...] = ()
    if finding.other is not None:
        other = source_of(finding.other.frames)
        beside = (finding.other.object, finding.other.offset) if other is None else (other.file, other.line)
    # Instructions of one line that access memory differently are two errors: one reads too far, one writes.
    access = finding.access if finding.check == "memory" and finding.size else finding.rule
    base = 0 if finding.allocation is None else finding.allocation.address
    return finding.kind, finding.kernel, finding.object, frame.file, frame.line, finding.side, access, base, *beside
