"""Wait states between instructions of the application and of a payload on GFX9, for uses of registers that follow each
other too closely and for which the hardware does not wait.

LLVM inserts them inside the application and inside a payload. A payload therefore begins with wait states if it uses
registers that the application has just used, and ends with wait states if the following instructions require them.
Matrix instructions are handled by `luthier.hazards.insertion`.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from luthier.cache.memory import BoundedCache
from luthier.hazards.insertion import wait_states
from luthier.hazards.wait_states.kinds import IN_A_ROW, UnitsOf
from luthier.hazards.wait_states.model import HazardModel, Rule, hazard_model, ticks
from luthier.hazards.wait_states.steps import instance_of
from luthier.isa import NO_TARGET, InstructionFlag, Isa, Opcode
from luthier.lifting import LiftedRepresentation
from luthier.lifting.instructions.effects import Columns, effect_table


class NearUse(NamedTuple):
    """Role of an instruction in one rule of the table of hazards."""

    rule: int
    units: int
    states: int
    """Wait states from the beginning of the code to it, or from it to the end."""


class _Parties(NamedTuple):
    """Instructions of a kernel that are one party of a rule."""

    units: Mapping[int, int]
    """Instruction -> registers; all registers for undecodable words."""
    near: list[bool]
    """[n + 1] whether a party (a producer before, or a consumer after an instruction) or an end of the block is close
    enough to matter."""


class Neighbours:
    """Hazards between a kernel's payloads and the application's instructions around them.

    Args:
        added: code inserted between the application's instructions.
        changed: whether instructions of the application change, so that their effects are unknown.
    """

    def __init__(self, lifted: LiftedRepresentation, *, added: Iterable[bytes], changed: bool) -> None:
        self._lifted, self._changed, self._added = lifted, changed, frozenset(added)
        self._model = hazard_model(lifted.target, lifted.wave_size)
        self._rules = {rule.number: rule for rule in self._model.between_neighbours}
        self.matter = bool(self._rules)
        """Whether any wait states may be needed."""
        self._entered = entered_blocks(lifted)
        self._known: dict[tuple[int, str], _Parties] = {}
        self._times: dict[int, int] = {}

    def before(self, point: int, index: int, early: Iterable[NearUse]) -> tuple[str, ...]:
        """Return assembly before a payload.

        Args:
            point: the instruction before which it starts.
            index: an instruction in its block: `point`, or the one before it.
            early: its uses near the beginning (`begins_with`).
        """
        states = 0
        for use in early:
            most = self._rules[use.rule].window - use.states
            if most <= states:
                continue
            producers = self._parties(use.rule, "producer")
            if self._may_be(use.rule, "producer"):
                states = most
            elif producers.near[point]:
                states = max(states, self._before(producers.units, use.units, most, point, index))
        return wait_states(states)

    def behind(
        self, point: int, late: Iterable[NearUse], heads: Mapping[int, int], hooks: Mapping[int, int]
    ) -> tuple[str, ...]:
        """Return assembly after a payload.

        Args:
            point: the instruction before which it ends.
            late: its uses near the end (`ends_with`).
            heads: rule -> minimum wait states before the first use in any payload of the kernel.
            hooks: instruction -> payloads before it.
        """
        states = 0
        for use in late:
            most = self._rules[use.rule].window - use.states
            if most <= states:
                continue
            if self._may_be(use.rule, "consumer"):
                states = most
                continue
            head = heads.get(use.rule, most)
            if hooks.get(point, 0) > 1:
                states = max(states, most - head)
            consumers = self._parties(use.rule, "consumer")
            if consumers.near[point] or head < most:
                states = max(states, self._behind(consumers.units, use.units, most, point, head, hooks))
        return wait_states(states)

    def _may_be(self, rule: int, field: str) -> bool:
        """Return whether added instructions may be the producer, or the consumer, of a rule."""
        return self._changed or any(rule in _roles_in(self._lifted.isa, code, field) for code in self._added)

    def _before(self, producers: Mapping[int, int], units: int, most: int, point: int, index: int) -> int:
        """Return the missing wait states at a point, at most `most`, after instructions with some of the units."""
        blocks = self._lifted.blocks
        waiting = [(point, blocks[self._lifted.block_of[index]], most)]
        needed = 0
        while waiting:
            end, block, left = waiting.pop()
            for at in range(end - 1, block.first - 1, -1):
                if left <= needed:
                    break
                if producers.get(at, 0) & units:
                    needed = left
                left -= self._time(at)
            else:
                if left > needed and block.index in self._entered:
                    needed = left
                leading = [blocks[one] for one in block.predecessors]
                waiting += [(one.last + 1, one, left) for one in leading if left > needed]
        return needed

    def _behind(
        self, consumers: Mapping[int, int], units: int, most: int, point: int, head: int, hooks: Mapping[int, int]
    ) -> int:
        """Return the wait states after a payload, at most `most`, before instructions with some of the units.

        Other payloads count as such instructions from wait state `head` on.
        """
        blocks = self._lifted.blocks
        waiting = [(point, most)]
        needed = 0
        while waiting:
            begin, left = waiting.pop()
            block = blocks[self._lifted.block_of[begin]]
            for at in range(begin, block.last + 1):
                if left <= needed:
                    break
                if at != point and hooks.get(at):
                    needed = max(needed, left - head)
                if consumers.get(at, 0) & units:
                    needed = max(needed, left)
                left -= self._time(at)
            else:
                if left > needed and (block.exit == "call" or not (block.successors or block.exit == "end")):
                    needed = left
                waiting += [(blocks[edge.to].first, left) for edge in block.successors if left > needed]
        return needed

    def _time(self, index: int) -> int:
        """Return the wait states of an instruction."""
        states = self._times.get(index)
        if states is None:
            number, values = self._lifted.columns.opcode[index], self._lifted.columns.values(index)
            states = 1 if number < 0 else ticks(self._lifted.isa.opcode(number), values).states
            self._times[index] = states
        return states

    def _parties(self, number: int, field: str) -> _Parties:
        """Return the instructions that may be the producer, or the consumer, of a rule."""
        parties = self._known.get((number, field))
        if parties is None:
            parties = self._known[number, field] = self._find(number, field)
        return parties

    def _find(self, number: int, field: str) -> _Parties:
        lifted = self._lifted
        table, columns = lifted.effect_table, lifted.columns
        native = table.code(columns)
        opcodes = sorted(set(lifted.code.opcode.tolist()))  # as in `KernelCounters.of`
        roles = {one: self._model.parts(lifted.isa.opcode(one)).get((number, field)) for one in opcodes if one >= 0}
        chosen = [one for one in opcodes if one < 0 or roles[one]]
        indices = np.flatnonzero(np.isin(lifted.code.opcode, chosen) & lifted.reached)
        units = {}
        for index in indices.tolist():
            own_roles = roles.get(columns.opcode[index])
            units[index] = -1 if own_roles is None else own_roles(instance_of(table, native, columns, index))
        count = len(lifted.code)
        marks, near = np.zeros(count + 1, bool), np.zeros(count + 1, bool)
        marks[[index for index, registers in units.items() if registers]] = True
        if field == "producer":
            marks = np.roll(marks, 1)  # the instructions after it
            marks[[block.first for block in lifted.blocks]] = True
        else:
            marks[[block.last for block in lifted.blocks]] = True
        if units or lifted.unknown:  # unknown code may contain anything
            for distance in range(self._rules[number].window):
                near |= np.roll(marks, distance if field == "producer" else -distance)
        return _Parties(units, near.tolist())


def entered_blocks(lifted: LiftedRepresentation) -> set[int]:
    """Return the blocks that are entered by calls or returns, whose predecessors are unknown."""
    returns = {call.return_block for one in lifted.functions for call in one.calls if call.return_block is not None}
    return returns | {one.entry_block for one in lifted.functions[1:]}


@functools.lru_cache(maxsize=4096)
def _roles_in(isa: Isa, code: bytes, field: str) -> frozenset[int]:
    """Return the rules for which some instruction is the producer, or the consumer."""
    uses, columns = _known_uses(isa), Columns(isa.decode(code))
    return frozenset(rule.number for index in range(len(columns.opcode)) for rule, _ in uses.of(columns, index, field))


@functools.lru_cache(maxsize=4096)
def begins_with(isa: Isa, code: bytes) -> tuple[NearUse, ...]:
    """Return the uses near the beginning of a payload's code, including called code, that may come too early."""
    return tuple(_near(isa, code, "consumer"))


@functools.lru_cache(maxsize=4096)
def ends_with(isa: Isa, code: bytes) -> tuple[NearUse, ...]:
    """Return the uses near the end of a payload's code that may be too close to what follows."""
    rules = {rule.number for rule in _model(isa).behind_dead_registers}
    return tuple(use for use in _near(isa, code, "producer") if use.rule in rules)


class _Followed(NamedTuple):
    """A payload's code with its control flow."""

    columns: Columns
    opcodes: list[Opcode]
    following: list[list[int]]
    """[n] successors of each instruction; n for the end."""


_BARRIER, _BRANCH = int(InstructionFlag.BARRIER), int(InstructionFlag.BRANCH)


@functools.lru_cache(maxsize=128)  # used for beginnings first, then for ends
def _followed(isa: Isa, code: bytes) -> _Followed:
    columns = Columns(isa.decode(code))
    count = len(columns.opcode)
    opcodes = [isa.opcode(number) for number in columns.opcode]
    index_at = {address: number for number, address in enumerate(columns.address)}
    following: list[list[int]] = []
    for number, opcode in enumerate(opcodes):
        flags = int(opcode.flags)
        targets = [] if flags & _BARRIER else [number + 1]
        if flags & _BRANCH and columns.target[number] != NO_TARGET:
            targets.append(index_at.get(columns.target[number], count))
        following.append(targets or [count])
    return _Followed(columns, opcodes, following)


_MOST_KNOWN = 1 << 16
"""Maximum number of different instructions that are cached for a processor."""


class _KnownUses:
    """Cache of the rules that instructions of payloads match, by opcode and operands."""

    def __init__(self, isa: Isa) -> None:
        self._isa = isa
        self._model = _model(isa)
        self.longest = max((rule.window for rule in self._model.between_neighbours), default=0)
        self._asked: dict[tuple[int, str], list[tuple[Rule, UnitsOf]]] = {}
        self._uses: BoundedCache[tuple[object, ...], list[tuple[Rule, int]]] = BoundedCache(_MOST_KNOWN)

    def of(self, columns: Columns, index: int, field: str) -> list[tuple[Rule, int]]:
        """Return the rules that an instruction matches as producer or consumer, with the units."""
        number = columns.opcode[index]
        asked = self._asked.get((number, field))
        if asked is None:
            parts = self._model.parts(self._isa.opcode(number))
            places = ((rule, parts.get((rule.number, field))) for rule in self._model.between_neighbours)
            asked = self._asked[number, field] = [(rule, roles) for rule, roles in places if roles]
        if not asked:
            return []
        key = field, *columns.alike(index)
        uses = self._uses.get(key)
        if uses is None:
            table = effect_table(self._isa)
            instance = instance_of(table, table.code(columns), columns, index)
            uses = [(rule, units) for rule, roles in asked if (units := roles(instance))]
            if not instance.opcode.pseudo.startswith(IN_A_ROW):
                self._uses.put(key, uses)
        return uses


@functools.lru_cache(maxsize=64)
def _known_uses(isa: Isa) -> _KnownUses:
    return _KnownUses(isa)


def _near(isa: Isa, code: bytes, field: str) -> Iterator[NearUse]:
    """Yield the uses of instructions near the beginning of some code as consumers, or near its end as producers."""
    uses = _known_uses(isa)
    columns, opcodes, following = _followed(isa, code)
    count = len(opcodes)
    start, edges = 0, following
    if field == "producer":
        start, edges = count, [[] for _ in range(count + 1)]
        for number, targets in enumerate(following):
            for to in targets:
                edges[to].append(number)
    nearest = {start: 0}
    waiting = [start]
    while waiting:
        index = waiting.pop()
        states = nearest[index]
        if index < count:
            states += ticks(opcodes[index], columns.values(index)).states
        for to in edges[index] if index < len(edges) else ():
            if states < min(nearest.get(to, uses.longest), uses.longest):
                nearest[to] = states
                waiting.append(to)
    for number, states in nearest.items():
        if number < count:
            for rule, units in uses.of(columns, number, field):
                if states < rule.window:
                    yield NearUse(rule.number, units, states)


def _model(isa: Isa) -> HazardModel:
    return hazard_model(isa.target.target, isa.wave_size)
