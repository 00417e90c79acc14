"""GFX11: RDNA 3."""

from __future__ import annotations

from luthier.arch.generation import Generation, VgprFile
from luthier.arch.gfx11 import hazards, operands, waits
from luthier.arch.gfx103 import GFX10_3
from luthier.arch.target import Target

GFX11 = Generation(
    parent=GFX10_3,
    generation="GFX11",
    thread_trace_version=3,
    major=11,
    emulated_major=11,
    opcode_suffixes=("gfx11",),
    widest="gfx1100",
    s_branch=bytes.fromhex("0000a0bf"),
    dealloc_vgprs_message=3,
    cycle_counter_bits=20,
    architected_flat_scratch=True,
    packed_work_item_ids=True,
    scratch_per_wave=256 * 0x7FFF,
    buffer_swizzle=3 << 30,
    moves_twice=True,
    sized_memory_names=True,
    lane_mask_wait="s_waitcnt_depctr 0x0",
    waits=waits.WAITS,
    hazard_rows=hazards.ROWS,
    operand_anchors=operands.ANCHORS,
)

GENERIC = "gfx11-generic"
LARGE_FILE = VgprFile(768, 4, 12)
"""Register file of processors with LLVM's feature 1_5xVGPRs."""
PROCESSORS = (
    Target(parent=GFX11, name="gfx1100", mach=0x41, generic=GENERIC, vgpr_file=LARGE_FILE, device_id=0x744C),
    Target(parent=GFX11, name="gfx1101", mach=0x46, generic=GENERIC, vgpr_file=LARGE_FILE, device_id=0x747E),
    Target(parent=GFX11, name="gfx1102", mach=0x47, generic=GENERIC, device_id=0x7480),
    Target(parent=GFX11, name="gfx1103", mach=0x44, generic=GENERIC, device_id=0x15BF),
    Target(parent=GFX11, name=GENERIC, mach=0x54, generic_version=(11, 0, 3)),
)
