"""Differences between kernels of two code objects: registers, memory, blocks, instructions by kind, and, if known,
executed instructions."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from luthier.errors import LuthierError
from luthier.lifting import LiftedRepresentation, lift
from luthier.lifting.listing import sort_of
from luthier.objects import CodeObject
from luthier.support.table import Cell, Table

COLUMNS = ("kernel", "what", "A", "B", "difference", "ratio")
Measures = Mapping[str, Cell]
"""Name of a measure -> value."""


class Executions(Struct, frozen=True):
    """Executions of a kernel's instructions."""

    addresses: NDArray[np.uint64]
    """Virtual addresses."""
    executions: NDArray[np.uint64]
    lanes: NDArray[np.uint64]
    """Active lanes, summed."""


def measured(object: CodeObject, kernel: str, ran: Executions | None = None) -> Measures:
    """Return the measures of a kernel. If it cannot be lifted, they include the reason and only what is known without.

    Args:
        ran: executions of its instructions, if known.

    Raises:
        LuthierError: there is no such kernel.
    """
    if kernel not in object.kernels:
        raise LuthierError(f"no kernel {kernel}", object=object.name)
    entry = object.kernels[kernel]
    descriptor = entry.descriptor
    measures: dict[str, Cell] = {
        "target": str(object.target),
        "wave size": entry.wave_size,
        "VGPRs": descriptor.architected_vgprs,
        "AGPRs": descriptor.agprs,
        "SGPRs": descriptor.sgprs,
        "waves per SIMD": entry.occupancy().waves,
        "LDS bytes": entry.group_segment_fixed_size,
        "scratch bytes": entry.private_segment_fixed_size,
        "argument bytes": entry.kernarg_size,
    }
    try:
        lifted = lift(object, kernel)
    except LuthierError as problem:
        return {**measures, "not lifted": problem.message}
    return measures | _of_code(lifted) | ({} if ran is None else _of_executions(lifted, ran))


def _of_code(lifted: LiftedRepresentation) -> dict[str, Cell]:
    reached = np.flatnonzero(np.asarray(lifted.block_of) >= 0)
    kinds = Counter(_kinds(lifted, reached))
    contents = hashlib.blake2b(digest_size=6)
    for address, size in zip(lifted.code.addresses[reached].tolist(), lifted.code.size[reached].tolist(), strict=True):
        contents.update(lifted.object.read(address, size))
    return {
        "functions": len(lifted.functions),
        "blocks": len(lifted.blocks),
        "loops": len(list(lifted.loops)),
        "code bytes": int(lifted.code.size[reached].sum()),
        "code": contents.hexdigest(),
        "instructions": len(reached),
        **{f"instructions, {kind}": count for kind, count in sorted(kinds.items())},
    }


def _kinds(lifted: LiftedRepresentation, places: NDArray[np.intp]) -> list[str]:
    """Return the kind of work of instructions."""
    opcodes, which = np.unique(lifted.code.opcode[places], return_inverse=True)
    sorts = [sort_of(lifted.isa.opcode(number)) if number >= 0 else "other" for number in opcodes.tolist()]
    return [sorts[at] for at in which.tolist()]


def _of_executions(lifted: LiftedRepresentation, ran: Executions) -> dict[str, Cell]:
    addresses = lifted.code.addresses
    place = np.searchsorted(addresses, ran.addresses)
    known = (place < len(addresses)) & (addresses[np.minimum(place, len(addresses) - 1)] == ran.addresses)
    executed: Counter[str] = Counter()
    for kind, times in zip(_kinds(lifted, place[known]), ran.executions[known].tolist(), strict=True):
        executed[kind] += times
    if not known.all():
        executed["in code that is not lifted"] += int(ran.executions[~known].sum())
    return {
        "executed": int(ran.executions.sum()),
        "active lanes": int(ran.lanes.sum()),
        **{f"executed, {kind}": count for kind, count in sorted(executed.items())},
    }


def differences(left: Mapping[str, Measures], right: Mapping[str, Measures]) -> list[list[Cell]]:
    """Return rows of `COLUMNS` for the measures of both sides, by kernel; equal values too."""
    rows: list[list[Cell]] = []
    for kernel in dict.fromkeys((*left, *right)):
        of_a, of_b = left.get(kernel), right.get(kernel)
        if of_a is None or of_b is None:
            rows.append([kernel, "kernel", *("missing" if side is None else "present" for side in (of_a, of_b))])
            rows[-1] += [None, None]
            continue
        for what in dict.fromkeys((*of_a, *of_b)):
            # A kind of instruction that one side lacks counts as 0, if that side has instructions.
            counted = what.startswith(("instructions, ", "executed, "))
            pair = [side.get(what, 0 if counted and what.split(",")[0] in side else None) for side in (of_a, of_b)]
            rows.append([kernel, what, *pair, *_compared(*pair)])
    return rows


def _compared(left: Cell, right: Cell) -> tuple[Cell, Cell]:
    if not (isinstance(left, int | float) and isinstance(right, int | float)):
        return None, None
    return right - left, round(right / left, 4) if left else None


def changed(rows: Iterable[list[Cell]]) -> list[list[Cell]]:
    """Return the rows in which both sides differ."""
    return [row for row in rows if row[2] != row[3]]


def table(rows: list[list[Cell]]) -> Table:
    """Return rows as a table."""
    return Table("", COLUMNS, rows)
