__device__ uint64_t sum;
LUTHIER_HOOK_ANNOTATE add(uint32_t value) { luthier::sAtomicAdd<uint64_t>(&sum, value & 1); }
