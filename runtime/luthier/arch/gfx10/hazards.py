"""Hazards that begin with GFX10, which no document describes."""

from __future__ import annotations

from luthier.arch.clauses import clause_rows, replayed_load
from luthier.arch.hazards import Hazard, ending, sourced
from luthier.arch.parties import *

_LLVM = "LLVM, GCNHazardRecognizer"

CMPX_PERMLANE = Hazard(
    name="v_cmpx, v_permlane",
    producer=V_CMPX,
    consumer=V_PERMLANE,
    needed=None,
    source=_LLVM,
    cleared_by=(VALU_NO_V_NOP,),
    remedy="a vector instruction other than v_nop between them",
)
"""Absent on GFX10.3, present again on GFX11."""

ROWS = sourced(
    _LLVM,
    *ending(
        "GFX10_3",
        CMPX_PERMLANE,
        *clause_rows(SMEM, NOT_SMEM, SGPRS, "scalar loads"),
        replayed_load(xnack=True),
        Hazard(
            name="branch over 0x3f words",
            producer=None,
            consumer=BRANCH.by(OFFSET_OF_0X3F),
            needed=None,
            source="LLVM, AMDGPU, offset-3f-bug",
            remedy="another distance",
        ),
        Hazard(
            name="memory reads an SGPR or EXEC, a scalar instruction overwrites it",
            producer=VMEM_OR_LDS.reads(SGPRS_OR_EXEC),
            consumer=SALU_OR_SMEM.by(WRITES_SGPRS_OR_EXEC_BY_NAME),
            needed=None,
            cleared_by=(VALU, S_WAITCNT.by(WAITS_FOR_ALL), S_WAITCNT_DEPCTR.by(VM_VSRC_0)),
            remedy="s_waitcnt_depctr 0xffe3 (vm_vsrc)",
        ),
        Hazard(
            name="scalar load reads an SGPR, VALU overwrites it",
            producer=SMEM.reads(SGPRS),
            consumer=VALU.writes(SGPRS),
            needed=None,
            cleared_by=(
                SALU.by(NO_SOPP),
                S_WAITCNT.by(LGKMCNT_0),
                S_WAITCNT_LGKMCNT.by(WAITS_FOR_0),
            ),
            remedy="a scalar instruction between them",
        ),
        Hazard(
            name="EXEC is read, v_cmpx overwrites it",
            producer=NOT_VALU.reads(EXEC),
            consumer=VALU.writes(EXEC),
            needed=None,
            cleared_by=(VALU.by(WRITES_AN_SGPR), S_WAITCNT_DEPCTR.by(SA_SDST_0)),
            remedy="s_waitcnt_depctr 0xfffe (sa_sdst)",
        ),
        *(
            Hazard(
                name=f"{first}, branch, {second}",
                producer=first,
                consumer=second,
                needed=None,
                middle=BRANCH,
                cleared_by=(VMEM_OR_LDS, S_WAITCNT_VSCNT.by(WAITS_FOR_0)),
                remedy="s_waitcnt_vscnt null, 0x0",
            )
            for first, second in ((LDS, VMEM), (VMEM, LDS))
        ),
        Hazard(
            name="image instruction with a long address, buffer instruction with an offset",
            producer=IMAGE.by(LONG_ADDRESS),
            consumer=BUFFER.by(OFFSET_WITH_2_OR_4),
            needed=1,
        ),
    ),
    *ending(
        "GFX11",
        Hazard(
            name="floating-point atomic, s_denorm_mode",
            producer=FLOATING_POINT_ATOMIC,
            consumer=S_DENORM_MODE,
            needed=3,
            cleared_by=(VALU, WAIT),
        ),
    ),
)
