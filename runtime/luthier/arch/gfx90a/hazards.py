"""Hazards that begin with GFX90A: matrix instructions, dot products, and the last VGPR."""

from __future__ import annotations

from luthier.arch.hazards import Hazard, ending, sourced
from luthier.arch.matrix import LATER_C, SOME_C, USERS, WRITERS, any_use, double_rows, matrix_rows
from luthier.arch.parties import *

_MI200 = "MI200 ISA 4.5"
_LLVM = "LLVM, GCNHazardRecognizer"

_COUNTS_90A = {2: 5, 8: 11, 16: 19}

ROWS = sourced(
    _MI200,
    Hazard(name="VALU writes EXEC, MFMA", producer=VALU_NO_MFMA.writes(EXEC), consumer=MFMA, needed=4),
    Hazard(
        name="VALU writes a register, MFMA reads it",
        producer=VALU_NO_MFMA_OR_DOT.writes(VECTORS),
        consumer=MFMA.reads(VECTORS),
        needed=2,
    ),
    Hazard(
        name="DOT, another DOT or VALU or memory reads its result",
        producer=DOT.by(RESULT),
        consumer=USERS,
        needed=3,
        tags="other",
    ),
    Hazard(
        name="DOT, the same reads its result as A or B",
        producer=DOT.by(RESULT),
        consumer=DOT.by(MATRIX_A_B),
        needed=3,
        tags="same",
    ),
    Hazard(
        name="DOT, another DOT or VALU or memory overwrites its result",
        producer=DOT.by(RESULT),
        consumer=WRITERS,
        needed=3,
        tags="other",
    ),
    *ending(
        "GFX940",
        *matrix_rows(
            MFMA_NO_DGEMM,
            _MI200,
            (
                *any_use(_COUNTS_90A),
                (f"MFMA, no DGEMM {SOME_C}", MFMA_NO_DGEMM.by(MATRIX_C), {2: 2, 8: 8, 16: 16}, "partly"),
                (f"DGEMM {SOME_C}", DGEMM.by(MATRIX_C), {2: 3, 8: 9, 16: 17}, "partly"),
            ),
        ),
        Hazard(
            name="MFMA reads a register as C, VALU or memory overwrites it",
            producer=MFMA_NO_DGEMM.by(MATRIX_C),
            consumer=WRITERS,
            needed={2: 1, 8: 7, 16: 15},
            disarmed_by=LATER_C,
        ),
        *double_rows(_MI200, 11, 9, DGEMM),
        Hazard(
            name="VALU writes a register, DGEMM, memory reads the register",
            producer=VALU.writes(VECTORS),
            consumer=VMEM_OR_LDS.reads(VECTORS),
            needed=2,
            source=_LLVM,
            middle=DGEMM,
        ),
        Hazard(
            name="64-bit shift by the last VGPR",
            producer=None,
            consumer=SHIFT_64.by(BY_THE_LAST_VGPR),
            needed=None,
            source="LLVM, GCNHazardRecognizer, fixShift64HighRegBug",
            remedy="another register",
        ),
    ),
)
