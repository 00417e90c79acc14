"""The check of waits of one kernel."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from luthier.hazards.paths import PathCheck
from luthier.hazards.wait_counters.dataflow import PathState, WaitPart, WaitPaths
from luthier.hazards.wait_counters.findings import Access, UnneededWait, WaitFinding
from luthier.hazards.wait_counters.state import OutstandingUse
from luthier.hazards.wait_counters.steps import WaitSteps, narrowed
from luthier.hazards.wait_counters.unneeded import unneeded_waits
from luthier.isa.registers import UnitSet
from luthier.lifting.model import LiftedKernel
from luthier.lifting.paths import Paths, addresses_of, function_of, place_of


class WaitReport(Struct, frozen=True):
    """Findings of the check of one kernel."""

    kernel: str
    instructions: int
    """Number of reachable instructions in all its functions."""
    unchecked: int
    """Number of those that are undecodable, or select registers by computed numbers."""
    findings: tuple[WaitFinding, ...]
    """In the order of addresses."""
    unneeded: tuple[UnneededWait, ...]


def check_waits(lifted: LiftedKernel, unneeded: bool = True, steps: WaitSteps | None = None) -> WaitReport:
    """Check that a kernel waits, on every path, for the registers that it uses.

    Args:
        unneeded: whether to search for unneeded waits, too.
        steps: the kernel's steps, if already known.
    """
    model = WaitPaths(lifted, steps or WaitSteps(lifted))
    paths = Paths(model)
    waits = unneeded_waits(model, paths) if unneeded else ()
    return WaitReport(
        lifted.kernel.name,
        sum(block.last - block.first + 1 for block in lifted.blocks),
        model.steps.unchecked(),
        tuple(_findings(model, PathCheck(model, paths))),
        tuple(UnneededWait(lifted.kernel.name, place_of(lifted, index), reason) for index, reason in waits),
    )


def _findings(model: WaitPaths, check: PathCheck[PathState, WaitPart, OutstandingUse]) -> Iterator[WaitFinding]:
    lifted = model.lifted
    for use in check.meetings:
        stream = model.machine.model.streams[use.stream]
        access: Access = "overwrites a source of" if stream.locks else "overwrites" if use.writes else "reads"
        for producer, met, path in check.connections(use):
            yield WaitFinding(
                lifted.kernel.name,
                function_of(lifted, use.at),
                access,
                place_of(lifted, use.at),
                place_of(lifted, producer),
                UnitSet(narrowed(met.units)),
                model.machine.model.counters[stream.counter].name,
                met.position,
                addresses_of(lifted, path),
            )
