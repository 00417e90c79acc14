"""GFX10.3: RDNA 2."""

from __future__ import annotations

from luthier.arch.generation import Generation, VgprFile
from luthier.arch.gfx10 import GFX10
from luthier.arch.target import Target

GFX10_3 = Generation(
    parent=GFX10,
    generation="GFX10_3",
    offset_3f_bug=False,
    waves_per_simd=16,
    vgpr_file=VgprFile(512, 4, 8),
    lds_by_lane=True,
    supports_xnack=False,
    waits_free_sgprs=False,
    inserted_waits=(),
)

_GENERIC = "gfx10-3-generic"
PROCESSORS = (
    Target(parent=GFX10_3, name="gfx1030", mach=0x36, generic=_GENERIC, device_id=0x73BF),
    Target(parent=GFX10_3, name="gfx1031", mach=0x37, generic=_GENERIC, device_id=0x73DF),
    Target(parent=GFX10_3, name="gfx1032", mach=0x38, generic=_GENERIC, device_id=0x73FF),
    Target(parent=GFX10_3, name="gfx1033", mach=0x39, generic=_GENERIC, device_id=0x163F),
    Target(parent=GFX10_3, name="gfx1034", mach=0x3E, generic=_GENERIC, device_id=0x743F),
    Target(parent=GFX10_3, name="gfx1035", mach=0x3D, generic=_GENERIC, device_id=0x1681),
    Target(parent=GFX10_3, name="gfx1036", mach=0x45, generic=_GENERIC, device_id=0x164E),
    Target(parent=GFX10_3, name=_GENERIC, mach=0x53, generic_version=(10, 3, 0)),
)
