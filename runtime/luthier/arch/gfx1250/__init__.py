"""GFX1250: GFX12 without images, with more registers, and with memory accesses that may restart."""

from __future__ import annotations

from luthier.arch.generation import Generation, Passes, VgprFile
from luthier.arch.gfx12 import GFX12, LAUNCH_TTMPS
from luthier.arch.gfx1250 import gates, hazards, operands, waits
from luthier.arch.target import Target

_PASSES = (
    Passes(r"V_WMMA_.*(16X16X64_(FP8|BF8)|F8F6F4_f4_f4)", 4),
    Passes(r"V_WMMA_.*(IU8|IU4)", 16),
    Passes(r"V_SWMMAC_.*(IU8|IU4)", 17),
    Passes("V_SWMMAC_", 9),
    Passes("V_WMMA_", 8),
)

GFX1250 = Generation(
    parent=GFX12,
    generation="GFX1250",
    thread_trace_version=5,
    opcode_suffixes=("gfx12", "gfx1250"),
    widest="gfx1250",
    emulated_major=125,
    decodes_all=False,
    wave_sizes=(32,),
    small_loads_clear=True,
    simds_per_cu=4,
    waves_per_simd=16,
    vgpr_file=VgprFile(512, 8, 8),
    addressable_vgprs=1024,
    tied_vector_alignment=2,
    launch_ttmps=LAUNCH_TTMPS._replace(cluster=6),
    kernarg_preload=True,
    preload_prologue=0,
    lds_bytes=320 << 10,
    lds_by_lane=False,
    signed_vector_offset=True,
    private_aperture=False,
    buffer_swizzle=None,
    fine_grained_scope="system",
    buffer_base_bits=57,
    wait_for_every_load=("s_wait_loadcnt_dscnt 0x0", "s_wait_kmcnt 0x0"),
    wait_for_everything=("s_wait_loadcnt 0x0", "s_wait_storecnt 0x0", "s_wait_dscnt 0x0", "s_wait_kmcnt 0x0"),
    release_fence=(),
    acquire_fence=(),
    getpc_clears_high=False,
    replay_wait="s_wait_xcnt 0x0",
    scalar_wait=None,
    waits=waits.WAITS,
    passes=_PASSES,
    hazard_rows=hazards.ROWS,
    operand_anchors=operands.ANCHORS,
    gates=gates.GATES,
)

PROCESSORS = (
    Target(parent=GFX1250, name="gfx1250", mach=0x49),
    Target(parent=GFX1250, name="gfx1251", mach=0x5A),
)
