"""Which instructions mean on GFX1250 what they mean on GFX12; the others are refused by name.

The operations are those of GFX12. There is no ISA document: what is different is taken from LLVM 22 (AMDGPU.td,
FeatureISAVersion12_50; GCNSubtarget.h; AMDGPUCachePolicyBits.h). What is in doubt is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from luthier.isa import Opcode

_SAME = frozenset(
    [
        "v_mul_lo_u32",
        "v_mul_hi_u32",
        "v_mul_hi_i32",
        "v_lshrrev_b64",
        "v_ashrrev_i64",
        "v_fma_f64",
        "v_ldexp_f64",
        "v_div_scale_f64",
        "v_div_fmas_f64",
        "v_div_fixup_f64",
        "v_mov_b64",
        "v_add_nc_u64",
        "v_sub_nc_u64",
        "v_mad_nc_u64_u32",
        "s_get_pc_i64",
        "s_set_pc_i64",
        "s_swap_pc_i64",
        "s_call_i64",
        "s_wait_xcnt",
        "s_set_vgpr_msb",
    ]
)
"""Operations that are known, with opcodes of GFX1250's own: of GFX12 with another set of operands, of older ones, or
under new names."""

_BUFFER = "its buffer descriptors have another format than those of GFX12, which is not known here"
_SMALL = "whether its numbers of 8 bits are clamped as on GFX12 is not known here"
_PACKED = "which halves of SGPRs it reads is not known here"
_NEW_FORM = "GFX12 has no such instruction or form of it"
_DIFFERENT = (
    (re.compile(r"s?_?buffer_"), _BUFFER),
    (re.compile(r"tbuffer_"), _BUFFER),
    (re.compile(r".*_(fp8|bf8)(_|$)"), _SMALL),
    (re.compile(r"v_pk_(add|mul|fma)_f32"), _PACKED),
    (re.compile(r"v_w?s?w?mmac?_"), "its matrix instructions are not GFX12's"),
    (
        re.compile(r"(flat|global|scratch|ds)_(load|read)\w*_d16"),
        "what it writes to the other 16 bits is not known here",
    ),
    (re.compile(r"ds_\w*_f64$"), _NEW_FORM),
    (re.compile(r"v_fmac_f64$"), _NEW_FORM),
    (re.compile(r"v_movrel|(global|scratch)_(load|store)_block$"), "how it counts VGPRs beyond v255 is not known here"),
    (re.compile(r"s_(barrier_init|barrier_join|barrier_leave|get_barrier_state|alloc_vgpr)$"), _NEW_FORM),
    (re.compile(r"s_sendmsg"), "its messages are not all GFX12's"),
)

_NOT_CLAMPED = ("v_add_nc_u64", "v_sub_nc_u64", "v_mad_nc_u64_u32")
_WITH_NUMBER = ("s_set_vgpr_msb", "s_barrier_wait", "s_getreg", "s_setreg")
_SCALE_OFFSET = 1 << 11
_CACHE_POLICY = 0x3F
"""TH, SCOPE and NV: hints, as the emulated memory is coherent."""
_BARRIERS = (-1, -2)
"""The work-group's, and the trap handler's, at which nobody waits."""
_MODE, _SCHEDULING = 1, 26
_SAME_MODE = 0xFF
"""Bits of MODE: rounding and denormals."""
_REPLAY_MODE = 1 << 25
"""LLVM's Hwreg::REPLAY_MODE: what is done anew after a page fault. There are none here."""


def refused_opcode(opcode: Opcode, name: str) -> str | None:
    """Why an opcode is refused, None if it means what the operation `name` of GFX12 does."""
    for pattern, why in _DIFFERENT:
        if pattern.match(name):
            return f"{name} of GFX1250: {why}"
    known = name in _SAME or opcode.name.startswith("V_DUAL_")
    if "gfx1250" in opcode.name and (not known or "_e96_" in opcode.name or "_dpp" in opcode.name):
        return f"{name} of GFX1250: {_NEW_FORM}"
    if name.startswith("flat_") and "_SADDR_" in opcode.name:
        return f"{name} of GFX1250 with an address in SGPRs: {_NEW_FORM}"
    return None


def checked_operands(name: str) -> tuple[str, ...]:
    """Operands of an operation that `refused_operands` looks at, by LLVM's names, where it has them as immediates."""
    if name in _NOT_CLAMPED:
        return ("clamp",)
    if name.startswith("s_barrier_signal"):
        return ("src0",)
    return ("cpol", "simm16") if name.startswith(_WITH_NUMBER) else ("cpol",)


def refused_operands(name: str, values: Mapping[str, int]) -> str | None:
    """Why an instruction is refused for the values of its immediate operands, by LLVM's names."""
    policy = values.get("cpol", 0)
    if policy & _SCALE_OFFSET:
        return f"{name} with scale_offset, which GFX12 does not have"
    if policy & ~_CACHE_POLICY:
        return f"{name} with the cache policy {policy:#x}, which GFX12 does not have"
    if name in _NOT_CLAMPED and values.get("clamp"):
        return f"{name} with clamp, which is not modelled"
    if name == "s_set_vgpr_msb" and values["simm16"] & 0xFF:
        return f"s_set_vgpr_msb {values['simm16'] & 0xFF:#x}: VGPRs beyond v255 are not modelled"
    if name.startswith("s_barrier_signal") and values.get("src0") not in _BARRIERS:
        return f"{name} {values.get('src0', 'm0')}: barriers of clusters and named barriers are not modelled"
    if name == "s_barrier_wait" and _signed(values["simm16"]) not in _BARRIERS:
        return f"s_barrier_wait {_signed(values['simm16'])}: barriers of clusters and named barriers are not modelled"
    if name.startswith(("s_getreg", "s_setreg")) and not _same_register(name, values["simm16"]):
        return f"{name} of hardware register {values['simm16'] & 63}: GFX1250's own fields are not modelled"
    return None


def is_replay_mode(name: str, values: Mapping[str, int]) -> bool:
    """Whether the instruction sets nothing but MODE.REPLAY_MODE, which matters after page faults only."""
    return name.startswith("s_setreg") and _hardware_field(values["simm16"]) == (_MODE, _REPLAY_MODE)


def _same_register(name: str, code: int) -> bool:
    register, mask = _hardware_field(code)
    if register == _MODE:
        return not mask & ~_SAME_MODE or (name.startswith("s_setreg") and mask == _REPLAY_MODE)
    return register == _SCHEDULING and name.startswith("s_setreg")


def _hardware_field(code: int) -> tuple[int, int]:
    """Register and mask of its bits that a hwreg immediate names."""
    return code & 63, (1 << (code >> 11 & 31) + 1) - 1 << (code >> 6 & 31) & 0xFFFFFFFF


def _signed(value: int) -> int:
    return (value & 0xFFFF) - ((value & 0x8000) << 1)
