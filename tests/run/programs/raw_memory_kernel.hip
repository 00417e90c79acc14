#include <hip/hip_runtime.h>

extern "C" __global__ void mark(int *data, long at) { data[at + threadIdx.x] = 7; }
