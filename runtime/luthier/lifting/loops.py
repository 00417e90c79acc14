"""Dominators and loops of one function.

A loop is a set of blocks each of which can reach all others, with the blocks it is entered at as its headers. Taking
the edges back to the headers away and looking for loops again gives the loops inside it (Steensgaard, "Sequentializing
Program Dependence Graphs for Irreducible Programs", 1993): so loops that are entered at several blocks need nothing
special.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from luthier.lifting.model import Function


class Loop(Struct, frozen=True):
    """One loop of a function."""

    headers: tuple[int, ...]
    """Blocks it is entered at; more than one where control flow is irreducible."""
    blocks: frozenset[int]
    """All blocks of it, those of inner loops included."""
    depth: int
    """1 for the outermost."""
    parent: int | None
    """The loop around it, by its position among the function's loops."""

    def back_edges(self, successors: Mapping[int, Sequence[int]]) -> list[tuple[int, int]]:
        """Return the edges from inside to a header."""
        return [(block, to) for block in sorted(self.blocks) for to in successors[block] if to in self.headers]


class LoopNest:
    """The loops of a function, outer ones before those in them.

    Args:
        function: its blocks and edges are looked at.
        entries: blocks it may be entered at, where that is not its entry block alone.

    Attributes:
        loops: all of them.
        successors: block -> blocks that control may go on to.
    """

    def __init__(self, function: Function, entries: Iterable[int] = ()) -> None:
        self.entries = tuple(dict.fromkeys((function.entry_block, *entries)))
        inside = {block.index for block in function.blocks}
        self.successors = {
            block.index: tuple(dict.fromkeys(edge.to for edge in block.successors if edge.to in inside))
            for block in function.blocks
        }
        self.loops: list[Loop] = []
        self._innermost: dict[int, int] = {}
        self._find()

    def innermost(self, block: int) -> Loop | None:
        """Return the smallest loop a block is in."""
        found = self._innermost.get(block)
        return None if found is None else self.loops[found]

    def depth(self, block: int) -> int:
        """Return how many loops a block is in."""
        found = self._innermost.get(block)
        return 0 if found is None else self.loops[found].depth

    def edge_depth(self, source: int, to: int) -> int:
        """Return how many loops an edge is in: those that hold both its ends."""
        found = self._innermost.get(source)
        while found is not None and to not in self.loops[found].blocks:
            found = self.loops[found].parent
        return 0 if found is None else self.loops[found].depth

    def _find(self) -> None:
        cut: set[tuple[int, int]] = set()
        work: list[tuple[frozenset[int], int | None]] = [(frozenset(self.successors), None)]
        while work:
            blocks, parent = work.pop()
            for component in _components(blocks, self.successors, cut):
                (first, *others) = component
                if not others and (first not in self.successors[first] or (first, first) in cut):
                    continue
                members = frozenset(component)
                headers = {
                    to
                    for source, targets in self.successors.items()
                    if source not in members
                    for to in targets
                    if to in members and (source, to) not in cut
                }
                headers.update(entry for entry in self.entries if entry in members and parent is None)
                if not headers:  # only edges that were cut enter it: those to the headers of the enclosing loop
                    headers = {to for source, to in cut if to in members and source not in members} or {first}
                depth = 1 if parent is None else self.loops[parent].depth + 1
                number = len(self.loops)
                self.loops.append(Loop(tuple(sorted(headers)), members, depth, parent))
                for block in members:
                    self._innermost[block] = number
                cut |= {(block, to) for block in members for to in self.successors[block] if to in headers}
                work.append((members, number))


def _components(
    blocks: frozenset[int], successors: Mapping[int, Sequence[int]], cut: set[tuple[int, int]]
) -> list[list[int]]:
    """Return the strongly connected components (Tarjan's algorithm, without recursion)."""
    order: dict[int, int] = {}
    lowest: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    found: list[list[int]] = []
    for root in sorted(blocks):
        if root in order:
            continue
        work = [(root, iter(successors[root]))]
        order[root] = lowest[root] = len(order)
        stack.append(root)
        on_stack.add(root)
        while work:
            block, rest = work[-1]
            for to in rest:
                if to not in blocks or (block, to) in cut:
                    continue
                if to not in order:
                    order[to] = lowest[to] = len(order)
                    stack.append(to)
                    on_stack.add(to)
                    work.append((to, iter(successors[to])))
                    break
                if to in on_stack:
                    lowest[block] = min(lowest[block], order[to])
            else:
                work.pop()
                if work:
                    lowest[work[-1][0]] = min(lowest[work[-1][0]], lowest[block])
                if lowest[block] == order[block]:
                    component: list[int] = []
                    while not component or component[-1] != block:
                        component.append(stack.pop())
                        on_stack.remove(component[-1])
                    found.append(sorted(component))
    return found


def immediate_dominators(function: Function) -> dict[int, int]:
    """Return the immediate dominator of each block; the entry block is its own.

    Cooper, Harvey and Kennedy, "A Simple, Fast Dominance Algorithm", 2001.
    """
    successors = {block.index: [edge.to for edge in block.successors] for block in function.blocks}
    postorder: list[int] = []
    seen = {function.entry_block}
    work = [(function.entry_block, iter(successors[function.entry_block]))]
    while work:
        _, rest = work[-1]
        following = next((to for to in rest if to in successors and to not in seen), None)
        if following is None:
            postorder.append(work.pop()[0])
        else:
            seen.add(following)
            work.append((following, iter(successors[following])))
    number = {block: position for position, block in enumerate(postorder)}
    predecessors: dict[int, list[int]] = {block: [] for block in postorder}
    for block in postorder:
        for to in successors[block]:
            if to in predecessors:
                predecessors[to].append(block)
    dominator = {function.entry_block: function.entry_block}

    def meet(one: int, other: int) -> int:
        while one != other:
            while number[one] < number[other]:
                one = dominator[one]
            while number[other] < number[one]:
                other = dominator[other]
        return one

    changed = True
    while changed:
        changed = False
        for block in reversed(postorder[:-1]):
            known = [before for before in predecessors[block] if before in dominator]
            best = known[0]
            for other in known[1:]:
                best = meet(best, other)
            if dominator.get(block) != best:
                dominator[block] = best
                changed = True
    return dominator


def dominates(dominators: Mapping[int, int], one: int, other: int) -> bool:
    """Return whether block `one` dominates `other`: control always passes `one` before it reaches `other`.

    Args:
        dominators: from `immediate_dominators`.
    """
    while other != one:
        above = dominators[other]
        if above == other:
            return False
        other = above
    return True
