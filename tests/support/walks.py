"""Path of each wave through a kernel, step by step, and hooks at every point that it may pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from luthier import immediate
from luthier.emulator.inspection.debug import WaveStep
from luthier.errors import HookError
from luthier.lifting import ControlEdge, LiftedRepresentation, Loop
from luthier.module import Hook
from luthier.tool.task import InstrumentationTask


class Walk:
    """A trace that keeps what every wave came by, and may do something there.

    Attributes:
        steps: [(instruction before, instruction, lanes active)] of all waves, None at a wave's start.
    """

    def __init__(
        self, lifted: LiftedRepresentation, at: Callable[[int | None, int, WaveStep], None] | None = None
    ) -> None:
        self.steps: list[tuple[int | None, int, int]] = []
        self._index_of = {address: index for index, address in enumerate(lifted.columns.address)}
        self._last: dict[tuple[int, int], int] = {}
        self._at = at

    def __call__(self, step: WaveStep) -> None:
        key, index = (step.workgroup, step.wave), self._index_of[step.address]
        before = self._last.get(key)
        self._last[key] = index
        self.steps.append((before, index, step.registers.exec.bit_count()))
        if self._at is not None:
            self._at(before, index, step)


def edge_of(lifted: LiftedRepresentation, before: int | None, index: int) -> list[ControlEdge]:
    """Return the edges that a step may have taken; a conditional branch to the next instruction has two."""
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
"""Predicate: whether a step, from the one instruction to the other, passes a point."""


def _to(places: Iterable[int]) -> Comes:
    """Steps to these instructions."""
    known = frozenset(places)
    return lambda before, index: index in known


def _by(lifted: LiftedRepresentation, is_one: Callable[[ControlEdge], bool]) -> Comes:
    """Steps by edges of a kind."""
    return lambda before, index: any(is_one(edge) for edge in edge_of(lifted, before, index))


def _goes_back(loop: Loop) -> Callable[[ControlEdge], bool]:
    return lambda edge: edge.source in loop.blocks and edge.to in loop.headers


def insert_everywhere(task: InstrumentationTask, hook: Hook) -> list[Comes]:
    """Insert a hook at every point there is, with the point's number as argument; return which steps pass each."""
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

    def on_edges(edges: list[ControlEdge], *rest: Any) -> None:
        for edge in edges:
            task.insert_hook_on_edge(edge, *rest)

    for block in lifted.blocks:
        point(task.insert_hook_at_block, block, counts=_to([block.first]))
    ways: dict[tuple[int, int], list[ControlEdge]] = {}
    for edge in lifted.edges:  # a branch to the next instruction has two between the same blocks
        ways.setdefault((edge.source, edge.to), []).append(edge)
    for edges in ways.values():
        point(on_edges, edges, counts=_by(lifted, edges[:1].__contains__))
    for loop in lifted.loops:
        point(task.insert_hook_at_loop_header, loop, counts=_to(lifted.blocks[header].first for header in loop.headers))
        point(task.insert_hook_on_back_edges, loop, counts=_by(lifted, _goes_back(loop)))
    for function in lifted.functions:
        if not function.is_kernel:
            first = lifted.blocks[function.entry_block].first
            point(task.insert_hook_at_function_entry, function, counts=_to([first]))
            ends = [block.last for block in function.blocks if block.exit in ("return", "tail")]
            point(task.insert_hook_at_function_return, function, counts=_to(ends))
    point(task.insert_hook_at_kernel_entry, counts=lambda before, index: before is None)
    last = [block.last for block in lifted.blocks if block.exit == "end"]
    point(task.insert_hook_at_kernel_exit, counts=_to(last))
    return wanted
