"""Points for hooks other than before and after instructions: edges, and entries and exits of functions and kernels.

Each is found as an instruction and a place seen from it.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from luthier.errors import HookError
from luthier.lifting import ControlEdge, Edge, Function, LiftedRepresentation

Place = Literal["before", "after", "taken", "entry"]
"""The place where a hook runs, seen from an instruction: before it; when control has gone on to the next one; on the
edge from a branch to its target; when the wave starts, before this first instruction, and never again."""


class Point(NamedTuple):
    """One place in the code."""

    at: int
    """Instruction index."""
    place: Place


def _error(lifted: LiftedRepresentation, index: int, reason: str) -> HookError:
    return HookError(reason, kernel=lifted.kernel.name, offset=lifted.columns.address[index])


def behind(lifted: LiftedRepresentation, index: int) -> list[Point]:
    """Return the points after an instruction, wherever control goes on: both edges of a conditional branch.

    Raises:
        HookError: it is not known where control goes on, or it does not.
    """
    block = lifted.blocks[lifted.block_of[index]]
    if index != block.last:
        return [Point(index, "after")]
    if block.exit in ("branch", "conditional") and block.successors:
        return [edge_point(lifted, ControlEdge(block.index, edge.to, edge.kind)) for edge in block.successors]
    if block.exit == "fallthrough" or (block.exit == "call" and block.successors):
        return [Point(index, "after")]
    raise _error(lifted, index, "no hook can run after an instruction that passes control on to where nobody knows")


def edge_point(lifted: LiftedRepresentation, edge: ControlEdge) -> Point:
    """Return the point on the edge from one block to another.

    Raises:
        HookError: there is no such edge, or it is a jump by register.
    """
    blocks = lifted.blocks
    known = 0 <= edge.source < len(blocks) and 0 <= edge.to < len(blocks)
    if not known or Edge(edge.kind, edge.to) not in blocks[edge.source].successors:
        raise HookError(f"there is no edge {edge}", kernel=lifted.kernel.name)
    last, first = blocks[edge.source].last, blocks[edge.to].first
    if edge.kind == "fallthrough":
        if first != last + 1:
            raise _error(lifted, last, "control falls through to elsewhere than the next instruction")
        return Point(last, "after")
    if edge.kind == "indirect":
        raise _error(lifted, last, "no hook can run on the way of a jump by register")
    return Point(last, "taken")


def kernel_entry(lifted: LiftedRepresentation) -> Point:
    """Return the point that each wave passes once, when it starts.

    Raises:
        HookError: a kernel with two entries reaches the second one again.
    """
    indices = [index for index in map(lifted.index_at, lifted.hardware_entries) if index is not None]
    last = indices[-1]
    block = lifted.blocks[lifted.block_of[last]]
    again = set(block.predecessors) - {lifted.block_of[index] for index in indices[:-1]}
    if block.first == last and not again:
        return Point(last, "before")
    if len(lifted.hardware_entries) > 1:
        raise _error(lifted, last, "control comes back to where the kernel starts with its arguments preloaded")
    return Point(last, "entry")


def function_entry(lifted: LiftedRepresentation, function: Function) -> Point:
    """Return the point where a function begins, for its callers.

    Raises:
        HookError: its own code branches back to it.
    """
    if function.is_kernel:
        return kernel_entry(lifted)
    block = lifted.blocks[function.entry_block]
    if block.predecessors:
        raise _error(lifted, block.first, f"{function.name} comes back to its own beginning")
    return Point(block.first, "before")


def function_returns(lifted: LiftedRepresentation, function: Function) -> list[Point]:
    """Return the points before each instruction by which a function returns to its caller.

    Tail calls are among them, since they let another function return.

    Raises:
        HookError: it is a kernel, or it is not known where it goes.
    """
    if function.is_kernel:
        raise HookError("a kernel does not return; it has exits", kernel=lifted.kernel.name)
    for block in function.blocks:
        if block.exit == "unknown":
            raise _error(lifted, block.last, f"nobody knows whether {function.name} returns here")
    return [Point(block.last, "before") for block in function.blocks if block.exit in ("return", "tail")]


def kernel_exits(lifted: LiftedRepresentation) -> list[Point]:
    """Return the points before each instruction that ends a wave, in the kernel and the functions it calls."""
    return [Point(block.last, "before") for block in lifted.blocks if block.exit == "end"]
