"""GFX9: Vega."""

from __future__ import annotations

from luthier.arch import dpp
from luthier.arch.amdgcn import AMDGCN
from luthier.arch.generation import Generation, VgprFile
from luthier.arch.gfx9 import hazards, operands, waits
from luthier.arch.target import Target

GFX9 = Generation(
    parent=AMDGCN,
    generation="GFX9",
    major=9,
    emulated_major=9,
    opcode_suffixes=("vi", "gfx9", "gfx940"),
    widest="gfx90a",
    wave_sizes=(64,),
    simds_per_cu=4,
    waves_per_simd=10,
    vgpr_file=VgprFile(256, 4, 4),
    sgpr_limit=102,
    special_sgprs=6,
    sgpr_encoding_granule=8,
    sgpr_allocation_granule=16,
    sgpr_file=800,
    mode_switches=range(27, 29),
    supports_xnack=True,
    dpp_controls=dpp.EVERYWHERE | dpp.WAVE_SHIFTS_AND_BROADCASTS,
    cmpx_writes_mask=True,
    clears_high_half=True,
    sized_memory_names=False,
    vector_cache_line=64,
    vector_store_line=64,
    thread_trace_prefix=4,
    lds_reads_128_mixed=True,
    waits=waits.WAITS,
    hazard_rows=hazards.ROWS,
    operand_anchors=operands.ANCHORS,
)

_GENERIC = "gfx9-generic"
PROCESSORS = (
    Target(parent=GFX9, name="gfx900", mach=0x2C, generic=_GENERIC, device_id=0x687F),
    Target(parent=GFX9, name="gfx902", mach=0x2D, generic=_GENERIC, device_id=0x15DD),
    Target(parent=GFX9, name="gfx904", mach=0x2E, generic=_GENERIC, device_id=0x69AF),
    Target(parent=GFX9, name="gfx906", mach=0x2F, generic=_GENERIC, supports_sramecc=True, device_id=0x66A1),
    Target(parent=GFX9, name="gfx909", mach=0x31, generic=_GENERIC, device_id=0x15D8),
    Target(parent=GFX9, name="gfx90c", mach=0x32, generic=_GENERIC, device_id=0x1636),
    Target(parent=GFX9, name=_GENERIC, mach=0x51, generic_version=(9, 0, 0)),
)
