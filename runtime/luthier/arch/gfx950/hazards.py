"""Hazards that begin with GFX950: new conversions and lane moves, and matrix instructions that take longer."""

from __future__ import annotations

from luthier.arch.hazards import row
from luthier.arch.matrix import double_rows, other_passes, passes_and, xdl_rows

_LLVM = "LLVM, GCNHazardRecognizer"

ROWS = (
    row("conversion to 4 bits, VALU uses its result", ("VALU", "4-bit result"), ("VALU", "uses vectors"), 1, _LLVM),
    row(
        "VALU writes a VGPR, v_permlane reads it",
        ("VALU", "writes VGPRs"),
        ("v_permlane", "reads VGPRs"),
        2,
        _LLVM,
    ),
    row("v_cmpx, v_permlane", "v_cmpx", "v_permlane", 4, _LLVM),
    other_passes(passes_and(2)),
    *xdl_rows({2: 5, 4: 8, 8: 12, 16: 20}, passes_and(2), {2: 3, 4: 6, 8: 10, 16: 18}),
    *double_rows(_LLVM, 19, 17, "SGEMM or DGEMM"),
)
