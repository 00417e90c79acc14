"""Points for hooks: after instructions, on edges, and at entries and exits of functions and kernels.

A point is an instruction and a place relative to it.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from luthier.errors import HookError
from luthier.lifting import ControlEdge, Edge, Function, LiftedRepresentation

Place = Literal["before", "after", "taken", "entry"]
"""The place where a hook runs, relative to an instruction: before it; on the fall-through to the next one; on the edge
from a branch to its target; or once, when the wave starts, before this first instruction."""


class Point(NamedTuple):
    """An instruction and a place relative to it."""

    at: int
    """Instruction index."""
    place: Place


def _error(lifted: LiftedRepresentation, index: int, reason: str) -> HookError:
    return HookError(reason, kernel=lifted.kernel.name, offset=lifted.columns.address[index])


def behind(lifted: LiftedRepresentation, index: int) -> list[Point]:
    """Return the points after an instruction: all outgoing edges of a branch.

    Raises:
        HookError: the successor is unknown, or there is none.
    """
    block = lifted.blocks[lifted.block_of[index]]
    if index != block.last:
        return [Point(index, "after")]
    if block.exit in ("branch", "conditional") and block.successors:
        return [edge_point(lifted, ControlEdge(block.index, edge.to, edge.kind)) for edge in block.successors]
    if block.exit == "fallthrough" or (block.exit == "call" and block.successors):
        return [Point(index, "after")]
    raise _error(lifted, index, "no hook can run after this instruction: it has no known successor")


def edge_point(lifted: LiftedRepresentation, edge: ControlEdge) -> Point:
    """Return the point on the edge from one block to another.

    Raises:
        HookError: the edge does not exist, or it is an indirect jump.
    """
    blocks = lifted.blocks
    known = 0 <= edge.source < len(blocks) and 0 <= edge.to < len(blocks)
    if not known or Edge(edge.kind, edge.to) not in blocks[edge.source].successors:
        raise HookError(f"there is no edge {edge}", kernel=lifted.kernel.name)
    last, first = blocks[edge.source].last, blocks[edge.to].first
    if edge.kind == "fallthrough":
        if first != last + 1:
            raise _error(lifted, last, "no hook can run on this edge: it does not lead to the next instruction")
        return Point(last, "after")
    if edge.kind == "indirect":
        raise _error(lifted, last, "no hook can run on the edge of an indirect jump")
    return Point(last, "taken")


def kernel_entry(lifted: LiftedRepresentation) -> Point:
    """Return the point that each wave passes once, when it starts.

    Raises:
        HookError: a kernel with two entries branches back to the second one.
    """
    indices = [index for index in map(lifted.index_at, lifted.hardware_entries) if index is not None]
    last = indices[-1]
    block = lifted.blocks[lifted.block_of[last]]
    backward = set(block.predecessors) - {lifted.block_of[index] for index in indices[:-1]}
    if block.first == last and not backward:
        return Point(last, "before")
    if len(lifted.hardware_entries) > 1:
        raise _error(lifted, last, "the kernel branches back to its entry for preloaded arguments")
    return Point(last, "entry")


def function_entry(lifted: LiftedRepresentation, function: Function) -> Point:
    """Return the point that each call of a function passes once.

    Raises:
        HookError: the function's code branches back to its first instruction.
    """
    if function.is_kernel:
        return kernel_entry(lifted)
    block = lifted.blocks[function.entry_block]
    if block.predecessors:
        raise _error(lifted, block.first, f"{function.name} branches back to its first instruction")
    return Point(block.first, "before")


def function_returns(lifted: LiftedRepresentation, function: Function) -> list[Point]:
    """Return the points before each return and tail call of a function.

    Raises:
        HookError: the function is the kernel, or contains a jump with unknown targets.
    """
    if function.is_kernel:
        raise HookError("a kernel does not return: use insert_hook_at_kernel_exit", kernel=lifted.kernel.name)
    for block in function.blocks:
        if block.exit == "unknown":
            raise _error(lifted, block.last, f"{function.name} may return at this jump with unknown targets")
    return [Point(block.last, "before") for block in function.blocks if block.exit in ("return", "tail")]


def kernel_exits(lifted: LiftedRepresentation) -> list[Point]:
    """Return the points before each program end, in the kernel and the functions it calls."""
    return [Point(block.last, "before") for block in lifted.blocks if block.exit == "end"]
