"""Dominators and loops of one function.

A loop is a set of blocks each of which can reach all others; its headers are the blocks at which it is entered. The
loops inside it are found by removing the edges to the headers and repeating the search (Steensgaard, "Sequentializing
Program Dependence Graphs for Irreducible Programs", 1993). Irreducible loops therefore need no special treatment.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from luthier.lifting.model import Function


class Loop(Struct, frozen=True):
    """One loop of a function."""

    headers: tuple[int, ...]
    """Blocks at which it is entered; several if control flow is irreducible."""
    blocks: frozenset[int]
    """All its blocks, including those of inner loops."""
    depth: int
    """Nesting depth, 1 for the outermost."""
    parent: int | None
    """Position of the enclosing loop among the function's loops."""


class LoopNest:
    """The loops of a function, outer loops before inner ones.

    Args:
        function: the function.
        entries: further blocks at which it may be entered.

    Attributes:
        loops: all loops.
        successors: block -> its successors in the function.
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
        """Return the innermost loop that contains a block, if any."""
        number = self._innermost.get(block)
        return None if number is None else self.loops[number]

    def depth(self, block: int) -> int:
        """Return the number of loops that contain a block."""
        loop = self.innermost(block)
        return 0 if loop is None else loop.depth

    def edge_depth(self, source: int, to: int) -> int:
        """Return the number of loops that contain both ends of an edge."""
        loop = self.innermost(source)
        while loop is not None and to not in loop.blocks:
            loop = None if loop.parent is None else self.loops[loop.parent]
        return 0 if loop is None else loop.depth

    def _find(self) -> None:
        cut: set[tuple[int, int]] = set()
        work: list[tuple[frozenset[int], int | None]] = [(frozenset(self.successors), None)]
        while work:
            blocks, parent = work.pop()
            for component in _components(blocks, self.successors, cut):
                first = component[0]
                if len(component) == 1 and (first not in self.successors[first] or (first, first) in cut):
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
                if not headers:  # entered only by removed edges, to the headers of the enclosing loop
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
    components: list[list[int]] = []
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
                    components.append(sorted(component))
    return components


def immediate_dominators(function: Function) -> dict[int, int]:
    """Return the immediate dominator of each block; that of the entry block is itself.

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

    def meet(left: int, right: int) -> int:
        while left != right:
            while number[left] < number[right]:
                left = dominator[left]
            while number[right] < number[left]:
                right = dominator[right]
        return left

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


def dominates(dominators: Mapping[int, int], dominator: int, block: int) -> bool:
    """Return whether control always passes block `dominator` before it reaches `block`.

    Args:
        dominators: from `immediate_dominators`.
    """
    while block != dominator:
        above = dominators[block]
        if above == block:
            return False
        block = above
    return True
