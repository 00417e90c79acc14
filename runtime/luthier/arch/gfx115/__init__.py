"""GFX11.5: RDNA 3.5."""

from __future__ import annotations

from luthier.arch.generation import Generation
from luthier.arch.gfx11 import GENERIC, GFX11, LARGE_FILE
from luthier.arch.target import Target

GFX11_5 = Generation(parent=GFX11, generation="GFX11_5")

PROCESSORS = (
    Target(parent=GFX11_5, name="gfx1150", mach=0x43, generic=GENERIC, device_id=0x150E),
    Target(parent=GFX11_5, name="gfx1151", mach=0x4A, generic=GENERIC, vgpr_file=LARGE_FILE, device_id=0x1586),
    Target(parent=GFX11_5, name="gfx1152", mach=0x55, generic=GENERIC, device_id=0x1114),
    Target(parent=GFX11_5, name="gfx1153", mach=0x58, generic=GENERIC, device_id=0x1902),
)
