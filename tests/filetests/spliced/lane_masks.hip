__device__ uint64_t sums[64];
LUTHIER_HOOK_ANNOTATE add(uint32_t value) {
  uint32_t lane = __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0));
  uint64_t sum = sums[lane];
  sums[lane] = sum * 3 + (uint64_t{value} << 20) + (sum > value ? lane : 7);
}
