"""Blocks of the reachable code, as indices, before they become the public `BasicBlock`s."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from luthier.lifting.code.effort import Effort
from luthier.lifting.code.explore import Explorer, Resolution
from luthier.lifting.instructions.effects import Columns
from luthier.lifting.instructions.semantics import Control
from luthier.lifting.model import BlockExit, EdgeKind


@dataclass(slots=True)
class Node:
    """One block. `successors` are node numbers; calls go to where they return."""

    first: int
    last: int
    exit: BlockExit = "fallthrough"
    successors: list[tuple[EdgeKind, int]] = field(default_factory=list)
    targets: tuple[int, ...] = ()
    """Addresses of the functions called, or jumped to by a tail call; of a jump by a pointer, some it may go to."""
    resolution: Resolution | None = None
    """For register jumps and calls."""


@dataclass(slots=True)
class Graph:
    """All blocks in address order, and which of them each function reaches."""

    nodes: list[Node]
    node_at: dict[int, int]
    """Address of a block -> its number."""
    members: dict[int, list[int]]
    """Entry address of a function -> its blocks in address order."""


MOST_BLOCKS = 1 << 17
"""Blocks of a kernel with all that it calls: each takes four kilobytes until liveness is known."""

_DIRECT_EXIT: dict[int, BlockExit] = {
    Control.BRANCH: "branch",
    Control.CONDITIONAL: "conditional",
    Control.CALL: "call",
    Control.CALL_REGISTER: "call",
    Control.END: "end",
    Control.TRAP: "trap",
}
# As plain integers: a member of an IntEnum takes longer to look up than a block to build.
_NEXT, _CONDITIONAL, _CALL = int(Control.NEXT), int(Control.CONDITIONAL), int(Control.CALL)
_CALL_REGISTER, _JUMP_REGISTER = int(Control.CALL_REGISTER), int(Control.JUMP_REGISTER)
_NODES, _MEMBERS = 4, 16
"""Blocks that are made, or found to belong to a function, with one unit of `Effort`."""
_BRANCHES = (int(Control.BRANCH), _CONDITIONAL)
_COMING_BACK = (_CALL, _CALL_REGISTER, int(Control.TRAP))


def build_graph(
    explorer: Explorer,
    columns: Columns,
    control: Sequence[int],
    stops: list[int],
    resolutions: Mapping[int, Resolution],
    roots: Mapping[int, list[int]],
    effort: Effort,
) -> Graph:
    """Cut the reached instructions into blocks and connect them.

    Args:
        stops: the reached instructions whose control is not `Control.NEXT`, ascending.
        resolutions: what is known of register jumps and calls, by address.
        roots: all the addresses a function is entered at, where there are more than its own.
        effort: counts what is done.

    Raises:
        LiftError: it is too much, or there are more than `MOST_BLOCKS`.
    """
    if len(explorer.leaders) > MOST_BLOCKS:
        raise explorer.fail(
            f"{len(explorer.leaders)} blocks with what is called: more than {MOST_BLOCKS} take too much memory",
            next(iter(explorer.entries)),
        )
    effort.spend(len(explorer.leaders) // _NODES)
    starts = np.searchsorted(columns.code.addresses, sorted(explorer.leaders)).tolist()
    addresses, sizes = columns.address, columns.size
    node_at = {addresses[start]: number for number, start in enumerate(starts)}
    nodes: list[Node] = []
    at = 0
    for number, start in enumerate(starts):
        while at < len(stops) and stops[at] < start:
            at += 1
        following = starts[number + 1] if number + 1 < len(starts) else len(control)
        last = min(stops[at] if at < len(stops) else len(control), following - 1)
        node = Node(start, last)
        nodes.append(node)
        address = addresses[last]
        kind = control[last]
        after = node_at.get(address + sizes[last])
        if kind == _NEXT:
            if after is not None:
                node.successors.append(("fallthrough", after))
            continue
        node.exit = _DIRECT_EXIT.get(kind, "fallthrough")
        if kind == _JUMP_REGISTER:
            _register_jump(explorer, node, resolutions.get(address), node_at, addresses[start])
        elif kind == _CALL_REGISTER:
            node.resolution = resolutions.get(address)
            node.targets = node.resolution.targets if node.resolution is not None else ()
        elif kind == _CALL:
            node.targets = (columns.target[last],)
        if kind in _BRANCHES:
            node.successors.append(("taken", node_at[columns.target[last]]))
        falls = kind == _CONDITIONAL or (
            kind in _COMING_BACK and after is not None and explorer.comes_back(address, address + sizes[last])
        )
        if after is not None and falls:
            node.successors.append(("fallthrough", after))
    members = {}
    for entry in explorer.entries:
        members[entry] = reach(nodes, [node_at[root] for root in roots.get(entry, [entry])])
        effort.spend(1 + len(members[entry]) // _MEMBERS)
    return Graph(nodes, node_at, members)


def _register_jump(
    explorer: Explorer, node: Node, resolution: Resolution | None, node_at: dict[int, int], start: int
) -> None:
    node.resolution = resolution
    node.exit = "unknown"
    if resolution is None:
        return
    if resolution.reason:
        node.targets = resolution.targets
        return
    if resolution.is_return:
        node.exit = "return"
        return
    inside = [target for target in resolution.targets if not leaves_function(explorer, start, target)]
    if len(inside) == len(resolution.targets):
        node.exit = "branch"
        kind: EdgeKind = "taken" if len(inside) == 1 else "indirect"
        node.successors += [(kind, node_at[target]) for target in inside if target in node_at]
    elif not inside:
        node.exit = "tail"
        node.targets = resolution.targets


def leaves_function(explorer: Explorer, place: int, target: int) -> bool:
    """Return whether a jump from `place` to `target` is one to another function, rather than a long branch."""
    extent = explorer.extent(place)
    if target in explorer.text.functions:
        return extent != explorer.text.functions[target]
    return target in explorer.entries and (extent is None or not extent.start <= target < extent.end)


def reach(nodes: list[Node], entries: list[int]) -> list[int]:
    """Return the numbers of the nodes that control reaches from these, ascending."""
    seen = set(entries)
    work = list(entries)
    while work:
        for _, successor in nodes[work.pop()].successors:
            if successor not in seen:
                seen.add(successor)
                work.append(successor)
    return sorted(seen)
