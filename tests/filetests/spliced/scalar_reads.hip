__device__ uint32_t seen[64];
LUTHIER_HOOK_ANNOTATE see(uint32_t value) {
  uint32_t lane = __builtin_amdgcn_mbcnt_lo(~0u, 0);
  atomicAdd(&seen[lane], value ^ lane);
}
LUTHIER_HOOK_ANNOTATE change(uint32_t value) { luthier::writeReg<uint32_t>(luthier::SGPR6, value + 1); }
LUTHIER_HOOK_ANNOTATE count() { luthier::sAtomicAdd<uint32_t>(&seen[1], 3); }
