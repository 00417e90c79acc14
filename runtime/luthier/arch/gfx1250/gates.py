"""Instructions that mean the same on GFX1250 as on GFX12.

There is no ISA document: differences are from LLVM 22 (AMDGPU.td, FeatureISAVersion12_50; GCNSubtarget.h;
AMDGPUCachePolicyBits.h). Doubtful instructions are refused.
"""

from __future__ import annotations

from luthier.arch.gates import Gates

_NEW_FORM = "GFX12 has no such instruction or form of it"
_DENSE_NAMES = (
    *("v_wmma_f32_16x16x32_f16", "v_wmma_f32_16x16x32_bf16", "v_wmma_f16_16x16x32_f16", "v_wmma_bf16_16x16x32_bf16"),
    *("v_wmma_i32_16x16x64_iu8", "v_wmma_f32_16x16x4_f32"),
    *(
        f"v_wmma_{result}_16x16x{steps}_{left}_{right}"
        for result in ("f32", "f16")
        for steps in (64, 128)
        for left in ("fp8", "bf8")
        for right in ("fp8", "bf8")
    ),
)
"""Dense matrix products whose A and B have the same number of bits."""
_DENSE = "|".join(name.removeprefix("v_wmma_") for name in _DENSE_NAMES)
_DIFFERENT = {
    rf"v_(swmmac|wmma_(?!{_DENSE}$|.*f8f6f4|.*_f4$))": "its matrix instructions are not GFX12's",
    r"s_alloc_vgpr$": _NEW_FORM,
}
_SMALL_FLOATS = tuple(
    f"v_cvt_{form}"
    for kind in ("fp8", "bf8")
    for form in (f"f32_{kind}", f"pk_f32_{kind}", f"pk_{kind}_f32", f"sr_{kind}_f32")
)
_CLAMP_SELECTS = tuple(f"v_cvt_{form}_fp8_{source}" for form in ("pk", "sr") for source in ("f32", "f16"))
"""The clamp bit of these selects fp8 with 5 bits of exponent (LLVM, FeatureFP8E5M3Insts; rocjitsu, gen_cvt_fp8)."""
_SAME = frozenset(
    [
        *_DENSE_NAMES,
        *_SMALL_FLOATS,
        "v_ashr_pk_i8_i32",
        "v_ashr_pk_u8_i32",
        "v_cvt_f32_bf16",
        "v_cvt_pk_bf16_f32",
        "v_cvt_pk_f16_f32",
        "v_pk_maximum3_f16",
        "v_pk_minimum3_f16",
        "v_pk_min3_num_f16",
        "v_pk_max3_num_f16",
        "v_prng_b32",
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
        "v_mad_nc_i64_i32",
        "v_mad_u32",
        "v_mul_u64",
        "v_min_i64",
        "v_min_u64",
        "v_max_i64",
        "v_max_u64",
        "v_lshl_add_u64",
        "v_fmac_f64",
        "v_fmaak_f64",
        "v_fmamk_f64",
        "v_bitop3_b16",
        "v_bitop3_b32",
        "flat_atomic_add_f64",
        "flat_atomic_min_num_f64",
        "flat_atomic_max_num_f64",
        "global_atomic_add_f64",
        "global_atomic_min_num_f64",
        "global_atomic_max_num_f64",
        "s_get_pc_i64",
        "s_set_pc_i64",
        "s_swap_pc_i64",
        "s_call_i64",
        "s_wait_xcnt",
        "s_set_vgpr_msb",
        *("s_wait_asynccnt", "s_wait_tensorcnt", "s_setprio_inc_wg", "s_monitor_sleep", "s_get_shader_cycles_u64"),
        *("s_add_pc_i64", "flat_prefetch_b8", "global_prefetch_b8"),
    ]
)

GATES = Gates(
    name="GFX1250",
    base="GFX12",
    own_opcodes="gfx1250",
    same=_SAME,
    different=_DIFFERENT,
    not_clamped=(
        *("v_add_nc_u64", "v_sub_nc_u64", "v_mad_nc_u64_u32", "v_mad_nc_i64_i32", "v_mad_u32"),
        *_CLAMP_SELECTS,
        *("v_cvt_sr_pk_f16_f32", "v_cvt_sr_pk_bf16_f32", "v_fma_mixlo_bf16", "v_fma_mixhi_bf16"),
        *(f"v_pk_{name}_bf16" for name in ("add", "mul", "fma", "min_num", "max_num")),
        *(
            f"v_{form}add_{choice}_{kind}{bits}"
            for form, bits in (("", 32), ("pk_", 16))
            for choice in ("min", "max")
            for kind in "iu"
        ),
        *(f"v_pk_{choice}3_{kind}16" for choice in ("min", "max") for kind in "iu"),
    ),
)
