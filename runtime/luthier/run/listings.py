"""A kernel's code as rows of `luthier.run.schema.LISTINGS` and `BLOCKS`."""

from __future__ import annotations

from typing import Any

import numpy as np

from luthier.lifting import LiftedRepresentation
from luthier.lifting.listing import live_counts, sort_of
from luthier.run.tables import Picked


def instructions(lifted: LiftedRepresentation) -> dict[str, Any]:
    """Columns of `LISTINGS`: what control reaches, in address order."""
    block_of = np.asarray(lifted.block_of, np.int32)
    reached = np.flatnonzero(block_of >= 0)
    opcodes, which = np.unique(lifted.code.opcode[reached], return_inverse=True)
    source = lifted.object.source
    place_of = source.numbers(lifted.code.addresses[reached])  # -1, nothing known, is the last name
    places = source.locations
    calls = [", ".join(frame.place for frame in one.frames[1:]) or None for one in places]
    live = [live_counts(lifted.liveness.live_before(index)) for index in reached.tolist()]
    return {
        "address": lifted.code.addresses[reached].astype(np.uint64),
        "text": [lifted.isa.text(lifted.code, index) for index in reached.tolist()],
        "kind": Picked([sort_of(lifted.isa.opcode(number)) if number >= 0 else "other" for number in opcodes], which),
        "block": block_of[reached],
        "file": Picked([*(one.file for one in places), None], place_of % (len(places) + 1)),
        "line": [places[at].line if at >= 0 else None for at in place_of.tolist()],
        "inlined": Picked([*calls, None], place_of % (len(places) + 1)),
        "live_sgprs": [one["scalar"] for one in live],
        "live_vgprs": [one["vector_active"] for one in live],
    }


def blocks(lifted: LiftedRepresentation) -> dict[str, Any]:
    """Columns of `BLOCKS`."""
    depths: dict[int, int] = {}
    for loop in lifted.loops:
        for block in loop.blocks:
            depths[block] = max(loop.depth, depths.get(block, 0))
    found = lifted.blocks
    return {
        "block": [block.index for block in found],
        "function": [lifted.functions[block.function].name for block in found],
        "address": [lifted.columns.address[block.first] for block in found],
        "instructions": [block.last - block.first + 1 for block in found],
        "depth": [depths.get(block.index, 0) for block in found],
        "exit": [block.exit for block in found],
        "successors": [[edge.to for edge in block.successors] for block in found],
        "ways": [[edge.kind for edge in block.successors] for block in found],
    }
