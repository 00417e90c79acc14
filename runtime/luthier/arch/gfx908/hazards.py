"""Hazards of GFX908: matrix instructions whose results are in AGPRs."""

from __future__ import annotations

from luthier.arch.hazards import Hazard, ending, sourced
from luthier.arch.matrix import LATER_C, LATER_RESULT
from luthier.arch.parties import *

_MI100 = "MI100 ISA 4.5"

ROWS = sourced(
    _MI100,
    *ending(
        "GFX90A",
        Hazard(name="VALU writes EXEC, MFMA", producer=VALU.writes(EXEC), consumer=MFMA_OR_V_ACCVGPR_WRITE, needed=4),
        Hazard(
            name="VALU writes a VGPR, MFMA reads it",
            producer=VALU.writes(VGPRS),
            consumer=MFMA_OR_V_ACCVGPR_WRITE.reads(VGPRS),
            needed=2,
        ),
        Hazard(
            name="MFMA writes AGPRs, MFMA reads them as A or B",
            producer=MFMA.by(RESULT),
            consumer=MFMA.by(AGPRS_OF_A_B),
            needed=4,
            disarmed_by=LATER_RESULT,
        ),
        Hazard(
            name="MFMA writes AGPRs, MFMA reads some of them as C",
            producer=MFMA.by(RESULT),
            consumer=MFMA.by(MATRIX_C),
            needed=2,
            relation="partly",
            disarmed_by=LATER_RESULT,
        ),
        Hazard(
            name="MFMA writes an AGPR, v_accvgpr_read",
            producer=MFMA.by(RESULT),
            consumer=V_ACCVGPR_READ.reads(VECTORS),
            needed={2: 4, 8: 10, 16: 18},
            disarmed_by=LATER_RESULT,
        ),
        Hazard(
            name="MFMA writes an AGPR, v_accvgpr_write",
            producer=MFMA.by(RESULT),
            consumer=V_ACCVGPR_WRITE.by(RESULT),
            needed={2: 1, 8: 7, 16: 15},
            disarmed_by=LATER_RESULT,
        ),
        Hazard(
            name="MFMA reads an AGPR as C, v_accvgpr_write",
            producer=MFMA.by(MATRIX_C),
            consumer=V_ACCVGPR_WRITE.by(RESULT),
            needed={2: 0, 8: 5, 16: 13},
            disarmed_by=LATER_C,
        ),
        Hazard(
            name="v_accvgpr_write, MFMA reads it as C",
            producer=V_ACCVGPR_WRITE.by(RESULT),
            consumer=MFMA.by(MATRIX_C),
            needed=1,
        ),
        Hazard(
            name="v_accvgpr_write, MFMA reads it as A or B",
            producer=V_ACCVGPR_WRITE.by(RESULT),
            consumer=MFMA.by(AGPRS_OF_A_B),
            needed=3,
        ),
        Hazard(
            name="v_accvgpr_write, v_accvgpr_read",
            producer=V_ACCVGPR_WRITE.by(RESULT),
            consumer=V_ACCVGPR_READ.reads(VECTORS),
            needed=3,
        ),
        Hazard(
            name="v_accvgpr_read, memory reads its result",
            producer=V_ACCVGPR_READ.by(RESULT),
            consumer=VMEM_OR_LDS.reads(VGPRS),
            needed=2,
        ),
        Hazard(
            name="VALU writes a VGPR, move of an AGPR, memory reads the VGPR",
            producer=VALU_NO_MFMA_OR_AGPR_MOVE.writes(VGPRS),
            consumer=VMEM_OR_LDS.reads(VGPRS),
            needed=2,
            middle=AGPR_MOVE,
        ),
    ),
)
