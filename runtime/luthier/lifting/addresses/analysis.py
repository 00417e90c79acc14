"""Forward analysis of one function that finds the targets of indirect jumps and calls, and PC-relative addresses."""

from __future__ import annotations

import bisect
import heapq
from collections.abc import Callable, Iterable
from typing import NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from luthier import _mc
from luthier.isa import registers as r
from luthier.lifting.addresses.operations import OperationRole, ScalarOperations, roles
from luthier.lifting.addresses.values import (
    MASK32,
    MASK64,
    AddressState,
    Element,
    EntryValue,
    GetpcReference,
    High,
    Low,
    Notes,
    PointerSlot,
    Value,
)
from luthier.lifting.code.effort import Effort
from luthier.lifting.code.explore import Resolution
from luthier.lifting.code.graph import Graph
from luthier.lifting.instructions.effects import Columns, Effects, EffectTable, register_lists, unit_bytes
from luthier.lifting.instructions.semantics import Control

GETPC_SIZE = 4
"""Size in bytes of s_getpc_b64, which is a scalar operation with one operand on every target."""


class FunctionAddresses(Struct):
    """Results of the analysis of one function. Instructions are given as addresses."""

    resolutions: dict[int, Resolution] = field(default_factory=dict)
    """By address of the jump or call."""
    references: set[GetpcReference] = field(default_factory=set)
    computed: set[int] = field(default_factory=set)
    """s_getpc_b64 whose value is changed in ways other than adding two literals."""
    escapes: set[int] = field(default_factory=set)
    """s_getpc_b64 whose incomplete address has uses that are not followed."""
    values: set[int] = field(default_factory=set)
    """s_getpc_b64 whose complete address has uses other than jumps, such as stores."""
    clobbers: int = 0
    """Scalar units that may not hold their entry value when the function returns."""
    asked: set[int | None] = field(default_factory=set)
    """Addresses of the functions whose `World.clobbers` the result depends on."""


class World(Struct, frozen=True):
    """Facts about the rest of the object for the analysis of one function.

    Attributes:
        clobbers: address of a function, or None for an unknown one -> scalar units that it may change.
        slot_value: address of a 64-bit word in memory -> code address that it certainly holds at run time, or None.
        table: address in memory -> address and size of the constant table of code addresses that contains it, or None.
        is_code: whether an address is in executable code.
        filled: addresses in the code that the loader writes: the bytes in the file are meaningless.
    """

    clobbers: Callable[[int | None], int]
    slot_value: Callable[[int], int | None]
    table: Callable[[int], tuple[int, int] | None]
    is_code: Callable[[int], bool]
    filled: frozenset[int] = frozenset()


class BlockPart(NamedTuple):
    """A relevant instruction of a block, or all instructions between two of these."""

    first: int
    last: int
    """Inclusive."""
    alone: bool
    """True if the instruction is relevant."""
    followed: bool
    """True if its results are followed."""
    reads: int
    writes: int
    kills: int


class Way(NamedTuple):
    """Paths from one point to the next block with relevant instructions."""

    to: int
    writes: int
    """On any path."""
    kills: int
    """On every path."""


_PART, _UNIT = 16, 64
"""Cost of a part in addition to the size of its state, and cost of a unit of `Effort`, both as sizes of states."""
_VISITS = 128
"""Visits of a block by native code per unit of `Effort`, in addition to one unit for each call."""
_ANY_VECTOR = ("relative vector", "everything")


class AddressAnalysis:
    """Analysis of the functions of one graph."""

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
        self._operations = ScalarOperations(columns, *register_lists(table.isa), world.filled)
        self._native = table.code(columns)
        computed = bool((columns.code.opcode < 0).any()) or any(
            table.opcode(number).special in _ANY_VECTOR for number in columns.opcodes
        )
        self.vectors = table.vector_universe if computed else 0
        """The vector units of the kernel if some instruction may access any of them, otherwise 0."""
        self._roles = roles(table.isa).of(columns.code.opcode)
        self._paths: _mc.AddressPaths
        """The current function."""
        self._parts: dict[int, list[BlockPart]] = {}
        """Parts of the blocks with relevant instructions."""
        self._ways: dict[int, list[Way]] = {}
        """Ways from the ends of these blocks."""
        self._asked: set[int | None] = set()

    def run(self, entries: Iterable[int], links: Iterable[int]) -> FunctionAddresses:
        """Analyse the function that is entered at these addresses, with its return address in the pairs `links`."""
        links = tuple(links)
        roots = [self.graph.native.at(entry) for entry in entries]
        self._asked = set()
        addresses = self._analyse(roots, links, finished=False)
        # Uses of a computed program counter decide whether the code can be moved.
        return self._analyse(roots, links, finished=True) if addresses.computed else addresses

    def _analyse(self, roots: list[int], links: tuple[int, ...], finished: bool) -> FunctionAddresses:
        self._prepare(roots, bool(links), finished)
        states: dict[int, AddressState] = {}
        work: list[int] = []
        self._go_on(self._from(roots), AddressState(), states, work)
        while work:  # in address order, so that most predecessors of a block are visited before it
            number = heapq.heappop(work)
            if work and work[0] == number:
                continue
            self._go_on(self._ways[number], self._block(number, self._held(number, states[number])), states, work)
        return self._collect(states, links)

    def _go_on(self, ways: list[Way], after: AddressState, states: dict[int, AddressState], work: list[int]) -> None:
        """Merge a state into the blocks that follow, and queue those whose state changes."""
        for way in ways:
            state = after.copy()
            state.overwrite(way.writes, way.kills)
            known = states.get(way.to)
            if known is None:
                states[way.to] = state
            elif not known.join(state):
                continue
            heapq.heappush(work, way.to)

    def _held(self, number: int, state: AddressState) -> AddressState:
        """Return a copy of the state before a block, and count the work."""
        parts = len(self._parts[number]) + len(self._ways[number])
        self._effort.spend(1 + (1 + parts) * (_PART + state.size) // _UNIT)
        return state.copy()

    def _block(self, number: int, state: AddressState) -> AddressState:
        for part in self._parts[number]:
            if part.followed:
                self._operations.apply(self._name(part.first), part.first, self.effects(part.first), state, None)
            else:
                state.overwrite(part.writes, part.kills)
        self._return_from_call(number, state)
        return state

    def _prepare(self, roots: list[int], called: bool, finished: bool) -> None:
        """Split the blocks of a function at the relevant instructions, and find the ways between these."""
        self._paths = self._native.address_paths(self.graph.native, roots, self._roles)
        self._paths.most = self._effort.left * _VISITS
        # Callers of a function depend on the registers that it restores. A kernel has no callers.
        self._paths.cut(self._relevant(called, finished))
        special = self._paths.special()
        self._parts = {number: list(map(BlockPart._make, self._paths.parts(number))) for number in special}
        self._ways = {number: self._from(self._successors(number)) for number in special}

    def _relevant(self, called: bool, finished: bool) -> list[int]:
        """Return the relevant instructions."""
        relevant = self._paths.relevant(called, finished)
        self._spend()
        return relevant

    def _from(self, blocks: list[int]) -> list[Way]:
        """Return the ways from the beginnings of blocks."""
        ways = list(map(Way._make, self._paths.ways(blocks)))
        self._spend()
        return ways

    def _spend(self) -> None:
        """Count the work of native code."""
        self._effort.spend(1 + self._paths.visits // _VISITS)
        self._paths.visits %= _VISITS
        self._paths.most = self._effort.left * _VISITS

    def _successors(self, number: int) -> list[int]:
        return [to for _, to in self.graph.successors(number)]

    def _name(self, index: int) -> str:
        return self.table.pseudos[self.columns.opcode[index]]

    def _clobbers(self, function: int | None) -> int:
        self._asked.add(function)
        return self.world.clobbers(function)

    def _return_from_call(self, number: int, state: AddressState) -> None:
        """Forget, after a call, the registers that the callee may change.

        Scalars in lanes, and call targets in vector registers, are assumed to survive: a caller that reads its return
        address from a lane that the callee overwrote would not return. EXEC also survives, since functions must restore
        it (AMDGPUUsage, "Non-Kernel Functions").
        """
        if self.graph.exits[number] != "call":
            return
        lost, jump = 0, self.graph.jumps[number]
        for target in jump.targets:
            lost |= self._clobbers(target)
        if jump.resolution is not None and jump.resolution.reason:
            lost |= self._clobbers(None)
        state.forget(lost & r.SCALAR_MASK & ~r.EXEC_MASK)

    def _collect(self, states: dict[int, AddressState], links: tuple[int, ...]) -> FunctionAddresses:
        addresses = FunctionAddresses(asked=self._asked)
        notes = Notes(self._leaves_at)
        for number in self._parts:
            state = self._held(number, states[number])
            for part in self._parts[number]:
                index = part.first
                if not part.alone:
                    self._effort.spend((part.last - index) // _UNIT)
                    self._pass(part, state, notes)
                    continue
                effects = self.effects(index)
                if self._leaves(index):
                    self._leave(index, effects, state, links, addresses, notes)
                self._operations.apply(self._name(index), index, effects, state, notes)
            if state.tainted_units:
                self._use(self._paths.uses(self._successors(number), unit_bytes(state.tainted_units)), state, notes)
                self._spend()
            self._return_from_call(number, state)
        finished = {reference.low for reference in notes.references}
        addresses.references = notes.references
        # A low half without an addition of a high half is correct only if nothing retargets it.
        addresses.values = notes.values
        addresses.computed = notes.computed | {getpc for low, getpc in notes.low_adds.items() if low not in finished}
        addresses.escapes = notes.raw_uses | notes.other_uses & addresses.computed
        return addresses

    def _leaves_at(self, address: int) -> bool:
        return self._leaves(bisect.bisect_left(self.columns.address, address))

    def _leaves(self, index: int) -> bool:
        return bool(self._roles[index] & OperationRole.LEAVES.value)

    def _pass(self, part: BlockPart, state: AddressState, notes: Notes) -> None:
        """Apply instructions that are not followed, and record those that read a program counter."""
        if part.reads & state.tainted_units:
            self._use(self._paths.uses_between(part.first, part.last, unit_bytes(state.tainted_units)), state, notes)
        state.overwrite(part.writes, part.kills)

    def _use(self, uses: list[tuple[int, int]], state: AddressState, notes: Notes) -> None:
        """Record instructions that read program counters from units."""
        for index, units in uses:
            notes.use(state.tainted(units), self.columns.address[index])

    def _leave(
        self,
        index: int,
        effects: Effects,
        state: AddressState,
        links: tuple[int, ...],
        addresses: FunctionAddresses,
        notes: Notes,
    ) -> None:
        """Record an instruction at which control may leave the function: a call, return or tail call."""
        elsewhere = r.SGPR_MASK | r.VCC_MASK
        control = self.table.opcode(self.columns.opcode[index]).control
        if control != Control.CALL:
            operand = 1 if control == Control.CALL_REGISTER else 0
            returns = links if control == Control.JUMP_REGISTER else ()
            resolution = self._resolve(index, operand, state, returns)
            addresses.resolutions[self.columns.address[index]] = resolution
            if not resolution.reason:
                elsewhere &= ~effects.reads
            if control == Control.JUMP_REGISTER:
                if resolution.reason:
                    addresses.clobbers |= r.SCALAR_MASK
                elif resolution.is_return:
                    addresses.clobbers |= _changed(state)
                elif self.graph.exits[self.graph.block_of(index)] == "tail":
                    addresses.clobbers |= _changed(state)
                    for target in resolution.targets:
                        addresses.clobbers |= self._clobbers(target)
                else:
                    return  # a jump inside the function, where the analysis continues
        # The code that runs next might use an incomplete address that is still in a register.
        notes.use(state.tainted(elsewhere), self.columns.address[index])

    def _resolve(self, index: int, operand: int, state: AddressState, links: tuple[int, ...]) -> Resolution:
        """Return the targets of the register pair at `operand`. It may return through the pairs `links`."""
        unit = self._operations.unit(index, operand)
        if unit < 0:
            return Resolution(reason="its address is not in registers that can be followed")
        low, high = state[unit], state[unit + 1]
        if any(low == frozenset([EntryValue(link)]) and high == frozenset([EntryValue(link + 1)]) for link in links):
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
            candidates: list[int | None] = []
            if isinstance(value, Low):
                halves = [
                    other
                    for other in high
                    if isinstance(other, High) and (other.getpc, other.offset & MASK32) == (value.getpc, value.offset)
                ]
                if len(halves) == 1:
                    references.add(value.getpc)
                    candidates = [self.program_counter(value.getpc) + halves[0].offset & MASK64]
                    direct |= halves[0].offset == 0
            elif isinstance(value, PointerSlot | Element):
                words = self._words(value) if value.half == 0 and replace(value, half=1) in high else []
                references.add(value.getpc)
                slots.setdefault(value.getpc, set()).update(words)
                candidates = [self.world.slot_value(word) for word in words]
                if None in candidates or not candidates:
                    reason = "its address is loaded from memory that may change at run time"
                    elsewhere.add(value.getpc)
            elif isinstance(value, EntryValue):
                reason = "its address is an argument of the function or kernel"
            if not candidates:
                reason = reason or "the two halves of its address do not belong together"
            for target in candidates:
                if target is not None and self.world.is_code(target):
                    targets.add(target)
                else:
                    reason = reason or "its address is not in executable code"
        return Resolution(
            targets=tuple(sorted(targets)),
            reason=reason,
            references=tuple(sorted(references)),
            # Exclude words of tables that are accessed by unknown indices: they must keep their addresses.
            slots=tuple(sorted({word for getpc in slots.keys() - elsewhere for word in slots[getpc]})),
            direct=direct,
        )

    def _words(self, value: PointerSlot | Element) -> list[int]:
        """Return the addresses of the memory words from which a value may be loaded."""
        address = self.program_counter(value.getpc) + value.offset & MASK64
        if isinstance(value, PointerSlot):
            return [address]
        table = self.world.table(address)
        return [] if table is None else list(range(table[0], table[0] + table[1], 8))

    def program_counter(self, getpc: int) -> int:
        """Return the result of the s_getpc_b64 at this address: the address after it."""
        return getpc + GETPC_SIZE


def _changed(state: AddressState) -> int:
    """Return the scalar units that may not hold their entry value."""
    changed = state.unknown
    for key, values in state.values.items():
        if isinstance(key, int) and key < r.VGPR_FIRST:
            own: frozenset[Value] = frozenset([EntryValue(key)])
            if values != own:
                changed |= 1 << key
    return changed
