"""GFX908: CDNA, with matrix instructions and accumulation registers."""

from __future__ import annotations

from luthier.arch.generation import Generation, Passes
from luthier.arch.gfx9 import GFX9
from luthier.arch.gfx908 import hazards
from luthier.arch.target import Target

_PASSES = (
    Passes("V_MFMA_..._4X4X", 2),
    Passes("V_MFMA_..._16X16X", 8),
    Passes("V_MFMA_..._32X32X", 16),
)

GFX908 = Generation(
    parent=GFX9,
    generation="GFX908",
    has_agprs=True,
    supports_sramecc=True,
    passes=_PASSES,
    hazard_rows=hazards.ROWS,
)

PROCESSORS = (Target(parent=GFX908, name="gfx908", mach=0x30, device_id=0x738C),)
