"""Blocks of the reachable code as indices, from which the public `BasicBlock`s are created."""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from functools import cached_property, lru_cache

import numpy as np
from msgspec import Struct

from luthier import _mc
from luthier.isa import InstructionArray, Isa
from luthier.lifting.code.effort import Effort
from luthier.lifting.code.explore import Explorer
from luthier.lifting.instructions.by_opcode import ByOpcode
from luthier.lifting.instructions.semantics import Mark, marks_of
from luthier.lifting.model import EXITS, BlockExit


class Resolution(Struct, gc=False):
    """Targets of an indirect jump or call."""

    is_return: bool = False
    targets: tuple[int, ...] = ()
    """Addresses, all of them if `reason` is empty."""
    reason: str = ""
    """Reason why targets are unknown, or empty."""
    references: tuple[int, ...] = ()
    """Addresses of the s_getpc_b64 that flow into the target address."""
    slots: tuple[int, ...] = ()
    """Addresses of the memory words from which the target address may be loaded."""
    direct: bool = False
    """The address cannot be retargeted, so the instruction must become a direct jump or call."""


class Jump(Struct, gc=False):
    """A call or an indirect jump at the end of a block."""

    targets: tuple[int, ...] = ()
    """Addresses of the functions of a call or tail call; of a jump by a pointer, some of its targets."""
    resolution: Resolution | None = None
    """None for s_call_b64, and until the instruction is analysed."""


class Graph:
    """All blocks in address order, by number, and the blocks that each function reaches.

    Attributes:
        marks: the `Mark`s of all opcodes in the text together.
    """

    def __init__(self, native: _mc.Blocks, marks: int) -> None:
        self.native = native
        self.marks = marks

    @cached_property
    def first(self) -> list[int]:
        """Return the index of the first instruction of each block."""
        return self.native.first()

    @cached_property
    def last(self) -> list[int]:
        """Return the index of the last instruction of each block (inclusive)."""
        return self.native.last()

    @cached_property
    def exits(self) -> list[BlockExit]:
        """Return how control leaves each block."""
        return [EXITS[number] for number in self.native.exits()]

    @cached_property
    def jumps(self) -> dict[int, Jump]:
        """Return the calls and indirect jumps by block."""
        return {
            number: Jump(targets, None if fields is None else Resolution(*fields))
            for number, targets, fields in self.native.jumps()
        }

    @cached_property
    def members(self) -> dict[int, list[int]]:
        """Return the blocks of each function in address order, by the function's address."""
        return self.native.members()

    def successors(self, number: int) -> list[tuple[int, int]]:
        """Return the edges from a block as (index in `EDGE_KINDS`, block); that of a call leads to its return point."""
        return self.native.successors(number)

    def resolved(self) -> Iterator[tuple[int, BlockExit, Resolution]]:
        """Yield the analysed indirect jumps and calls: instruction, exit of its block, resolution."""
        for number, jump in self.jumps.items():
            if jump.resolution is not None:
                yield self.last[number], self.exits[number], jump.resolution

    def block_of(self, index: int) -> int:
        """Return the number of the block that contains an instruction, -1 if it is unreachable."""
        number = bisect.bisect_right(self.first, index) - 1
        return number if number >= 0 and index <= self.last[number] else -1

    def marked(self, mark: Mark, code: InstructionArray, isa: Isa) -> list[int]:
        """Return the instructions of the text whose opcode has a mark."""
        return _marks(isa, mark).indices(code.opcode) if self.marks & mark else []


@lru_cache(maxsize=64)
def _marks(isa: Isa, mark: Mark) -> ByOpcode:
    """Return whether each opcode has a mark."""
    return ByOpcode(lambda number: bool(marks_of(isa.opcode(number).pseudo) & mark), False, np.bool_)


MOST_BLOCKS = 1 << 17
"""Maximum blocks of a kernel and its callees: each takes four kilobytes until liveness is known."""

_NODES = 64
"""Blocks created per unit of `Effort`."""


def build_graph(explorer: Explorer, known: _mc.KnownFunctions | None, roots: list[int], effort: Effort) -> Graph:
    """Split the reachable instructions into blocks and connect them.

    Args:
        known: has the targets of indirect jumps and calls; None: they are left out.
        roots: addresses at which the first function is entered, if it is not at its beginning alone.
        effort: limit on the work.

    Raises:
        LiftError: the limit is exceeded, or there are more than `MOST_BLOCKS`.
    """
    if explorer.leaders > MOST_BLOCKS:
        raise explorer.fail(
            f"the kernel and its callees have {explorer.leaders} blocks: more than {MOST_BLOCKS} take too much memory",
            explorer.functions()[0],
        )
    effort.spend(explorer.leaders // _NODES)
    blocks = explorer.cut()
    if known is not None:
        known.connect(blocks, explorer.native)
    effort.spend(blocks.find_functions(explorer.native, roots, effort.left))
    return Graph(blocks, explorer.marks)
