#include "common.h"

MARK_LUTHIER_DEVICE_MODULE

__managed__ uint64_t counter = 0;

LUTHIER_HOOK_ANNOTATE count() { luthier::sAtomicAdd<uint64_t>(&counter, STEP); }
