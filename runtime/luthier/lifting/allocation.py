"""Registers that code uses and its kernel descriptor does not allocate.

On hardware they are registers of no wave, or of another one. Only code counts that is reached for certain: not what a
call by an unknown pointer might go to. LDS and private memory are not looked at: hardware checks their bounds, and
AMD's own kernels read LDS out of bounds on purpose.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from luthier.isa import OperandKind
from luthier.isa import registers as r
from luthier.lifting.representation import LiftedRepresentation

_FILES = {"v": r.VGPRS, "a": r.AGPRS, "s": range(r.FLAT_SCRATCH_SGPR)}
"""Units of each file of registers; of SGPRs without those that have other names on some targets."""


class Unallocated(Struct, frozen=True):
    """Use of registers of one file, of which the wave does not have all."""

    kernel: str
    address: int
    """Virtual, of the first instruction that uses such a register."""
    text: str
    register: str
    """Highest one that this instruction uses, as ``v77``."""
    allocated: int
    """Number of registers of the file that the wave has."""
    instructions: int
    """Number of the instructions that use such registers."""
    shortage: str
    source: str | None
    """File and line."""

    @property
    def sentence(self) -> str:
        """Return the finding as a sentence, without the kernel."""
        where = f" ({self.source})" if self.source else ""
        more = f"; so do {self.instructions - 1} more" if self.instructions > 1 else ""
        return f"{self.text} at {self.address:#x}{where} {self.shortage}{more}"

    def __str__(self) -> str:
        return f"{self.kernel}: {self.sentence}"

    def to_json(self) -> dict[str, Any]:
        """Return the finding as plain data for JSON."""
        return {
            "kernel": self.kernel,
            "address": self.address,
            "text": self.text,
            "source": self.source,
            "register": self.register,
            "allocated": self.allocated,
            "instructions": self.instructions,
        }


def unallocated_registers(lifted: LiftedRepresentation) -> tuple[Unallocated, ...]:
    """Return what a kernel's code uses of registers that its descriptor does not allocate: one entry a file."""
    descriptor = lifted.kernel.descriptor
    named = lifted.named_units
    uses_agprs = bool(((named >= r.AGPRS.start) & (named < r.AGPRS.stop)).any())
    limits = descriptor.register_limits(uses_agprs=uses_agprs)
    if descriptor.enable_dynamic_vgpr or descriptor.shared_vgpr_count:  # there are more, or may be
        del limits["v"]
    short = {
        file: limit
        for file, limit in limits.items()
        if ((named >= _FILES[file].start + limit) & (named < _FILES[file].stop)).any()
    }
    return tuple(finding for file, limit in short.items() for finding in _in_file(lifted, file, limit))


def _in_file(lifted: LiftedRepresentation, file: str, limit: int) -> list[Unallocated]:
    code, isa, units = lifted.code, lifted.isa, _FILES[file]
    numbers = np.where(code.operand_kind == int(OperandKind.REGISTER), code.operand_value, 0)
    first = isa.register_first_unit[numbers]
    last = np.where((first >= units.start) & (first < units.stop), first + isa.register_unit_count[numbers] - 1, -1)
    owners = np.repeat(np.arange(len(code)), np.diff(code.operand_start))
    highest = np.full(len(code), -1, np.int64)
    np.maximum.at(highest, owners, last)
    using = np.flatnonzero(_certain(lifted) & (highest >= units.start + limit))
    if not len(using):
        return []
    index = int(using[0])
    instruction = lifted.instructions[index]
    register = f"{file}{int(highest[index]) - units.start}"
    return [
        Unallocated(
            lifted.kernel.name,
            instruction.address,
            instruction.text,
            register,
            limit,
            len(using),
            lifted.kernel.descriptor.shortage(register, limit),
            str(instruction.source) if instruction.source else None,
        )
    ]


def _certain(lifted: LiftedRepresentation) -> NDArray[np.bool_]:
    """Return [n] whether control may reach each instruction by calls whose targets are all known."""
    reached, work = set[int](), [0]
    while work:
        number = work.pop()
        if number not in reached:
            reached.add(number)
            work += [callee for call in lifted.functions[number].calls if call.known for callee in call.callees]
    certain = np.zeros(len(lifted.code), bool)
    for number in reached:
        for block in lifted.functions[number].blocks:
            certain[block.first : block.last + 1] = True
    return certain
