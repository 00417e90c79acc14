"""Hazards as data: what a row of the table says, and how rows are written down.

A hazard has a *producer* and a *consumer*, two kinds of instructions, and registers by which they meet. Between them
there must be a number of *wait states* (each instruction is one, ``s_nop n`` is n + 1), or of vector instructions; or
an instruction of a certain kind must stand there, however far they are apart. Some need a third instruction between
them to come about.

A row stands in the folder of the generation at which it begins, and says at which descendants it ends. A generation
that another package adds ends rows by their names (`Generation.hazards_ended`).

Sources: the ISA documents ("Manually Inserted Wait States (NOPs)" of Vega, MI100, MI200 and MI300; "Dependency
Resolution: Required Independent Instructions"), and LLVM, GCNHazardRecognizer and AMDGPUWaitSGPRHazards, which are the
only public source from GFX10 on. The tests compare the rows with the wait states that LLVM inserts.

Of LLVM's recognizer, by its functions, and where their rows are:

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

Deliberately not here:

- ``s_delay_alu`` and checkMFMAPadding: hints, nothing depends on them.
- What shows only in shaders for graphics: fixRequiredExportPriority, parameter loads mixed with transcendental
  operations.
- checkInlineAsmHazards: here instructions of inline assembly are instructions like others.
- Hard clauses of images on GFX10.1.
- Writes of EXEC that an instruction does not name, as those of ``s_and_saveexec``, after memory read it (GFX10.1).
- Reads of EXEC by vector memory after a vector instruction wrote it, which LLVM keeps apart and no document asks for.
- EXECZ and VCCZ as sources of vector instructions (GFX9), and VCC by the numbers of its SGPRs: no compiler makes them.
- ``s_nop`` before a wave gives its registers back (GFX11), and what only a trap handler meets.
- On GFX1250: ``s_set_vgpr_msb`` behind ``s_setreg_b32`` of MODE, of which LLVM does not know whether it is dropped as
  behind ``s_setreg_imm32_b32``; pages that fault, fixScratchBaseForwardingHazard (FLAT_SCRATCH as a base), fixTDM (how
  many tensor loads may run); on GFX1251 its longer WMMA, and fixVPermPk16Hazard of what comes after it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from luthier.arch.parties import ALWAYS, Party

Relation = Literal["overlap", "same", "partly"]
"""Relation of the registers of both: some are common; all are; some, but not all."""
Clock = Literal["states", "vector instructions"]


class Hazard(Struct, frozen=True, kw_only=True, dict=True):
    """A row of the table."""

    name: str
    """In words, also for findings."""
    producer: Party | None
    """None: the consumer is wrong by itself."""
    consumer: Party
    needed: int | Mapping[int, int] | None
    """How many must be between them; by the producer's passes (`Generation.passes`); None: one of `cleared_by`."""
    source: str = ""
    """Document, or function of LLVM's, that says so; `sourced` gives that of a table."""
    until: tuple[str, ...] = ()
    """Descendants of the generation where it begins that do not have it any more; what descends from these neither."""
    clock: Clock = "states"
    relation: Relation = "overlap"
    middle: Party | None = None
    """Instruction that must come between them, in the same registers, for there to be a hazard."""
    cleared_by: tuple[Party, ...] = ()
    """Instructions between them behind which there is no hazard."""
    clears_all: bool = True
    """They clear what still waits for the middle, too."""
    second: Party | None = None
    """Another producer, behind the middle: the consumer must meet both, by different sources, and be far from it."""
    second_within: int = 0
    """It counts if at most so many are between both producers."""
    disarmed_by: tuple[Party, ...] = ()
    """Behind them there is none for their registers, until another middle."""
    forgotten_by: tuple[Party, ...] = ()
    """Behind them their registers no longer wait for the middle."""
    tags: Literal["any", "same", "other"] = "any"
    """Whether producer and consumer must have the same tag (`Hazard.needed`: passes, else the opcode), or another."""
    transcendental: int | None = None
    """So many transcendental instructions between them are enough, too."""
    at_most: str = ""
    """Immediate of the consumer: needed are not more than this."""
    wave_size: int | None = None
    """Only in waves of so many lanes."""
    xnack: bool = False
    """Only where memory instructions may be started anew."""
    remedy: str = ""
    """Remedy in words, if wait states do not help."""
    only_if: str = ""
    """In words, what makes the consumer wrong by itself, where instructions do not show it: it is told apart then."""

    @cached_property
    def in_registers(self) -> bool:
        """Return whether producer and consumer meet in registers; else the one is enough for the other."""
        return self.producer is not None and ALWAYS not in (self.producer.role, self.consumer.role)

    @cached_property
    def middle_is_event(self) -> bool:
        """Return whether the middle counts for all registers of a producer, not for those that it shares."""
        return self.middle is not None and (self.middle.role == ALWAYS or self.second is not None)

    def parties(self, name: str) -> tuple[Party, ...]:
        """Return those that a field names, one of `luthier.hazards.wait_states.model.PARTS`."""
        said: Party | tuple[Party, ...] | None = getattr(self, name)
        if said is None:
            return ()
        return (said,) if isinstance(said, Party) else said

    def most(self) -> int:
        """Return the largest number needed; 0 where numbers do not help."""
        if self.needed is None:
            return 0
        return self.needed if isinstance(self.needed, int) else max(self.needed.values())

    def is_in(self, wave_size: int, xnack: bool) -> bool:
        """Return whether it holds in waves of so many lanes, in code for devices that may start memory instructions
        anew, or for others."""
        return self.wave_size in (None, wave_size) and (xnack or not self.xnack)


def sourced(source: str, *rows: Hazard) -> tuple[Hazard, ...]:
    """Return rows with a source for those that name none of their own."""
    return tuple(row if row.source else replace(row, source=source) for row in rows)


def ending(at: str, *rows: Hazard) -> tuple[Hazard, ...]:
    """Return rows that end at a descendant of the generation where they begin."""
    return tuple(replace(one, until=(*one.until, at)) for one in rows)
