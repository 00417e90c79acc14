"""Hazards of GFX10 and GFX11, which documents do not tell."""

from __future__ import annotations

from luthier.isa.generations import GFX10, GFX11, GFX12, GFX1250, generations
from luthier.isa.hazards.rows import row

_10_1 = frozenset({GFX10.generation})
_10 = generations(GFX10, GFX11) - {GFX11.generation}
_11 = frozenset({GFX11.generation})
_11_0 = frozenset({"gfx1100", "gfx1101", "gfx1102", "gfx1103", "gfx11-generic"})
_12_0 = frozenset({GFX12.generation})
_1250 = frozenset({GFX1250.generation})

_LLVM = "LLVM, GCNHazardRecognizer"

_DRAINED = ("VMEM or LDS", "export", ("s_waitcnt_depctr", "va_vdst 0"))
"""Before them vector instructions have written their registers."""
GFX10_ROWS = (
    row(
        "branch over 0x3f words",
        None,
        ("branch", "offset of 0x3f"),
        None,
        _10_1,
        "LLVM, AMDGPU, offset-3f-bug",
        remedy="another distance",
    ),
    row(
        "v_cmpx, v_permlane",
        "v_cmpx",
        "v_permlane",
        None,
        _10_1 | _11 | _12_0 | _1250,
        _LLVM,
        cleared_by=("VALU, no v_nop",),
        remedy="a vector instruction between them, no v_nop",
    ),
    row(
        "memory reads an SGPR or EXEC, a scalar instruction overwrites it",
        ("VMEM or LDS", "reads SGPRs or EXEC"),
        ("SALU or SMEM", "writes SGPRs or EXEC by name"),
        None,
        _10_1,
        _LLVM,
        cleared_by=("VALU", ("s_waitcnt", "waits for all"), ("s_waitcnt_depctr", "vm_vsrc 0")),
        remedy="s_waitcnt_depctr 0xffe3 (vm_vsrc)",
    ),
    row(
        "scalar load reads an SGPR, VALU overwrites it",
        ("SMEM", "reads SGPRs"),
        ("VALU", "writes SGPRs"),
        None,
        _10_1,
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
        _10_1,
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
            _10_1,
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
        _10_1,
        _LLVM,
    ),
    row(
        "floating-point atomic, s_denorm_mode",
        "floating-point atomic",
        "s_denorm_mode",
        3,
        _10,
        _LLVM,
        cleared_by=("VALU", "wait"),
    ),
)

GFX11_ROWS = (
    row(
        "transcendental operation, VALU reads its result",
        ("transcendental", "writes VGPRs"),
        ("VALU", "reads VGPRs"),
        6,
        _11_0,
        _LLVM,
        clock="vector instructions",
        transcendental=2,
        cleared_by=_DRAINED,
        remedy="s_waitcnt_depctr 0xfff (va_vdst)",
    ),
    row(
        "VALU writes registers before and behind a change of EXEC, VALU reads both",
        ("VALU", "writes VGPRs"),
        ("VALU", "VGPRs of sources"),
        5,
        _11,
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
        "WMMA writes registers, WMMA reads them as A or B",
        ("WMMA", "result"),
        ("WMMA", "matrix A, B"),
        1,
        _11 | _12_0 | _1250,
        "RDNA3 ISA 7.9.1",
        clock="vector instructions",
        remedy="v_nop",
    ),
    row(
        "VALU uses a register, LDS direct load to it",
        ("VALU", "uses vectors"),
        ("LDS direct", "result"),
        15,
        _11 | _12_0,
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
            _11 | _12_0,
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
    row(
        "memory uses a register, LDS direct load to it",
        ("VMEM or LDS", "uses vectors"),
        ("LDS direct", "result without wait_vm_vsrc 0"),
        None,
        _12_0,
        _LLVM,
        cleared_by=("VALU", "export", ("s_waitcnt_depctr", "vm_vsrc 0"), ("LDS direct", "wait_vm_vsrc 0")),
        remedy="wait_vm_vsrc 0",
    ),
    row(
        "memory uses a register, LDS direct load to it",
        ("VMEM or LDS", "uses vectors"),
        ("LDS direct", "result"),
        None,
        _11,
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
            _11,
            _LLVM,
            middle=(writer, f"writes {what}"),
            cleared_by=(("s_waitcnt_depctr", field),),
            clears_all=False,
            # LLVM looks at one function at a time: calls and returns take long enough for a mask to be read.
            forgotten_by=(("anything", "writes SGPRs"), ("call or return", "all SGPRs")),
            wave_size=64,
            remedy=f"s_waitcnt_depctr ({field[:-2]})",
        )
        for writer, reader, what, field in (
            ("SALU, no call", "SALU or VALU", "SGPRs", "sa_sdst 0"),
            ("VALU", "VALU", "SGPRs other than VCC", "va_sdst 0"),
            ("VALU", "VALU", "VCC", "va_vcc 0"),
        )
    ),
)
