"""Blocks of the reachable code as indices, from which the public `BasicBlock`s are created."""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Mapping
from functools import lru_cache

import numpy as np
from msgspec import Struct

from luthier import _mc
from luthier.isa import InstructionArray, Isa
from luthier.lifting.code.effort import Effort
from luthier.lifting.code.explore import Explorer, Resolution
from luthier.lifting.instructions.by_opcode import ByOpcode
from luthier.lifting.instructions.semantics import Control, Mark, marks_of
from luthier.lifting.model import EDGE_KINDS, EXITS, BlockExit, EdgeKind


class Jump(Struct, gc=False):
    """A call or an indirect jump at the end of a block."""

    targets: tuple[int, ...] = ()
    """Addresses of the functions of a call or tail call; of a jump by a pointer, some of its targets."""
    resolution: Resolution | None = None
    """None for s_call_b64, and until the instruction is analysed."""


class Graph(Struct):
    """All blocks in address order, by number, and the blocks that each function reaches."""

    native: _mc.Blocks
    first: list[int]
    """Index of the first instruction of each."""
    last: list[int]
    """Index of the last instruction of each (inclusive)."""
    exits: list[BlockExit]
    jumps: dict[int, Jump]
    """By block."""
    jump_at: dict[int, int]
    """Address of each of these instructions -> its block."""
    members: dict[int, list[int]]
    """Entry address of a function -> its blocks in address order."""
    marks: int
    """The `Mark`s of all opcodes in the text together."""

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

    def blocks_of(self, indices: list[int]) -> set[int]:
        """Return the numbers of the blocks that contain some instructions, which may include -1."""
        if len(indices) < _FEW:
            return {self.block_of(index) for index in indices}
        numbers = np.searchsorted(self.first, indices, "right") - 1
        return set(np.where(np.array(self.last)[numbers] >= indices, numbers, -1).tolist())

    def marked(self, mark: Mark, code: InstructionArray, isa: Isa) -> list[int]:
        """Return the instructions of the text whose opcode has a mark."""
        return _marks(isa, mark).indices(code.opcode) if self.marks & mark else []


@lru_cache(maxsize=64)
def _marks(isa: Isa, mark: Mark) -> ByOpcode:
    """Return whether each opcode has a mark."""
    return ByOpcode(lambda number: bool(marks_of(isa.opcode(number).pseudo) & mark), False, np.bool_)


MOST_BLOCKS = 1 << 17
"""Maximum blocks of a kernel and its callees: each takes four kilobytes until liveness is known."""

_FEW = 64
"""Number of instructions up to which arrays are slower than lists."""
_CALL, _CALL_REGISTER = int(Control.CALL), int(Control.CALL_REGISTER)
_NODES, _MEMBERS = 64, 256
"""Blocks created, and blocks assigned to a function, per unit of `Effort`."""


def build_graph(
    explorer: Explorer, resolutions: Mapping[int, Resolution], roots: Mapping[int, list[int]], effort: Effort
) -> Graph:
    """Split the reachable instructions into blocks and connect them.

    Args:
        resolutions: address of an indirect jump or call -> its targets.
        roots: all entry addresses of functions with several.
        effort: limit on the work.

    Raises:
        LiftError: the limit is exceeded, or there are more than `MOST_BLOCKS`.
    """
    if explorer.leaders > MOST_BLOCKS:
        raise explorer.fail(
            f"the kernel and its callees have {explorer.leaders} blocks: more than {MOST_BLOCKS} take too much memory",
            next(iter(explorer.entries)),
        )
    effort.spend(explorer.leaders // _NODES)
    blocks = explorer.cut()
    jumps, jump_at = dict[int, Jump](), dict[int, int]()
    for number, control, begin, address, target in blocks.jumps():
        jump_at[address] = number
        if control == _CALL:
            jumps[number] = Jump((target,))
        elif control == _CALL_REGISTER:
            known = resolutions.get(address)
            jumps[number] = Jump(known.targets if known is not None else (), known)
        else:
            jumps[number] = _register_jump(explorer, blocks, number, begin, resolutions.get(address))
    members, alone = {}, explorer.leaders
    for entry in explorer.entries:
        members[entry] = blocks.reach([blocks.at(root) for root in roots.get(entry, [entry])])
        count = len(members[entry])
        # Shared blocks are stored once for each function, which may take much memory.
        effort.spend(1 + count // _MEMBERS + max(0, count - alone))
        alone = max(0, alone - count)
    exits = [EXITS[number] for number in blocks.exits()]
    return Graph(blocks, blocks.first(), blocks.last(), exits, jumps, jump_at, members, explorer.marks)


def _register_jump(
    explorer: Explorer, blocks: _mc.Blocks, number: int, begin: int, resolution: Resolution | None
) -> Jump:
    """Connect the jump at the end of the block that begins at address `begin`."""
    if resolution is None or resolution.reason:
        return Jump(() if resolution is None else resolution.targets, resolution)
    targets = resolution.targets
    inside = [target for target in targets if not leaves_function(explorer, begin, target)]
    if resolution.is_return:
        blocks.lead(number, EXITS.index("return"), 0, [])
    elif len(inside) == len(targets):
        kind: EdgeKind = "taken" if len(inside) == 1 else "indirect"
        blocks.lead(number, EXITS.index("branch"), EDGE_KINDS.index(kind), inside)
    elif not inside:
        blocks.lead(number, EXITS.index("tail"), 0, [])
        return Jump(targets, resolution)
    return Jump((), resolution)


def leaves_function(explorer: Explorer, source: int, target: int) -> bool:
    """Return whether a jump between two addresses leads to another function, rather than being a long branch."""
    extent = explorer.extent(source)
    if target in explorer.text.functions:
        return extent != explorer.text.functions[target]
    return target in explorer.entries and (extent is None or not extent.start <= target < extent.end)
