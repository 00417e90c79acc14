"""Hazards that begin with GFX940: more vector instructions, and its matrix instructions."""

from __future__ import annotations

from luthier.arch.hazards import Hazard, ending, sourced
from luthier.arch.matrix import LATER_C, LATER_RESULT, WRITERS, double_rows, other_passes, passes_and, xdl_rows
from luthier.arch.parties import *

_MI300 = "MI300 ISA 4.5, 7.5"

ROWS = sourced(
    _MI300,
    Hazard(
        name="store of more than 64 bits, VALU overwrites its data",
        producer=VMEM.by(DATA_OF_A_WIDE_STORE),
        consumer=VALU.writes(VECTORS),
        needed=2,
    ),
    Hazard(
        name="store of more than 64 bits with an offset in an SGPR, VALU overwrites its data",
        producer=VMEM.by(DATA_OF_A_WIDE_STORE_OFFSET_IN_AN_SGPR),
        consumer=VALU.writes(VECTORS),
        needed=1,
        source="LLVM since 2026, checkVALUHazardsHelper",
    ),
    # Not as a lane mask, which needs no wait states. LLVM also separates these.
    Hazard(
        name="VALU writes an SGPR, VALU reads it as a constant",
        producer=VALU.writes(SGPRS),
        consumer=VALU.by(READS_SGPRS_AS_CONSTANTS),
        needed=2,
    ),
    Hazard(
        name="VALU writes EXEC, VALU reads it as a constant",
        producer=VALU.writes(EXEC),
        consumer=VALU.by(READS_EXEC_AS_A_CONSTANT),
        needed=2,
    ),
    Hazard(
        name="VALU writes a VGPR, v_readlane reads it",
        producer=VALU.writes(VGPRS),
        consumer=V_READLANE_OR_V_READFIRSTLANE.by(SOURCE_0),
        needed=1,
    ),
    Hazard(name="VALU writes EXEC, lane move", producer=VALU.writes(EXEC), consumer=LANE_MOVES.reads(EXEC), needed=4),
    Hazard(
        name="transcendental operation, VALU reads its result",
        producer=TRANSCENDENTAL.writes(VGPRS),
        consumer=VALU_NO_TRANSCENDENTAL.by(READS_OR_KEEPS_VGPRS),
        needed=1,
    ),
    Hazard(
        name="VALU with a shifted result, VALU uses it",
        producer=VALU.by(SHIFTED_RESULT),
        consumer=VALU.by(USES_VECTORS),
        needed=1,
    ),
    Hazard(
        name="MFMA of 2 passes writes registers, MFMA reads them as C",
        producer=MFMA_NO_DGEMM.by(RESULT),
        consumer=MFMA.by(MATRIX_C),
        needed={2: 2, 4: 0, 8: 0, 16: 0},
        relation="same",
        disarmed_by=LATER_RESULT,
    ),
    Hazard(
        name="XDL reads a register as C, VALU or memory overwrites it",
        producer=XDL.by(MATRIX_C),
        consumer=WRITERS,
        needed={2: 1, 4: 3, 8: 7, 16: 15},
        disarmed_by=LATER_C,
    ),
    *ending(
        "GFX950",
        other_passes(passes_and(1)),
        *xdl_rows({2: 5, 4: 7, 8: 11, 16: 19}, passes_and(1), passes_and(1)),
        *double_rows(_MI300, 11, 9, SGEMM_OR_DGEMM),
    ),
)
