"""Forward analysis of one function that finds the targets of indirect jumps and calls.

It also finds the code that makes addresses from the program counter.
"""

from __future__ import annotations

import bisect
import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from luthier.isa import registers as r
from luthier.lifting.addresses.operations import (
    Operations,
    carries_entry,
    is_followed,
    moves,
    needs_counter,
    value_reads,
)
from luthier.lifting.addresses.slices import Kinds, Step, relevant_steps
from luthier.lifting.addresses.values import (
    MASK32,
    MASK64,
    Element,
    Entry,
    High,
    Low,
    Notes,
    Reference,
    Slot,
    State,
    Value,
)
from luthier.lifting.code.effort import Effort
from luthier.lifting.code.explore import Resolution
from luthier.lifting.code.graph import Graph, reach
from luthier.lifting.instructions.effects import Columns, Effects, EffectTable, register_lists
from luthier.lifting.instructions.semantics import Control

GETPC_SIZE = 4
"""Bytes of s_getpc_b64, which is a scalar operation with one operand on every target."""


@dataclass
class FunctionAddresses:
    """Results of the analysis of one function. Instructions are addresses."""

    resolutions: dict[int, Resolution] = field(default_factory=dict)
    """By address of the jump or call."""
    references: set[Reference] = field(default_factory=set)
    computed: set[int] = field(default_factory=set)
    """s_getpc_b64 whose value is changed in ways other than adding two literals."""
    escapes: set[int] = field(default_factory=set)
    """s_getpc_b64 whose unfinished value is used in a way that is not understood."""
    values: set[int] = field(default_factory=set)
    """s_getpc_b64 whose finished address goes elsewhere than to jumps: as a value, perhaps into memory."""
    clobbers: int = 0
    """Scalar units that may not hold their entry value when the function returns."""
    asked: set[int | None] = field(default_factory=set)
    """The functions, by address, whose `World.clobbers` this depends on."""


@dataclass(frozen=True)
class World:
    """Facts about the rest of the object that the analysis of one function needs.

    Attributes:
        clobbers: address of a function -> scalar units it may leave changed; None asks for one that is not known.
        slot_value: address of a 64-bit word in memory -> code address it is certain to hold at run time, or None.
        table: address in memory -> address and size of the constant object of code addresses it is in, or None.
        is_code: whether an address is in executable code.
        filled: addresses in the code that the loader writes to: the bytes in the file are meaningless.
    """

    clobbers: Callable[[int | None], int]
    slot_value: Callable[[int], int | None]
    table: Callable[[int], tuple[int, int] | None]
    is_code: Callable[[int], bool]
    filled: frozenset[int] = frozenset()


class Part(NamedTuple):
    """Some steps of a block: one that is looked at by itself, or all that are between two of those."""

    at: int
    """Index of the instruction; -1 for steps that are not looked at."""
    followed: bool
    """True if it makes values."""
    reads: int
    writes: int
    kills: int
    steps: list[Step]


_PART, _UNIT = 16, 64
"""In values and program counters of a state: what a part costs besides those, and what a unit of `Effort` is."""
_ANY_VECTOR = ("relative vector", "everything")
_BY_REGISTER = (Control.CALL_REGISTER, Control.JUMP_REGISTER)
_LEAVING = (Control.CALL, Control.CALL_REGISTER, Control.JUMP_REGISTER)


class AddressAnalysis:
    """Runs functions of one graph."""

    def __init__(
        self,
        columns: Columns,
        graph: Graph,
        table: EffectTable,
        effects: Callable[[int], Effects],
        world: World,
        effort: Effort,
    ) -> None:
        self.columns = columns
        self.graph = graph
        self.table = table
        self.effects = effects
        self.world = world
        self._effort = effort
        self._starts = [node.first for node in graph.nodes]
        self._operations = Operations(columns, *register_lists(table.isa), world.filled)
        self._native = table.code(columns)
        opcodes = [table.opcode(number) for number in columns.opcodes]
        computed = bool((columns.code.opcode < 0).any()) or any(one.special in _ANY_VECTOR for one in opcodes)
        self.vectors = table.vector_universe if computed else 0
        """The vector units of the kernel, where some instruction may touch any of them."""
        self._followed = {one.opcode.number for one in opcodes if is_followed(one.opcode.pseudo)}
        self._leaving = {one.opcode.number: one.control for one in opcodes if one.control in _LEAVING}
        marked = np.zeros(max(columns.opcodes, default=0) + 2, np.uint8)  # the last place is that of -1
        marked[[*self._followed, *self._leaving]] = 1
        self._alone = marked[columns.code.opcode]
        self._kinds = Kinds(
            followed=lambda index: columns.opcode[index] in self._followed,
            value_reads=lambda step: value_reads(self._name(step.first), step.reads),
            is_getpc=lambda index: self._name(index) == "S_GETPC_B64",
            needs_counter=lambda index: needs_counter(self._name(index)),
            moves=lambda index: moves(self._name(index)),
            copies=lambda index: carries_entry(self._name(index)),
            by_register=lambda index: self._leaving.get(columns.opcode[index]) in _BY_REGISTER,
            may_return=lambda index: self._leaving.get(columns.opcode[index]) == Control.JUMP_REGISTER,
        )
        self._parts: dict[int, list[Part]] = {}
        """Parts of the current function, by node."""
        self._asked: set[int | None] = set()

    def run(self, entries: Iterable[int], links: Iterable[int]) -> FunctionAddresses:
        """Analyse the function entered at these addresses.

        It is called with its return address in the unit pairs at `links`.
        """
        links = tuple(links)
        roots = [self.graph.node_at[entry] for entry in entries]
        self._asked = set()
        found = self._analyse(roots, links, finished=False)
        # The uses of a computed program counter decide whether the code can be moved.
        return self._analyse(roots, links, finished=True) if found.computed else found

    def _analyse(self, roots: list[int], links: tuple[int, ...], finished: bool) -> FunctionAddresses:
        nodes = self.graph.nodes
        self._prepare(roots, bool(links), finished)
        work = list(roots)
        states = {start: State() for start in work}
        heapq.heapify(work)  # in address order: what comes before a block has mostly settled when it is looked at
        while work:
            number = heapq.heappop(work)
            if work and work[0] == number:
                continue
            after = self._block(number, self._held(number, states[number]))
            taken = False
            for _, successor in nodes[number].successors:
                known = states.get(successor)
                if known is None:
                    states[successor] = after.copy() if taken else after
                    taken = True
                elif not known.join(after):
                    continue
                heapq.heappush(work, successor)
        return self._collect(states, links)

    def _held(self, number: int, state: State) -> State:
        """Return a copy of the state before a block, to run the block on."""
        self._effort.spend(1 + (1 + len(self._parts[number])) * (_PART + state.size) // _UNIT)
        return state.copy()

    def _block(self, number: int, state: State) -> State:
        for part in self._parts[number]:
            if part.followed:
                self._operations.apply(self._name(part.at), part.at, self.effects(part.at), state, None)
            else:
                state.overwrite(part.writes, part.kills)
        self._return_from_call(number, state)
        return state

    def _prepare(self, roots: list[int], called: bool, finished: bool) -> None:
        """Cut the blocks of a function at the instructions whose values matter."""
        nodes = self.graph.nodes
        steps = {
            number: list(map(Step._make, self._native.steps(nodes[number].first, nodes[number].last, self._alone)))
            for number in reach(nodes, roots)
        }
        # Callers of a function must know which registers it restores. A kernel has no callers.
        relevant = relevant_steps(nodes, steps, roots, called, finished, self._kinds, self._effort)
        self._parts = {number: self._cut(own, relevant) for number, own in steps.items()}

    def _cut(self, steps: list[Step], relevant: set[int]) -> list[Part]:
        parts: list[Part] = []
        rest: list[Step] = []
        reads = writes = kills = 0
        for step in steps:
            index = step.first
            if index in relevant or self.columns.opcode[index] in self._leaving:
                if rest:
                    parts.append(Part(-1, False, reads, writes, kills, rest))
                    rest, reads, writes, kills = [], 0, 0, 0
                parts.append(Part(index, index in relevant, *step[2:], [step]))
            else:
                rest.append(step)
                reads, writes, kills = reads | step.reads, writes | step.writes, kills | step.kills
        if rest:
            parts.append(Part(-1, False, reads, writes, kills, rest))
        return parts

    def _name(self, index: int) -> str:
        return self.table.pseudos[self.columns.opcode[index]]

    def _clobbers(self, function: int | None) -> int:
        self._asked.add(function)
        return self.world.clobbers(function)

    def _return_from_call(self, number: int, state: State) -> None:
        """Forget, after a call, what the callee may leave changed.

        Scalars in lanes, and call targets in vector registers, are assumed to survive: a caller that reads its return
        address back from a lane that the callee overwrote would not return. So is EXEC, which functions must restore
        (AMDGPUUsage, "Non-Kernel Functions").
        """
        node = self.graph.nodes[number]
        if node.exit != "call":
            return
        lost = 0
        for target in node.targets:
            lost |= self._clobbers(target)
        if node.resolution is not None and node.resolution.reason:
            lost |= self._clobbers(None)
        state.forget(lost & r.SCALAR_MASK & ~r.EXEC_MASK)

    def _collect(self, states: dict[int, State], links: tuple[int, ...]) -> FunctionAddresses:
        found = FunctionAddresses(asked=self._asked)
        notes = Notes(self._leaves_at)
        for number, before in states.items():
            state = self._held(number, before)
            for part in self._parts[number]:
                index = part.at
                if index < 0:
                    self._effort.spend(len(part.steps) // _UNIT)
                    self._pass(part, state, notes)
                    continue
                effects = self.effects(index)
                control = self._leaving.get(self.columns.opcode[index])
                if control is not None:
                    self._leave(index, control, effects, state, links, found, notes)
                self._operations.apply(self._name(index), index, effects, state, notes)
            self._return_from_call(number, state)
        finished = {reference.low for reference in notes.references}
        found.references = notes.references
        # A low half that no add of a high half follows is only right if nothing retargets it.
        found.values = notes.values
        found.computed = notes.computed | {getpc for low, getpc in notes.low_adds.items() if low not in finished}
        found.escapes = notes.raw_uses | notes.other_uses & found.computed
        return found

    def _leaves_at(self, address: int) -> bool:
        return self.columns.opcode[bisect.bisect_left(self.columns.address, address)] in self._leaving

    def _pass(self, part: Part, state: State, notes: Notes) -> None:
        """Go over instructions that are not followed, and note those that read a program counter."""
        if not part.reads & state.tainted_units:
            state.overwrite(part.writes, part.kills)
            return
        for step in part.steps:
            self._step(step, state, notes)

    def _step(self, step: Step, state: State, notes: Notes) -> None:
        taints = state.tainted(step.reads)
        if taints and step.first < step.last:
            middle = (step.first + step.last) // 2
            for first, last in ((step.first, middle), (middle + 1, step.last)):
                self._step(Step(first, last, *self._native.together(first, last)), state, notes)
            return
        if taints:
            notes.use(taints, self.columns.address[step.first])
        state.overwrite(step.writes, step.kills)

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
        """Record where control may leave the function: by a call, a return, a tail call."""
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
                        found.clobbers |= self._clobbers(target)
                else:
                    return  # a jump inside the function: the analysis goes on there
        # The code that runs next might use an unfinished address that is still in a register.
        notes.use(state.tainted(elsewhere), self.columns.address[index])

    def _node_of(self, index: int) -> int:
        return bisect.bisect_right(self._starts, index) - 1

    def _resolve(self, index: int, operand: int, state: State, links: tuple[int, ...]) -> Resolution:
        """Return where the register pair at `operand` points.

        `links` are the pairs through which it may return.
        """
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
            # Words whose neighbours may matter must stay where they are.
            slots=tuple(sorted({word for getpc in slots.keys() - elsewhere for word in slots[getpc]})),
            direct=direct,
        )

    def _words(self, value: Slot | Element) -> list[int]:
        """Return the addresses of the words in memory that a loaded value may be."""
        address = self.program_counter(value.getpc) + value.offset & MASK64
        if isinstance(value, Slot):
            return [address]
        table = self.world.table(address)
        return [] if table is None else list(range(table[0], table[0] + table[1], 8))

    def program_counter(self, getpc: int) -> int:
        """Return what the s_getpc_b64 at this address reads: the address after it."""
        return getpc + GETPC_SIZE


def _changed(state: State) -> int:
    """Return the scalar units that do not hold their entry value."""
    changed = state.unknown
    for key, values in state.values.items():
        if isinstance(key, int) and key < r.VGPR_FIRST:
            own: frozenset[Value] = frozenset([Entry(key)])
            if values != own:
                changed |= 1 << key
    return changed
