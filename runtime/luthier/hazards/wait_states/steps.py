"""A kernel's instructions as the check of hazards sees them: blocks of steps, one for each that takes part."""

from __future__ import annotations

import bisect
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from luthier import _mc
from luthier.hazards.wait_states.kinds import IN_A_ROW, Instance, UnitsOf
from luthier.hazards.wait_states.model import HazardModel, Rule, Ticks, hazard_model
from luthier.hazards.wait_states.operands import UNLIMITED, Opcodes, Parties, Taking
from luthier.isa import Opcode
from luthier.lifting.instructions.effects import Columns, EffectTable
from luthier.lifting.model import LiftedKernel


class ConsumerCheck(NamedTuple):
    """An instruction as the consumer of a rule."""

    rule: int
    units: int
    tag: int
    """Tag that the producer's is compared with; 0: none."""
    at_most: int
    """Most that are needed, whatever the rule says."""
    sources: tuple[int, ...]
    """Units of its sources one by one, where it must meet two producers."""


class HazardStep(NamedTuple):
    """One instruction that takes part in hazards. All rules are by number."""

    at: int
    """The instruction."""
    time: Ticks
    """From the beginning of its block to it."""
    own: Ticks
    """It takes."""
    checks: tuple[ConsumerCheck, ...]
    """Checks as a consumer."""
    clears: tuple[int, ...]
    disarms: tuple[tuple[int, int], ...]
    """Rule, units."""
    arms: tuple[tuple[int, int], ...]
    """Rule and units, as the middle."""
    forgets: tuple[tuple[int, int], ...]
    seconds: tuple[tuple[int, int], ...]
    """Rule and units, as the second producer."""
    makes: tuple[tuple[int, int, int], ...]
    """Rule, units and tag, as a producer."""


SOURCES = ("src0", "src1", "src2")


def instance_of(
    table: EffectTable, native: _mc.Code, columns: Columns, index: int, first: int = 0, vectors: int = 0
) -> Instance:
    """Return an instruction as roles see it.

    Args:
        first: instruction before which nothing counts as in a row with it.
        vectors: VGPRs that the kernel can name; 0: not known.
    """
    reads, _, writes, *_ = native.effects(index)
    special = table.opcode(columns.opcode[index]).special
    if special == "everything":
        reads = writes = 0  # only the trap handler does, after the hardware has entered it
    elif special == "coordinates":
        reads = table.certain_reads(columns, index)
    masks = table.masks
    opcode = table.isa.opcode(columns.opcode[index])
    repeated = 0
    if opcode.pseudo.startswith(IN_A_ROW):
        while index - repeated > first and columns.opcode[index - repeated - 1] == columns.opcode[index]:
            repeated += 1
    return Instance(
        opcode,
        reads,
        writes,
        columns.values(index),
        [masks[register] for register in columns.registers(index)],
        vectors,
        repeated,
    )


class _Consumer(NamedTuple):
    """A rule as it asks for consumers: fields as of `ConsumerCheck`."""

    rule: int
    tag: int
    at_most: str
    by_sources: bool


class RolePlan(NamedTuple):
    """Roles to evaluate for instructions of an opcode.

    Each entry for an instruction that takes part ends with the number of the role that gives its registers.
    """

    roles: tuple[UnitsOf, ...]
    consumers: tuple[tuple[_Consumer, int], ...]
    others: tuple[tuple[tuple[int, int], ...], ...]
    """Rules of each field of `HazardStep` between `checks` and `makes`."""
    producers: tuple[tuple[int, int, int], ...]
    """Rules with tags."""


_OTHERS = ("cleared_by", "disarmed_by", "middle", "forgotten_by", "second")


def plan_of(model: HazardModel, opcode: Opcode, places: Iterable[tuple[int, str]]) -> RolePlan:
    """Return the roles to evaluate for instructions of an opcode.

    Args:
        places: rules and fields that they may stand for.
    """
    parts, rules = model.parts(opcode), model.rules
    numbers: dict[UnitsOf, int] = {}  # several rules ask for the same
    fields: dict[str, list[tuple[int, int]]] = {}
    for place in sorted(places):
        role = numbers.setdefault(parts[place], len(numbers))
        fields.setdefault(place[1], []).append((place[0], role))

    def consumer(rule: Rule) -> _Consumer:
        hazard = rule.hazard
        tag = 0 if hazard.tags == "any" else model.tag(rule, opcode)
        return _Consumer(rule.number, tag, hazard.at_most, hazard.second is not None)

    return RolePlan(
        tuple(numbers),
        tuple((consumer(rules[number]), role) for number, role in fields.get("consumer", ())),
        tuple(tuple(fields.get(name, ())) for name in _OTHERS),
        tuple((number, model.tag(rules[number], opcode), role) for number, role in fields.get("producer", ())),
    )


def fields_of(instance: Instance, plan: RolePlan) -> tuple[Any, ...]:
    """Return the fields of an instruction's `HazardStep` after its times."""
    units = [role(instance) for role in plan.roles]
    clears, *others = [[(rule, units[role]) for rule, role in field if units[role]] for field in plan.others]
    return (
        tuple([_check(instance, consumer, units[role]) for consumer, role in plan.consumers if units[role]]),
        tuple([rule for rule, _ in clears]),
        *map(tuple, others),
        tuple([(rule, units[role], tag) for rule, tag, role in plan.producers if units[role]]),
    )


def step_of(model: HazardModel, instance: Instance, index: int, time: Ticks, own: Ticks) -> HazardStep:
    """Return an instruction as a step.

    Args:
        time: from the beginning of its block.
        own: its duration.
    """
    plan = plan_of(model, instance.opcode, model.parts(instance.opcode))
    return HazardStep(index, time, own, *fields_of(instance, plan))


def _check(instance: Instance, consumer: _Consumer, units: int) -> ConsumerCheck:
    rule, tag, at_most, by_sources = consumer
    return ConsumerCheck(
        rule,
        units,
        tag,
        instance.value(at_most) if at_most else UNLIMITED,
        tuple([instance.units(name) for name in SOURCES]) if by_sources else (),
    )


def known_fields(
    opcodes: Opcodes,
    table: EffectTable,
    native: _mc.Code,
    columns: Columns,
    index: int,
    taking: Taking,
    first: int = 0,
    vectors: int = 0,
) -> tuple[Any, ...]:
    """Return what an instruction does, as the fields of a `HazardStep` after its times.

    It is cached for the next one with the same opcode and operands.

    Args:
        opcodes: of the processor.
        taking: what the instruction may stand for.
        first: as of `instance_of`, as are the others.
    """
    alike = columns.alike(index)
    found = taking.known.get(alike)
    if found is None:
        instance = instance_of(table, native, columns, index, first, vectors)
        plan = taking.plans.get(alike[0])
        if plan is None:
            plan = taking.plans[alike[0]] = plan_of(opcodes.model, instance.opcode, taking.places)
        found = fields_of(instance, plan)
        if alike[0] not in opcodes.single:
            opcodes.keep(taking, alike, found)
    return found


class HazardSteps:
    """The steps of all blocks of a kernel; made for a block when it is first asked for.

    Args:
        everything: no instruction that may take part is left out (`Parties`).
        only: the one block of which steps are asked for.
    """

    def __init__(self, lifted: LiftedKernel, everything: bool = False, only: int | None = None) -> None:
        self.lifted = lifted
        self.model = hazard_model(lifted.target, lifted.wave_size, lifted.isa.target.xnack is not False)
        self._native = lifted.effect_table.code(lifted.columns)
        self._vectors = lifted.kernel.descriptor.architected_vgprs
        self._blocks: dict[int, list[HazardStep]] = {}
        self._parties = Parties(lifted, self.model, everything=everything, only=only)
        self.total = total = self._parties.total
        """[n + 1, 3] ticks before each instruction in the order of addresses."""
        first, last = np.array([(block.first, block.last) for block in lifted.blocks]).T
        self._lengths: list[Ticks] = list(map(Ticks._make, (total[last + 1] - total[first]).tolist()))

    def changed(self, lifted: LiftedKernel, block: int) -> HazardSteps:
        """Return the steps of a kernel in which one block has other instructions.

        None of them takes part in a hazard in a new way, and control flow is the same.
        """
        steps = HazardSteps(lifted, everything=True, only=block)
        steps._blocks = {one.index: self.of(one.index) for one in self.lifted.blocks if one.index != block}
        return steps

    def of(self, block: int) -> list[HazardStep]:
        """Return the steps of a block."""
        steps = self._blocks.get(block)
        if steps is None:
            one, lifted, parties = self.lifted.blocks[block], self.lifted, self._parties
            at, columns, table = parties.at, lifted.columns, lifted.effect_table
            begin = bisect.bisect_left(at, one.first)
            steps = self._blocks[block] = []
            for number in range(begin, bisect.bisect_right(at, one.last, begin)):
                index, taking = at[number], parties.taking[number]
                does = known_fields(
                    parties.opcodes, table, self._native, columns, index, taking, one.first, self._vectors
                )
                if any(does):
                    steps.append(HazardStep(index, parties.times[number], parties.own[number], *does))
        return steps

    def length(self, block: int) -> Ticks:
        """Return the ticks of all instructions of a block."""
        return self._lengths[block]

    def until(self, block: int, index: int) -> Ticks:
        """Return the ticks from the beginning of a block to an instruction."""
        return Ticks._make((self.total[index] - self.total[self.lifted.blocks[block].first]).tolist())

    def nops(self) -> list[int]:
        """Return the instructions that do nothing but wait."""
        return [index for index in self._parties.nops if self.lifted.block_of[index] >= 0]
