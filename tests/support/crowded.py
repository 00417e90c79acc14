"""A kernel in which any number of registers is live."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from luthier.isa.targets import target_named
from luthier.objects import CodeObject, load_object
from luthier.objects.editor import ObjectEditor
from luthier.verify.launch_plan import LaunchPlan
from msgspec.structs import replace

LANES = 160
"""Lanes of one work-group: not whole waves."""


def crowded(
    target: str, vectors: int, scalars: int, private: str = "", *, first: int = 20, matrices: int = 0, m0: bool = False
) -> str:
    """Return a kernel in which these numbers of vector and scalar registers are live throughout.

    Args:
        private: statements in front of that.
        first: first of the SGPRs.
        matrices: AGPRs, of targets with as many of these as of VGPRs, and work-groups of 256 lanes then.
        m0: whether M0 is live as well.
    """
    add = "v_add_u32_e32" if target.startswith("gfx9") else "v_add_nc_u32_e32"
    wide, narrow = range(3, vectors), range(first, scalars)
    text = [*(f"v_mov_b32_e32 v{n}, {n}" for n in wide), *(f"s_movk_i32 s{n}, {n}" for n in narrow)]
    text += ["s_mov_b32 m0, 0x5a5a5"] if m0 else []
    text += ["s_nop 1", "v_cmp_gt_u32_e32 vcc, 100, %0", "s_cmp_lg_u32 s21, 21"]
    text += [*(f"{add} %0, v{n}, %0" for n in wide), *(f"{add} %0, s{n}, %0" for n in narrow)]
    # What is overwritten was read by a vector instruction, and LLVM looks into no assembly
    # (`luthier.arch.hazards`).
    settled = ["s_wait_alu depctr_sa_sdst(0)"] if target.startswith("gfx120") else []
    text += ["s_cselect_b32 s20, 1, 3", *settled, f"{add} %0, s20, %0"]
    text += ["s_mov_b32 s20, m0", *settled, f"{add} %0, s20, %0"] if m0 else []
    text = [f"v_accvgpr_write_b32 a{n}, %0" for n in range(matrices)] + text
    text += [line for n in range(matrices) for line in (f"v_accvgpr_read_b32 v3, a{n}", f"{add} %0, v3, %0")]
    code = "\\n".join(text).replace("vcc", "vcc_lo") if not target.startswith("gfx9") else "\\n".join(text)
    names = [
        *(f"v{n}" for n in wide),
        *(f"s{n}" for n in sorted({20, 21, *narrow})),
        *(f"a{n}" for n in range(matrices)),
        "vcc",
        "m0",
    ]
    clobbered = ", ".join(f'"{name}"' for name in names)
    lanes = 256 if matrices else 1024
    return f"""
#include <hip/hip_runtime.h>
extern "C" __global__ __launch_bounds__({lanes}) void crowded(unsigned *out) {{
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x, v = i;
  {private}
  if (i % 3) asm volatile("{code}" : "+v"(v) :: {clobbered});
  out[i] = v;
}}
"""


PRIVATE = "volatile unsigned own[5]; for (unsigned k = 0; k < 5; ++k) own[k] = i + k; v += own[i % 5];"

FULL_LDS = """__shared__ unsigned full[16384]; full[threadIdx.x * 97] = i; __syncthreads();
  v += full[(threadIdx.x ^ 1) * 97];"""


WIDE = """
__device__ uint64_t lanes = 0, noise = 0;

/// Many vector registers.
LUTHIER_HOOK_ANNOTATE wide(uint32_t site, uint32_t register_) {
  uint32_t part[28], sum = 0;
  for (uint32_t i = 0; i < 28; ++i) part[i] = register_ * (i + site) ^ (register_ >> i);
  for (uint32_t i = 0; i < 28; ++i) sum = sum * 3 + part[(i * 5) % 28] * part[(i * 11) % 28];
  atomicAdd(reinterpret_cast<unsigned long long *>(&noise), static_cast<unsigned long long>(sum));
  atomicAdd(reinterpret_cast<unsigned long long *>(&lanes), 1ull);
}
"""
"""A hook that counts lanes."""

PLAN = LaunchPlan("crowded", (3, 1, 1), (LANES, 1, 1), ({"buffer": "uint32", "count": 3 * LANES, "fill": "zero"},))

LDS = {
    "none": "",
    "static": "__shared__ unsigned tile[300]; tile[threadIdx.x] = i; __syncthreads(); v += tile[threadIdx.x ^ 1];",
    "dynamic": "extern __shared__ unsigned tile[]; tile[threadIdx.x] = i; __syncthreads(); v += tile[threadIdx.x ^ 1];",
    "full": FULL_LDS,
}


def without_frames(object: CodeObject) -> CodeObject:
    """Return the object, its kernel marked as needing private memory of a size known only when it runs."""
    editor = ObjectEditor(object)
    kernel = object.kernels["crowded"]
    editor.write(kernel.descriptor_address, replace(kernel.descriptor, uses_dynamic_stack=1).encode())
    return load_object(editor.finish())


def full(
    compile_object: Callable[..., Path],
    target: str,
    lds: str = "none",
    lanes: int = 256,
    *,
    m0: bool = False,
    uneven: bool = False,
    flags: Sequence[str] = (),
) -> CodeObject:
    """Return a kernel in which every VGPR and AGPR that its work-groups can have is live, and most SGPRs.

    Its frames are refused (`without_frames`).

    Args:
        lds: one of `LDS`.
        lanes: those of its largest work-group.
        uneven: it takes the sizes of its work-groups and of its grid, in work-items, as further arguments, and its
            grid may end with smaller work-groups.
        flags: those for the compiler.
    """
    family = target_named(target)
    matrices = 256 if family.has_agprs else 0
    vectors = min(256, family.vgpr_file_size(family.default_wave_size) * 4 * family.default_wave_size // lanes)
    if family.unified_vgprs and lanes > 256:
        matrices, vectors = 0, min(256, vectors)
    source = crowded(target, vectors, 98, LDS[lds], matrices=matrices, m0=m0)
    source = re.sub(r"bounds__\(\d+\)", f"bounds__({lanes})", source)
    # Every lane of every wave holds something else.
    add = "v_add_u32_e32" if target.startswith("gfx9") else "v_add_nc_u32_e32"
    source = re.sub(r"v_mov_b32_e32 (v\d+), (\d+)", rf"{add} \1, \2, %0", source)
    if uneven:
        x, y, z = (f"(blockIdx.{axis} * b{axis} + threadIdx.{axis})" for axis in "xyz")
        sizes = ", ".join(f"unsigned {what}{axis}" for what in "bg" for axis in "xyz")
        source = source.replace("unsigned *out", f"unsigned *out, {sizes}")
        source = source.replace("blockIdx.x * blockDim.x + threadIdx.x", f"{x} + gx * ({y} + gy * {z})")
    else:
        source = source.replace("blockIdx.x * blockDim.x", f"blockIdx.x * {LANES}").replace("threadIdx.x", "ITEM")
        item = "(threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z))"
        source = f"#define ITEM {item}\n{source}"
    return without_frames(load_object(compile_object(source, target, *flags)))
