"""Hazards that begin with GFX11."""

from __future__ import annotations

from luthier.arch.gfx10.hazards import CMPX_PERMLANE
from luthier.arch.hazards import Hazard, ending, sourced
from luthier.arch.parties import *

_LLVM = "LLVM, GCNHazardRecognizer"

_DRAINED = (VMEM_OR_LDS, EXPORT, S_WAITCNT_DEPCTR.by(VA_VDST_0))
"""Instructions before which vector instructions have written their registers."""
ROWS = sourced(
    _LLVM,
    CMPX_PERMLANE,
    Hazard(
        name="WMMA writes registers, WMMA reads them as A or B",
        producer=WMMA.by(RESULT),
        consumer=WMMA.by(MATRIX_A_B),
        needed=1,
        source="RDNA3 ISA 7.9.1",
        clock="vector instructions",
        remedy="v_nop",
    ),
    *ending(
        "GFX1250",
        Hazard(
            name="VALU uses a register, LDS direct load to it",
            producer=VALU.by(USES_VECTORS),
            consumer=LDS_DIRECT.by(RESULT),
            needed=15,
            clock="vector instructions",
            cleared_by=(VMEM_OR_LDS, EXPORT),
            at_most="waitvdst",
            remedy="a smaller wait_vdst",
        ),
        *(
            Hazard(
                name=f"{words}, LDS direct load to it",
                producer=first.by(USES_VECTORS),
                consumer=LDS_DIRECT.by(RESULT_WITHOUT_WAIT_VA_VDST_0),
                needed=15,
                clock="vector instructions",
                middle=middle,
                cleared_by=(VMEM_OR_LDS, EXPORT),
                remedy="wait_vdst 0",
            )
            # They run in parallel with others, so instructions cannot be counted.
            for words, first, middle in (
                ("transcendental operation uses a register", TRANSCENDENTAL, None),
                ("VALU uses a register, transcendental operation", VALU, TRANSCENDENTAL),
            )
        ),
    ),
    *ending(
        "GFX12",
        Hazard(
            name="VALU writes registers before and behind a change of EXEC, VALU reads both",
            producer=VALU.writes(VGPRS),
            consumer=VALU.by(VGPRS_OF_SOURCES),
            needed=5,
            source="LLVM, GCNHazardRecognizer, fixVALUPartialForwardingHazard",
            clock="vector instructions",
            middle=SALU.writes(EXEC),
            second=VALU.writes(VGPRS),
            second_within=2,
            cleared_by=_DRAINED,
            wave_size=64,
            remedy="s_waitcnt_depctr 0xfff (va_vdst)",
        ),
        Hazard(
            name="memory uses a register, LDS direct load to it",
            producer=VMEM_OR_LDS.by(USES_VECTORS),
            consumer=LDS_DIRECT.by(RESULT),
            needed=None,
            cleared_by=(VALU, EXPORT, S_WAITCNT.by(WAITS_FOR_ALL), S_WAITCNT_DEPCTR.by(VM_VSRC_0)),
            remedy="s_waitcnt_depctr 0xffe3 (vm_vsrc)",
        ),
        *(
            Hazard(
                name=f"VALU reads a lane mask, {writer} overwrites it, {reader} reads it",
                producer=VALU.by(READS_A_MASK),
                consumer=reader.reads(what),
                needed=None,
                middle=writer.writes(what),
                cleared_by=(S_WAITCNT_DEPCTR.by(field),),
                clears_all=False,
                # LLVM checks one function at a time: calls and returns take long enough for a mask to be read. In LLVM,
                # a later vector instruction that reads an SGPR suffices, and also one with a literal, which is not used
                # here.
                forgotten_by=(
                    ANYTHING.writes(SGPRS),
                    CALL_OR_RETURN.by(ALL_SGPRS),
                    VALU.by(ALL_SGPRS_BY_A_READ_OF_ONE),
                    S_WAITCNT_DEPCTR.by(ALL_SGPRS_BY_SA_SDST_0),
                ),
                wave_size=64,
                remedy=f"s_waitcnt_depctr ({field.name[:-2]})",
            )
            for writer, reader, what, field in (
                (SALU_NO_CALL, SALU_OR_VALU, SGPRS, SA_SDST_0),
                (VALU, VALU, SGPRS_OTHER_THAN_VCC, VA_SDST_0),
                (VALU, VALU, VCC, VA_VCC_0),
            )
        ),
        *ending(
            "GFX11_5",
            Hazard(
                name="transcendental operation, VALU reads its result",
                producer=TRANSCENDENTAL.writes(VGPRS),
                consumer=VALU.reads(VGPRS),
                needed=6,
                clock="vector instructions",
                transcendental=2,
                cleared_by=_DRAINED,
                remedy="s_waitcnt_depctr 0xfff (va_vdst)",
            ),
        ),
    ),
)
