"""Hazards that begin with GFX1250."""

from __future__ import annotations

from luthier.arch.clauses import replayed_load
from luthier.arch.hazards import Hazard, sourced
from luthier.arch.parties import *

_LLVM = "LLVM, GCNHazardRecognizer"

_WMMA_TO_WMMA = {4: 2, 8: 5, 16: 9, 9: 3, 17: 5}
_WMMA_TO_VALU = {4: 1, 8: 4, 16: 8, 9: 2, 17: 4}
_WRITTEN, _READ = XDL_WMMA.by(RESULT), XDL_WMMA.reads(VECTORS)
ROWS = sourced(
    _LLVM,
    replayed_load(xnack=False),
    Hazard(
        name="transcendental operation, VALU reads its result",
        producer=TRANSCENDENTAL.writes(VGPRS),
        consumer=VALU_NO_TRANSCENDENTAL.reads(VGPRS),
        needed=1,
        clock="vector instructions",
        remedy="v_nop",
    ),
    Hazard(
        name="transcendental operation, VALU overwrites its source",
        producer=TRANSCENDENTAL.reads(VGPRS),
        consumer=VALU_NO_TRANSCENDENTAL.by(RESULT),
        needed=1,
        clock="vector instructions",
        remedy="v_nop",
    ),
    *(
        Hazard(
            name=f"XDL WMMA {words}",
            producer=producer,
            consumer=consumer,
            needed=counts,
            clock="vector instructions",
            remedy="v_nop",
        )
        for words, producer, consumer, counts in (
            ("writes registers, WMMA reads them as A or B", _WRITTEN, XDL_WMMA.by(MATRIX_A_B), _WMMA_TO_WMMA),
            ("writes registers, VALU reads them", _WRITTEN, VALU_NO_WMMA.reads(VECTORS), _WMMA_TO_VALU),
            ("writes registers, VALU overwrites them", _WRITTEN, VALU_NO_WMMA.writes(VECTORS), _WMMA_TO_VALU),
            ("reads registers, VALU overwrites them", _READ, VALU_NO_WMMA.writes(VECTORS), _WMMA_TO_VALU),
        )
    ),
    Hazard(
        name="vector instruction, s_setreg of MODE",
        producer=VALU_NO_V_NOP,
        consumer=S_SETREG.by(OF_MODE),
        needed=2,
        source="LLVM since 2026, fixSetRegMode",
        clock="vector instructions",
        remedy="v_nop",
    ),
    Hazard(
        name="s_setreg_imm32 of MODE, s_set_vgpr_msb, which is dropped",
        producer=S_SETREG_IMM32.by(OF_MODE),
        consumer=S_SET_VGPR_MSB,
        needed=1,
        source="LLVM since 2026, AMDGPULowerVGPREncoding, needNopBeforeSetVGPRMSB",
    ),
    Hazard(
        name="s_getreg of the state while instructions run",
        producer=NOT_S_WAIT_ALU,
        consumer=S_GETREG.by(OF_THE_STATE),
        needed=None,
        source="LLVM, GCNHazardRecognizer, fixGetRegWaitIdle",
        cleared_by=(S_WAITCNT_DEPCTR.by(WAITS_FOR_ALL),),
        remedy="s_wait_alu 0",
    ),
    *(
        Hazard(
            name=words,
            producer=first,
            consumer=second,
            needed=None,
            source="LLVM, GCNHazardRecognizer, fixDsAtomicAsyncBarrierArriveB64",
            cleared_by=(S_WAITCNT_DEPCTR.by(VM_VSRC_0),),
            remedy="s_wait_alu 0xffe3 (vm_vsrc)",
        )
        for words, first, second in (
            ("memory, ds_atomic_async_barrier_arrive", VMEM_OR_LDS, DS_ATOMIC_ASYNC_BARRIER_ARRIVE),
            ("ds_atomic_async_barrier_arrive, memory", DS_ATOMIC_ASYNC_BARRIER_ARRIVE, VMEM_OR_LDS),
        )
    ),
)
