#include <hip/hip_runtime.h>
#include <luthier/luthier.h>

#include "include/step.h"

MARK_LUTHIER_DEVICE_MODULE

__device__ uint64_t counter;

LUTHIER_HOOK_ANNOTATE count() { luthier::sAtomicAdd<uint64_t>(&counter, STEP); }
