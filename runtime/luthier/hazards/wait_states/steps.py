"""The instructions of a kernel for the check of hazards: blocks of steps, one for each instruction that takes part."""

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
    """Tag for the comparison with the producer's; 0: none."""
    at_most: int
    """Upper limit of the required distance."""
    sources: tuple[int, ...]
    """Units of each source, if it must meet two producers."""


class HazardStep(NamedTuple):
    """One instruction that takes part in hazards. All rules are by number."""

    at: int
    """The instruction."""
    time: Ticks
    """Ticks from the beginning of its block to it."""
    own: Ticks
    """Its ticks."""
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
    """Return the properties of an instruction for roles.

    Args:
        first: first instruction that may count as in a row with it.
        vectors: number of VGPRs that the kernel can name; 0: not known.
    """
    reads, _, writes, *_ = native.effects(index)
    special = table.opcode(columns.opcode[index]).special
    if special == "everything":
        reads = writes = 0  # only the trap handler accesses registers, after the hardware has entered it
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
    """Description of a rule's consumer; for the fields see `ConsumerCheck`."""

    rule: int
    tag: int
    at_most: str
    by_sources: bool


class RolePlan(NamedTuple):
    """Roles to evaluate for instructions of an opcode. The last number of each entry is the index of its role."""

    roles: tuple[UnitsOf, ...]
    consumers: tuple[tuple[_Consumer, int], ...]
    changes: tuple[tuple[tuple[int, int], ...], ...]
    """Rules of each field of `HazardStep` between `checks` and `makes`."""
    producers: tuple[tuple[int, int, int], ...]
    """Rules with tags."""


_OTHERS = ("cleared_by", "disarmed_by", "middle", "forgotten_by", "second")


def plan_of(model: HazardModel, opcode: Opcode, places: Iterable[tuple[int, str]]) -> RolePlan:
    """Return the roles to evaluate for instructions of an opcode.

    Args:
        places: their possible rules and fields.
    """
    parts, rules = model.parts(opcode), model.rules
    numbers: dict[UnitsOf, int] = {}  # shared by several rules
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
    clears, *fields = [[(rule, units[role]) for rule, role in field if units[role]] for field in plan.changes]
    return (
        tuple([_check(instance, consumer, units[role]) for consumer, role in plan.consumers if units[role]]),
        tuple([rule for rule, _ in clears]),
        *map(tuple, fields),
        tuple([(rule, units[role], tag) for rule, tag, role in plan.producers if units[role]]),
    )


def step_of(model: HazardModel, instance: Instance, index: int, time: Ticks, own: Ticks) -> HazardStep:
    """Return an instruction as a step.

    Args:
        time: ticks from the beginning of its block.
        own: its ticks.
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
    """Return the fields of an instruction's `HazardStep` after its times, cached by opcode and operands.

    Args:
        opcodes: facts about the processor's opcodes.
        taking: the possible roles of the instruction.
        first: see `instance_of`, also for the other arguments.
    """
    alike = columns.alike(index)
    fields = taking.known.get(alike)
    if fields is None:
        instance = instance_of(table, native, columns, index, first, vectors)
        plan = taking.plans.get(alike[0])
        if plan is None:
            plan = taking.plans[alike[0]] = plan_of(opcodes.model, instance.opcode, taking.places)
        fields = fields_of(instance, plan)
        if alike[0] not in opcodes.single:
            opcodes.keep(taking, alike, fields)
    return fields


class HazardSteps:
    """The steps of all blocks of a kernel, created for each block on demand.

    Args:
        everything: whether to include every instruction that may take part (`Parties`).
        only: restrict the steps to this block.
    """

    def __init__(self, lifted: LiftedKernel, everything: bool = False, only: int | None = None) -> None:
        self.lifted = lifted
        self.model = hazard_model(lifted.target, lifted.wave_size, lifted.isa.target.xnack is not False)
        self._native = lifted.effect_table.code(lifted.columns)
        self._vectors = lifted.kernel.descriptor.architected_vgprs
        self._blocks: dict[int, list[HazardStep]] = {}
        self._parties = Parties(lifted, self.model, everything=everything, only=only)
        self.total = total = self._parties.total
        """[n + 1, 3] sum of ticks before each instruction in the order of addresses."""
        first, last = np.array([(block.first, block.last) for block in lifted.blocks]).T
        self._lengths: list[Ticks] = list(map(Ticks._make, (total[last + 1] - total[first]).tolist()))

    def changed(self, lifted: LiftedKernel, block: int) -> HazardSteps:
        """Return the steps of a kernel that differs only in the instructions of one block.

        The new instructions have no new roles in hazards, and control flow is the same.
        """
        steps = HazardSteps(lifted, everything=True, only=block)
        steps._blocks = {one.index: self.of(one.index) for one in self.lifted.blocks if one.index != block}
        return steps

    def of(self, block: int) -> list[HazardStep]:
        """Return the steps of a block."""
        steps = self._blocks.get(block)
        if steps is None:
            bounds, lifted, parties = self.lifted.blocks[block], self.lifted, self._parties
            at, columns, table = parties.at, lifted.columns, lifted.effect_table
            begin = bisect.bisect_left(at, bounds.first)
            steps = self._blocks[block] = []
            for number in range(begin, bisect.bisect_right(at, bounds.last, begin)):
                index, taking = at[number], parties.taking[number]
                does = known_fields(
                    parties.opcodes, table, self._native, columns, index, taking, bounds.first, self._vectors
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
        """Return the instructions that only wait."""
        return [index for index in self._parties.nops if self.lifted.block_of[index] >= 0]
