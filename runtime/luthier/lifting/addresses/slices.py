"""Slice of the instructions of a function that can matter to its indirect jumps.

They are those that matter to where register jumps go, to addresses made from the program counter, and to what the
function restores before it returns.

Two passes over bit sets of units, both over-approximations: forward, what a program counter may be in; backward, what
holds something that matters. The analysis of values then follows the few instructions found and nothing else.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import NamedTuple

from luthier.isa import registers as r
from luthier.lifting.code.effort import Effort
from luthier.lifting.code.graph import Node

_STEPS = 16
"""Steps that are visited with one unit of `Effort`."""


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
    """Predicates on instructions, each by index.

    Attributes:
        followed: whether its results may be known.
        value_reads: the units those results depend on.
        is_getpc: whether it reads the program counter.
        needs_counter: whether it makes values only from ones made of a program counter.
        moves: whether its result is one of its sources.
        copies: whether it may pass on what a register held at the function's entry.
        by_register: whether it goes to an address in registers.
        may_return: whether it may leave for the caller.
    """

    followed: Callable[[int], bool]
    value_reads: Callable[[Step], int]
    is_getpc: Callable[[int], bool]
    needs_counter: Callable[[int], bool]
    moves: Callable[[int], bool]
    copies: Callable[[int], bool]
    by_register: Callable[[int], bool]
    may_return: Callable[[int], bool]


def relevant_steps(
    nodes: Sequence[Node],
    steps: Mapping[int, list[Step]],
    roots: Collection[int],
    called: bool,
    finished: bool,
    kinds: Kinds,
    effort: Effort,
) -> set[int]:
    """Return the instructions whose results, or whose effect on what is known of EXEC, can matter.

    Args:
        steps: of each node that control reaches from `roots`.
        called: whether it matters which registers the function restores.
        finished: whether it matters where all addresses made from a program counter go, and not only how they are made.
        effort: counts what is done.

    Raises:
        LiftError: it is too much.
    """
    singles = [step for own in steps.values() for step in own if step.first == step.last]
    followed = {step.first for step in singles if kinds.followed(step.first)}
    if not followed:
        return set()
    fresh, derived = _reading_counters(nodes, steps, roots, followed, kinds, effort)
    followed = {index for index in followed if index in derived or not kinds.needs_counter(index)}
    copies = [
        (reads, step.writes & ~(reads & r.EXEC_MASK))
        for step in (singles if called else ())
        if step.first in followed and kinds.copies(step.first) and (reads := kinds.value_reads(step))
    ]
    return _Backward(nodes, steps, followed, derived if finished else fresh, _restorable(copies), kinds).run(effort)


def _reading_counters(
    nodes: Sequence[Node],
    steps: Mapping[int, list[Step]],
    roots: Collection[int],
    followed: set[int],
    kinds: Kinds,
    effort: Effort,
) -> tuple[set[int], set[int]]:
    """Return, by a forward pass, the followed instructions that read a program counter.

    They are those that read one to which nothing has been added, and those that read what may be derived from one; both
    with those that read the program counter itself.
    """
    getpcs = {index for index in followed if kinds.is_getpc(index)}
    from_fresh, from_derived = set(getpcs), set(getpcs)
    before = dict.fromkeys(roots, (0, 0)) if getpcs else {}
    work = sorted(before)
    while work:
        number = heapq.heappop(work)
        if work and work[0] == number:
            continue
        fresh, derived = before[number]
        effort.spend(1 + len(steps[number]) // _STEPS)
        for step in steps[number]:
            index = step.first
            reads, reads_fresh = step.reads & derived, step.reads & fresh
            kept = ~(step.kills & r.SCALAR_MASK)  # the value in a lane is never assumed to be lost
            fresh, derived = fresh & kept, derived & kept
            if index in getpcs:
                fresh, derived = fresh | step.writes, derived | step.writes
            elif reads and index in followed:
                from_derived.add(index)
                derived |= step.writes
                if reads_fresh:
                    from_fresh.add(index)
                    if kinds.moves(index):
                        fresh |= step.writes
        for _, successor in nodes[number].successors:
            known = before.get(successor)
            if known is None or fresh & ~known[0] or derived & ~known[1]:
                known = known or (0, 0)
                before[successor] = known[0] | fresh, known[1] | derived
                heapq.heappush(work, successor)
    return from_fresh, from_derived


def _restorable(copies: list[tuple[int, int]]) -> int:
    """Return the scalar units that may get back what they held at the entry: such a value moves through copies.

    EXEC is left out: what a function does to it does not matter (`AddressAnalysis._return_from_call`).

    Args:
        copies: the units each reads and writes.
    """
    around = 0
    while copies:
        read = written = 0
        for reads, writes in copies:
            read |= reads
            written |= writes
        if around == (around := read & written):
            return around & r.SCALAR_MASK & ~r.EXEC_MASK
        copies = [(reads, writes) for reads, writes in copies if reads & around and writes & around]
    return 0


class _Backward:
    """Backward pass that finds what is needed at each point: units whose known values can matter later."""

    def __init__(
        self,
        nodes: Sequence[Node],
        steps: Mapping[int, list[Step]],
        followed: set[int],
        seeds: set[int],
        restorable: int,
        kinds: Kinds,
    ) -> None:
        self.nodes = nodes
        self.steps = steps
        self.followed = followed
        self.seeds = seeds
        self.restorable = restorable
        self.kinds = kinds
        self.relevant = set(seeds)
        self.plain: dict[int, int] = {}
        """Units that nodes write which hold no followed instructions."""
        for number, own in steps.items():
            if not any(step.first in followed or kinds.by_register(step.first) for step in own):
                self.plain[number] = reduce(or_, [step.writes for step in own])

    def run(self, effort: Effort) -> set[int]:
        predecessors: dict[int, list[int]] = {}
        for number in self.steps:
            for _, successor in self.nodes[number].successors:
                predecessors.setdefault(successor, []).append(number)
        before = dict.fromkeys(self.steps, 0)
        work = sorted(-number for number in self.steps)  # the last block first
        while work:
            number = -heapq.heappop(work)
            if work and -work[0] == number:
                continue
            effort.spend(1 + len(self.steps[number]) // _STEPS)
            needed = 0
            for _, successor in self.nodes[number].successors:
                needed |= before[successor]
            writes = self.plain.get(number)
            needed = (
                self._block(number, needed) if writes is None or needed & writes & r.EXEC_MASK else needed & ~writes
            )
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
                if index in self.seeds or self._tells(step) & needed:
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
        """Return the units about which a followed instruction may reveal something.

        A load to lanes reveals which are active.
        """
        return step.writes | (r.EXEC_MASK if step.writes & r.VECTOR_MASK else 0)
