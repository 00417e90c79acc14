"""Hazards that begin with GFX950: new conversions and lane moves, and matrix instructions that take longer."""

from __future__ import annotations

from luthier.arch.hazards import Hazard, sourced
from luthier.arch.matrix import double_rows, other_passes, passes_and, xdl_rows
from luthier.arch.parties import *

_LLVM = "LLVM, GCNHazardRecognizer"

ROWS = sourced(
    _LLVM,
    Hazard(
        name="conversion to 4 bits, VALU uses its result",
        producer=VALU.by(FOUR_BIT_RESULT),
        consumer=VALU.by(USES_VECTORS),
        needed=1,
    ),
    Hazard(
        name="VALU writes a VGPR, v_permlane reads it",
        producer=VALU.writes(VGPRS),
        consumer=V_PERMLANE.reads(VGPRS),
        needed=2,
    ),
    Hazard(name="v_cmpx, v_permlane", producer=V_CMPX, consumer=V_PERMLANE, needed=4),
    other_passes(passes_and(2)),
    *xdl_rows({2: 5, 4: 8, 8: 12, 16: 20}, passes_and(2), {2: 3, 4: 6, 8: 10, 16: 18}),
    *double_rows(_LLVM, 19, 17, SGEMM_OR_DGEMM),
)
