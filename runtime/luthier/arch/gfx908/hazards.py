"""Hazards of GFX908: matrix instructions whose results are in AGPRs."""

from __future__ import annotations

from luthier.arch.hazards import ending, row

_MI100 = "MI100 ISA 4.5"

ROWS = ending(
    "GFX90A",
    row("VALU writes EXEC, MFMA", ("VALU", "writes EXEC"), "MFMA or v_accvgpr_write", 4, _MI100),
    row(
        "VALU writes a VGPR, MFMA reads it",
        ("VALU", "writes VGPRs"),
        ("MFMA or v_accvgpr_write", "reads VGPRs"),
        2,
        _MI100,
    ),
    row("MFMA writes AGPRs, MFMA reads them as A or B", ("MFMA", "result"), ("MFMA", "AGPRs of A, B"), 4, _MI100),
    row(
        "MFMA writes AGPRs, MFMA reads some of them as C",
        ("MFMA", "result"),
        ("MFMA", "matrix C"),
        2,
        _MI100,
        relation="partly",
    ),
    row(
        "MFMA writes an AGPR, v_accvgpr_read",
        ("MFMA", "result"),
        ("v_accvgpr_read", "reads vectors"),
        {2: 4, 8: 10, 16: 18},
        _MI100,
    ),
    row(
        "MFMA writes an AGPR, v_accvgpr_write",
        ("MFMA", "result"),
        ("v_accvgpr_write", "result"),
        {2: 1, 8: 7, 16: 15},
        _MI100,
    ),
    row(
        "MFMA reads an AGPR as C, v_accvgpr_write",
        ("MFMA", "matrix C"),
        ("v_accvgpr_write", "result"),
        {2: 0, 8: 5, 16: 13},
        _MI100,
    ),
    row("v_accvgpr_write, MFMA reads it as C", ("v_accvgpr_write", "result"), ("MFMA", "matrix C"), 1, _MI100),
    row(
        "v_accvgpr_write, MFMA reads it as A or B",
        ("v_accvgpr_write", "result"),
        ("MFMA", "AGPRs of A, B"),
        3,
        _MI100,
    ),
    row(
        "v_accvgpr_write, v_accvgpr_read",
        ("v_accvgpr_write", "result"),
        ("v_accvgpr_read", "reads vectors"),
        3,
        _MI100,
    ),
    row(
        "v_accvgpr_read, memory reads its result",
        ("v_accvgpr_read", "result"),
        ("VMEM or LDS", "reads VGPRs"),
        2,
        _MI100,
    ),
    row(
        "VALU writes a VGPR, move of an AGPR, memory reads the VGPR",
        ("VALU, no MFMA or AGPR move", "writes VGPRs"),
        ("VMEM or LDS", "reads VGPRs"),
        2,
        _MI100,
        middle="AGPR move",
    ),
)
