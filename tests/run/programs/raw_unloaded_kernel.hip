#include <hip/hip_runtime.h>

extern "C" __global__ void add_one(int *out) { *out += 1; }
