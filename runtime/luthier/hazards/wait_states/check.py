"""The check of hazards of one kernel."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from luthier.hazards.wait_states.dataflow import Flow
from luthier.hazards.wait_states.findings import HazardFinding, UnneededNop
from luthier.hazards.wait_states.kinds import test_of, units_of
from luthier.hazards.wait_states.model import HazardModel, Ticks
from luthier.hazards.wait_states.nops import unneeded_nops
from luthier.hazards.wait_states.state import Entry, State
from luthier.hazards.wait_states.steps import Step, Steps, instance_of
from luthier.isa.registers import UnitSet
from luthier.lifting.model import LiftedKernel
from luthier.lifting.paths import Place, place_of
from luthier.lifting.shortest_path import Passed, Ways


class HazardReport(Struct, frozen=True):
    """Findings of the check of one kernel."""

    kernel: str
    findings: tuple[HazardFinding, ...]
    """In the order of addresses."""
    unneeded: tuple[UnneededNop, ...]
    more: int = 0
    """Instructions with hazards that are in no finding: producers are looked for only so often (`MOST_SEARCHES`)."""
    consumers: tuple[tuple[Place, str], ...] = ()
    """Every instruction that is too near to others, with the hazard, also those that are in no finding."""
    possible: tuple[HazardFinding, ...] = ()
    """No findings, unless something is so that instructions do not show (`HazardFinding.only_if`)."""


MOST_SEARCHES = 300
"""Paths from a producer to a consumer that are looked for in one kernel: where there are thousands of findings, each
takes as long as the whole check."""


def check_hazards(
    lifted: LiftedKernel, unneeded: bool = True, searches: int = MOST_SEARCHES, steps: Steps | None = None
) -> HazardReport:
    """Check that a kernel, on every path, keeps apart what hardware does not.

    Args:
        unneeded: look for wait states that no path needs, too.
        searches: how often at most a producer is looked for.
        steps: of the kernel, where they are known.
    """
    steps = steps or Steps(lifted)
    flow = Flow(lifted, steps)
    nops = unneeded_nops(lifted, steps, flow) if unneeded else ()
    search = _Search(lifted, steps, flow, searches)
    hits = _hits(steps, flow)
    findings = tuple(finding for hit in hits for finding in search.explain(hit))
    return HazardReport(
        lifted.kernel.name,
        findings,
        tuple(UnneededNop(lifted.kernel.name, place_of(lifted, index), here, need) for index, here, need in nops),
        search.given_up,
        tuple((place_of(lifted, hit.step), flow.machine.model.rules[hit.rule].hazard.name) for hit in hits),
        tuple(_possible(lifted, steps.model)),
    )


def _possible(lifted: LiftedKernel, model: HazardModel) -> Iterator[HazardFinding]:
    native = lifted.effect_table.code(lifted.columns)
    for hazard in model.possible:
        has, role = test_of(hazard.consumer.kind), units_of(hazard.consumer.role)
        numbers = np.unique(lifted.code.opcode[lifted.reached]).tolist()
        opcodes = [number for number in numbers if number >= 0 and has(lifted.isa.opcode(number))]
        for index in np.flatnonzero(lifted.reached & np.isin(lifted.code.opcode, opcodes)).tolist():
            if units := role(instance_of(lifted.effect_table, native, lifted.columns, index)):
                block = lifted.block_of[index]
                yield HazardFinding(
                    kernel=lifted.kernel.name,
                    function=lifted.functions[lifted.blocks[block].function].name,
                    hazard=hazard.name,
                    consumer=place_of(lifted, index),
                    producer=None,
                    registers=UnitSet(units),
                    there=0,
                    needed=None,
                    clock=hazard.clock,
                    remedy=hazard.remedy,
                    path=(lifted.columns.address[lifted.blocks[block].first],),
                    only_if=hazard.only_if,
                )


class _Hit(Struct):
    """A consumer that is too near to producers."""

    step: int
    rule: int
    units: int
    there: int
    needed: int


class _Met(NamedTuple):
    """Distance and registers by which a producer and a consumer meet."""

    units: int
    there: int
    needed: int
    tag: int = 0
    """The producer's."""


def _hits(steps: Steps, flow: Flow) -> list[_Hit]:
    """Return the consumers that are too near, in the order of addresses."""
    hits: dict[tuple[int, int], _Hit] = {}

    def report(step: Step, entry: Entry, units: int, needed: int) -> None:
        hit = hits.setdefault((step.at, entry.rule), _Hit(step.at, entry.rule, 0, entry.age, needed))
        hit.units |= units
        if needed - entry.age > hit.needed - hit.there:
            hit.there, hit.needed = entry.age, needed

    for block, state in flow.states() if flow.suspicious else ():
        if block in flow.suspicious:
            flow.machine.run(state, steps.of(block), steps.length(block), report)
    return [hits[key] for key in sorted(hits)]


class _Search:
    """Search for the producers that a consumer is too near to, and for paths from them."""

    def __init__(self, lifted: LiftedKernel, steps: Steps, flow: Flow, searches: int) -> None:
        self._lifted, self._steps, self._machine = lifted, steps, flow.machine
        self._ways = Ways(lifted)
        self._left = searches
        self.given_up = 0
        """Consumers whose producers were not all looked for."""

    def explain(self, hit: _Hit) -> Iterator[HazardFinding]:
        """Yield a finding for each producer."""
        lifted, rule = self._lifted, self._machine.model.rules[hit.rule]
        if rule.hazard.producer is None:
            yield self._finding(hit, None, _Met(0, 0, 0), (lifted.block_of[hit.step],))
            return
        for block in lifted.blocks:
            for step in self._steps.of(block.index):
                for number, units, tag in step.makes:
                    if number != hit.rule or (rule.hazard.in_registers and not units & hit.units):
                        continue
                    if not self._left:
                        self.given_up += 1
                        return
                    self._left -= 1
                    way = self._way(block.index, step, Entry(number, rule.hazard.middle is None, units, tag, 0, 0), hit)
                    if way is not None:
                        path, met = way
                        yield self._finding(hit, step.at, met, path)

    def _finding(self, hit: _Hit, producer: int | None, met: _Met, path: tuple[int, ...]) -> HazardFinding:
        lifted, model, rule = self._lifted, self._machine.model, self._machine.model.rules[hit.rule]
        hazard = rule.hazard
        function = lifted.functions[lifted.blocks[lifted.block_of[hit.step]].function]
        return HazardFinding(
            lifted.kernel.name,
            function.name,
            hazard.name,
            place_of(lifted, hit.step),
            None if producer is None else place_of(lifted, producer),
            UnitSet(met.units if hazard.in_registers and met.units != 1 else 0),
            met.there,
            None if hazard.needed is None else met.needed,
            hazard.clock,
            hazard.remedy,
            tuple(lifted.columns.address[lifted.blocks[one].first] for one in path),
            model.only_on(rule, met.tag, met.there, met.needed),
        )

    def _way(self, block: int, producer: Step, entry: Entry, hit: _Hit) -> tuple[tuple[int, ...], _Met] | None:
        """Return the shortest path in blocks from a producer to the consumer, and how they meet."""

        def follow(index: int, steps: list[Step], state: State, start: Ticks) -> Passed[State, _Met]:
            found: list[_Met] = []

            def report(step: Step, met: Entry, units: int, needed: int) -> None:
                if step.at == hit.step and met.rule == hit.rule:
                    found.append(_Met(units, met.age, needed, met.tag))

            after = self._machine.run(state, steps, self._steps.length(index), report, start=start, only=True)
            return Passed(found[0] if found else None, after or None)

        start = Ticks(*(begin + own for begin, own in zip(producer.time, producer.own, strict=True)))
        behind = [step for step in self._steps.of(block) if step.at > producer.at]
        return self._ways.shortest(
            block,
            follow(block, behind, frozenset({entry}), start),
            lambda index, state: follow(index, self._steps.of(index), state, Ticks(0, 0, 0)),
        )
