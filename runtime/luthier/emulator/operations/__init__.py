"""All operations, by mnemonic."""

from __future__ import annotations

import functools

from luthier.emulator.ir.declare import Operation
from luthier.emulator.operations import (
    buffer,
    buffer_typed,
    compare,
    control,
    convert,
    convert_small,
    flat,
    fork,
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
    transpose,
    valu_bits,
    valu_float,
    valu_int,
    valu_minmax,
    valu_special,
)
from luthier.isa.generations import MAJORS
from luthier.isa.targets import Target

FAMILIES = (
    control,
    fork,
    smem,
    lds,
    lds_source,
    flat,
    transpose,
    indexed,
    buffer,
    buffer_typed,
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


def compiled_for(operation: Operation, name: str, target: Target) -> int:
    """The generation (`Generation.major`) that an operation is compiled for: the oldest that shares it, so that they
    share the code."""
    if operation.generations:
        return target.major
    return next(major for major in MAJORS if operations_of(major).get(name) is operation)


@functools.cache
def operations_of(major: int) -> dict[str, Operation]:
    """Operations of one generation (`Generation.major`) by mnemonic without its encoding suffix."""
    table: dict[str, Operation] = {}
    for family in FAMILIES:
        for operation in family.operations:
            if operation.majors and major not in operation.majors:
                continue
            for name in operation.names:
                if name in table:
                    raise ValueError(
                        f"{name} is declared twice for generation {major}, the second time in {family.__name__}"
                    )
                table[name] = operation
    return table
