"""Which instructions of a function can matter to where its register jumps go, to addresses made of the program
counter, and to what it puts back before it returns.

Two passes over bit sets of units, both over-approximations: forward, what a program counter may be in; backward, what
holds something that matters. The analysis of values then follows the few instructions found and nothing else.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from luthier.lifting import registers as r
from luthier.lifting.graph import Node


class Step(NamedTuple):
    """Instructions of a block, and what they read, write and replace together."""

    first: int
    last: int
    """Inclusive."""
    reads: int
    writes: int
    kills: int


@dataclass(frozen=True)
class Kinds:
    """What has to be known of instructions, each by index.

    Attributes:
        followed: whether its results may be known.
        value_reads: the units those results depend on.
        is_getpc: whether it reads the program counter.
        copies: whether it may hand on what a register held at the function's entry.
        by_register: whether it goes to an address in registers.
        may_return: whether it may leave for the caller.
    """

    followed: Callable[[int], bool]
    value_reads: Callable[[Step], int]
    is_getpc: Callable[[int], bool]
    copies: Callable[[int], bool]
    by_register: Callable[[int], bool]
    may_return: Callable[[int], bool]


def relevant_steps(
    nodes: Sequence[Node], steps: Mapping[int, Collection[Step]], roots: Collection[int], called: bool, kinds: Kinds
) -> set[int]:
    """The instructions whose results, or whose effect on what is known of EXEC, can matter.

    Args:
        steps: of each node that control reaches from `roots`.
        called: whether somebody has to know which registers the function puts back.
    """
    singles = [step for own in steps.values() for step in own if step.first == step.last]
    followed = {step.first for step in singles if kinds.followed(step.first)}
    if not followed:
        return set()
    sums = _reading_counters(nodes, steps, roots, followed, kinds)
    copies = [step for step in singles if called and step.first in followed and kinds.copies(step.first)]
    back = _Backward(nodes, steps, followed, sums, _restorable(copies), kinds)
    return back.run()


def _reading_counters(
    nodes: Sequence[Node], steps: Mapping[int, Collection[Step]], roots: Collection[int], followed: set[int], kinds: Kinds
) -> set[int]:
    """Forward: the followed instructions that read what may be made of a program counter, and those that read it."""
    getpcs = {index for index in followed if kinds.is_getpc(index)}
    found = set(getpcs)
    if not getpcs:
        return found
    before = dict.fromkeys(roots, 0)
    work = sorted(before)
    while work:
        number = heapq.heappop(work)
        if work and work[0] == number:
            continue
        derived = before[number]
        for step in steps[number]:
            reads = step.reads & derived
            derived &= ~(step.kills & r.SCALAR_MASK)  # what is in a lane is never taken to be gone
            if step.first in getpcs:
                derived |= step.writes
            elif reads and step.first in followed:
                found.add(step.first)
                derived |= step.writes
        for _, successor in nodes[number].successors:
            known = before.get(successor)
            if known is None or derived & ~known:
                before[successor] = derived | (known or 0)
                heapq.heappush(work, successor)
    return found


def _restorable(copies: list[Step]) -> int:
    """Scalar units that may get back what they held at the entry: such a value goes round through copies."""
    around = -1
    while copies:
        read = written = 0
        for step in copies:
            read |= step.reads
            written |= step.writes
        if around == (around := read & written):
            break
        copies = [step for step in copies if step.reads & around and step.writes & around]
    return around & r.SCALAR_MASK if copies else 0


class _Backward:
    """What is needed at each point: units whose known values can matter later."""

    def __init__(
        self,
        nodes: Sequence[Node],
        steps: Mapping[int, Collection[Step]],
        followed: set[int],
        sums: set[int],
        restorable: int,
        kinds: Kinds,
    ) -> None:
        self.nodes = nodes
        self.steps = steps
        self.followed = followed
        self.sums = sums
        self.restorable = restorable
        self.kinds = kinds
        self.relevant = set(sums)

    def run(self) -> set[int]:
        predecessors: dict[int, list[int]] = {}
        for number in self.steps:
            for _, successor in self.nodes[number].successors:
                predecessors.setdefault(successor, []).append(number)
        before = dict.fromkeys(self.steps, -1)
        work = sorted(-number for number in self.steps)  # the last block first
        while work:
            number = -heapq.heappop(work)
            if work and -work[0] == number:
                continue
            needed = 0
            for _, successor in self.nodes[number].successors:
                needed |= max(before[successor], 0)
            needed = self._block(number, needed)
            if needed != before[number]:
                before[number] = needed
                for predecessor in predecessors.get(number, ()):
                    heapq.heappush(work, -predecessor)
        return self.relevant

    def _block(self, number: int, needed: int) -> int:
        kinds = self.kinds
        for step in reversed(self.steps[number]):
            index = step.first
            # What is known of EXEC outlives most of its writes, and an operation on lanes may leave the others alone.
            if kinds.by_register(index):
                needed = needed & ~step.writes | step.reads
                if kinds.may_return(index):
                    needed |= self.restorable
            elif index in self.followed:
                if index in self.sums or self._tells(step) & needed:
                    self.relevant.add(index)
                    needed = needed & ~(step.writes & r.SCALAR_MASK & ~r.EXEC_MASK) | kinds.value_reads(step)
                else:
                    needed &= ~step.writes
            elif step.writes & needed & r.EXEC_MASK:
                self.relevant.add(index)
                needed &= ~step.writes | r.EXEC_MASK
            else:
                needed &= ~step.writes
        return needed

    def _tells(self, step: Step) -> int:
        """The units of which a followed instruction may tell something: a load to lanes tells which are active."""
        return step.writes | (r.EXEC_MASK if step.writes & r.VECTOR_MASK else 0)
