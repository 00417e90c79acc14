"""The check of waits of one kernel."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from luthier.hazards.wait_counters.dataflow import Flow
from luthier.hazards.wait_counters.findings import Access, UnneededWait, WaitFinding
from luthier.hazards.wait_counters.state import State
from luthier.hazards.wait_counters.steps import Step, Steps, narrowed
from luthier.hazards.wait_counters.unneeded import unneeded_waits
from luthier.isa.registers import UnitSet
from luthier.lifting.model import LiftedKernel
from luthier.lifting.paths import place_of
from luthier.lifting.shortest_path import Passed, Ways


class WaitReport(Struct, frozen=True):
    """Findings of the check of one kernel."""

    kernel: str
    instructions: int
    """That control reaches, in all its functions."""
    unchecked: int
    """Number of them that are no known instruction or find registers by computed numbers."""
    findings: tuple[WaitFinding, ...]
    """In the order of addresses."""
    unneeded: tuple[UnneededWait, ...]


def check_waits(lifted: LiftedKernel, unneeded: bool = True, steps: Steps | None = None) -> WaitReport:
    """Check that a kernel, on every path, waits for what it uses.

    Args:
        unneeded: look for waits that no path needs, too.
        steps: of the kernel, where they are known.
    """
    steps = steps or Steps(lifted)
    flow = Flow(lifted, steps)
    waits = unneeded_waits(lifted, steps, flow) if unneeded else ()
    return WaitReport(
        lifted.kernel.name,
        sum(block.last - block.first + 1 for block in lifted.blocks),
        steps.unchecked(),
        tuple(_findings(lifted, steps, flow)),
        tuple(UnneededWait(lifted.kernel.name, place_of(lifted, index), reason) for index, reason in waits),
    )


class _Hit(Struct):
    """An access to outstanding registers, the worst of all contexts."""

    step: int
    stream: int
    writes: bool
    position: int
    units: int


def _findings(lifted: LiftedKernel, steps: Steps, flow: Flow) -> Iterator[WaitFinding]:
    hits: dict[tuple[int, int, bool], _Hit] = {}

    def report(step: Step, stream: int, position: int, units: int, writes: bool) -> None:
        key = step.first, stream, writes
        hit = hits.setdefault(key, _Hit(step.first, stream, writes, position, 0))
        hit.position = min(hit.position, position)
        hit.units |= units

    if not flow.suspicious:
        return
    for block, state in flow.states():
        if block in flow.suspicious:
            flow.machine.run(state, [one for step in steps.of(block) for one in steps.split(step)], report)
    search = _Search(lifted, steps, flow)
    for key in sorted(hits):
        yield from search.explain(hits[key])


class _Search:
    """Search for the operations that an access finds outstanding, and for paths from them."""

    def __init__(self, lifted: LiftedKernel, steps: Steps, flow: Flow) -> None:
        self._lifted = lifted
        self._steps = steps
        self._machine = flow.machine
        self._ways = Ways(lifted)

    def explain(self, hit: _Hit) -> Iterator[WaitFinding]:
        """Yield a finding for each operation; the nearest explain all units of the access."""
        stream = self._machine.model.streams[hit.stream]
        access: Access = "overwrites a source of" if stream.locks else "overwrites" if hit.writes else "reads"
        counter = self._machine.model.counters[stream.counter].name
        lifted = self._lifted
        for block in lifted.blocks:
            for number, step in enumerate(self._steps.of(block.index)):
                units = 0
                for issued, registers in step.issues:
                    if issued == hit.stream:
                        units = registers & hit.units
                if not units:
                    continue
                way = self._way(block.index, number, hit.stream, units, hit)
                if way is None:
                    continue
                path, (reached, position) = way
                function = lifted.functions[lifted.blocks[lifted.block_of[hit.step]].function]
                yield WaitFinding(
                    lifted.kernel.name,
                    function.name,
                    access,
                    place_of(lifted, hit.step),
                    place_of(lifted, step.first),
                    UnitSet(narrowed(reached)),
                    counter,
                    position,
                    tuple(lifted.columns.address[lifted.blocks[one].first] for one in path),
                )

    def _way(
        self, block: int, number: int, stream: int, units: int, hit: _Hit
    ) -> tuple[tuple[int, ...], tuple[int, int]] | None:
        """Return the shortest path in blocks from step `number` of a block to the access.

        It is the blocks, and which units are found, and the position.
        """
        machine, nothing = self._machine, self._machine.empty
        queues = [*nothing.queues]
        queues[stream] = (units,)
        at = self._lifted.block_of[hit.step]

        def follow(index: int, steps: list[Step], state: State) -> Passed[State, tuple[int, int]]:
            found: list[tuple[int, int]] = []

            def report(step: Step, where: int, position: int, some: int, writes: bool) -> None:
                if step.first == hit.step and where == stream and writes == hit.writes:
                    found.append((some, position))

            here = [one for step in steps for one in self._steps.split(step)] if at == index else steps
            after = machine.run(state, here, report, only=True)._replace(most=nothing.most)
            if not found:
                return Passed(None, after if any(after.queues) else None)
            some = 0
            for bits, _ in found:
                some |= bits
            return Passed((some, min(position for _, position in found)), None)

        first = follow(block, self._steps.of(block)[number + 1 :], nothing._replace(queues=tuple(queues)))
        return self._ways.shortest(block, first, lambda index, state: follow(index, self._steps.of(index), state))
