"""The way that each wave takes through a kernel, step by step, and hooks at every point that it may come by."""

from __future__ import annotations

from collections.abc import Callable

from luthier import immediate
from luthier.emulator.inspection.debug import Step
from luthier.errors import HookError
from luthier.lifting import ControlEdge, LiftedRepresentation
from luthier.module import Hook
from luthier.task import InstrumentationTask


class Walk:
    """A trace that keeps what every wave came by, and may do something there.

    Attributes:
        steps: [(instruction before, instruction, lanes active)] of all waves, None at a wave's start.
    """

    def __init__(self, lifted: LiftedRepresentation, at: Callable[[int | None, int, Step], None] | None = None) -> None:
        self.steps: list[tuple[int | None, int, int]] = []
        self._index_of = {address: index for index, address in enumerate(lifted.columns.address)}
        self._last: dict[tuple[int, int], int] = {}
        self._at = at

    def __call__(self, step: Step) -> None:
        key, index = (step.workgroup, step.wave), self._index_of[step.address]
        before = self._last.get(key)
        self._last[key] = index
        self.steps.append((before, index, step.registers.exec.bit_count()))
        if self._at is not None:
            self._at(before, index, step)


def edge_of(lifted: LiftedRepresentation, before: int | None, index: int) -> list[ControlEdge]:
    """The edges that a step may have gone by. A conditional branch to the next instruction has two."""
    block = lifted.blocks[lifted.block_of[index]]
    if before is None or index != block.first:
        return []
    source = lifted.blocks[lifted.block_of[before]]
    if source.last != before:
        return []
    if source.exit in ("return", "tail", "call"):
        if source.exit != "return":
            return []
        source = lifted.blocks[lifted.block_of[block.first - 1]]  # control is back from a call
    return [ControlEdge(source.index, edge.to, edge.kind) for edge in source.successors if edge.to == block.index]


Comes = Callable[[int | None, int], bool]
"""Whether a step, from the one instruction to the other, comes by a point."""


def insert_everywhere(task: InstrumentationTask, hook: Hook) -> list[Comes]:
    """A hook at every point there is, with the point's number as its argument; which steps come by each."""
    lifted = task.lifted
    wanted: list[Comes] = []

    def point(insert: Callable[..., None], *where: object, counts: Comes) -> None:
        before = len(task.insertions)
        try:
            insert(*where, hook, immediate(len(wanted)))
        except HookError:
            assert len(task.insertions) == before
            return
        wanted.append(counts)

    for block in lifted.blocks:
        point(task.insert_hook_at_block, block, counts=lambda before, index, block=block: index == block.first)
    ways: dict[tuple[int, int], list[ControlEdge]] = {}
    for edge in lifted.edges:  # a branch to the next instruction has two between the same blocks
        ways.setdefault((edge.source, edge.to), []).append(edge)
    for edges in ways.values():
        point(
            lambda edges, *rest: [task.insert_hook_on_edge(edge, *rest) for edge in edges],
            edges,
            counts=lambda before, index, edges=edges: edges[0] in edge_of(lifted, before, index),
        )
    for loop in lifted.loops:
        headers = {lifted.blocks[header].first for header in loop.headers}
        point(task.insert_hook_at_loop_header, loop, counts=lambda before, index, at=headers: index in at)
        point(
            task.insert_hook_on_back_edges,
            loop,
            counts=lambda before, index, loop=loop: any(
                edge.source in loop.blocks and edge.to in loop.headers for edge in edge_of(lifted, before, index)
            ),
        )
    for function in lifted.functions:
        first = lifted.blocks[function.entry_block].first
        if not function.is_kernel:
            point(
                task.insert_hook_at_function_entry, function, counts=lambda before, index, first=first: index == first
            )
            ends = {block.last for block in function.blocks if block.exit in ("return", "tail")}
            point(task.insert_hook_at_function_return, function, counts=lambda before, index, ends=ends: index in ends)
    point(task.insert_hook_at_kernel_entry, counts=lambda before, index: before is None)
    last = {block.last for block in lifted.blocks if block.exit == "end"}
    point(task.insert_hook_at_kernel_exit, counts=lambda before, index: index in last)
    return wanted
