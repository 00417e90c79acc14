"""A kernel's instructions as the check of hazards sees them: blocks of steps, one for each that takes part."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from luthier import _mc
from luthier.isa.hazard_model import ALWAYS, PARTS, HazardModel, Rule, Ticks, hazard_model, ticks
from luthier.isa.hazard_parties import IN_A_ROW, Instance, Role
from luthier.lifting.instructions.effects import Columns, EffectTable
from luthier.lifting.model import LiftedKernel


class Check(NamedTuple):
    """An instruction as the consumer of a rule."""

    rule: int
    units: int
    tag: int
    """What the producer's is compared with; 0: nothing."""
    at_most: int
    """How many are needed, whatever the rule says."""
    sources: tuple[int, ...]
    """Units of its sources one by one, where it must meet two producers."""


class Step(NamedTuple):
    """One instruction that takes part in hazards. All rules are by number."""

    at: int
    """The instruction."""
    time: Ticks
    """From the beginning of its block to it."""
    own: Ticks
    """It takes."""
    checks: tuple[Check, ...]
    """As a consumer."""
    clears: tuple[int, ...]
    disarms: tuple[tuple[int, int], ...]
    """Rule, units."""
    arms: tuple[tuple[int, int], ...]
    """As the middle: rule, units."""
    forgets: tuple[tuple[int, int], ...]
    seconds: tuple[tuple[int, int], ...]
    """As the second producer: rule, units."""
    makes: tuple[tuple[int, int, int], ...]
    """As a producer: rule, units, tag."""


UNLIMITED = 1 << 30
SOURCES = ("src0", "src1", "src2")


def instance_of(
    table: EffectTable, native: _mc.Code, columns: Columns, index: int, first: int = 0, vectors: int = 0
) -> Instance:
    """An instruction as roles look at it.

    Args:
        first: instruction before which nothing counts as in a row with it.
        vectors: VGPRs that the kernel can name; 0: not known.
    """
    reads, _, writes, *_ = native.effects(index)
    if table.opcode(columns.opcode[index]).special == "everything":
        reads = writes = 0  # a trap handler may, behind what hardware does to enter it
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
        lambda: columns.values(index),
        lambda: [masks[register] for register in columns.registers(index)],
        vectors,
        repeated,
    )


def step_of(
    model: HazardModel, instance: Instance, index: int, time: Ticks, own: Ticks, parts: Iterable[tuple[int, str]]
) -> Step:
    """An instruction as a step.

    Args:
        time: from the beginning of its block.
        own: it takes.
        parts: rules and fields that it may stand for.
    """
    opcode, rules = instance.opcode, model.rules
    roles = model.parts(opcode)
    found: dict[str, list[tuple[int, int]]] = {}
    known: dict[Role, int] = {}  # several rules ask for the same
    for place in parts:
        units = 0
        for role in roles[place]:
            here = known.get(role)
            if here is None:
                here = known[role] = role(instance)
            units |= here
        if units:
            found.setdefault(place[1], []).append((place[0], units))
    return Step(
        index,
        time,
        own,
        tuple(_check(model, rules[number], instance, units) for number, units in found.get("consumer", ())),
        tuple(number for number, _ in found.get("cleared_by", ())),
        tuple(found.get("disarmed_by", ())),
        tuple(found.get("middle", ())),
        tuple(found.get("forgotten_by", ())),
        tuple(found.get("second", ())),
        tuple((number, units, model.tag(rules[number], opcode)) for number, units in found.get("producer", ())),
    )


def _check(model: HazardModel, rule: Rule, instance: Instance, units: int) -> Check:
    hazard = rule.hazard
    return Check(
        rule.number,
        units,
        0 if hazard.tags == "any" else model.tag(rule, instance.opcode),
        instance.value(hazard.at_most) if hazard.at_most else UNLIMITED,
        () if hazard.second is None else tuple(instance.units(name) for name in SOURCES),
    )


class Steps:
    """The steps of all blocks of a kernel; made for a block when it is first asked for.

    Rules of which a party is missing in the kernel, and instructions that are far from all others of their rules, are
    left out at once, unless instructions of others are to be among them.

    Args:
        everything: nothing is left out.
    """

    def __init__(self, lifted: LiftedKernel, everything: bool = False) -> None:
        self.lifted = lifted
        self.model = hazard_model(lifted.target, lifted.wave_size, lifted.isa.target.xnack is not False)
        self._native = lifted.effect_table.code(lifted.columns)
        self._blocks: dict[int, list[Step]] = {}
        self._lengths: dict[int, Ticks] = {}
        self._ticks = self._count()
        self.total = _sums(self._ticks)
        """[n + 1, 3] ticks before each instruction in the order of addresses."""
        self._parts = None if everything else self._taking_part()

    def changed(self, lifted: LiftedKernel, block: int) -> Steps:
        """Those of a kernel in which one block has other instructions, none a new party to a hazard, and control goes
        the same ways."""
        steps = Steps(lifted, everything=True)
        steps._blocks = {number: known for number, known in self._blocks.items() if number != block}
        steps._lengths = {number: known for number, known in self._lengths.items() if number != block}
        return steps

    def of(self, block: int) -> list[Step]:
        """The steps of a block."""
        steps = self._blocks.get(block)
        if steps is None:
            one = self.lifted.blocks[block]
            times = (self.total[one.first : one.last + 1] - self.total[one.first]).tolist()
            own = self._ticks[one.first : one.last + 1].tolist()
            steps = self._blocks[block] = [
                step
                for index in range(one.first, one.last + 1)
                if (parts := self._parts_of(index))
                and _does(step := self._step(index, one.first, times[index - one.first], own[index - one.first], parts))
            ]
        return steps

    def length(self, block: int) -> Ticks:
        """Ticks of all instructions of a block."""
        found = self._lengths.get(block)
        if found is None:
            one = self.lifted.blocks[block]
            found = self._lengths[block] = self._between(one.first, one.last + 1)
        return found

    def nops(self) -> list[int]:
        """Instructions that do nothing but wait."""
        return [index for index in self._all_nops if self.lifted.block_of[index] >= 0]

    def _between(self, first: int, end: int) -> Ticks:
        return Ticks(*(self.total[end] - self.total[first]).tolist())

    def _parts_of(self, index: int) -> Collection[tuple[int, str]]:
        """Rules and fields that an instruction may stand for."""
        if self._parts is not None:
            return self._parts.get(index, ())
        opcode = self.lifted.columns.opcode[index]
        return self.model.parts(self.lifted.isa.opcode(opcode)) if opcode >= 0 else ()

    def _step(
        self, index: int, first: int, time: list[int], own: list[int], parts: Collection[tuple[int, str]]
    ) -> Step:
        lifted = self.lifted
        vectors = lifted.kernel.descriptor.architected_vgprs
        instance = instance_of(lifted.effect_table, self._native, lifted.columns, index, first, vectors)
        return step_of(self.model, instance, index, Ticks(*time), Ticks(*own), parts)

    def _count(self) -> NDArray[np.int64]:
        """[n, 3] ticks of each instruction."""
        lifted = self.lifted
        numbers, which = np.unique(lifted.code.opcode, return_inverse=True)
        opcodes = [None if number < 0 else lifted.isa.opcode(number) for number in numbers.tolist()]
        found = np.array([(1, 0, 0) if one is None else ticks(one, [0]) for one in opcodes], np.int64)[which]
        nop = np.array([one is not None and one.pseudo == "S_NOP" for one in opcodes], np.bool_)
        self._all_nops: list[int] = np.flatnonzero(nop[which]).tolist()
        for index in self._all_nops:
            found[index, 0] = ticks(
                lifted.isa.opcode(lifted.columns.opcode[index]), lifted.columns.values(index)
            ).states
        return found

    def _taking_part(self) -> dict[int, list[tuple[int, str]]]:
        """Instruction -> rules and fields that it may stand for."""
        lifted = self.lifted
        numbers, which = np.unique(lifted.code.opcode, return_inverse=True)
        opcodes = {at: lifted.isa.opcode(number) for at, number in enumerate(numbers.tolist()) if number >= 0}
        members: dict[tuple[int, str], NDArray[np.bool_]] = {}
        sure: dict[int, NDArray[np.bool_]] = {}
        for at, opcode in opcodes.items():
            for place, roles in self.model.parts(opcode).items():
                members.setdefault(place, np.zeros(len(numbers), np.bool_))[at] = True
                if place[1] == "cleared_by" and ALWAYS in roles:
                    sure.setdefault(place[0], np.zeros(len(numbers), np.bool_))[at] = True
        nowhere = np.zeros(len(numbers), np.bool_)
        reached = np.array(lifted.block_of) >= 0
        found: defaultdict[int, list[tuple[int, str]]] = defaultdict(list)
        # As if no s_nop took time or cleared anything, so that what they keep apart is there to be looked at.
        without_nops = self._ticks.copy()
        without_nops[self._all_nops, 0] = 0
        near = _Near(lifted, _sums(without_nops))
        not_nops = np.ones(len(which), np.bool_)
        not_nops[self._all_nops] = False
        for number in sorted(self.model.met_by(opcodes.values())):
            rule = self.model.rules[number]
            places = {name: members[number, name][which] & reached for name in PARTS if (number, name) in members}
            near.only(rule, places, sure.get(number, nowhere)[which] & not_nops)
            for name, here in places.items():
                place = rule.number, name
                for index in np.flatnonzero(here).tolist():
                    found[index].append(place)
        return found


class _Near:
    """Leaves out, for one rule at a time, what takes no part in the end, without looking into instructions."""

    def __init__(self, lifted: LiftedKernel, total: NDArray[np.int64]) -> None:
        blocks = np.array(lifted.block_of)
        self._first = np.array([*(block.first for block in lifted.blocks), 0])[blocks]
        self._last = np.array([*(block.last for block in lifted.blocks), 0])[blocks]
        self._total = total
        self._index = np.arange(len(blocks))

    def only(self, rule: Rule, places: dict[str, NDArray[np.bool_]], sure: NDArray[np.bool_]) -> None:
        """Producers and consumers that have no partner within the rule's window, in the order of addresses, and are not
        that near to an end of their block; what has an instruction that clears for sure between itself and all its
        partners in its block.

        Args:
            rule: with its window.
            places: instructions by the fields that they may stand for; some are taken away.
            sure: those that clear whatever their operands are.
        """
        if "producer" in places and rule.window:
            clock = 1 if rule.hazard.clock == "vector instructions" else 0
            begin, end = self._total[:-1, clock], self._total[1:, clock]
            before = _last_before(np.where(places["producer"], end, -UNLIMITED), -UNLIMITED)
            after = -_last_before(np.where(places["consumer"], -begin, -UNLIMITED)[::-1], -UNLIMITED)[::-1]
            places["consumer"] &= (begin - before < rule.reach) | (begin - begin[self._first] < rule.reach)
            places["producer"] &= (after - end < rule.reach) | (end[self._last] - end < rule.reach)
        if "cleared_by" in places:
            hazard = rule.hazard
            if hazard.middle is None and hazard.clears_all:
                met = _first_behind(places["consumer"], self._index)
                gone = _first_behind(sure, self._index)
                places["producer"] &= (met <= gone) | (gone > self._last)
            # What an instruction may clear: what is armed, and where it clears all, what is not armed yet.
            armed = "middle" in places and not hazard.clears_all
            active = places["middle"] if armed else places["producer"] | places.get("middle", False)
            produced = np.maximum(_last_before(np.where(active, self._index, -1), -1), self._first - 1)
            cleared = _last_before(np.where(sure, self._index, -1), -1)
            there = (produced >= cleared) | (cleared < self._first)
            for name in ("cleared_by", "consumer", "disarmed_by"):
                if name in places:
                    places[name] &= there


def _sums(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """[n + 1, 3] sums of the rows before each."""
    return np.concatenate([np.zeros((1, 3), np.int64), np.cumsum(counts, axis=0)])


def _last_before(values: NDArray[np.int64], none: int) -> NDArray[np.int64]:
    """For each position the largest value before it."""
    return np.concatenate([[none], np.maximum.accumulate(values)[:-1]])


def _first_behind(places: NDArray[np.bool_], index: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each position the first of these places behind it."""
    return -_last_before(np.where(places, -index, -UNLIMITED)[::-1], -UNLIMITED)[::-1]


def _does(step: Step) -> bool:
    return any(step[3:])
