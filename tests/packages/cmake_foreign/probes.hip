#include "step.h"
#include <hip/hip_runtime.h>
#include <luthier/luthier.h>

MARK_LUTHIER_DEVICE_MODULE

__managed__ uint64_t stores = 0;

LUTHIER_HOOK_ANNOTATE count() { luthier::sAtomicAdd<uint64_t>(&stores, STEP); }
