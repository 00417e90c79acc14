"""Hazards that begin with GFX12."""

from __future__ import annotations

from collections.abc import Mapping

from luthier.arch.hazards import ending, row

DS_NOPS: Mapping[int, int] = {32: 4, 64: 8}
"""Lanes of a wave -> how many ds_nop in a row make the hardware forget which SGPRs vector instructions have read (LLVM,
AMDGPUWaitSGPRHazards)."""

_LLVM = "LLVM, GCNHazardRecognizer"
_MEMORY_WAITS = ("VMEM, no FLAT", "SMEM")
_SCALAR_ROWS = tuple(
    row(
        f"VALU read an SGPR, {writer.split(',')[0]} overwrites it, {reader} reads it",
        ("VALU", "reads pairs of SGPRs"),
        (reader, f"reads {what}"),
        None,
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
        # A call's own write of its return address is done where the function begins: LLVM counts none as on its way
        # there, and does not look at what returns read.
        ("SALU, no call", "SALU or VALU", "SGPRs", "sa_sdst 0", (), (("VALU", "writes VCC"),)),
        # A scalar instruction that reads what a vector instruction wrote waits for all of them.
        ("VALU", "VALU", "SGPRs other than VCC", "va_sdst 0", (("SALU", "reads SGPRs other than VCC"),), ()),
        ("VALU", "VALU", "VCC", "va_vcc 0", (("SALU", "reads VCC"),), (("SALU", "writes VCC"),)),
    )
)

ROWS = ending(
    "GFX1250",
    *_SCALAR_ROWS,
    row(
        "memory uses a register, LDS direct load to it",
        ("VMEM or LDS", "uses vectors"),
        ("LDS direct", "result without wait_vm_vsrc 0"),
        None,
        _LLVM,
        cleared_by=("VALU", "export", ("s_waitcnt_depctr", "vm_vsrc 0"), ("LDS direct", "wait_vm_vsrc 0")),
        remedy="wait_vm_vsrc 0",
    ),
)
