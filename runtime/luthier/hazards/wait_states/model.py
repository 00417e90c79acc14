"""The hazards of one processor (`Generation.hazards`), and the clocks that measure distances.

A generic processor has the strictest hazards of all processors that run its code. For ``gfx9-4-generic``, LLVM 22
inserts the wait states of gfx942, not those of gfx950.

The tests compare the hazards with the wait states that LLVM inserts.
"""

from __future__ import annotations

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
    """A row of the table of hazards for the check."""

    number: int
    """Index in `HazardModel.rules`."""
    hazard: Hazard
    window: int
    """Age in the rule's clock at which a producer is forgotten; 0: never."""

    @property
    def reach(self) -> int:
        """Return the maximum distance between producer and consumer that the rule considers."""
        return self.window + (0 if self.hazard.second is None else self.hazard.second_within + 1)

    def needed(self, tag: int) -> int:
        """Return the required distance between producer and consumer.

        Args:
            tag: the producer's tag (`HazardModel.tag`).
        """
        table = self.hazard.needed
        if table is None:
            return 0
        return table if isinstance(table, int) else table.get(tag, self.window)


class HazardModel:
    """The hazards of one processor at one wave size.

    Attributes:
        rules: the applicable rows; of a generic processor the strictest ones of all its members.
        possible: rows that apply only under a condition outside the code (`Hazard.only_if`).
    """

    def __init__(self, target: Target, wave_size: int, xnack: bool) -> None:
        self._target = target
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
        """Of a generic processor, for each rule: member's name -> its row."""
        self._processors = len(own)
        self._parties: dict[p.InstructionKind, dict[p.HazardRole, list[tuple[int, str]]]] = {}
        """Kind -> role -> the rules and fields that refer to it. Rows share most of these."""
        for rule in self.rules:
            for name in PARTS:
                for party in rule.hazard.parties(name):
                    units_of(party.role)  # raises an error if the role is unknown
                    self._parties.setdefault(party.kind, {}).setdefault(party.role, []).append((rule.number, name))

    def only_on(self, rule: Rule, tag: int, distance: int, needed: int) -> tuple[str, ...]:
        """Return the processors on which a producer is too close to a consumer; empty: all that run the code.

        Args:
            tag: the producer's tag.
            distance: distance between them.
            needed: upper limit of the required distance.
        """
        rows = self._rows[rule.number] if self._rows else {}
        names = tuple(
            name
            for name, row in rows.items()
            if row.needed is None or distance < min(Rule(rule.number, row, row.most()).needed(tag), needed)
        )
        return names if len(names) < self._processors else ()

    @cached_property
    def behind_matrix_of_some(self) -> int:
        """Return the maximum wait states after matrix instructions by rules in which members of a generic one differ.

        A compiler may have inserted those of any member.
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
        """Return the tag of an instruction as a producer or consumer: its passes, or its opcode."""
        if isinstance(rule.hazard.needed, Mapping):
            return self.passes(opcode)
        return 0 if rule.hazard.tags == "any" else opcode.pseudo_number

    def passes(self, opcode: Opcode) -> int:
        """Return the number of passes of a matrix instruction (`Generation.passes_of`), 0 for others."""
        return self._target.passes_of(opcode.pseudo)

    def parts(self, opcode: Opcode) -> Mapping[tuple[int, str], UnitsOf]:
        """Return the possible parts of instructions of an opcode: (rule, field of `Hazard`) -> function of units."""
        known = self._parts.get(opcode.number)
        if known is None:
            parts: dict[tuple[int, str], UnitsOf] = {}
            for kind, roles in self._parties.items():
                for role, places in roles.items() if test_of(kind)(opcode) else ():
                    if may_play(role, opcode):
                        for place in places:
                            units = units_of(role)
                            parts[place] = either(parts[place], units) if place in parts else units
            known = self._parts[opcode.number] = dict(sorted(parts.items()))
        return known

    def met_by(self, opcodes: Iterable[Opcode]) -> frozenset[int]:
        """Return the numbers of the rules that code with these opcodes may violate: all necessary operands occur."""
        possible = {place for opcode in opcodes for place in self.parts(opcode)}
        return frozenset(
            rule.number
            for rule in self.rules
            if all((rule.number, name) in possible for name in NEEDED if rule.hazard.parties(name))
        )

    @cached_property
    def longest(self) -> int:
        """Return the maximum wait states of any hazard."""
        return max((rule.window for rule in self.rules if rule.hazard.clock == "states"), default=0)

    @cached_property
    def behind_vector_scalars(self) -> int:
        """Return the maximum wait states between a vector instruction that writes an SGPR, VCC or EXEC and any use."""
        return self._most("states", _writes_scalars)

    @cached_property
    def between_neighbours(self) -> tuple[Rule, ...]:
        """Return the rules that require wait states between an instruction and a user of its registers."""
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
        """Return the rules that apply even if the values in the registers are dead.

        They concern scalars written by a vector instruction, regardless of later writes (LLVM, getWaitStatesSinceDef),
        and registers that are overwritten too early.
        """
        return tuple(
            rule
            for rule in self.between_neighbours
            if rule.hazard.consumer.role.access == "writes"
            or (rule.hazard.producer is not None and _writes_scalars(rule.hazard.producer))
        )

    @cached_property
    def behind_m0(self) -> int:
        """Return the maximum wait states after a scalar instruction that writes M0."""
        return self._most("states", lambda party: party.role.access == "writes" and party.role.registers == p.M0)

    @cached_property
    def between_vectors(self) -> int:
        """Return the maximum wait states between a vector instruction that writes an SGPR and one that reads it."""
        return self._most(
            "states", lambda party: party == p.VALU.writes(p.SGPRS), lambda party: party.kind == p.VALU.kind
        )

    @cached_property
    def behind_matrix(self) -> int:
        """Return the maximum wait states of any instruction after a matrix instruction of GFX9."""
        return self._most("states", lambda party: party.kind in MATRIX_KINDS)

    @cached_property
    def before_agpr_moves(self) -> int:
        """Return the maximum wait states of an AGPR move after anything but a matrix instruction."""
        return self._most(
            "states", lambda party: party.kind not in MATRIX_KINDS, lambda party: party.kind in _AGPR_MOVES
        )

    @cached_property
    def behind_agpr_moves(self) -> int:
        """Return the maximum wait states of any instruction after a move of an AGPR to a VGPR."""
        return self._most(
            "states",
            lambda party: (
                party.kind == p.V_ACCVGPR_READ.kind or (_is_vector(party) and party.role == p.VALU.writes(p.VGPRS).role)
            ),
        )

    @cached_property
    def parted_by_v_nops(self) -> tuple[Rule, ...]:
        """Return the rules that require other vector instructions between one and a user of its registers."""
        return tuple(rule for rule in self.rules if rule.hazard.remedy == "v_nop" and _is_vector(rule.hazard.consumer))

    def v_nops_behind(self, opcodes: Iterable[Opcode | None]) -> int:
        """Return the maximum v_nop between instructions and a vector instruction; None stands for unknown ones."""
        rules = self.parted_by_v_nops
        parts = [None if opcode is None else self.parts(opcode) for opcode in opcodes] if rules else []
        return max(
            (rule.window for rule in rules if any(own is None or (rule.number, "producer") in own for own in parts)),
            default=0,
        )

    @cached_property
    def before_mode(self) -> int:
        """Return the maximum vector instructions required between one that is not v_nop and an s_setreg of MODE."""
        return self._most("vector instructions", lambda party: True, lambda party: party.role == p.OF_MODE)

    @cached_property
    def behind_vskip(self) -> int:
        """Return the wait states between a change of MODE.vskip and a vector instruction."""
        return self._most("states", lambda party: party.kind == p.S_SETVSKIP.kind or party.role == p.SETS_VSKIP)

    def _most(
        self,
        clock: Clock,
        producer: Callable[[Party], bool],
        consumer: Callable[[Party], bool] = lambda party: True,
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
    """Return the rows of several processors, grouped if they differ only in the required distance."""
    groups: dict[tuple[bool, Hazard], dict[str, Hazard]] = {}
    for name, own in rows.items():
        for row in own:
            key = row.needed is None, replace(row, needed=None, source="", until=())
            groups.setdefault(key, {})[name] = row
    return list(groups.values())


def _strictest(rows: Mapping[str, Hazard]) -> Hazard:
    """Return the row with the largest required distance of rows that differ only in it."""
    every = list(rows.values())
    first = every[0]
    if all(row.needed == first.needed for row in every):
        return first
    tags = {tag for row in every if isinstance(row.needed, Mapping) for tag in row.needed}

    def most(tag: int) -> int:
        return max(Rule(0, row, row.most()).needed(tag) for row in every)

    source = "; ".join(dict.fromkeys(row.source for row in every))
    return replace(first, needed={tag: most(tag) for tag in sorted(tags)} if tags else most(0), source=source)


def _writes_scalars(party: Party) -> bool:
    return _is_vector(party) and party.role.writes_scalars


def _is_vector(party: Party) -> bool:
    return "VALU" in party.kind.classes


_AGPR_MOVES = {p.V_ACCVGPR_READ.kind, p.V_ACCVGPR_WRITE.kind, p.MFMA_OR_V_ACCVGPR_WRITE.kind}
NEEDED = ("producer", "consumer", "middle", "second")
"""Fields of `Hazard` whose operands are necessary for a hazard."""
PARTS = ("producer", "consumer", "middle", "second", "cleared_by", "disarmed_by", "forgotten_by")
"""Fields of `Hazard` with operands."""


@cache
def hazard_model(target: Target, wave_size: int, xnack: bool = True) -> HazardModel:
    """Return the hazards of a processor.

    Args:
        xnack: whether the code may run on devices that replay memory instructions.
    """
    return HazardModel(target, wave_size, xnack and target.supports_xnack)


class Ticks(NamedTuple):
    """The time of an instruction on each clock."""

    states: int
    vector: int
    transcendental: int


START = Ticks(0, 0, 0)
_NOP_FIELD = 15
_VECTOR, _TRANSCENDENTAL = int(InstructionFlag.VALU), int(InstructionFlag.TRANS)
_NO_VECTOR = int(InstructionFlag.VMEM | InstructionFlag.FLAT)


def ticks(opcode: Opcode, values: Sequence[int]) -> Ticks:
    """Return the ticks that an instruction contributes between two others (LLVM, getNumWaitStates)."""
    states = (values[0] & _NOP_FIELD) + 1 if opcode.pseudo == "S_NOP" else 1
    flags = int(opcode.flags)
    return Ticks(states, int(bool(flags & _VECTOR and not flags & _NO_VECTOR)), int(bool(flags & _TRANSCENDENTAL)))
