"""Hazards that begin with GFX90A: matrix instructions, dot products, and the last VGPR."""

from __future__ import annotations

from luthier.arch.hazards import ending, row
from luthier.arch.matrix import SOME_C, USERS, WRITERS, any_use, double_rows, matrix_rows

_MI200 = "MI200 ISA 4.5"
_LLVM = "LLVM, GCNHazardRecognizer"

_COUNTS_90A = {2: 5, 8: 11, 16: 19}

ROWS = (
    row("VALU writes EXEC, MFMA", ("VALU, no MFMA", "writes EXEC"), "MFMA", 4, _MI200),
    row(
        "VALU writes a register, MFMA reads it",
        ("VALU, no MFMA or DOT", "writes vectors"),
        ("MFMA", "reads vectors"),
        2,
        _MI200,
    ),
    row(
        "DOT, another DOT or VALU or memory reads its result",
        ("DOT", "result"),
        USERS,
        3,
        _MI200,
        tags="other",
    ),
    row(
        "DOT, the same reads its result as A or B",
        ("DOT", "result"),
        ("DOT", "matrix A, B"),
        3,
        _MI200,
        tags="same",
    ),
    row(
        "DOT, another DOT or VALU or memory overwrites its result",
        ("DOT", "result"),
        WRITERS,
        3,
        _MI200,
        tags="other",
    ),
    *ending(
        "GFX940",
        *matrix_rows(
            "MFMA, no DGEMM",
            _MI200,
            (
                *any_use(_COUNTS_90A),
                (f"MFMA, no DGEMM {SOME_C}", ("MFMA, no DGEMM", "matrix C"), {2: 2, 8: 8, 16: 16}, "partly"),
                (f"DGEMM {SOME_C}", ("DGEMM", "matrix C"), {2: 3, 8: 9, 16: 17}, "partly"),
            ),
        ),
        row(
            "MFMA reads a register as C, VALU or memory overwrites it",
            ("MFMA, no DGEMM", "matrix C"),
            WRITERS,
            {2: 1, 8: 7, 16: 15},
            _MI200,
        ),
        *double_rows(_MI200, 11, 9, "DGEMM"),
        row(
            "VALU writes a register, DGEMM, memory reads the register",
            ("VALU", "writes vectors"),
            ("VMEM or LDS", "reads vectors"),
            2,
            _LLVM,
            middle="DGEMM",
        ),
        row(
            "64-bit shift by the last VGPR",
            None,
            ("64-bit shift", "by the last VGPR"),
            None,
            "LLVM, GCNHazardRecognizer, fixShift64HighRegBug",
            remedy="another register",
        ),
    ),
)
