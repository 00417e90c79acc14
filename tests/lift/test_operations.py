"""Classes of instructions and their floating-point operations."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from luthier.lifting import lift
from luthier.objects import CodeObject

CODE = {
    "gfx942": {
        "v_mov_b32_e32 v0, v1": ("vector ALU", False, 0),
        "v_add_f32_e32 v0, v1, v2": ("vector ALU", True, 1),
        "v_pk_fma_f32 v[0:1], v[2:3], v[4:5], v[6:7]": ("vector ALU", True, 4),
        "v_add_u32_e32 v0, v1, v2": ("vector ALU", False, 0),
        "v_max_f64 v[0:1], v[2:3], v[4:5]": ("vector ALU", True, 0),
        "v_cvt_u32_f32_e32 v0, v1": ("vector ALU", True, 0),
        "v_cmp_lt_f16_e32 vcc, v0, v1": ("vector ALU", True, 0),
        "v_cndmask_b32_e32 v0, v1, v2, vcc": ("vector ALU", False, 0),
        "v_cvt_pk_fp8_f32 v0, v1, v2": ("vector ALU", True, 0),
        "v_dot4_i32_i8 v0, v1, v2, v3": ("vector ALU", False, 0),
        "v_mfma_f32_32x32x8_f16 v[0:15], v[16:17], v[18:19], v[0:15]": ("matrix", True, 2 * 32 * 32 * 8),
        "v_mfma_f32_16x16x32_fp8_bf8 v[0:3], v[4:5], v[6:7], v[0:3]": ("matrix", True, 2 * 16 * 16 * 32),
        "v_mfma_i32_32x32x16_i8 v[0:15], v[16:17], v[18:19], v[0:15]": ("matrix", False, 2 * 32 * 32 * 16),
        "global_load_dword v0, v[2:3], off": ("vector memory", False, 0),
        "global_atomic_pk_add_bf16 v[2:3], v4, off": ("vector memory", True, 0),
        "ds_add_f32 v0, v1": ("LDS", True, 0),
        "s_load_dword s0, s[2:3], 0x0": ("scalar memory", False, 0),
        "s_add_u32 s0, s1, s2": ("scalar ALU", False, 0),
        "s_waitcnt 0": ("wait", False, 0),
        "s_cbranch_scc0 .": ("branch", False, 0),
    },
    "gfx1201": {
        "v_dual_mul_f32 v0, v1, v2 :: v_dual_mov_b32 v5, v6": ("vector ALU", True, 1),
        "v_dual_mov_b32 v0, v1 :: v_dual_max_num_f32 v5, v6, v3": ("vector ALU", True, 0),
        "v_dual_mov_b32 v0, v1 :: v_dual_mov_b32 v5, v6": ("vector ALU", False, 0),
        "v_wmma_f32_16x16x16_bf16 v[0:7], v[8:11], v[12:15], v[0:7]": ("matrix", True, 2 * 16**3),
        "s_fmac_f32 s0, s1, s2": ("scalar ALU", True, 2),
        "s_cvt_f32_i32 s0, s1": ("scalar ALU", True, 0),
    },
}


@pytest.mark.parametrize("target", CODE)
def test_classes(target: str, assembled: Callable[..., CodeObject]) -> None:
    expected = CODE[target]
    lines = "\n".join([*expected, "s_endpgm"])
    instructions = lift(assembled(target, f"k:\n{lines}\n", vgprs=32), "k").instructions
    classes = {
        text: (one.operation_class, one.is_float, sum(each.count for each in one.operations))
        for text, one in zip(expected, instructions, strict=False)
    }
    assert classes == expected
