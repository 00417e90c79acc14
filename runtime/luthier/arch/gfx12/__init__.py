"""GFX12: RDNA 4."""

from __future__ import annotations

from luthier.arch.generation import Generation, LaunchTtmps, VgprFile
from luthier.arch.gfx11 import GFX11
from luthier.arch.gfx12 import hazards, operands, waits
from luthier.arch.target import Target

LAUNCH_TTMPS = LaunchTtmps(workgroup_id_x=9, workgroup_id_yz=7, wave_id=8, wave_id_shift=25)

GFX12 = Generation(
    parent=GFX11,
    generation="GFX12",
    thread_trace_version=4,
    major=12,
    emulated_major=12,
    opcode_suffixes=("gfx12",),
    widest="gfx1200",
    # Halves of registers in 16-bit instructions, as on GFX11. Without it, LLVM decodes whole registers, or fails.
    decoder_features=("+real-true16",),
    vgpr_file=VgprFile(768, 4, 12),
    launch_ttmps=LAUNCH_TTMPS,
    scratch_per_wave=256 * 0x3FFFF,
    cycle_counter_bits=64,
    ieee_mode=False,
    buffer_stride_scale=True,
    returning_atomic="th:TH_ATOMIC_RETURN",
    wait_for_loads="s_wait_loadcnt 0x0",
    wait_for_every_load=(
        "s_wait_loadcnt_dscnt 0x0",
        "s_wait_samplecnt 0x0",
        "s_wait_bvhcnt 0x0",
        "s_wait_kmcnt 0x0",
    ),
    wait_for_lds="s_wait_dscnt 0x0",
    wait_for_everything=(
        *("s_wait_loadcnt 0x0", "s_wait_storecnt 0x0", "s_wait_dscnt 0x0", "s_wait_kmcnt 0x0"),
        *("s_wait_samplecnt 0x0", "s_wait_bvhcnt 0x0", "s_wait_expcnt 0x0"),
    ),
    device_scope="scope:SCOPE_DEV",
    fine_grained_scope="agent",
    release_fence=("s_wait_storecnt 0x0",),
    acquire_fence=("global_inv scope:SCOPE_DEV",),
    adds_64_bits=True,
    getpc_clears_high=True,
    scalar_wait="s_wait_alu depctr_sa_sdst(0)",
    lane_mask_wait="s_wait_alu 0x0",
    waits=waits.WAITS,
    hazard_rows=hazards.ROWS,
    operand_anchors=operands.ANCHORS,
)

_GENERIC = "gfx12-generic"
PROCESSORS = (
    Target(parent=GFX12, name="gfx1200", mach=0x48, generic=_GENERIC, device_id=0x7590),
    Target(parent=GFX12, name="gfx1201", mach=0x4E, generic=_GENERIC, device_id=0x7550),
    Target(parent=GFX12, name=_GENERIC, mach=0x59, generic_version=(12, 0, 0)),
)
