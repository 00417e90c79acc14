"""The check of all paths: finds instructions that meet, and the paths between them.

A model (`luthier.lifting.paths.PathModel`) defines the states to follow and the meetings. The checks of wait counters
and of wait states differ only in their models.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Iterator, Sequence
from typing import Generic, NamedTuple, Protocol, Self, TypeVar

from msgspec import Struct

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

    @abstractmethod
    def alike(self, meeting: M) -> Hashable:
        """Return a value that is equal for meetings with the same `producers`."""


class Connection(NamedTuple, Generic[M]):
    """A meeting with one producer."""

    producer: int
    met: M
    path: tuple[int, ...]
    """Blocks from the producer to the meeting."""


class _Producer(Struct, Generic[S, M], eq=False):
    """A possible producer of some meetings."""

    at: int
    leaves: S
    """The state that it alone leaves."""
    met: dict[tuple[int, ...], Connection[M]] | None = None
    """Key of a meeting -> its connection with this producer; None until searched."""


class PathCheck(Generic[S, P, M]):
    """Meetings in one kernel.

    Args:
        searches: maximum number of pairs of a meeting and a producer between which a path is searched.

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
        self._keys: dict[Hashable, set[tuple[int, ...]]] = {}
        """By `alike` the keys of meetings."""
        for meeting in self.meetings:
            self._keys.setdefault(model.alike(meeting), set()).add(meeting.key)
        self._producers: dict[Hashable, list[_Producer[S, M]]] = {}
        """By `alike` the producers of meetings."""

    def connections(self, meeting: M) -> Iterator[Connection[M]]:
        """Yield the producers of a meeting, with a shortest path from each."""
        alike = self._model.alike(meeting)
        producers = self._producers.get(alike)
        if producers is None:
            producers = [_Producer(at, state) for at, state in self._model.producers(meeting)]
            self._producers[alike] = producers
        for producer in producers:
            if not self._left:
                self.given_up += 1
                return
            self._left -= 1
            if producer.met is None:
                producer.met = self._search(producer, {*self._keys[alike]})
            connection = producer.met.get(meeting.key)
            if connection is not None:
                yield connection

    def _search(self, producer: _Producer[S, M], keys: set[tuple[int, ...]]) -> dict[tuple[int, ...], Connection[M]]:
        """Return the connections of a producer with meetings of these keys, which are removed when they are found."""
        model = self._model
        connections: dict[tuple[int, ...], Connection[M]] = {}

        def follow(block: int, state: S, behind: int = -1) -> BlockPassed[S, list[M]]:
            meetings: list[M] = []
            after = model.follow(block, state, meetings.append, behind=behind, only=True)
            if meetings:
                meetings.clear()
                model.follow(block, state, meetings.append, behind=behind, only=True, singly=True)
            return BlockPassed(meetings, after if model.has_facts(after) else None)

        begin = model.lifted.block_of[producer.at]
        for path, meetings in self._ways.passed(begin, follow(begin, producer.leaves, producer.at), follow):
            met: dict[tuple[int, ...], M] = {}
            for meeting in meetings:
                if meeting.key in keys:
                    known = met.get(meeting.key)
                    met[meeting.key] = meeting if known is None else known.joined(meeting)
            for key, joined in met.items():
                connections[key] = Connection(producer.at, joined, path)
            keys -= met.keys()
            if not keys:
                break
        return connections


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
