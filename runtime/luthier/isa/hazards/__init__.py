"""What the hardware does not interlock: instructions that must stand apart, as one table.

A hazard has a *producer* and a *consumer*, two kinds of instructions, and registers by which they meet. Between them
there must be a number of *wait states* (each instruction is one, ``s_nop n`` is n + 1), or of vector instructions; or
an instruction of a certain kind must stand there, however far they are apart. Some need a third instruction between
them to come about.

Sources: the ISA documents ("Manually Inserted Wait States (NOPs)" of Vega, MI100, MI200 and MI300; "Dependency
Resolution: Required Independent Instructions"), and LLVM, GCNHazardRecognizer and AMDGPUWaitSGPRHazards, which are the
only public source from GFX10 on. The tests compare the table with the wait states that LLVM inserts.

Of LLVM's recognizer, by its functions:

- `gfx9`: checkSoftClauseHazards, checkVMEMHazards, checkDPPHazards, checkDivFMasHazards, checkGetRegHazards,
  checkSetRegHazards, checkVALUHazards and its helper, checkRWLaneHazards, checkRFEHazards, checkReadM0Hazards,
  checkPermlaneHazards.
- `matrix`: checkMAIHazards908, checkMAIHazards90A, checkMAILdStHazards, checkMAIVALUHazards, fixShift64HighRegBug.
- `gfx10`: checkNSAtoVMEMHazard, checkFPAtomicToDenormModeHazard, fixVcmpxPermlaneHazards, fixVMEMtoScalarWriteHazards,
  fixSMEMtoVectorWriteHazards, fixVcmpxExecWARHazard, fixLdsBranchVmemWARHazard, fixLdsDirectVALUHazard,
  fixLdsDirectVMEMHazard, fixVALUPartialForwardingHazard, fixVALUTransUseHazard, fixWMMAHazards, fixVALUMaskWriteHazard.
- `gfx12`: AMDGPUWaitSGPRHazards, fixVALUTransCoexecutionHazards, checkWMMACoexecutionHazards, fixGetRegWaitIdle,
  fixDsAtomicAsyncBarrierArriveB64, fixSetRegMode.

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
- On GFX1250: pages that fault, fixScratchBaseForwardingHazard (FLAT_SCRATCH as a base), fixTDM (how many tensor loads
  may run); on GFX1251 its longer WMMA, and fixVPermPk16Hazard of what comes after it.
"""

from __future__ import annotations

from luthier.isa.hazards import gfx9, gfx10, gfx12, matrix
from luthier.isa.hazards.rows import MATRIX_KINDS, Clock, Hazard, Party, Relation

HAZARDS: tuple[Hazard, ...] = (
    *gfx9.SCALAR_ROWS,
    *gfx9.LANE_ROWS,
    *matrix.MATRIX_908_ROWS,
    *matrix.MATRIX_90A_ROWS,
    *matrix.MATRIX_940_ROWS,
    *gfx10.GFX10_ROWS,
    *gfx10.GFX11_ROWS,
    *gfx12.GFX12_ROWS,
    *gfx12.GFX1250_ROWS,
)
"""The table."""

__all__ = ["HAZARDS", "MATRIX_KINDS", "Clock", "Hazard", "Party", "Relation"]
