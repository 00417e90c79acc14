"""The check of all paths: finds instructions that meet, and the paths between them.

A model (`luthier.lifting.paths.PathModel`) defines the states to follow and the meetings. The checks of wait counters
and of wait states differ only in their models.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Iterator, Sequence
from typing import Generic, NamedTuple, Protocol, Self, TypeVar

from msgspec import Struct, field

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


class _Producers(Struct, Generic[S, M], eq=False):
    """The possible producers of meetings that are alike."""

    keys: set[tuple[int, ...]] = field(default_factory=set)
    """Keys of the meetings."""
    producers: list[tuple[int, S]] | None = None
    """Each with the state that it alone leaves; None until asked for."""
    searched: int = 0
    """Number of producers from which paths have been searched, the first ones."""
    connections: dict[tuple[int, ...], list[tuple[int, Connection[M]]]] = field(default_factory=dict)
    """Key of a meeting -> its connections, each with the number of its producer, ascending."""


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
        self._groups: dict[Hashable, _Producers[S, M]] = {}
        """By `alike`."""
        for meeting in self.meetings:
            self._groups.setdefault(model.alike(meeting), _Producers()).keys.add(meeting.key)

    def connections(self, meeting: M) -> Iterator[Connection[M]]:
        """Yield the producers of a meeting, with a shortest path from each."""
        group = self._groups[self._model.alike(meeting)]
        if group.producers is None:
            group.producers = list(self._model.producers(meeting))
        count = min(self._left, len(group.producers))
        self._left -= count
        self.given_up += count < len(group.producers)
        while group.searched < count:
            self._search(group, *group.producers[group.searched])
        for number, connection in group.connections.get(meeting.key, ()):
            if number < count:
                yield connection

    def _search(self, group: _Producers[S, M], producer: int, leaves: S) -> None:
        """Add the connections of the next producer of a group."""
        model, number = self._model, group.searched
        group.searched += 1
        done: set[tuple[int, ...]] = set()

        def follow(block: int, state: S, behind: int = -1) -> BlockPassed[S, list[M]]:
            meetings: list[M] = []
            after = model.follow(block, state, meetings.append, behind=behind, only=True)
            if meetings:
                meetings.clear()
                model.follow(block, state, meetings.append, behind=behind, only=True, singly=True)
            return BlockPassed(meetings, after if model.has_facts(after) else None)

        begin = model.lifted.block_of[producer]
        for path, meetings in self._ways.passed(begin, follow(begin, leaves, producer), follow):
            met: dict[tuple[int, ...], M] = {}
            for meeting in meetings:
                if meeting.key in group.keys and meeting.key not in done:
                    known = met.get(meeting.key)
                    met[meeting.key] = meeting if known is None else known.joined(meeting)
            for key, joined in met.items():
                group.connections.setdefault(key, []).append((number, Connection(producer, joined, path)))
            done |= met.keys()
            if len(done) == len(group.keys):
                return


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
