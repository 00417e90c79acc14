"""Code of a kernel as rows of `luthier.run.schema.LISTINGS` and `BLOCKS`."""

from __future__ import annotations

from typing import Any

import numpy as np

from luthier.isa.registers import SCALAR_MASK, VGPR_FIRST
from luthier.lifting import LiftedRepresentation
from luthier.lifting.listing import sort_of
from luthier.run.tables import Picked


def instructions(lifted: LiftedRepresentation) -> dict[str, Any]:
    """Return the columns of `LISTINGS`: the reachable instructions, in address order."""
    block_of = np.asarray(lifted.block_of, np.int32)
    reached = np.flatnonzero(block_of >= 0)
    opcodes, which = np.unique(lifted.code.opcode[reached], return_inverse=True)
    source = lifted.object.source
    known = source.numbers(lifted.code.addresses[reached])
    used, place = np.unique(known, return_inverse=True)
    places = [source.locations[number] if number >= 0 else None for number in used.tolist()]
    calls = [one and ", ".join(frame.place for frame in one.frames[1:]) for one in places]
    users = [one and one.user for one in places]
    live = [lifted.liveness.live_before(index).active_bits for index in reached.tolist()]
    return {
        "address": lifted.code.addresses[reached].astype(np.uint64),
        "text": lifted.isa.texts(lifted.code, reached.tolist()),
        "kind": Picked([sort_of(lifted.isa.opcode(number)) if number >= 0 else "other" for number in opcodes], which),
        "block": block_of[reached],
        "file": Picked([one and one.file for one in places], place),
        "line": np.ma.masked_array(np.array([one.line if one else 0 for one in places])[place], known < 0),
        "inlined": Picked([one or None for one in calls], place),
        "user_file": Picked([one and one.file for one in users], place),
        "user_line": np.ma.masked_array(np.array([one.line if one else 0 for one in users])[place], known < 0),
        "user_function": Picked([one and one.name for one in users], place),
        "live_sgprs": [(units & SCALAR_MASK).bit_count() for units in live],
        "live_vgprs": [(units >> VGPR_FIRST).bit_count() for units in live],
    }


def blocks(lifted: LiftedRepresentation) -> dict[str, Any]:
    """Return the columns of `BLOCKS`."""
    depths: dict[int, int] = {}
    for loop in lifted.loops:
        for block in loop.blocks:
            depths[block] = max(loop.depth, depths.get(block, 0))
    reached = lifted.blocks
    return {
        "block": [block.index for block in reached],
        "function": [lifted.functions[block.function].name for block in reached],
        "address": [lifted.columns.address[block.first] for block in reached],
        "instructions": [block.last - block.first + 1 for block in reached],
        "depth": [depths.get(block.index, 0) for block in reached],
        "exit": [block.exit for block in reached],
        "successors": [[edge.to for edge in block.successors] for block in reached],
        "ways": [[edge.kind for edge in block.successors] for block in reached],
    }
