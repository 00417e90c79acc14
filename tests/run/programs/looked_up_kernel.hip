#include <hip/hip_runtime.h>

extern "C" __global__ void writes(int *out, int count) {
  const int item = threadIdx.x;
  if (item < count)
    out[item] = item;
}
