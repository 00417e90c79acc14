"""Interprocedural data flow for checks of all paths: states at the beginnings of all blocks.

A check supplies a model of mergeable states with the transfer function of a block (`PathModel`). The facts in a state
must be independent: the effect of a block on one fact depends on no other fact. A function can therefore be followed
once with the merged state of all its calls, for the states inside it; once for the facts that it creates; and once for
each *part* of the states at its calls. The last gives each caller the effect on its own facts, so that facts at one
call do not return from another (M. Sharir, A. Pnueli, "Two approaches to interprocedural data flow analysis", 1981: the
functional approach).
"""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from msgspec import Struct, field

from luthier.findings.finding import Finding, Other
from luthier.findings.kinds import FindingKind
from luthier.lifting.model import CallSite, LiftedKernel
from luthier.objects.source import in_source

if TYPE_CHECKING:
    from luthier.objects import SourceLocation

WIDEN_AFTER = 4
"""Number of visits of a block after which its state is widened."""


class PathPoint(Struct, frozen=True):
    """An instruction."""

    address: int
    """Virtual."""
    text: str
    source: SourceLocation | None = None
    """Source location, if debug information has one."""

    def __str__(self) -> str:
        return f"{self.address:#x} ({self.text}){in_source(self.source)}"

    def finding(
        self, kind: FindingKind, object: str, kernel: str, rule: str, detail: str, other: PathPoint | None = None
    ) -> Finding:
        """Return a finding at this instruction; for the arguments see `Finding`."""
        frames = () if self.source is None else self.source.frames
        finding = Finding(kind.label, 0, kernel, object, self.address, self.text, frames)
        finding.rule, finding.detail, finding.lane = rule, detail, -1
        if other is not None:
            frames = () if other.source is None else other.source.frames
            finding.other = Other(object, other.address, other.text, frames)
        return finding

    def to_json(self) -> dict[str, Any]:
        """Return the instruction as plain data for JSON."""
        source = None if self.source is None else self.source.to_json()
        return {"address": self.address, "text": self.text, "source": source}


def place_of(lifted: LiftedKernel, index: int) -> PathPoint:
    """Return an instruction with its address and source location."""
    address, source = lifted.columns.address[index], lifted.object.source
    return PathPoint(address, lifted.isa.text(lifted.code, index), source.at(address) if source.present else None)


def on_path(path: Sequence[int]) -> str:
    """Return the virtual addresses of the blocks on a path as the end of a line; "" for fewer than two."""
    return "" if len(path) < 2 else f"; on the path {' '.join(f'{block:#x}' for block in path)}"


def function_of(lifted: LiftedKernel, index: int) -> str:
    """Return the name of the function that contains an instruction."""
    return lifted.functions[lifted.blocks[lifted.block_of[index]].function].name


def addresses_of(lifted: LiftedKernel, path: Iterable[int]) -> tuple[int, ...]:
    """Return the virtual addresses of blocks."""
    return tuple(lifted.columns.address[lifted.blocks[block].first] for block in path)


def successors(lifted: LiftedKernel) -> list[list[int]]:
    """Return for each block its possible successors, including entries of callees and return points of all callers."""
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


S = TypeVar("S", bound=Hashable)
P = TypeVar("P", bound=Hashable)
M = TypeVar("M")


class PathModel(ABC, Generic[S, P, M]):
    """The states that a check follows on all paths, the effects of blocks on them, and the meetings to report.

    Attributes:
        lifted: the kernel.
        empty: the state at the start of a wave.
    """

    lifted: LiftedKernel
    empty: S

    @abstractmethod
    def follow(
        self,
        block: int,
        state: S,
        report: Callable[[M], object] | None = None,
        *,
        behind: int = -1,
        only: bool = False,
        singly: bool = False,
    ) -> S:
        """Return the state after a block, or after the rest of it.

        Args:
            state: at its beginning, or after instruction `behind`.
            report: called for each meeting in a state that may really occur.
            only: follow only the facts in `state`, without those that the block creates.
            singly: report meetings of single instructions, not of groups that are followed together.
        """

    @abstractmethod
    def merge(self, first: S, second: S) -> S:
        """Return the union of two states: `first` itself if `second` adds nothing."""

    @abstractmethod
    def has_facts(self, state: S) -> bool:
        """Return whether a state has facts that a function could change."""

    @abstractmethod
    def parts(self, state: S) -> Iterable[P]:
        """Yield the parts of which a state has facts."""

    @abstractmethod
    def whole(self, part: P) -> S:
        """Return the state with all possible facts of a part."""

    @abstractmethod
    def back(self, state: S, part: P, behind: S) -> S:
        """Return a state's facts of a part after a function.

        Args:
            behind: all possible facts of the part after the function.
        """

    def without_facts(self, state: S) -> S:
        """Return a state without facts that have parts."""
        return self.empty

    def unknown(self) -> S:
        """Return the state after unknown code."""
        return self.empty

    def called(self, block: int, state: S, *, real: bool) -> S:
        """Return the state at the entry block of a function that is called in a state.

        Args:
            real: whether the state may really occur, that is, is not just a part of one.
        """
        return state

    def widen(self, was: S, now: S) -> S:
        """Return a widened state, for a block that was visited often."""
        return now


_Kind = Literal["all calls", "own", "part"]


class _Context(Struct, Generic[S, P], eq=False):
    """A function, and the kind of states with which it is followed."""

    number: int
    function: int
    kind: _Kind
    part: P | None = None
    """Part, if the kind is "part"."""
    exit: S | None = None
    """State after its returns; None: no return has been reached yet."""
    returns: dict[tuple[_Context[S, P], int, int | None], S] = field(default_factory=dict)
    """Calls that wait for the state after returns, with the state at each. A call is the caller, the calling block, and
    the block to return to, or None for a tail call."""


class Paths(Generic[S, P, M]):
    """The states of one kernel.

    Attributes:
        suspicious: blocks that may contain meetings.
    """

    def __init__(self, model: PathModel[S, P, M]) -> None:
        lifted = self._lifted = model.lifted
        self._model = model
        self.suspicious: set[int] = set()
        self._calls: dict[int, CallSite] = {
            call.index: call for function in lifted.functions for call in function.calls
        }
        self._contexts: list[_Context[S, P]] = []
        self._by_key: dict[tuple[int, _Kind, P | None], _Context[S, P]] = {}
        self._entry: dict[tuple[int, int], S] = {}
        """(context, block) -> the state before the block."""
        self._visits: dict[tuple[int, int], int] = {}
        self._heap: list[tuple[bool, int, int, int]] = []
        """(all calls, order, context, block): what calls bring back is found first, from callees to callers."""
        self._waiting: set[tuple[int, int]] = set()
        kernel = self._context(0, "all calls")
        for address in lifted.hardware_entries:
            index = lifted.index_at(address)
            if index is not None:
                self._reach(kernel, lifted.block_of[index], model.empty)
        while self._heap:
            _, _, number, block = heapq.heappop(self._heap)
            self._waiting.discard((number, block))
            self._visit(number, block)

    def states(self) -> Iterator[tuple[int, S]]:
        """Yield reachable blocks with the state before each, merged over all calls of its function.

        A block that belongs to several functions occurs several times.
        """
        for (number, block), state in self._entry.items():
            if self._contexts[number].kind == "all calls":
                yield block, state

    def _context(self, function: int, kind: _Kind, part: P | None = None) -> _Context[S, P]:
        context = self._by_key.get((function, kind, part))
        if context is None:
            context = self._by_key[function, kind, part] = _Context(len(self._contexts), function, kind, part)
            self._contexts.append(context)
        return context

    def _reach(self, context: _Context[S, P], block: int, state: S) -> None:
        node = context.number, block
        known = self._entry.get(node)
        if known is not None:
            joined = self._model.merge(known, state)
            if joined is known:
                return
            visits = self._visits[node] = self._visits.get(node, 0) + 1
            state = self._model.widen(known, joined) if visits > WIDEN_AFTER else joined
        self._entry[node] = state
        if node not in self._waiting:
            self._waiting.add(node)
            every = context.kind == "all calls"
            heapq.heappush(self._heap, (every, node[0] if every else -node[0], *node))

    def _visit(self, number: int, index: int) -> None:
        context, block = self._contexts[number], self._lifted.blocks[index]
        state = self._entry[number, index]
        if context.kind == "all calls":
            state = self._model.follow(index, state, lambda _: self.suspicious.add(index))
        else:
            only = context.kind == "part"
            state = self._model.follow(index, state, only=only)
            if only and not self._model.has_facts(state):
                return  # no fact is left to follow
        call = self._calls.get(block.last)
        if call is not None:
            self._call(context, call, state)
        elif block.exit == "return":
            self._leave(context, state)
        else:
            for edge in block.successors:
                self._reach(context, edge.to, state)

    def _call(self, context: _Context[S, P], call: CallSite, state: S) -> None:
        model, block = self._model, self._lifted.block_of[call.index]
        back = None if call.kind == "tail" else call.return_block
        if not call.known and context.kind != "part":
            self._come_back(context, back, model.unknown())
        for function in call.callees:
            entry = self._lifted.functions[function].entry_block
            ready = model.called(entry, state, real=context.kind == "all calls")
            parts = list(model.parts(ready))
            if context.kind == "all calls":
                self._reach(self._context(function, "all calls"), entry, ready)
            if context.kind != "part":
                own = self._own(function, apart=bool(parts))
                self._returns_to(own, (context, block, back), ready)
                if own.kind == "own":
                    self._reach(own, entry, model.without_facts(ready))
            for part in parts:
                callee = self._context(function, "part", part)
                self._returns_to(callee, (context, block, back), ready)
                self._reach(callee, entry, model.whole(part))

    def _own(self, function: int, *, apart: bool) -> _Context[S, P]:
        """Return the context for the facts that a function creates.

        As long as the function is entered without facts, it is the context for all calls.
        """
        own = self._by_key.get((function, "own", None))
        joined = self._context(function, "all calls")
        if own is None:
            if not apart:
                return joined
            own = self._context(function, "own")
            entry = self._lifted.functions[function].entry_block
            for caller, state in joined.returns.items():
                self._returns_to(own, caller, state)
                self._reach(own, entry, self._model.without_facts(state))
            joined.returns.clear()
        return own

    def _returns_to(self, callee: _Context[S, P], caller: tuple[_Context[S, P], int, int | None], state: S) -> None:
        callee.returns[caller] = state
        if callee.exit is not None:
            self._come_back(caller[0], caller[2], self._brought(callee, state, callee.exit))

    def _brought(self, callee: _Context[S, P], called: S, behind: S) -> S:
        """Return the part of the state after a function's returns that applies to a call in a state."""
        return behind if callee.part is None else self._model.back(called, callee.part, behind)

    def _leave(self, context: _Context[S, P], state: S) -> None:
        joined = state if context.exit is None else self._model.merge(context.exit, state)
        if joined is context.exit:
            return
        context.exit = joined
        for (caller, _, block), called in list(context.returns.items()):
            self._come_back(caller, block, self._brought(context, called, joined))

    def _come_back(self, context: _Context[S, P], block: int | None, state: S) -> None:
        if block is None:
            self._leave(context, state)
        else:
            self._reach(context, block, state)
