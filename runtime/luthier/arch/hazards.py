"""Hazards as data: the fields of a row.

A hazard has a *producer* and a *consumer*, two kinds of instructions, and registers that they share. Between them there
must be a number of *wait states* (each instruction is one, ``s_nop n`` is n + 1) or of vector instructions, or an
instruction of a certain kind, at any distance. Some hazards occur only with a third instruction between the two.

A row is in the folder of the generation where it begins, and lists the descendants where it ends. A generation that
another package adds ends rows by name (`Generation.hazards_ended`).

Sources: the ISA documents ("Manually Inserted Wait States (NOPs)" of Vega, MI100, MI200 and MI300; "Dependency
Resolution: Required Independent Instructions"), and LLVM, GCNHazardRecognizer and AMDGPUWaitSGPRHazards, which are the
only public source for GFX10 and later. The tests compare the rows with the wait states that LLVM inserts.

Folders and files with the rows of LLVM's recognizer, by its functions:

- `gfx9`, `gfx940`, `gfx950`, `clauses`: checkSoftClauseHazards, checkVMEMHazards, checkDPPHazards,
  checkDivFMasHazards, checkGetRegHazards, checkSetRegHazards, checkVALUHazards and its helper, checkRWLaneHazards,
  checkRFEHazards, checkReadM0Hazards, checkPermlaneHazards; of SILoadStoreOptimizer needsConstrainedOpcode.
- `gfx908`, `gfx90a`, `gfx940`, `gfx950`, `matrix`: checkMAIHazards908, checkMAIHazards90A, checkMAILdStHazards,
  checkMAIVALUHazards, fixShift64HighRegBug.
- `gfx10`, `gfx11`, `gfx12`: checkNSAtoVMEMHazard, checkFPAtomicToDenormModeHazard, fixVcmpxPermlaneHazards,
  fixVMEMtoScalarWriteHazards, fixSMEMtoVectorWriteHazards, fixVcmpxExecWARHazard, fixLdsBranchVmemWARHazard,
  fixLdsDirectVALUHazard, fixLdsDirectVMEMHazard, fixVALUPartialForwardingHazard, fixVALUTransUseHazard,
  fixWMMAHazards, fixVALUMaskWriteHazard.
- `gfx12`, `gfx1250`: AMDGPUWaitSGPRHazards, fixVALUTransCoexecutionHazards, checkWMMACoexecutionHazards,
  fixGetRegWaitIdle, fixDsAtomicAsyncBarrierArriveB64, fixSetRegMode; of
  AMDGPULowerVGPREncoding needNopBeforeSetVGPRMSB.

Deliberately omitted:

- ``s_delay_alu`` and checkMFMAPadding, which are only hints.
- Hazards of graphics shaders only: fixRequiredExportPriority, parameter loads mixed with transcendental
  operations.
- checkInlineAsmHazards: instructions of inline assembly are checked like all others.
- Hard clauses of images on GFX10.1.
- Implicit writes of EXEC, such as those of ``s_and_saveexec``, after memory instructions read it (GFX10.1).
- Reads of EXEC by vector memory after a vector instruction wrote it, which LLVM separates without a document.
- EXECZ and VCCZ as sources of vector instructions (GFX9), and VCC by the numbers of its SGPRs: compilers do not use
  them.
- ``s_nop`` before a wave releases its registers (GFX11), and hazards in trap handlers only.
- On GFX1250: ``s_set_vgpr_msb`` after ``s_setreg_b32`` of MODE (LLVM does not know whether it is dropped as after
  ``s_setreg_imm32_b32``); page faults; fixScratchBaseForwardingHazard (FLAT_SCRATCH as a base); fixTDM (number of
  outstanding tensor loads); on GFX1251 its longer WMMA; fixVPermPk16Hazard of later processors.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from luthier.arch.parties import ALWAYS, Party

Relation = Literal["overlap", "same", "partly"]
"""Relation of the registers of producer and consumer: some in common; all; some, but not all."""
Clock = Literal["states", "vector instructions"]


class Hazard(Struct, frozen=True, kw_only=True, dict=True):
    """Row of the table of hazards."""

    name: str
    """Name in words, also in findings."""
    producer: Party | None
    """None: the consumer alone is the hazard."""
    consumer: Party
    needed: int | Mapping[int, int] | None
    """Required number between them, or numbers by the producer's passes (`Generation.passes`); None: one of
    `cleared_by`."""
    source: str = ""
    """Document, or function in LLVM; `sourced` sets it for several rows."""
    until: tuple[str, ...] = ()
    """Descendants of the first generation where the row ends, also for their descendants."""
    clock: Clock = "states"
    relation: Relation = "overlap"
    middle: Party | None = None
    """Instruction that must be between them, on the same registers, for the hazard to occur."""
    cleared_by: tuple[Party, ...] = ()
    """Instructions between them that remove the hazard."""
    clears_all: bool = True
    """Whether `cleared_by` also removes producers that still wait for the middle."""
    second: Party | None = None
    """Another producer after the middle: the consumer must use both, in different sources, and be far from it."""
    second_within: int = 0
    """Maximum number between both producers."""
    disarmed_by: tuple[Party, ...] = ()
    """Instructions that remove the hazard for their registers until another middle."""
    forgotten_by: tuple[Party, ...] = ()
    """Instructions after which their registers no longer wait for the middle."""
    tags: Literal["any", "same", "other"] = "any"
    """Whether producer and consumer must have the same tag (passes if `needed` is by passes, otherwise the opcode)."""
    transcendental: int | None = None
    """Number of transcendental instructions between them that also suffices."""
    at_most: str = ""
    """Immediate of the consumer that limits the required number."""
    wave_size: int | None = None
    """Only in waves with this number of lanes."""
    xnack: bool = False
    """Only where memory instructions may restart."""
    remedy: str = ""
    """Remedy in words, if wait states do not help."""
    only_if: str = ""
    """Condition in words, if instructions do not show whether the consumer alone is a hazard; reported separately."""

    @cached_property
    def in_registers(self) -> bool:
        """Return whether producer and consumer must share registers."""
        return self.producer is not None and ALWAYS not in (self.producer.role, self.consumer.role)

    @cached_property
    def middle_is_event(self) -> bool:
        """Return whether the middle counts for all registers of a producer, not only for shared ones."""
        return self.middle is not None and (self.middle.role == ALWAYS or self.second is not None)

    def parties(self, name: str) -> tuple[Party, ...]:
        """Return the parties in the field `name`, one of `luthier.hazards.wait_states.model.PARTS`."""
        value: Party | tuple[Party, ...] | None = getattr(self, name)
        if value is None:
            return ()
        return (value,) if isinstance(value, Party) else value

    def most(self) -> int:
        """Return the largest required number; 0 if numbers do not help."""
        if self.needed is None:
            return 0
        return self.needed if isinstance(self.needed, int) else max(self.needed.values())

    def is_in(self, wave_size: int, xnack: bool) -> bool:
        """Return whether it applies to a wave size, in code for devices with or without XNACK."""
        return self.wave_size in (None, wave_size) and (xnack or not self.xnack)


def sourced(source: str, *rows: Hazard) -> tuple[Hazard, ...]:
    """Return rows with `source` in those that have none."""
    return tuple(row if row.source else replace(row, source=source) for row in rows)


def ending(at: str, *rows: Hazard) -> tuple[Hazard, ...]:
    """Return rows that end at a descendant of the generation where they begin."""
    return tuple(replace(one, until=(*one.until, at)) for one in rows)
