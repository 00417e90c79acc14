// The kernel of raw.cpp.
#include <hip/hip_runtime.h>

extern "C" __global__ void mark(int *out, int *count, int nx, int ny, int gx, int gy, int gz) {
  const int x = blockIdx.x * gx + threadIdx.x, y = blockIdx.y * gy + threadIdx.y, z = blockIdx.z * gz + threadIdx.z;
  atomicAdd(&out[(z * ny + y) * nx + x], 1);
  atomicAdd(count, 1);
}
