"""Reasons why some instructions have no operation."""

from __future__ import annotations

_TRAP = "it ends a trap handler, and the emulated device has none"
_HOST = "it marks the wave for commands from a debugger's host, which the emulated device does not have"
_GRAPHICS = "graphics: "
_NAMED = "it is for named barriers, which kernels of this target cannot allocate"
_WAKE = "it wakes waves at a barrier, and no source defines the effect"
_REASONS = {
    "s_rfe_b64 s_rfe_restore_b64 s_rfe_i64": _TRAP,
    "s_setkill": _HOST,
    "ds_ordered_count": f"{_GRAPHICS}ordered counts of the global data share",
    "ds_add_gs_reg_rtn ds_sub_gs_reg_rtn": f"{_GRAPHICS}registers of the geometry engine",
    "global_atomic_ordered_add_b64": f"{_GRAPHICS}ordered stream-out, which wraps at the geometry engine's last wave",
    "v_screen_partition_4se_b32": f"{_GRAPHICS}the shader engine for a part of the screen",
    "s_alloc_vgpr": "it is for waves in dynamic VGPR mode, which the emulated device does not have",
    "s_subvector_loop_begin s_subvector_loop_end": "loops over half waves, which recent documents do not describe",
    "v_mfma_ld_scale_b32": "it loads scales for the next matrix instruction, and is valid only in the pair "
    "v_mfma_scale",
    "v_wmma_ld_scale_paired_b32 v_wmma_ld_scale16_paired_b64": "it loads scales for the next matrix instruction, "
    "and is valid only in the pair v_wmma_scale",
    "s_barrier_init s_barrier_join s_barrier_leave s_get_barrier_state": _NAMED,
    "s_wakeup_barrier": _WAKE,
    "tensor_save tensor_stop": "they save the state of tensor copies, and no source defines its format",
    "ds_bvh_stack_rtn_b32 ds_bvh_stack_push4_pop1_rtn_b32 ds_bvh_stack_push8_pop1_rtn_b32 "
    "ds_bvh_stack_push8_pop2_rtn_b64": f"{_GRAPHICS}the ray tracing stack, whose address format is not documented",
}
REASONS = {name: reason for names, reason in _REASONS.items() for name in names.split()}
"""By mnemonic without encoding suffix. Other mnemonics are not implemented."""

_DECODER_ONLY = "only LLVM's decoder has this encoding; no document describes it"
FORMS = {("v_pk_fmac_f16", "_dpp"): _DECODER_ONLY, ("v_pk_fmac_f16", "_sdwa"): _DECODER_ONLY}
"""Refused encodings of declared operations: mnemonic and suffix, with the reason."""

WAVE32_ONLY = dict.fromkeys(
    ("global_load_tr_b128", "global_load_tr_b64"), "no source says how its elements are exchanged in wave64"
)
"""Operations that are refused in wave64, with the reason."""


def reason(name: str) -> str:
    """Return the reason why the operation `name` is refused."""
    return REASONS.get(name, f"no operation {name}")


def is_graphics(name: str) -> bool:
    """Return whether an operation belongs to graphics pipelines, like image instructions."""
    return REASONS.get(name, "").startswith(_GRAPHICS)
