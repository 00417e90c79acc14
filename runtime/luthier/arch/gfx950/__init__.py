"""GFX950: CDNA 4."""

from __future__ import annotations

from luthier.arch.generation import Generation, Passes
from luthier.arch.gfx940 import GENERIC, GFX940
from luthier.arch.gfx950 import hazards, operands
from luthier.arch.target import Target

_PASSES = (
    # These take twice as many passes if a source has bytes.
    Passes(r"V_MFMA_(SCALE_)?F32_16X16X128_F8F6F4_(f8_|f4_f8|f6_f8)", 8),
    Passes(r"V_MFMA_(SCALE_)?F32_16X16X128_F8F6F4", 4),
    Passes(r"V_MFMA_(SCALE_)?F32_32X32X64_F8F6F4_(f8_|f4_f8|f6_f8)", 16),
    Passes(r"V_MFMA_(SCALE_)?F32_32X32X64_F8F6F4", 8),
    *GFX940.passes,
)

GFX950 = Generation(
    parent=GFX940,
    generation="GFX950",
    thread_trace_prefix=6,
    lds_bytes=160 << 10,
    lds_banks=64,  # writes keep 32: a thread trace of MI350 shows 2 cycles for ds_write_b32 and 4 for ds_read_b128
    lds_by_lane=False,
    passes=_PASSES,
    hazard_rows=hazards.ROWS,
    operand_anchors=operands.ANCHORS,
)

PROCESSORS = (Target(parent=GFX950, name="gfx950", mach=0x4F, generic=GENERIC, device_id=0x75A0),)
