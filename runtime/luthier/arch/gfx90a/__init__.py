"""GFX90A: CDNA 2, with a unified file for VGPRs and AGPRs."""

from __future__ import annotations

from luthier.arch import dpp
from luthier.arch.generation import Generation, VgprFile
from luthier.arch.gfx90a import hazards, operands
from luthier.arch.gfx908 import GFX908
from luthier.arch.target import Target

GFX90A = Generation(
    parent=GFX908,
    generation="GFX90A",
    unified_vgprs=True,
    waves_per_simd=8,
    vgpr_file=VgprFile(512, 8, 8),
    tied_vector_alignment=2,
    packed_work_item_ids=True,
    kernarg_preload=True,
    dpp_controls=GFX908.dpp_controls | dpp.ROW_SHARE,
    hazard_rows=hazards.ROWS,
    operand_anchors=operands.ANCHORS,
)

PROCESSORS = (Target(parent=GFX90A, name="gfx90a", mach=0x3F, device_id=0x740C),)
