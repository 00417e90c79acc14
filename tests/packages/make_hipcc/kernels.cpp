#include "kernels.h"

#include <hip/hip_runtime.h>
#if __has_include(<luthier/luthier.h>) // the plain build knows nothing of Luthier
#include <luthier/luthier.h>

MARK_LUTHIER_DEVICE_MODULE

__device__ uint64_t counter;

LUTHIER_HOOK_ANNOTATE count() { luthier::sAtomicAdd<uint64_t>(&counter, 1); }
#endif

__global__ void kernel(int *output) { output[threadIdx.x] = 1; }

void run() { kernel<<<1, 64>>>(nullptr); }
