"""Hazards that begin with GFX11."""

from __future__ import annotations

from luthier.arch.gfx10.hazards import CMPX_PERMLANE
from luthier.arch.hazards import ending, row

_LLVM = "LLVM, GCNHazardRecognizer"

_DRAINED = ("VMEM or LDS", "export", ("s_waitcnt_depctr", "va_vdst 0"))
"""Before them vector instructions have written their registers."""
ROWS = (
    CMPX_PERMLANE,
    row(
        "WMMA writes registers, WMMA reads them as A or B",
        ("WMMA", "result"),
        ("WMMA", "matrix A, B"),
        1,
        "RDNA3 ISA 7.9.1",
        clock="vector instructions",
        remedy="v_nop",
    ),
    *ending(
        "GFX1250",
        row(
            "VALU uses a register, LDS direct load to it",
            ("VALU", "uses vectors"),
            ("LDS direct", "result"),
            15,
            _LLVM,
            clock="vector instructions",
            cleared_by=("VMEM or LDS", "export"),
            at_most="waitvdst",
            remedy="a smaller wait_vdst",
        ),
        *(
            row(
                f"{words}, LDS direct load to it",
                ("VALU" if middle else "transcendental", "uses vectors"),
                ("LDS direct", "result without wait_va_vdst 0"),
                15,
                _LLVM,
                clock="vector instructions",
                middle=middle,
                cleared_by=("VMEM or LDS", "export"),
                remedy="wait_vdst 0",
            )
            # They run beside others, so that these cannot be counted.
            for words, middle in (
                ("transcendental operation uses a register", None),
                ("VALU uses a register, transcendental operation", "transcendental"),
            )
        ),
    ),
    *ending(
        "GFX12",
        row(
            "VALU writes registers before and behind a change of EXEC, VALU reads both",
            ("VALU", "writes VGPRs"),
            ("VALU", "VGPRs of sources"),
            5,
            "LLVM, GCNHazardRecognizer, fixVALUPartialForwardingHazard",
            clock="vector instructions",
            middle=("SALU", "writes EXEC"),
            second=("VALU", "writes VGPRs"),
            second_within=2,
            cleared_by=_DRAINED,
            wave_size=64,
            remedy="s_waitcnt_depctr 0xfff (va_vdst)",
        ),
        row(
            "memory uses a register, LDS direct load to it",
            ("VMEM or LDS", "uses vectors"),
            ("LDS direct", "result"),
            None,
            _LLVM,
            cleared_by=("VALU", "export", ("s_waitcnt", "waits for all"), ("s_waitcnt_depctr", "vm_vsrc 0")),
            remedy="s_waitcnt_depctr 0xffe3 (vm_vsrc)",
        ),
        *(
            row(
                f"VALU reads a lane mask, {writer} overwrites it, {reader} reads it",
                ("VALU", "reads a mask"),
                (reader, f"reads {what}"),
                None,
                _LLVM,
                middle=(writer, f"writes {what}"),
                cleared_by=(("s_waitcnt_depctr", field),),
                clears_all=False,
                # LLVM looks at one function at a time: calls and returns take long enough for a mask to be read. It
                # takes a later vector instruction that reads an SGPR for enough, and one with a literal, which is not
                # relied upon here.
                forgotten_by=(
                    ("anything", "writes SGPRs"),
                    ("call or return", "all SGPRs"),
                    ("VALU", "all SGPRs, by a read of one"),
                    ("s_waitcnt_depctr", "all SGPRs, by sa_sdst 0"),
                ),
                wave_size=64,
                remedy=f"s_waitcnt_depctr ({field[:-2]})",
            )
            for writer, reader, what, field in (
                ("SALU, no call", "SALU or VALU", "SGPRs", "sa_sdst 0"),
                ("VALU", "VALU", "SGPRs other than VCC", "va_sdst 0"),
                ("VALU", "VALU", "VCC", "va_vcc 0"),
            )
        ),
        *ending(
            "GFX11_5",
            row(
                "transcendental operation, VALU reads its result",
                ("transcendental", "writes VGPRs"),
                ("VALU", "reads VGPRs"),
                6,
                _LLVM,
                clock="vector instructions",
                transcendental=2,
                cleared_by=_DRAINED,
                remedy="s_waitcnt_depctr 0xfff (va_vdst)",
            ),
        ),
    ),
)
