"""GFX940: CDNA 3."""

from __future__ import annotations

from luthier.arch.generation import Generation, Passes
from luthier.arch.gfx90a import GFX90A
from luthier.arch.gfx940 import hazards, operands
from luthier.arch.target import Target

_PASSES = (
    Passes("V_MFMA_.32_4X4X", 2),
    Passes(r"V_MFMA_.32_16X16X(8X|16|32|64)", 4),
    Passes(r"V_MFMA_.32_16X16X[14][FBI]", 8),
    Passes(r"V_MFMA_.32_32X32X(4XF|8|16|32_)", 8),
    Passes(r"V_MFMA_.32_32X32X[124][FBI]", 16),
    Passes("V_SMFMAC_.32_16X16X", 4),
    Passes("V_SMFMAC_.32_32X32X", 8),
)

GFX940 = Generation(
    parent=GFX90A,
    generation="GFX940",
    thread_trace_prefix=5,
    architected_flat_scratch=True,
    returning_atomic="sc0",
    fine_grained_scope="agent",
    release_fence=("buffer_wbl2 sc1", "s_waitcnt vmcnt(0)"),
    acquire_fence=("buffer_inv sc1",),
    vector_cache_line=128,
    passes=_PASSES,
    hazard_rows=hazards.ROWS,
    operand_anchors=operands.ANCHORS,
)

GENERIC = "gfx9-4-generic"
PROCESSORS = (
    Target(parent=GFX940, name="gfx942", mach=0x4C, generic=GENERIC, device_id=0x74A1),
    Target(parent=GFX940, name=GENERIC, mach=0x5F, generic_version=(9, 4, 2), lds_by_lane=False),
)
