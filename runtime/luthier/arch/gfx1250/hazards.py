"""Hazards that begin with GFX1250."""

from __future__ import annotations

from luthier.arch.clauses import replayed_load
from luthier.arch.hazards import row

_LLVM = "LLVM, GCNHazardRecognizer"

_WMMA_TO_WMMA = {4: 2, 8: 5, 16: 9, 9: 3, 17: 5}
_WMMA_TO_VALU = {4: 1, 8: 4, 16: 8, 9: 2, 17: 4}
ROWS = (
    replayed_load(xnack=False),
    row(
        "transcendental operation, VALU reads its result",
        ("transcendental", "writes VGPRs"),
        ("VALU, no transcendental", "reads VGPRs"),
        1,
        _LLVM,
        clock="vector instructions",
        remedy="v_nop",
    ),
    row(
        "transcendental operation, VALU overwrites its source",
        ("transcendental", "reads VGPRs"),
        ("VALU, no transcendental", "result"),
        1,
        _LLVM,
        clock="vector instructions",
        remedy="v_nop",
    ),
    *(
        row(
            f"XDL WMMA {words}",
            ("XDL WMMA", role),
            consumer,
            counts,
            _LLVM,
            clock="vector instructions",
            remedy="v_nop",
        )
        for words, role, consumer, counts in (
            (
                "writes registers, WMMA reads them as A or B",
                "result",
                ("XDL WMMA", "matrix A, B"),
                _WMMA_TO_WMMA,
            ),
            ("writes registers, VALU reads them", "result", ("VALU, no WMMA", "reads vectors"), _WMMA_TO_VALU),
            ("writes registers, VALU overwrites them", "result", ("VALU, no WMMA", "writes vectors"), _WMMA_TO_VALU),
            (
                "reads registers, VALU overwrites them",
                "reads vectors",
                ("VALU, no WMMA", "writes vectors"),
                _WMMA_TO_VALU,
            ),
        )
    ),
    row(
        "vector instruction, s_setreg of MODE",
        "VALU, no v_nop",
        ("s_setreg", "of MODE"),
        2,
        "LLVM since 2026, fixSetRegMode",
        clock="vector instructions",
        remedy="v_nop",
    ),
    row(
        "s_setreg_imm32 of MODE, s_set_vgpr_msb, which is dropped",
        ("s_setreg_imm32", "of MODE"),
        "s_set_vgpr_msb",
        1,
        "LLVM since 2026, AMDGPULowerVGPREncoding, needNopBeforeSetVGPRMSB",
    ),
    row(
        "s_getreg of the state while instructions run",
        "not s_wait_alu",
        ("s_getreg", "of the state"),
        None,
        "LLVM, GCNHazardRecognizer, fixGetRegWaitIdle",
        cleared_by=(("s_waitcnt_depctr", "waits for all"),),
        remedy="s_wait_alu 0",
    ),
    *(
        row(
            words,
            first,
            second,
            None,
            "LLVM, GCNHazardRecognizer, fixDsAtomicAsyncBarrierArriveB64",
            cleared_by=(("s_waitcnt_depctr", "vm_vsrc 0"),),
            remedy="s_wait_alu 0xffe3 (vm_vsrc)",
        )
        for words, first, second in (
            ("memory, ds_atomic_async_barrier_arrive", "VMEM or LDS", "ds_atomic_async_barrier_arrive"),
            ("ds_atomic_async_barrier_arrive, memory", "ds_atomic_async_barrier_arrive", "VMEM or LDS"),
        )
    ),
)
