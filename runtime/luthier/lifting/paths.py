"""What checks of all paths share: states at the beginnings of all blocks, through calls and returns.

A check has states that it can merge, and says what a block makes of one. Each function is followed once for every key
that it is entered with, so that what holds at one call need not come back from another.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from luthier.lifting.model import CallSite, LiftedKernel
from luthier.objects.source import in_source

if TYPE_CHECKING:
    from luthier.objects import SourceLocation

MOST_CONTEXTS = 64
"""Keys for which a function is followed apart; further ones are joined."""
WIDEN_AFTER = 4
"""Visits of a block after which what grows is taken to be as large as can be."""


@dataclass(frozen=True)
class Place:
    """An instruction."""

    address: int
    """Virtual."""
    text: str
    source: SourceLocation | None = None
    """Where it comes from, if debug information says so."""

    def __str__(self) -> str:
        return f"{self.address:#x} ({self.text}){in_source(self.source)}"

    def to_json(self) -> dict[str, Any]:
        """For JSON."""
        source = None if self.source is None else self.source.to_json()
        return {"address": self.address, "text": self.text, "source": source}


def place_of(lifted: LiftedKernel, index: int) -> Place:
    """The place of an instruction."""
    address, source = lifted.columns.address[index], lifted.object.source
    return Place(address, lifted.isa.text(lifted.code, index), source.at(address) if source.present else None)


def successors(lifted: LiftedKernel) -> list[list[int]]:
    """For each block those that may follow it, through calls and returns of whatever caller."""
    following = [[edge.to for edge in block.successors] for block in lifted.blocks]
    leaving: list[list[int]] = [
        [block.index for block in function.blocks if block.exit == "return"] for function in lifted.functions
    ]
    tails: dict[int, list[int]] = {}
    for function in lifted.functions:
        for call in function.calls:
            block = lifted.block_of[call.index]
            if call.kind == "tail":
                tails.setdefault(function.index, []).extend(call.callees)
            following[block] = [lifted.functions[callee].entry_block for callee in call.callees]
    for function in lifted.functions:
        for call in function.calls:
            if call.kind == "call" and call.return_block is not None:
                done: set[int] = set()
                ends = list(call.callees)
                while ends:
                    callee = ends.pop()
                    if callee in done:
                        continue
                    done.add(callee)
                    ends += tails.get(callee, ())
                    for block in leaving[callee]:
                        following[block].append(call.return_block)
    return following


S = TypeVar("S")


class Follower(Protocol[S]):
    """What a check does with its states."""

    @property
    def empty(self) -> S:
        """Where hardware starts a wave."""

    def unknown(self) -> S:
        """Behind code that is not known."""

    def behind(self, block: int, state: S) -> S:
        """Behind a block that is entered in a state."""

    def enter(self, block: int, state: S) -> tuple[S, Hashable]:
        """The state in which a function that begins with a block is followed, and its key; None is the key for all."""

    def leave(self, block: int, called: S, state: S) -> S:
        """Behind a call of that function, of the states at the call and behind the function's returns."""

    def merge(self, first: S, second: S) -> S:
        """What holds on either way: `first` itself if `second` adds nothing."""

    def widen(self, was: S, now: S) -> S:
        """For a block that is visited often."""


@dataclass(eq=False)
class _Context(Generic[S]):
    """A function with one of the keys that it is entered with."""

    number: int
    entry_block: int
    exit: S | None = None
    """Behind its returns; None: none is known yet."""
    returns: dict[tuple[_Context[S], int, int | None], S] = field(default_factory=dict)
    """Calls, and the state at each: the caller, the block that calls, and the one that control comes back to, or None
    behind a tail call."""


class Paths(Generic[S]):
    """The states of one kernel."""

    def __init__(self, lifted: LiftedKernel, follower: Follower[S]) -> None:
        self._lifted = lifted
        self._follower = follower
        self._calls: dict[int, CallSite] = {call.index: call for one in lifted.functions for call in one.calls}
        self._contexts: list[_Context[S]] = []
        self._by_key: dict[tuple[int, Hashable], _Context[S]] = {}
        self._of_function: dict[int, int] = {}
        self.entry: dict[tuple[int, int], S] = {}
        """(context, block) -> the state before it."""
        self._visits: dict[tuple[int, int], int] = {}
        self._heap: list[tuple[int, int]] = []
        self._waiting: set[tuple[int, int]] = set()
        kernel = self._context(0, None)
        for address in lifted.hardware_entries:
            index = lifted.index_at(address)
            if index is not None:
                self._reach(kernel, lifted.block_of[index], follower.empty)
        while self._heap:
            place = heapq.heappop(self._heap)
            self._waiting.discard(place)
            self._visit(*place)

    def states(self) -> Iterator[tuple[int, S]]:
        """Blocks that are reached, with a state before each; several of a block in several contexts."""
        for (_, block), state in self.entry.items():
            yield block, state

    def _context(self, function: int, key: Hashable) -> _Context[S]:
        found = self._by_key.get((function, key))
        if found is None:
            if self._of_function.get(function, 0) >= MOST_CONTEXTS and key is not None:
                return self._context(function, None)
            entry = self._lifted.functions[function].entry_block
            found = self._by_key[function, key] = _Context(len(self._contexts), entry)
            self._contexts.append(found)
            self._of_function[function] = self._of_function.get(function, 0) + 1
        return found

    def _reach(self, context: _Context[S], block: int, state: S) -> None:
        place = context.number, block
        known = self.entry.get(place)
        if known is not None:
            joined = self._follower.merge(known, state)
            if joined is known:
                return
            visits = self._visits[place] = self._visits.get(place, 0) + 1
            state = self._follower.widen(known, joined) if visits > WIDEN_AFTER else joined
        self.entry[place] = state
        if place not in self._waiting:
            self._waiting.add(place)
            heapq.heappush(self._heap, place)

    def _visit(self, number: int, index: int) -> None:
        context, block = self._contexts[number], self._lifted.blocks[index]
        state = self._follower.behind(index, self.entry[number, index])
        call = self._calls.get(block.last)
        if call is not None:
            self._call(context, call, state)
            return
        if block.exit == "return":
            self._leave(context, state)
            return
        for edge in block.successors:
            self._reach(context, edge.to, state)

    def _call(self, context: _Context[S], call: CallSite, state: S) -> None:
        back = None if call.kind == "tail" else call.return_block
        if not call.known:
            self._come_back(context, back, self._follower.unknown())
        for function in call.callees:
            entry = self._lifted.functions[function].entry_block
            ready, key = self._follower.enter(entry, state)
            callee = self._context(function, key)
            callee.returns[context, self._lifted.block_of[call.index], back] = state
            if callee.exit is not None:
                self._come_back(context, back, self._follower.leave(entry, state, callee.exit))
            self._reach(callee, entry, ready)

    def _leave(self, context: _Context[S], state: S) -> None:
        joined = state if context.exit is None else self._follower.merge(context.exit, state)
        if joined is context.exit:
            return
        context.exit = joined
        for (caller, _, block), called in list(context.returns.items()):
            self._come_back(caller, block, self._follower.leave(context.entry_block, called, joined))

    def _come_back(self, context: _Context[S], block: int | None, state: S) -> None:
        if block is None:
            self._leave(context, state)
        else:
            self._reach(context, block, state)
