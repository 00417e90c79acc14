"""GFX10.1: RDNA."""

from __future__ import annotations

from luthier.arch import dpp
from luthier.arch.amdgcn import AMDGCN
from luthier.arch.generation import Generation, VgprFile
from luthier.arch.gfx10 import hazards, operands, waits
from luthier.arch.target import Target

GFX10 = Generation(
    parent=AMDGCN,
    generation="GFX10",
    thread_trace_version=2,
    major=10,
    emulated_major=10,
    opcode_suffixes=("vi", "gfx10"),
    widest="gfx1030",
    offset_3f_bug=True,
    wave_sizes=(32, 64),
    waves_per_simd=20,
    vgpr_file=VgprFile(512, 4, 4),
    lds_by_lane=False,
    supports_xnack=True,
    dpp_controls=dpp.EVERYWHERE | dpp.ROW_SHARE | dpp.ROW_XMASK,
    sized_memory_names=False,
    waits_free_sgprs=True,
    # vm_vsrc and sa_sdst; a scalar instruction after scalar loads; stores, for branches between LDS and memory (LLVM,
    # GCNHazardRecognizer: VMEMtoScalarWrite, VcmpxExecWAR, SMEMtoVectorWrite, LdsBranchVmemWAR).
    inserted_waits=("s_waitcnt_depctr 0xffe2", "s_mov_b32 null, 0", "s_waitcnt_vscnt null, 0x0"),
    wait_for_everything=("s_waitcnt 0", "s_waitcnt_vscnt null, 0x0"),
    release_fence=("s_waitcnt_vscnt null, 0x0",),
    acquire_fence=("buffer_gl1_inv", "buffer_gl0_inv"),
    waits=waits.WAITS,
    hazard_rows=hazards.ROWS,
    operand_anchors=operands.ANCHORS,
)

_GENERIC = "gfx10-1-generic"
PROCESSORS = (
    Target(parent=GFX10, name="gfx1010", mach=0x33, generic=_GENERIC, device_id=0x731F),
    Target(parent=GFX10, name="gfx1011", mach=0x34, generic=_GENERIC, device_id=0x7360),
    Target(parent=GFX10, name="gfx1012", mach=0x35, generic=_GENERIC, device_id=0x7340),
    Target(parent=GFX10, name="gfx1013", mach=0x42, generic=_GENERIC, device_id=0x13FE),
    Target(parent=GFX10, name=_GENERIC, mach=0x52, generic_version=(10, 1, 0)),
)
