#include "common.h"

MARK_LUTHIER_DEVICE_MODULE

__device__ uint64_t slots[SLOTS];
__device__ uint32_t next_slot;
