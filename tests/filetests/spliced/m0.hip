extern "C" __device__ uint32_t writelane(uint32_t value, uint32_t lane, uint32_t) __asm("llvm.amdgcn.writelane.i32");
__device__ uint32_t seen[64];
/// The lane's number goes through M0 on GFX9.
LUTHIER_HOOK_ANNOTATE into_lane(uint32_t value, uint32_t lane) {
  seen[__builtin_amdgcn_mbcnt_lo(~0u, 0)] = writelane(value, lane, 0);
}
