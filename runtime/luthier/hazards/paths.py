"""The check of all paths: finds instructions that meet, and the paths between them.

A model (`luthier.lifting.paths.PathModel`) defines the states to follow and the meetings. The checks of wait counters
and of wait states differ only in their models.
"""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Hashable, Iterator, Sequence
from typing import Generic, NamedTuple, Protocol, Self, TypeVar

from luthier.lifting.paths import PathModel, Paths
from luthier.lifting.shortest_path import BlockPassed, Ways

MOST_BLOCKS = 64
"""Maximum number of blocks followed after a wait; if they give no answer, the wait counts as needed."""


class Meeting(Protocol):
    """An instruction that comes too early after others."""

    @property
    def key(self) -> tuple[int, ...]:
        """Return the key of a finding: the instruction's index, and the kind of producer that it meets."""

    def joined(self, other: Self) -> Self:
        """Return the worst of two meetings with the same key."""


S = TypeVar("S", bound=Hashable)
P = TypeVar("P", bound=Hashable)
M = TypeVar("M", bound=Meeting)


class CheckedModel(PathModel[S, P, M]):
    """A model with producers: the instructions after which others may come too early."""

    @abstractmethod
    def producers(self, meeting: M) -> Iterator[tuple[int, S]]:
        """Yield the possible producers of a meeting, each with the state that it alone leaves."""


class Connection(NamedTuple, Generic[M]):
    """A meeting with one producer."""

    producer: int
    met: M
    path: tuple[int, ...]
    """Blocks from the producer to the meeting."""


class PathCheck(Generic[S, P, M]):
    """Meetings in one kernel.

    Args:
        searches: maximum number of searches for a path from a producer.

    Attributes:
        meetings: the worst meeting of each key, in the order of keys.
        given_up: number of meetings without a search for their producers.
    """

    def __init__(self, model: CheckedModel[S, P, M], paths: Paths[S, P, M], searches: int = 1 << 62) -> None:
        self._model, self._left, self.given_up = model, searches, 0
        self._ways = Ways(model.lifted)
        worst: dict[tuple[int, ...], M] = {}

        def report(met: M) -> None:
            known = worst.get(met.key)
            worst[met.key] = met if known is None else known.joined(met)

        for block, state in paths.states() if paths.suspicious else ():
            if block in paths.suspicious:
                model.follow(block, state, report, singly=True)
        self.meetings = [worst[key] for key in sorted(worst)]

    def connections(self, meeting: M) -> Iterator[Connection[M]]:
        """Yield the producers of a meeting, with a shortest path from each."""
        for producer, state in self._model.producers(meeting):
            if not self._left:
                self.given_up += 1
                return
            self._left -= 1
            connection = self._connection(producer, state, meeting)
            if connection is not None:
                yield connection

    def _connection(self, producer: int, state: S, meeting: M) -> Connection[M] | None:
        model, block_of = self._model, self._model.lifted.block_of
        at = block_of[meeting.key[0]]

        def follow(block: int, state: S, behind: int = -1) -> BlockPassed[S, M]:
            meetings: list[M] = []

            def report(met: M) -> None:
                if met.key == meeting.key:
                    meetings.append(met)

            after = model.follow(block, state, report, behind=behind, only=True, singly=block == at)
            met = functools.reduce(lambda first, second: first.joined(second), meetings) if meetings else None
            return BlockPassed(met, after if model.has_facts(after) else None)

        block = block_of[producer]
        result = self._ways.shortest(block, follow(block, state, producer), follow)
        return None if result is None else Connection(producer, result[1], result[0])


class Onward(Generic[S]):
    """Iterator over the blocks after a point, each with the states in which control reaches it.

    Attributes:
        gave_up: whether it ended because there are too many.
    """

    def __init__(self, following: Sequence[Sequence[int]]) -> None:
        self._following = following
        self._waiting: list[tuple[int, S]] = []
        self.gave_up = False

    def leave(self, block: int, state: S) -> None:
        """Continue after a block in a state, unless the state is empty."""
        if state:
            self._waiting += [(one, state) for one in self._following[block]]

    def __iter__(self) -> Iterator[tuple[int, S]]:
        seen: set[tuple[int, S]] = set()
        while self._waiting:
            place = self._waiting.pop()
            if place in seen:
                continue
            seen.add(place)
            if len(seen) > MOST_BLOCKS:
                self.gave_up = True
                return
            yield place
