"""All operations, by mnemonic."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from luthier.arch.target import Target
from luthier.arch.targets import read_so_far
from luthier.emulator.ir.declare import DeclaredOperation
from luthier.emulator.operations import (
    asynchronous,
    barriers,
    buffer,
    buffer_typed,
    compare,
    control,
    convert,
    convert_small,
    flat,
    fork,
    image_samples,
    images,
    indexed,
    lane,
    lds,
    lds_source,
    matrix,
    packed,
    salu,
    salu_bits,
    salu_float,
    smem,
    tensor,
    transpose,
    valu_bits,
    valu_float,
    valu_int,
    valu_minmax,
    valu_special,
    vgpr_banks,
)

FAMILIES = (
    control,
    barriers,
    fork,
    vgpr_banks,
    smem,
    lds,
    lds_source,
    flat,
    transpose,
    asynchronous,
    tensor,
    indexed,
    buffer,
    buffer_typed,
    images,
    image_samples,
    salu,
    salu_bits,
    salu_float,
    valu_int,
    valu_bits,
    valu_float,
    valu_minmax,
    valu_special,
    compare,
    convert,
    convert_small,
    packed,
    matrix,
    lane,
)


def compiled_for(operation: DeclaredOperation, name: str, target: Target) -> int:
    """Return the number (`Generation.emulated_major`) to compile an operation for: the lowest that has it, so that
    generations share the code."""
    if operation.generations:
        return target.emulated_major
    return next(major for major in _numbers() if operations_of(major).get(name) is operation)


def begins_with(operation: DeclaredOperation, target: Target) -> bool:
    """Return whether an operation is declared for the target's own generation, not for an older one."""
    return target.emulated_major in operation.since


@functools.cache
def operations_of(major: int) -> dict[str, DeclaredOperation]:
    """Return the operations of generations with a number (`Generation.emulated_major`) by mnemonic without encoding
    suffix: their own and those of their ancestors; the nearest wins.

    Raises:
        ValueError: a name is declared twice for the same generation.
    """
    ancestry = _numbers()[major]
    table: dict[str, tuple[int, DeclaredOperation]] = {}
    for family in FAMILIES:
        for operation in family.operations:
            distance = _distance(operation, ancestry)
            if distance is None:
                continue
            for name in operation.names:
                nearest, _ = table.get(name, (distance + 1, operation))
                if nearest == distance:
                    raise ValueError(
                        f"{name} is declared twice for generation {major}, the second time in {family.__name__}"
                    )
                if distance < nearest:
                    table[name] = distance, operation
    return {name: operation for name, (_, operation) in table.items()}


def _distance(operation: DeclaredOperation, ancestry: tuple[int, ...]) -> int | None:
    """Return the position in `ancestry` where an operation begins; None if it does not, or has ended since."""
    for distance, number in enumerate(ancestry):
        if number in operation.until:
            return None
        if number in operation.since:
            return distance
    return None if operation.since else len(ancestry)


def _numbers() -> Mapping[int, tuple[int, ...]]:
    """Return, in ascending order, each number of generations -> the number itself and those of their ancestors."""
    lineages: dict[int, tuple[int, ...]] = {}
    for generation in read_so_far().values():
        numbers = tuple(dict.fromkeys(one.emulated_major for one in generation.lineage if one.parent is not None))
        if numbers:
            lineages.setdefault(numbers[0], numbers)
    return dict(sorted(lineages.items()))
