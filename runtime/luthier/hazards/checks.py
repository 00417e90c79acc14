"""The checks of `luthier check`: Luthier's own, named as in `luthier.findings.kinds`, and those that packages add.

A check is a `Check`. Those of packages are found by entry points of group ``luthier.checks``, which are called as the
check is::

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
    """Finding on a path of a kernel; its string is a line that begins with the kernel."""

    def to_json(self) -> Mapping[str, Any]:
        """Return the finding for JSON."""


@runtime_checkable
class HasFinding(Protocol):
    """Static finding that SARIF logs can have."""

    def finding(self, object: str) -> Finding:
        """Return it as a finding in a code object of this name."""


class CheckReport(Struct, frozen=True, kw_only=True):
    """Findings of a check in one kernel."""

    findings: Sequence[StaticFinding]
    """Defects, in the order of addresses."""
    unneeded: Sequence[StaticFinding] = ()
    """Findings of what may be left out (``--unneeded``): no defects."""
    possible: Sequence[StaticFinding] = ()
    """Findings that are defects only under a condition that the code does not show (``--possible``)."""
    more: int = 0
    """Instructions with defects that are in no finding."""
    unchecked: int = 0
    """Instructions that could not be checked."""
    data: Mapping[str, Any] | None = None
    """JSON form of the report, by keys of the kernel's object; None: the findings, under the name of the check."""


class Check(Struct, frozen=True, kw_only=True):
    """A check of one kernel on all its paths, which is called as its entry point is."""

    help: str
    """One line: what is looked for."""
    run: Callable[[LiftedRepresentation], CheckReport]
    """Function that checks a kernel; it raises `LiftError` if the kernel cannot be checked."""
    unneeded: str = ""
    """Name of the things that no path needs; empty: the check looks for none."""


def _waits(lifted: LiftedRepresentation) -> CheckReport:
    found = check_waits(lifted)
    data = {
        "instructions": found.instructions,
        "unchecked": found.unchecked,
        "findings": [finding.to_json() for finding in found.findings],
        "unneeded": [wait.to_json() for wait in found.unneeded],
    }
    return CheckReport(findings=found.findings, unneeded=found.unneeded, unchecked=found.unchecked, data=data)


def _hazards(lifted: LiftedRepresentation) -> CheckReport:
    found = check_hazards(lifted)
    data = {
        "hazards": [finding.to_json() for finding in found.findings],
        "possible_hazards": [finding.to_json() for finding in found.possible],
        "more_hazards": found.more,
        "unneeded_nops": [nop.to_json() for nop in found.unneeded],
    }
    return CheckReport(
        findings=found.findings, unneeded=found.unneeded, possible=found.possible, more=found.more, data=data
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


WAITS = Check(help="registers that are used before an operation is done with them", run=_waits, unneeded="waits")
HAZARDS = Check(help="instructions too near to each other (wait states)", run=_hazards, unneeded="s_nop")
RACE = Check(help="stores to LDS that other waves may not see behind a barrier", run=_race)
MEMORY = Check(help="registers, LDS and private memory that the kernel descriptor does not allocate", run=_memory)

CHECKS = Extensions(
    GROUP,
    "check",
    Check,
    {name: f"luthier.hazards.checks:{name.upper()}" for name in ("waits", "hazards", "memory", "race")},
)
