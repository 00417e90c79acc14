__device__ uint64_t ran;
__device__ uint32_t seen[1000];
__device__ uint32_t sum;
__device__ float last;
LUTHIER_HOOK_ANNOTATE store(uint32_t value) { seen[__builtin_amdgcn_mbcnt_lo(~0u, 0)] = value; }
LUTHIER_HOOK_ANNOTATE chosen(uint32_t value) { seen[value & 63] = value == sum ? value : 2 * value; }
LUTHIER_HOOK_ANNOTATE first(uint32_t value) { luthier::sAtomicAdd<uint32_t>(&sum, value); }
LUTHIER_HOOK_ANNOTATE every(uint32_t value) { if (value > 3) atomicAdd(&sum, value); }
LUTHIER_HOOK_ANNOTATE wide(uint32_t value) {
  uint32_t many[24];
  for (int k = 0; k < 24; ++k) many[k] = seen[(value + k) & 63];
  uint32_t total = 0;
  for (int k = 0; k < 24; ++k) total = total * 3 + many[k] * many[(k * 5) % 24];
  seen[0] = total;
}
LUTHIER_HOOK_ANNOTATE both(uint32_t value) {
  atomicAdd((unsigned long long *)&ran, 1ull);
  seen[value % 1000] = value;
}
LUTHIER_HOOK_ANNOTATE large(uint32_t value) {
  atomicAdd((unsigned long long *)&ran, 1ull);
  uint32_t x = value % 1000;
#pragma unroll
  for (uint32_t bit = 0; bit < 24; ++bit) x = (x ^ x >> 7) * 2654435761u + bit;
  seen[x % 1000] = value;
}
LUTHIER_HOOK_ANNOTATE turned(float value) {
  luthier::writeReg(luthier::vgpr(2), __builtin_bit_cast(uint32_t, __builtin_amdgcn_rcpf(value)));
}
LUTHIER_HOOK_ANNOTATE kept(float value) { last = __builtin_amdgcn_rsqf(value); }
