typedef _Float16 Half4 __attribute__((ext_vector_type(4)));
typedef float Float4 __attribute__((ext_vector_type(4)));
__device__ Float4 sum;
LUTHIER_HOOK_ANNOTATE store(uint32_t value) { *(uint32_t *)&sum = value; }
LUTHIER_HOOK_ANNOTATE multiply(uint32_t value) {
  Half4 some = {_Float16(value), 1, 2, 3};
  Float4 result = __builtin_amdgcn_mfma_f32_16x16x16f16(some, some, sum, 0, 0, 0);
  sum = __builtin_amdgcn_mfma_f32_16x16x16f16(some, some, Float4{result.y, result.x, result.w, result.z}, 0, 0, 0);
}
