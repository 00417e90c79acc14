"""Hazards that begin with GFX12."""

from __future__ import annotations

from luthier.arch.hazards import Hazard, ending
from luthier.arch.parties import *

_LLVM = "LLVM, GCNHazardRecognizer"
_MEMORY_WAITS = (VMEM_NO_FLAT, SMEM)
_SCALAR_ROWS = tuple(
    Hazard(
        name=f"VALU read an SGPR, {str(writer).split(',')[0]} overwrites it, {reader} reads it",
        producer=VALU.by(READS_PAIRS_OF_SGPRS),
        consumer=reader.reads(what),
        needed=None,
        source="LLVM, AMDGPUWaitSGPRHazards",
        middle=writer.writes(what),
        cleared_by=(*_MEMORY_WAITS, S_WAITCNT_DEPCTR.by(field), *more),
        clears_all=False,
        disarmed_by=disarmed,
        forgotten_by=(DS_NOP.by(SGPRS_BY_DS_NOPS[DS_NOPS[wave_size]]),),
        wave_size=wave_size,
        remedy=f"s_wait_alu ({field.name[:-2]})",
    )
    for wave_size in DS_NOPS
    for writer, reader, what, field, more, disarmed in (
        # A call has written its return address when the function begins: LLVM counts no outstanding write there, and
        # does not check the reads of returns.
        (SALU_NO_CALL, SALU_OR_VALU, SGPRS, SA_SDST_0, (), (VALU.writes(VCC),)),
        # A scalar instruction that reads the result of a vector instruction waits for all vector instructions.
        (VALU, VALU, SGPRS_OTHER_THAN_VCC, VA_SDST_0, (SALU.reads(SGPRS_OTHER_THAN_VCC),), ()),
        (VALU, VALU, VCC, VA_VCC_0, (SALU.reads(VCC),), (SALU.writes(VCC),)),
    )
)

ROWS = ending(
    "GFX1250",
    *_SCALAR_ROWS,
    Hazard(
        name="memory uses a register, LDS direct load to it",
        producer=VMEM_OR_LDS.by(USES_VECTORS),
        consumer=LDS_DIRECT.by(RESULT_WITHOUT_WAIT_VM_VSRC_0),
        needed=None,
        source=_LLVM,
        cleared_by=(VALU, EXPORT, S_WAITCNT_DEPCTR.by(VM_VSRC_0), LDS_DIRECT.by(WAIT_VM_VSRC_0)),
        remedy="wait_vm_vsrc 0",
    ),
)
