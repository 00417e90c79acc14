"""Registers, LDS and private memory that code uses but its kernel descriptor does not allocate.

On hardware such registers belong to no wave, or to another one; loads from such memory return 0, and stores are lost.
Only code that is certainly reachable is checked, which excludes possible targets of calls by unknown pointers. Only
constant addresses of memory are checked (`luthier.lifting.constants`).

If launches may give a kernel more LDS (`luthier.objects.dynamic_lds`), an access beyond the fixed size is a defect only
if it exceeds the maximum LDS of a work-group, and a possible defect otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from luthier.findings.finding import Finding
from luthier.findings.kinds import FindingKind
from luthier.isa import InstructionFlag, OperandKind
from luthier.isa import registers as r
from luthier.lifting.constants import Constants
from luthier.lifting.model import Instruction
from luthier.lifting.representation import LiftedRepresentation
from luthier.objects.dynamic_lds import has_dynamic_lds
from luthier.objects.source import SourceLocation

_FILES = {"v": r.VGPRS, "a": r.AGPRS, "s": range(r.FLAT_SCRATCH_SGPR)}
"""Units of each register file; of SGPRs without those that have other names on some targets."""


_MASK32 = (1 << 32) - 1
_SCALE_OFFSET = 1 << 11
"""Bit of the cache policy: the offset in a register counts elements (LLVM, ``CPol::SCAL``)."""


class Unallocated(Struct, frozen=True):
    """Use of registers of one file, of LDS or of private memory beyond the allocation of the wave."""

    kernel: str
    address: int
    """Virtual address of the first instruction that uses such registers or memory."""
    text: str
    register: str | None
    """Highest register that this instruction uses, such as ``v77``; None for memory."""
    allocated: int
    """Number of allocated registers of the file, or bytes."""
    instructions: int
    """Number of instructions that use such registers or memory."""
    shortage: str
    source: SourceLocation | None
    """Source location of the first instruction, if debug information has one."""
    only_if: str | None = None
    """Condition outside the code under which this is a defect; None: it always is."""

    @property
    def sentence(self) -> str:
        """Return the finding as a sentence, without the kernel."""
        where = f" ({self.source})" if self.source else ""
        more = f"; so do {self.instructions - 1} more" if self.instructions > 1 else ""
        condition = f"; a defect only if {self.only_if}" if self.only_if else ""
        return f"{self.text} at {self.address:#x}{where} {self.shortage}{more}{condition}"

    def __str__(self) -> str:
        return f"{self.kernel}: {self.sentence}"

    def finding(self, object: str) -> Finding:
        """Return the finding in a code object of this name."""
        return Finding(
            FindingKind.UNALLOCATED.label,
            *(0, self.kernel, object, self.address, self.text),
            frames=() if self.source is None else self.source.frames,
            detail=self.shortage,
            lane=-1,
            count=self.instructions,
        )

    def to_json(self) -> dict[str, Any]:
        """Return the finding as plain data for JSON."""
        condition = {"only_if": self.only_if} if self.only_if else {}
        return {
            "kernel": self.kernel,
            "address": self.address,
            "text": self.text,
            "source": None if self.source is None else str(self.source),
            "register": self.register,
            "allocated": self.allocated,
            "instructions": self.instructions,
            "what": self.shortage,
            **condition,
        }


def unallocated(lifted: LiftedRepresentation) -> tuple[Unallocated, ...]:
    """Return the certain defects: one entry per register file or memory that the descriptor does not allocate."""
    return (*unallocated_registers(lifted), *(use for use in unallocated_memory(lifted) if use.only_if is None))


def unallocated_registers(lifted: LiftedRepresentation) -> tuple[Unallocated, ...]:
    """Return the uses of registers that the kernel descriptor does not allocate, one entry per file."""
    descriptor = lifted.kernel.descriptor
    limits = descriptor.register_limits(uses_agprs=lifted.named_in(r.AGPRS) > 0)
    if descriptor.enable_dynamic_vgpr or descriptor.shared_vgpr_count:  # the wave may have more
        del limits["v"]
    short = {file: limit for file, limit in limits.items() if lifted.named_in(_FILES[file]) > limit}
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
    register = f"{file}{int(highest[using[0]]) - units.start}"
    return [_finding(lifted, using.tolist(), limit, lifted.kernel.descriptor.shortage(register, limit), register)]


def unallocated_memory(lifted: LiftedRepresentation) -> Iterator[Unallocated]:
    """Yield accesses beyond the LDS and private memory of a kernel, including possible defects."""
    kernel = lifted.kernel
    if not int(np.bitwise_or.reduce(lifted.code.flags, initial=0)) & _MEMORY_FLAGS:
        return
    accesses = _Accesses(lifted)
    scratch, size = accesses.of(InstructionFlag.FLAT_SCRATCH), kernel.private_segment_fixed_size
    if scratch and not kernel.descriptor.enable_private_segment:
        shortage = "accesses private memory; the kernel descriptor does not enable it"
        yield _finding(lifted, scratch, 0, shortage)
    elif not kernel.uses_dynamic_stack:
        yield from accesses.beyond(scratch, range(size, 1 << 33), "private memory", size)
    lds, size, dynamic = accesses.of(InstructionFlag.DS), kernel.group_segment_fixed_size, lifted.target.lds_bytes
    if has_dynamic_lds(lifted.object, kernel):
        yield from accesses.beyond(lds, range(dynamic, 1 << 33), "LDS", size)
        yield from accesses.beyond(lds, range(size, dynamic), "LDS", size, "no launch gives the kernel dynamic LDS")
    else:
        yield from accesses.beyond(lds, range(size, 1 << 33), "LDS", size)


_MEMORY_FLAGS = int(InstructionFlag.FLAT_SCRATCH | InstructionFlag.DS)
"""Flags of instructions that access private memory or LDS."""


class _Accesses:
    """The accesses of a kernel to LDS and private memory."""

    def __init__(self, lifted: LiftedRepresentation) -> None:
        self._lifted = lifted
        self._constants = Constants(lifted)
        self._flags = np.where(_certain(lifted), lifted.code.flags, 0)

    def of(self, flag: InstructionFlag) -> list[int]:
        """Return the instructions with a flag."""
        flagged: list[int] = np.flatnonzero(self._flags & int(flag)).tolist()
        return [index for index in flagged if self._lifted.instructions[index].memory is not None]

    def beyond(
        self, accesses: list[int], last: range, memory: str, size: int, only_if: str | None = None
    ) -> Iterator[Unallocated]:
        """Yield a finding for the accesses whose last byte is certainly in a range, if there are any.

        Args:
            size: bytes that the descriptor allocates.
        """
        ends = {index: self._last(index) for index in accesses}
        using = [index for index, end in ends.items() if end is not None and end in last]
        if using:
            shortage = f"accesses byte {ends[using[0]]} of {memory}; the kernel descriptor allocates {size}"
            yield _finding(self._lifted, using, size, shortage, only_if=only_if)

    def _last(self, index: int) -> int | None:
        """Return the last byte of an access, the lowest one if there are several; None if it is not constant."""
        instruction = self._lifted.instructions[index]
        access, bases = instruction.memory, self._bases(instruction)
        if access is None or access.unaddressable or access.size is None or not bases:
            return None
        offset = _number(instruction, "offset")
        offset += access.scale * max(_number(instruction, "offset0"), _number(instruction, "offset1"))
        return min(base + offset & _MASK32 for base in bases) + access.size - 1

    def _bases(self, instruction: Instruction) -> set[int]:
        """Return the possible sums of the registers of an address; empty if they are not constant."""
        if _number(instruction, "gds") or _number(instruction, "cpol") & _SCALE_OFFSET:
            return set()
        bases, isa = {0}, self._lifted.isa
        for name in ("addr", "vaddr", "saddr"):
            kind, value = instruction.operand(name) or (OperandKind.IMMEDIATE, 0)
            if kind == OperandKind.IMMEDIATE:
                values: frozenset[int] | None = frozenset([value])
            elif "NULL" in isa.register(value).name:
                continue
            else:
                unit = int(isa.register_first_unit[value])
                values = self._constants.before(instruction.index, unit) if unit >= 0 else None
            bases = {base + register for base in bases for register in values or ()}
        return bases


def _number(instruction: Instruction, name: str) -> int:
    """Return an immediate operand, or 0 if there is none."""
    kind, value = instruction.operand(name) or (OperandKind.IMMEDIATE, 0)
    return value if kind == OperandKind.IMMEDIATE else 0


def _finding(
    lifted: LiftedRepresentation,
    using: list[int],
    allocated: int,
    shortage: str,
    register: str | None = None,
    only_if: str | None = None,
) -> Unallocated:
    first, name = lifted.instructions[using[0]], lifted.kernel.name
    return Unallocated(
        *(name, first.address, first.text, register, allocated, len(using), shortage, first.source or None, only_if)
    )


def _certain(lifted: LiftedRepresentation) -> NDArray[np.bool_]:
    """Return [n] whether control may reach each instruction through calls whose targets are all known."""
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
