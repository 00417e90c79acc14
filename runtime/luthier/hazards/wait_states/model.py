"""The hazards that one processor has (`Generation.hazards`), and how time is counted for them.

A generic processor has the strictest of those of all processors that run its code. LLVM 22 keeps apart for
``gfx9-4-generic`` what gfx942 needs, not what gfx950 needs.

The tests compare them with the wait states that LLVM inserts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, cached_property
from typing import NamedTuple

from msgspec.structs import replace

from luthier.arch import parties as p
from luthier.arch.hazards import Clock, Hazard
from luthier.arch.parties import MATRIX_KINDS, Party
from luthier.arch.target import Target
from luthier.arch.targets import processors_of
from luthier.hazards.wait_states.kinds import UnitsOf, either, may_play, test_of, units_of
from luthier.isa.instructions import InstructionFlag
from luthier.isa.opcodes import Opcode


class Rule(NamedTuple):
    """A row as the check applies it."""

    number: int
    """In `HazardModel.rules`."""
    hazard: Hazard
    window: int
    """Age, in its clock, at which a producer is forgotten; 0 where it never is."""

    @property
    def reach(self) -> int:
        """Return the largest distance between producer and consumer that the rule considers."""
        return self.window + (0 if self.hazard.second is None else self.hazard.second_within + 1)

    def needed(self, tag: int) -> int:
        """Return the distance needed between producer and consumer.

        Args:
            tag: the producer's, as `tag` gives it.
        """
        table = self.hazard.needed
        if table is None:
            return 0
        return table if isinstance(table, int) else table.get(tag, self.window)


class HazardModel:
    """The hazards of one processor at one wave size.

    Attributes:
        rules: the rows that hold; of a generic processor those of all that it stands for, each as the strictest has it.
        possible: rows that hold only where something is so that instructions do not show (`Hazard.only_if`).
    """

    def __init__(self, target: Target, wave_size: int, xnack: bool) -> None:
        self._passes = [(re.compile(one.names), one.passes) for one in target.passes]
        self._parts: dict[int, Mapping[tuple[int, str], UnitsOf]] = {}
        own = {
            one.name: [hazard for hazard in one.hazards if hazard.is_in(wave_size, xnack)]
            for one in processors_of(target)
        }
        rows = _alike(own)
        self.possible = tuple(first for first, *_ in (tuple(one.values()) for one in rows) if first.only_if)
        rows = [one for one in rows if not any(row.only_if for row in one.values())]
        self.rules = tuple(
            Rule(number, hazard, hazard.most()) for number, hazard in enumerate(_strictest(one) for one in rows)
        )
        self._rows = rows if len(own) > 1 else []
        """Of a generic processor, for each rule the rows of the processors that have it, by their names."""
        self._processors = len(own)
        self._parties: dict[p.InstructionKind, dict[p.HazardRole, list[tuple[int, str]]]] = {}
        """By kind and role the rules and fields that name it: rows share most of them."""
        for rule in self.rules:
            for name in PARTS:
                for party in rule.hazard.parties(name):
                    units_of(party.role)  # an error, if there is no such role
                    self._parties.setdefault(party.kind, {}).setdefault(party.role, []).append((rule.number, name))

    def only_on(self, rule: Rule, tag: int, there: int, needed: int) -> tuple[str, ...]:
        """Return the processors on which a producer is too near to a consumer; none for all that run the code.

        Args:
            tag: the producer's.
            there: distance between them.
            needed: that is needed, at most.
        """
        rows = self._rows[rule.number] if self._rows else {}
        names = tuple(
            name
            for name, row in rows.items()
            if row.needed is None or there < min(Rule(rule.number, row, row.most()).needed(tag), needed)
        )
        return names if len(names) < self._processors else ()

    @cached_property
    def behind_matrix_of_some(self) -> int:
        """Return the most wait states behind matrix instructions by rules in which processors of a generic one differ.

        A compiler may have inserted those of any of them.
        """
        return max(
            (
                rule.window
                for rule, rows in zip(self.rules, self._rows, strict=False)
                if rule.hazard.producer is not None
                and rule.hazard.producer.kind in MATRIX_KINDS
                and any(len(rows) < self._processors or row.needed != rule.hazard.needed for row in rows.values())
            ),
            default=0,
        )

    def tag(self, rule: Rule, opcode: Opcode) -> int:
        """Return the tag that a producer is recorded with, and a consumer compared by: its passes, or its opcode."""
        if isinstance(rule.hazard.needed, Mapping):
            return self.passes(opcode)
        return 0 if rule.hazard.tags == "any" else opcode.pseudo_number

    def passes(self, opcode: Opcode) -> int:
        """Return how many passes a matrix instruction takes, 0 if it is none: the first row that fits."""
        return next((count for names, count in self._passes if names.match(opcode.pseudo)), 0)

    def parts(self, opcode: Opcode) -> Mapping[tuple[int, str], UnitsOf]:
        """Return the parts that instructions of an opcode may have, as rule and field of `Hazard`.

        Each comes with what gives the units that they take part with.
        """
        known = self._parts.get(opcode.number)
        if known is None:
            found: dict[tuple[int, str], UnitsOf] = {}
            for kind, roles in self._parties.items():
                for role, places in roles.items() if test_of(kind)(opcode) else ():
                    if may_play(role, opcode):
                        for place in places:
                            units = units_of(role)
                            found[place] = either(found[place], units) if place in found else units
            known = self._parts[opcode.number] = dict(sorted(found.items()))
        return known

    def met_by(self, opcodes: Iterable[Opcode]) -> frozenset[int]:
        """Return the numbers of the rules that code with these opcodes may break.

        All operands without which there is no hazard are among the opcodes.
        """
        there = {place for opcode in opcodes for place in self.parts(opcode)}
        return frozenset(
            rule.number
            for rule in self.rules
            if all((rule.number, name) in there for name in NEEDED if rule.hazard.parties(name))
        )

    @cached_property
    def longest(self) -> int:
        """Return the most wait states that any hazard needs."""
        return max((rule.window for rule in self.rules if rule.hazard.clock == "states"), default=0)

    @cached_property
    def behind_vector_scalars(self) -> int:
        """Return the most wait states between a vector instruction that writes an SGPR, VCC or EXEC and any use."""
        return self._most("states", _writes_scalars)

    @cached_property
    def between_neighbours(self) -> tuple[Rule, ...]:
        """Return the rules by which an instruction and a user of its registers must be so many wait states apart."""
        return tuple(
            rule
            for rule in self.rules
            if rule.hazard.clock == "states"
            and rule.window
            and rule.hazard.in_registers
            and not rule.hazard.cleared_by
            and rule.hazard.producer is not None
            and rule.hazard.producer.kind not in MATRIX_KINDS
        )

    @cached_property
    def behind_dead_registers(self) -> tuple[Rule, ...]:
        """Return the rules that hold even where the values in the registers are dead.

        They are about scalars that a vector instruction has written, whatever has written them since (LLVM,
        getWaitStatesSinceDef), and about what is overwritten too early.
        """
        return tuple(
            rule
            for rule in self.between_neighbours
            if rule.hazard.consumer.role.access == "writes"
            or (rule.hazard.producer is not None and _writes_scalars(rule.hazard.producer))
        )

    @cached_property
    def behind_m0(self) -> int:
        """Return the most wait states that M0 needs after a scalar instruction that writes it."""
        return self._most("states", lambda one: one.role.access == "writes" and one.role.registers == p.M0)

    @cached_property
    def between_vectors(self) -> int:
        """Return the most wait states between a vector instruction that writes an SGPR and another that reads it."""
        return self._most("states", lambda one: one == p.VALU.writes(p.SGPRS), lambda one: one.kind == p.VALU.kind)

    @cached_property
    def behind_matrix(self) -> int:
        """Return the most wait states that any instruction may need after a matrix instruction of GFX9."""
        return self._most("states", lambda one: one.kind in MATRIX_KINDS)

    @cached_property
    def before_agpr_moves(self) -> int:
        """Return the most wait states that an AGPR move may need after anything but a matrix instruction."""
        return self._most("states", lambda one: one.kind not in MATRIX_KINDS, lambda one: one.kind in _AGPR_MOVES)

    @cached_property
    def behind_agpr_moves(self) -> int:
        """Return the most wait states that any instruction may need after a move of an AGPR to a VGPR."""
        return self._most(
            "states",
            lambda one: (
                one.kind == p.V_ACCVGPR_READ.kind or (_is_vector(one) and one.role == p.VALU.writes(p.VGPRS).role)
            ),
        )

    @cached_property
    def parted_by_v_nops(self) -> tuple[Rule, ...]:
        """Return the rules by which a vector instruction must be so many others behind one whose registers it uses."""
        return tuple(rule for rule in self.rules if rule.hazard.remedy == "v_nop" and _is_vector(rule.hazard.consumer))

    def v_nops_behind(self, opcodes: Iterable[Opcode | None]) -> int:
        """Return the most v_nop needed between instructions and a vector one; None is one that nobody knows."""
        rules = self.parted_by_v_nops
        parts = [None if opcode is None else self.parts(opcode) for opcode in opcodes] if rules else []
        return max(
            (rule.window for rule in rules if any(own is None or (rule.number, "producer") in own for own in parts)),
            default=0,
        )

    @cached_property
    def before_mode(self) -> int:
        """Return the most vector instructions needed between one that is no v_nop and an s_setreg of MODE."""
        return self._most("vector instructions", lambda one: True, lambda one: one.role == p.OF_MODE)

    @cached_property
    def behind_vskip(self) -> int:
        """Wait states between a change of MODE.vskip and a vector instruction."""
        return self._most("states", lambda one: one.kind == p.S_SETVSKIP.kind or one.role == p.SETS_VSKIP)

    def _most(
        self,
        clock: Clock,
        producer: Callable[[Party], bool],
        consumer: Callable[[Party], bool] = lambda one: True,
    ) -> int:
        return max(
            (
                rule.window
                for rule in self.rules
                if rule.hazard.clock == clock
                and rule.hazard.producer is not None
                and producer(rule.hazard.producer)
                and consumer(rule.hazard.consumer)
            ),
            default=0,
        )


def _alike(rows: Mapping[str, Iterable[Hazard]]) -> list[dict[str, Hazard]]:
    """Return the rows of several processors, those together that differ in nothing but how much they need."""
    found: dict[tuple[bool, Hazard], dict[str, Hazard]] = {}
    for name, own in rows.items():
        for row in own:
            key = row.needed is None, replace(row, needed=None, source="", until=())
            found.setdefault(key, {})[name] = row
    return list(found.values())


def _strictest(rows: Mapping[str, Hazard]) -> Hazard:
    """Return a row that asks for as much as each of these, which differ in nothing else."""
    first, *others = rows.values()
    if all(row.needed == first.needed for row in others):
        return first
    every = [first, *others]
    tags = {tag for row in every if isinstance(row.needed, Mapping) for tag in row.needed}

    def most(tag: int) -> int:
        return max(Rule(0, row, row.most()).needed(tag) for row in every)

    source = "; ".join(dict.fromkeys(row.source for row in every))
    return replace(first, needed={tag: most(tag) for tag in sorted(tags)} if tags else most(0), source=source)


def _writes_scalars(one: Party) -> bool:
    return _is_vector(one) and one.role.writes_scalars


def _is_vector(one: Party) -> bool:
    return "VALU" in one.kind.classes


_AGPR_MOVES = {p.V_ACCVGPR_READ.kind, p.V_ACCVGPR_WRITE.kind, p.MFMA_OR_V_ACCVGPR_WRITE.kind}
NEEDED = ("producer", "consumer", "middle", "second")
"""Fields of `Hazard` without whose operands there is none."""
PARTS = ("producer", "consumer", "middle", "second", "cleared_by", "disarmed_by", "forgotten_by")
"""Fields of `Hazard` that name operands."""


@cache
def hazard_model(target: Target, wave_size: int, xnack: bool = True) -> HazardModel:
    """Return the hazards of a processor.

    Args:
        xnack: whether code was built for, or also for, devices that may start memory instructions anew.
    """
    return HazardModel(target, wave_size, xnack and target.supports_xnack)


class Ticks(NamedTuple):
    """Time that an instruction takes, on every clock."""

    states: int
    vector: int
    transcendental: int


START = Ticks(0, 0, 0)
_NOP_FIELD = 15
_VECTOR, _TRANSCENDENTAL = int(InstructionFlag.VALU), int(InstructionFlag.TRANS)
_NO_VECTOR = int(InstructionFlag.VMEM | InstructionFlag.FLAT)


def ticks(opcode: Opcode, values: Sequence[int]) -> Ticks:
    """Return what an instruction counts between two others (LLVM, getNumWaitStates)."""
    states = (values[0] & _NOP_FIELD) + 1 if opcode.pseudo == "S_NOP" else 1
    flags = int(opcode.flags)
    return Ticks(states, int(bool(flags & _VECTOR and not flags & _NO_VECTOR)), int(bool(flags & _TRANSCENDENTAL)))
