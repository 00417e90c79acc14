"""Hazards of GFX12 and GFX1250."""

from __future__ import annotations

from luthier.isa.generations import GFX12, GFX1250
from luthier.isa.hazard_parties import DS_NOPS
from luthier.isa.hazards.rows import row

_12_0 = frozenset({GFX12.generation})
_1250 = frozenset({GFX1250.generation})

_LLVM = "LLVM, GCNHazardRecognizer"

_MEMORY_WAITS = ("VMEM, no FLAT", "SMEM")
GFX12_ROWS = tuple(
    row(
        f"VALU read an SGPR, {writer} overwrites it, {reader} reads it",
        ("VALU", "reads pairs of SGPRs"),
        (reader, f"reads {what}"),
        None,
        _12_0,
        "LLVM, AMDGPUWaitSGPRHazards",
        middle=(writer, f"writes {what}"),
        cleared_by=(*_MEMORY_WAITS, ("s_waitcnt_depctr", field), *more),
        clears_all=False,
        disarmed_by=disarmed,
        forgotten_by=(("ds_nop", f"SGPRs, by {DS_NOPS[wave_size]}"),),
        wave_size=wave_size,
        remedy=f"s_wait_alu ({field[:-2]})",
    )
    for wave_size in DS_NOPS
    for writer, reader, what, field, more, disarmed in (
        ("SALU", "SALU or VALU", "SGPRs", "sa_sdst 0", (), (("VALU", "writes VCC"),)),
        # A scalar instruction that reads what a vector instruction wrote waits for all of them.
        ("VALU", "VALU", "SGPRs other than VCC", "va_sdst 0", (("SALU", "reads SGPRs other than VCC"),), ()),
        ("VALU", "VALU", "VCC", "va_vcc 0", (("SALU", "reads VCC"),), (("SALU", "writes VCC"),)),
    )
)

_WMMA_TO_WMMA = {4: 2, 8: 5, 16: 9, 9: 3, 17: 5}
_WMMA_TO_VALU = {4: 1, 8: 4, 16: 8, 9: 2, 17: 4}
GFX1250_ROWS = (
    row(
        "transcendental operation, VALU reads its result",
        ("transcendental", "writes VGPRs"),
        ("VALU, no transcendental", "reads VGPRs"),
        1,
        _1250,
        _LLVM,
        clock="vector instructions",
        remedy="v_nop",
    ),
    row(
        "transcendental operation, VALU overwrites its source",
        ("transcendental", "reads VGPRs"),
        ("VALU, no transcendental", "result"),
        1,
        _1250,
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
            _1250,
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
        _1250,
        "LLVM since 2026, fixSetRegMode",
        clock="vector instructions",
        remedy="v_nop",
    ),
    row(
        "s_getreg of the state while instructions run",
        "not s_wait_alu",
        ("s_getreg", "of the state"),
        None,
        _1250,
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
            _1250,
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
