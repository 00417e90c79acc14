"""Shortest paths through a kernel that return from each function to its caller."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Iterator
from functools import cached_property
from itertools import count
from typing import Generic, NamedTuple, TypeVar

from msgspec import Struct, field

from luthier.lifting.model import CallSite, LiftedKernel
from luthier.lifting.paths import successors

S = TypeVar("S", bound=Hashable)
F = TypeVar("F")


class BlockPassed(NamedTuple, Generic[S, F]):
    """Result of following a block."""

    result: F
    """What the search is for."""
    behind: S | None
    """The state after the block; None: nothing is left to follow."""


Pass = Callable[[int, S], BlockPassed[S, F]]
"""Follows a block that is entered in a state."""
_Frame = tuple[int, S] | None
"""Call through which the path entered a function, as the function's first block and the state there; None for the
function in which the path begins, whose callers are not known."""


class _Call(Struct, Generic[S]):
    """Calls of a function in a state."""

    begins: int
    """Number of blocks before the function in the first path to it."""
    callers: list[tuple[_Frame[S], int | None, tuple[int, ...]]] = field(default_factory=list)
    """For each call: the enclosing call, the block to return to (None: a tail call), and the path to the call."""
    exits: dict[S, tuple[int, ...]] = field(default_factory=dict)
    """State after a return -> path through the function to that return."""


class Ways:
    """Paths through one kernel."""

    def __init__(self, lifted: LiftedKernel) -> None:
        self.lifted = lifted

    @cached_property
    def calls(self) -> dict[int, CallSite]:
        """Return block -> the call at its end."""
        return {self.lifted.block_of[call.index]: call for function in self.lifted.functions for call in function.calls}

    @cached_property
    def any_return(self) -> list[list[int]]:
        """Return the lists of `successors`."""
        return successors(self.lifted)

    def passed(self, block: int, first: BlockPassed[S, F], follow: Pass[S, F]) -> Iterator[tuple[tuple[int, ...], F]]:
        """Yield the paths from a block, those with the fewest blocks first, and the result for the last block of each.

        A path to a block and state that another path leads to is left out.

        Args:
            block: the first block of the paths.
            first: result of following the rest of the first block.
            follow: follows any other block.
        """
        return _PathSearch(self, follow).run(block, first)


class _PathSearch(Generic[S, F]):
    def __init__(self, ways: Ways, follow: Pass[S, F]) -> None:
        self._ways, self._follow = ways, follow
        self._calls: dict[_Frame[S], _Call[S]] = {}
        self._seen: set[tuple[_Frame[S], int, S]] = set()
        self._heap: list[tuple[int, int, _Frame[S], int, S, tuple[int, ...]]] = []
        self._order = count()

    def run(self, block: int, first: BlockPassed[S, F]) -> Iterator[tuple[tuple[int, ...], F]]:
        frame: _Frame[S] = None
        passed = first
        path: tuple[int, ...] = (block,)
        while True:
            yield path, passed.result
            if passed.behind is not None:
                self._go_on(frame, block, passed.behind, path)
            if not self._heap:
                return
            _, _, frame, block, state, path = heapq.heappop(self._heap)
            passed = self._follow(block, state)

    def _go_on(self, frame: _Frame[S], block: int, state: S, path: tuple[int, ...]) -> None:
        call = self._ways.calls.get(block)
        if call is not None:
            back = None if call.kind == "tail" else call.return_block
            for callee in call.callees:
                self._enter((self._ways.lifted.functions[callee].entry_block, state), (frame, back, path))
        elif frame is not None and self._ways.lifted.blocks[block].exit == "return":
            self._leave(frame, state, path[self._calls[frame].begins :])
        else:
            for following in self._ways.any_return[block]:
                self._push(frame, following, state, (*path, following))

    def _enter(self, frame: tuple[int, S], caller: tuple[_Frame[S], int | None, tuple[int, ...]]) -> None:
        entry, state = frame
        within, back, path = caller
        if within is None and back is None:  # may return to any caller
            self._push(None, entry, state, (*path, entry))
            return
        known = self._calls.get(frame)
        if known is None:
            known = self._calls[frame] = _Call(len(path))
            self._push(frame, entry, state, (*path, entry))
        known.callers.append(caller)
        for behind, through in known.exits.items():
            self._come_back(caller, behind, through)

    def _leave(self, frame: _Frame[S], state: S, through: tuple[int, ...]) -> None:
        call = self._calls[frame]
        if state not in call.exits:
            call.exits[state] = through
            for caller in list(call.callers):
                self._come_back(caller, state, through)

    def _come_back(
        self, caller: tuple[_Frame[S], int | None, tuple[int, ...]], state: S, through: tuple[int, ...]
    ) -> None:
        frame, back, path = caller
        if back is not None:
            self._push(frame, back, state, (*path, *through, back))
        elif frame is not None:
            self._leave(frame, state, (*path[self._calls[frame].begins :], *through))

    def _push(self, frame: _Frame[S], block: int, state: S, path: tuple[int, ...]) -> None:
        if (frame, block, state) not in self._seen:
            self._seen.add((frame, block, state))
            heapq.heappush(self._heap, (len(path), next(self._order), frame, block, state, path))
