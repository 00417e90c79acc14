"""Where register jumps and calls go, and which code makes addresses from the program counter: a forward analysis of
one function."""

from __future__ import annotations

import bisect
import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from luthier.lifting import registers as r
from luthier.lifting.effects import Columns, Effects, EffectTable
from luthier.lifting.explore import Resolution
from luthier.lifting.graph import Graph, reach
from luthier.lifting.semantics import Control
from luthier.lifting.values import (
    MASK32,
    MASK64,
    Element,
    Entry,
    High,
    Low,
    Notes,
    Operations,
    Reference,
    Slot,
    State,
    Value,
    is_followed,
)


@dataclass
class FunctionAddresses:
    """What the analysis of one function finds. Instructions are indices."""

    resolutions: dict[int, Resolution] = field(default_factory=dict)
    """By address of the jump or call."""
    references: set[Reference] = field(default_factory=set)
    computed: set[int] = field(default_factory=set)
    """s_getpc_b64 whose value is changed in ways other than adding two literals."""
    escapes: dict[int, int] = field(default_factory=dict)
    """s_getpc_b64 -> an instruction that uses its unfinished value in a way that is not understood."""
    clobbers: int = 0
    """Scalar units that may not hold their entry value when the function returns."""


@dataclass(frozen=True)
class World:
    """What the analysis of one function needs to know of the rest.

    Attributes:
        clobbers: address of a function -> scalar units it may leave changed; None asks for one that is not known.
        slot_value: address of a 64-bit word in memory -> code address it is certain to hold at run time, or None.
        table: address in memory -> address and size of the constant object of code addresses it is in, or None.
        is_code: whether an address is in executable code.
    """

    clobbers: Callable[[int | None], int]
    slot_value: Callable[[int], int | None]
    table: Callable[[int], tuple[int, int] | None]
    is_code: Callable[[int], bool]


class Step(NamedTuple):
    """Instructions of a block, and what they read, write and replace together."""

    first: int
    last: int
    """Inclusive."""
    reads: int
    writes: int
    kills: int


_BY_REGISTER = (Control.CALL_REGISTER, Control.JUMP_REGISTER)
_LEAVING = (Control.CALL, Control.CALL_REGISTER, Control.JUMP_REGISTER)


class AddressAnalysis:
    """Runs functions of one graph."""

    def __init__(
        self, columns: Columns, graph: Graph, table: EffectTable, effects: Callable[[int], Effects], world: World
    ) -> None:
        self.columns = columns
        self.graph = graph
        self.table = table
        self.effects = effects
        self.world = world
        self._starts = [node.first for node in graph.nodes]
        self._operations = Operations(
            columns, table.isa.register_first_unit.tolist(), table.isa.register_unit_count.tolist()
        )
        self._native = table.code(columns)
        opcodes = [table.opcode(number) for number in columns.opcodes]
        self._followed = {one.opcode.number for one in opcodes if is_followed(one.opcode.pseudo)}
        self._alone = self._followed | {one.opcode.number for one in opcodes if one.control in _LEAVING}
        self._relevant: set[int] = set()
        """Instructions of the function at hand whose results are worth knowing."""
        self._steps: dict[int, list[Step]] = {}
        """By node."""

    def run(self, entries: Iterable[int], links: Iterable[int]) -> FunctionAddresses:
        """Analyse the function entered at these addresses, called with its return address in the unit pairs at
        `links`."""
        nodes = self.graph.nodes
        links = tuple(links)
        work = [self.graph.node_at[entry] for entry in entries]
        marks = self._marks(work)
        jumps = any(self.table.opcode(self.columns.opcode[step.first]).control in _BY_REGISTER for step in marks)
        # Who calls a function must know which registers it puts back, so all its moves matter. Nobody calls a kernel.
        self._relevant = self._followed_in(marks) if links or jumps else self._relevant_in(marks)
        states = {start: State() for start in work}
        heapq.heapify(work)  # in address order: what comes before a block has mostly settled when it is looked at
        while work:
            number = heapq.heappop(work)
            if work and work[0] == number:
                continue
            after = self._block(number, states[number].copy())
            for _, successor in nodes[number].successors:
                known = states.get(successor)
                if known is None:
                    states[successor] = after.copy()
                elif not known.join(after):
                    continue
                heapq.heappush(work, successor)
        return self._collect(states, links)

    def _block(self, number: int, state: State) -> State:
        for step in self._steps_of(number):
            if step.first in self._relevant:
                self._operations.apply(self._name(step.first), step.first, self.effects(step.first), state, None)
            else:
                state.overwrite(step.writes, step.kills)
        self._return_from_call(number, state)
        return state

    def _marks(self, roots: list[int]) -> list[Step]:
        """The instructions reached from these nodes that are looked at by themselves."""
        return [
            step
            for number in reach(self.graph.nodes, roots)
            for step in self._steps_of(number)
            if step.first == step.last and (step.writes & r.EXEC_MASK or self.columns.opcode[step.first] in self._alone)
        ]

    def _followed_in(self, marks: list[Step]) -> set[int]:
        """The instructions whose results may be known, and those that write EXEC: lanes may be known to stay active."""
        return {
            step.first
            for step in marks
            if step.writes & r.EXEC_MASK or self.columns.opcode[step.first] in self._followed
        }

    def _relevant_in(self, marks: list[Step]) -> set[int]:
        """The followed instructions that program counters may flow through, or on which that depends, where nothing is
        jumped to by register.

        In no order: a unit counts that may hold such a value anywhere. SCC matters only as the carry of a sum that a
        program counter flows into, so it is left out.
        """
        carry = 1 << r.SCC
        sums = [
            step._replace(reads=step.reads & ~carry, writes=step.writes & ~carry)
            for step in marks
            if self.columns.opcode[step.first] in self._followed
        ]
        derived = 0
        for step in sums:
            if self._name(step.first) == "S_GETPC_B64":
                derived |= step.writes
        derived = _closure(derived, [(step.reads, step.writes) for step in sums])
        needed = _closure(derived, [(step.writes, step.reads) for step in sums])
        return {step.first for step in sums if step.writes & needed or step.reads & derived}

    def _steps_of(self, number: int) -> list[Step]:
        """The instructions of a node: each that is looked at by itself, and what is between together."""
        known = self._steps.get(number)
        if known is not None:
            return known
        node = self.graph.nodes[number]
        opcode, alone = self.columns.opcode, self._alone
        marks = [index for index in range(node.first, node.last + 1) if opcode[index] in alone]
        steps: list[Step] = []
        first = node.first
        for index in [*marks, node.last + 1]:
            if first < index:
                steps += self._together(first, index - 1)
            if index <= node.last:
                steps.append(Step(index, index, *self._native.together(index, index)))
            first = index + 1
        self._steps[number] = steps
        return steps

    def _together(self, first: int, last: int) -> list[Step]:
        """Instructions as one step, but those that write EXEC as steps of their own."""
        step = Step(first, last, *self._native.together(first, last))
        if first == last or not step.writes & r.EXEC_MASK:
            return [step]
        middle = (first + last) // 2
        return self._together(first, middle) + self._together(middle + 1, last)

    def _leaves(self, index: int) -> bool:
        return self.columns.opcode[index] in self._alone and self.columns.opcode[index] not in self._followed

    def _name(self, index: int) -> str:
        return self.table.pseudos[self.columns.opcode[index]]

    def _return_from_call(self, number: int, state: State) -> None:
        """After a call, what the callee leaves changed is unknown.

        Scalars in lanes, and call targets in vector registers, are taken to survive: a caller that reads its return
        address back from a lane that the callee overwrote would return to nowhere. So is EXEC, which functions must
        give back as it was (AMDGPUUsage, "Non-Kernel Functions").
        """
        node = self.graph.nodes[number]
        if node.exit != "call":
            return
        lost = 0
        for target in node.targets:
            lost |= self.world.clobbers(target)
        if node.resolution is not None and node.resolution.reason:
            lost |= self.world.clobbers(None)
        state.forget(lost & r.SCALAR_MASK & ~r.EXEC_MASK)

    def _collect(self, states: dict[int, State], links: tuple[int, ...]) -> FunctionAddresses:
        found = FunctionAddresses()
        notes = Notes()
        for number, before in states.items():
            state = before.copy()
            for step in self._steps_of(number):
                if step.first not in self._relevant and not self._leaves(step.first):
                    self._pass(step, state, notes)
                    continue
                index, effects = step.first, self.effects(step.first)
                control = self.table.opcode(self.columns.opcode[index]).control
                if control in _LEAVING:
                    self._leave(index, control, effects, state, links, found, notes)
                self._operations.apply(self._name(index), index, effects, state, notes)
            self._return_from_call(number, state)
        finished = {reference.low for reference in notes.references}
        found.references = notes.references
        # A low half that no add of a high half follows is only right if nothing retargets it.
        found.computed = notes.computed | {getpc for low, getpc in notes.low_adds.items() if low not in finished}
        for getpc, index in notes.raw_uses + [use for use in notes.other_uses if use[0] in found.computed]:
            found.escapes.setdefault(getpc, index)
        return found

    def _pass(self, step: Step, state: State, notes: Notes) -> None:
        """Go over instructions that are not followed, and note those that read a program counter."""
        if not state.taints or not (taints := state.tainted(step.reads)):
            state.overwrite(step.writes, step.kills)
        elif step.first == step.last:
            notes.use(taints, step.first)
            state.overwrite(step.writes, step.kills)
        else:
            middle = (step.first + step.last) // 2
            for first, last in ((step.first, middle), (middle + 1, step.last)):
                self._pass(Step(first, last, *self._native.together(first, last)), state, notes)

    def _leave(
        self,
        index: int,
        control: Control,
        effects: Effects,
        state: State,
        links: tuple[int, ...],
        found: FunctionAddresses,
        notes: Notes,
    ) -> None:
        """Where control may leave the function: by a call, a return, a tail call."""
        elsewhere = r.SGPR_MASK | r.VCC_MASK
        if control != Control.CALL:
            operand = 1 if control == Control.CALL_REGISTER else 0
            returns = links if control == Control.JUMP_REGISTER else ()
            resolution = self._resolve(index, operand, state, returns)
            found.resolutions[self.columns.address[index]] = resolution
            if not resolution.reason:
                elsewhere &= ~effects.reads
            if control == Control.JUMP_REGISTER:
                if resolution.reason:
                    found.clobbers |= r.SCALAR_MASK
                elif resolution.is_return:
                    found.clobbers |= _changed(state)
                elif self.graph.nodes[self._node_of(index)].exit == "tail":
                    found.clobbers |= _changed(state)
                    for target in resolution.targets:
                        found.clobbers |= self.world.clobbers(target)
                else:
                    return  # a jump inside the function: the analysis goes on there
        # Whoever runs next might use an unfinished address that is still in a register.
        notes.use(state.tainted(elsewhere), index)

    def _node_of(self, index: int) -> int:
        return bisect.bisect_right(self._starts, index) - 1

    def _resolve(self, index: int, operand: int, state: State, links: tuple[int, ...]) -> Resolution:
        """Where the register pair at `operand` points. `links` are the pairs a return may go by."""
        unit = self._operations.unit(index, operand)
        if unit < 0:
            return Resolution(reason="its address is not in registers that can be followed")
        low, high = state[unit], state[unit + 1]
        if any(low == frozenset([Entry(link)]) and high == frozenset([Entry(link + 1)]) for link in links):
            return Resolution(is_return=True)
        if low is None or high is None:
            return Resolution(reason="its address comes from memory or arithmetic that cannot be followed")
        targets: set[int] = set()
        references: set[int] = set()
        slots: dict[int, set[int]] = {}
        elsewhere: set[int] = set()
        direct = False
        reason = ""
        for value in low:
            found: list[int | None] = []
            if isinstance(value, Low):
                halves = [
                    other
                    for other in high
                    if isinstance(other, High) and (other.getpc, other.offset & MASK32) == (value.getpc, value.offset)
                ]
                if len(halves) == 1:
                    references.add(value.getpc)
                    found = [self.program_counter(value.getpc) + halves[0].offset & MASK64]
                    direct |= halves[0].offset == 0
            elif isinstance(value, Slot | Element):
                words = self._words(value) if value.half == 0 and replace(value, half=1) in high else []
                references.add(value.getpc)
                slots.setdefault(value.getpc, set()).update(words)
                found = [self.world.slot_value(word) for word in words]
                if None in found or not found:
                    reason = "its address is loaded from memory that may change at run time"
                    elsewhere.add(value.getpc)
            elif isinstance(value, Entry):
                reason = "its address is an argument of the function or kernel"
            if not found:
                reason = reason or "the two halves of its address do not belong together"
            for target in found:
                if target is not None and self.world.is_code(target):
                    targets.add(target)
                else:
                    reason = reason or "its address is not in executable code"
        return Resolution(
            targets=tuple(sorted(targets)),
            reason=reason,
            references=tuple(sorted(references)),
            # Words around which there may be others that matter must stay where they are.
            slots=tuple(sorted({word for getpc in slots.keys() - elsewhere for word in slots[getpc]})),
            direct=direct,
        )

    def _words(self, value: Slot | Element) -> list[int]:
        """Addresses of the words in memory that a loaded value may be."""
        address = self.program_counter(value.getpc) + value.offset & MASK64
        if isinstance(value, Slot):
            return [address]
        table = self.world.table(address)
        return [] if table is None else list(range(table[0], table[0] + table[1], 8))

    def program_counter(self, getpc: int) -> int:
        """What the s_getpc_b64 at this index reads: the address after it."""
        return self.columns.address[getpc] + self.columns.size[getpc]


def _closure(units: int, ways: list[tuple[int, int]]) -> int:
    """These units, and the second ones of every way of whose first ones there are any."""
    before = -1
    while before != units:
        before = units
        for some, others in ways:
            if some & units:
                units |= others
    return units


def _changed(state: State) -> int:
    """Scalar units that do not hold their entry value."""
    changed = state.unknown
    for key, values in state.values.items():
        if isinstance(key, int) and key < r.VGPR_FIRST:
            own: frozenset[Value] = frozenset([Entry(key)])
            if values != own:
                changed |= 1 << key
    return changed
