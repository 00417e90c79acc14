"""The checks of `luthier check`: Luthier's own, named as in `luthier.findings.kinds`, and those of other packages.

Packages add a `Check` by an entry point of the group ``luthier.checks``, with the name of the check::

    [project.entry-points."luthier.checks"]
    barriers = "my_package:BARRIERS"
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from msgspec import Struct

from luthier.extensions.entry_points import CHECKS as GROUP
from luthier.extensions.records import Extensions
from luthier.findings.finding import Finding
from luthier.hazards.wait_counters import check_order, check_waits
from luthier.hazards.wait_states import check_hazards
from luthier.lifting.allocation import unallocated_memory, unallocated_registers
from luthier.lifting.representation import LiftedRepresentation


class StaticFinding(Protocol):
    """A finding on a path of a kernel. Its string is a line that begins with the kernel."""

    def to_json(self) -> Mapping[str, Any]:
        """Return the finding for JSON."""


@runtime_checkable
class HasFinding(Protocol):
    """A static finding that can be written to a SARIF log."""

    def finding(self, object: str) -> Finding:
        """Return the finding in a code object of this name."""


class CheckReport(Struct, frozen=True, kw_only=True):
    """Findings of a check in one kernel."""

    findings: Sequence[StaticFinding]
    """Defects, in the order of addresses."""
    unneeded: Sequence[StaticFinding] = ()
    """Instructions that can be removed (``--unneeded``); these are not defects."""
    possible: Sequence[StaticFinding] = ()
    """Findings that are defects only under a condition outside the code (``--possible``)."""
    more: int = 0
    """Number of instructions with defects that are in no finding."""
    unchecked: int = 0
    """Number of instructions that could not be checked."""
    data: Mapping[str, Any] | None = None
    """JSON form of the report, by keys of the kernel's object; None: the findings, under the name of the check."""


class Check(Struct, frozen=True, kw_only=True):
    """A check of one kernel on all its paths; its name is that of its entry point."""

    help: str
    """One-line description of the defects that it finds."""
    run: Callable[[LiftedRepresentation], CheckReport]
    """Function that checks a kernel; raises `LiftError` if the kernel cannot be checked."""
    unneeded: str = ""
    """Name of the unneeded instructions that it finds, such as waits; empty: it finds none."""


def _waits(lifted: LiftedRepresentation) -> CheckReport:
    report = check_waits(lifted)
    data = {
        "instructions": report.instructions,
        "unchecked": report.unchecked,
        "findings": [finding.to_json() for finding in report.findings],
        "unneeded": [wait.to_json() for wait in report.unneeded],
    }
    return CheckReport(findings=report.findings, unneeded=report.unneeded, unchecked=report.unchecked, data=data)


def _hazards(lifted: LiftedRepresentation) -> CheckReport:
    report = check_hazards(lifted)
    data = {
        "hazards": [finding.to_json() for finding in report.findings],
        "possible_hazards": [finding.to_json() for finding in report.possible],
        "more_hazards": report.more,
        "unneeded_nops": [nop.to_json() for nop in report.unneeded],
    }
    return CheckReport(
        findings=report.findings, unneeded=report.unneeded, possible=report.possible, more=report.more, data=data
    )


def _memory(lifted: LiftedRepresentation) -> CheckReport:
    registers, every = unallocated_registers(lifted), tuple(unallocated_memory(lifted))
    certain = tuple(each for each in every if each.only_if is None)
    possible = tuple(each for each in every if each.only_if is not None)
    data = {"registers": registers, "memory": certain, "possible_memory": possible}
    return CheckReport(
        findings=(*registers, *certain),
        possible=possible,
        data={name: [each.to_json() for each in found] for name, found in data.items()},
    )


def _race(lifted: LiftedRepresentation) -> CheckReport:
    findings = check_order(lifted)
    return CheckReport(findings=findings, data={"order": [finding.to_json() for finding in findings]})


WAITS = Check(help="registers that are used while an operation still accesses them", run=_waits, unneeded="waits")
HAZARDS = Check(help="instructions too close to each other (wait states)", run=_hazards, unneeded="s_nop")
RACE = Check(help="stores to LDS that other waves may not see after a barrier", run=_race)
MEMORY = Check(help="registers, LDS and private memory that the kernel descriptor does not allocate", run=_memory)

CHECKS = Extensions(
    GROUP,
    "check",
    Check,
    {name: f"luthier.hazards.checks:{name.upper()}" for name in ("waits", "hazards", "memory", "race")},
)
