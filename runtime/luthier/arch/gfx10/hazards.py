"""Hazards that begin with GFX10, which documents do not tell."""

from __future__ import annotations

from luthier.arch.clauses import clause_rows, replayed_load
from luthier.arch.hazards import ending, row

_LLVM = "LLVM, GCNHazardRecognizer"

CMPX_PERMLANE = row(
    "v_cmpx, v_permlane",
    "v_cmpx",
    "v_permlane",
    None,
    _LLVM,
    cleared_by=("VALU, no v_nop",),
    remedy="a vector instruction between them, no v_nop",
)
"""GFX10.3 does not have it, but GFX11 has it again."""

ROWS = (
    *ending(
        "GFX10_3",
        CMPX_PERMLANE,
        *clause_rows("SMEM", "scalar loads"),
        replayed_load(xnack=True),
        row(
            "branch over 0x3f words",
            None,
            ("branch", "offset of 0x3f"),
            None,
            "LLVM, AMDGPU, offset-3f-bug",
            remedy="another distance",
        ),
        row(
            "memory reads an SGPR or EXEC, a scalar instruction overwrites it",
            ("VMEM or LDS", "reads SGPRs or EXEC"),
            ("SALU or SMEM", "writes SGPRs or EXEC by name"),
            None,
            _LLVM,
            cleared_by=("VALU", ("s_waitcnt", "waits for all"), ("s_waitcnt_depctr", "vm_vsrc 0")),
            remedy="s_waitcnt_depctr 0xffe3 (vm_vsrc)",
        ),
        row(
            "scalar load reads an SGPR, VALU overwrites it",
            ("SMEM", "reads SGPRs"),
            ("VALU", "writes SGPRs"),
            None,
            _LLVM,
            cleared_by=(
                ("SALU", "no SOPP"),
                ("s_waitcnt", "lgkmcnt 0"),
                ("s_waitcnt_lgkmcnt", "waits for 0"),
            ),
            remedy="a scalar instruction between them",
        ),
        row(
            "EXEC is read, v_cmpx overwrites it",
            ("not VALU", "reads EXEC"),
            ("VALU", "writes EXEC"),
            None,
            _LLVM,
            cleared_by=(("VALU", "writes an SGPR"), ("s_waitcnt_depctr", "sa_sdst 0")),
            remedy="s_waitcnt_depctr 0xfffe (sa_sdst)",
        ),
        *(
            row(
                f"{first}, branch, {second}",
                first,
                second,
                None,
                _LLVM,
                middle="branch",
                cleared_by=("VMEM or LDS", ("s_waitcnt_vscnt", "waits for 0")),
                remedy="s_waitcnt_vscnt null, 0x0",
            )
            for first, second in (("LDS", "VMEM"), ("VMEM", "LDS"))
        ),
        row(
            "image instruction with a long address, buffer instruction with an offset",
            ("image", "long address"),
            ("buffer", "offset with 2 or 4"),
            1,
            _LLVM,
        ),
    ),
    *ending(
        "GFX11",
        row(
            "floating-point atomic, s_denorm_mode",
            "floating-point atomic",
            "s_denorm_mode",
            3,
            _LLVM,
            cleared_by=("VALU", "wait"),
        ),
    ),
)
