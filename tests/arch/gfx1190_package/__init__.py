"""A fictional generation, added by a separate package: GFX11 with two changed facts.

A vector instruction may read what a transcendental one gives after 3 others, not 6; and VGPRs are given out in larger
steps. LLVM does not know the processor, and is told that it is a gfx1100.
"""

from __future__ import annotations

from luthier.arch.generation import Generation, VgprFile
from luthier.arch.gfx11 import GFX11
from luthier.arch.target import Target
from msgspec.structs import replace

CHANGED = "transcendental operation, VALU reads its result"

GFX11_9 = Generation(
    parent=GFX11,
    generation="GFX11_9",
    vgpr_file=VgprFile(768, 4, 24),
    hazards_ended=(CHANGED,),
    hazard_rows=tuple(replace(one, needed=3, until=()) for one in GFX11.hazards if one.name == CHANGED),
)

PROCESSORS = (Target(parent=GFX11_9, name="gfx1190", mach=0xE0, llvm_processor="gfx1100", generic="gfx11-generic"),)
