"""The check of hazards of one kernel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct

from luthier.hazards.paths import PathCheck
from luthier.hazards.wait_states.dataflow import HazardPaths
from luthier.hazards.wait_states.findings import HazardFinding, UnneededNop
from luthier.hazards.wait_states.kinds import test_of, units_of
from luthier.hazards.wait_states.model import HazardModel
from luthier.hazards.wait_states.nops import unneeded_nops
from luthier.hazards.wait_states.state import ProducerEntry, State, TooNear
from luthier.hazards.wait_states.steps import HazardSteps, instance_of
from luthier.isa.registers import UnitSet
from luthier.lifting.model import LiftedKernel
from luthier.lifting.paths import PathPoint, Paths, addresses_of, function_of, place_of


class HazardReport(Struct, frozen=True):
    """Findings of the check of one kernel."""

    kernel: str
    findings: tuple[HazardFinding, ...]
    """In the order of addresses."""
    unneeded: tuple[UnneededNop, ...]
    more: int = 0
    """Number of instructions with hazards that are in no finding, because of the limit `MOST_SEARCHES`."""
    consumers: tuple[tuple[PathPoint, str], ...] = ()
    """All consumers that are too close to a producer, with the hazard, including those that are in no finding."""
    possible: tuple[HazardFinding, ...] = ()
    """Hazards under a condition outside the code (`HazardFinding.only_if`)."""


MOST_SEARCHES = 300
"""Maximum number of searches for a path from a producer in one kernel: with thousands of findings, each search takes as
long as the whole check."""


def check_hazards(
    lifted: LiftedKernel, unneeded: bool = True, searches: int = MOST_SEARCHES, steps: HazardSteps | None = None
) -> HazardReport:
    """Check that a kernel keeps the required distances between instructions on every path.

    Args:
        unneeded: whether to search for unneeded wait states, too.
        searches: maximum number of searches for a producer.
        steps: the kernel's steps, if already known.
    """
    model = HazardPaths(lifted, steps or HazardSteps(lifted))
    paths = Paths(model)
    nops = unneeded_nops(model, paths) if unneeded else ()
    check = PathCheck(model, paths, searches)
    findings = tuple(_findings(model, check))
    rules = model.machine.model.rules
    return HazardReport(
        lifted.kernel.name,
        findings,
        tuple(UnneededNop(lifted.kernel.name, place_of(lifted, index), here, need) for index, here, need in nops),
        check.given_up,
        tuple((place_of(lifted, near.at), rules[near.rule].hazard.name) for near in check.meetings),
        tuple(_possible(lifted, model.machine.model)),
    )


def _findings(model: HazardPaths, check: PathCheck[State, ProducerEntry, TooNear]) -> Iterator[HazardFinding]:
    for near in check.meetings:
        if model.machine.model.rules[near.rule].hazard.producer is None:
            yield _finding(model, near, None, near, model.lifted.block_of[near.at : near.at + 1])
        else:
            for producer, met, path in check.connections(near):
                yield _finding(model, near, producer, met, path)


def _finding(
    model: HazardPaths, near: TooNear, producer: int | None, met: TooNear, path: Sequence[int]
) -> HazardFinding:
    lifted, hazards = model.lifted, model.machine.model
    rule = hazards.rules[near.rule]
    hazard = rule.hazard
    return HazardFinding(
        lifted.kernel.name,
        function_of(lifted, near.at),
        hazard.name,
        place_of(lifted, near.at),
        None if producer is None else place_of(lifted, producer),
        UnitSet(met.units if hazard.in_registers and met.units != 1 else 0),
        met.distance,
        None if hazard.needed is None else met.needed,
        hazard.clock,
        hazard.remedy,
        addresses_of(lifted, path),
        hazards.only_on(rule, met.tag, met.distance, met.needed),
    )


def _possible(lifted: LiftedKernel, model: HazardModel) -> Iterator[HazardFinding]:
    native = lifted.effect_table.code(lifted.columns)
    for hazard in model.possible:
        has, role = test_of(hazard.consumer.kind), units_of(hazard.consumer.role)
        numbers = np.unique(lifted.code.opcode[lifted.reached]).tolist()
        opcodes = [number for number in numbers if number >= 0 and has(lifted.isa.opcode(number))]
        for index in np.flatnonzero(lifted.reached & np.isin(lifted.code.opcode, opcodes)).tolist():
            if units := role(instance_of(lifted.effect_table, native, lifted.columns, index)):
                yield HazardFinding(
                    kernel=lifted.kernel.name,
                    function=function_of(lifted, index),
                    hazard=hazard.name,
                    consumer=place_of(lifted, index),
                    producer=None,
                    registers=UnitSet(units),
                    distance=0,
                    needed=None,
                    clock=hazard.clock,
                    remedy=hazard.remedy,
                    path=addresses_of(lifted, lifted.block_of[index : index + 1]),
                    only_if=hazard.only_if,
                )
