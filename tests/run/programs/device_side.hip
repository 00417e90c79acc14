// Kernels and variables that `luthier.open_device("hip:0")` loads.
#include <hip/hip_runtime.h>
#include <hip/hip_cooperative_groups.h>

extern "C" {
__device__ unsigned long long total = 5;
__device__ int table[4] = {1, 2, 3, 4};

__global__ void scale(const int *in, int *out, int factor, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    out[i] = in[i] * factor + table[i & 3];
    atomicAdd(&total, 1ull);
  }
}

__global__ void reverse(int *data) {
  extern __shared__ int room[];
  room[threadIdx.x] = data[threadIdx.x];
  __syncthreads();
  data[threadIdx.x] = room[blockDim.x - 1 - threadIdx.x];
}

__global__ void meet(unsigned *arrived, unsigned *seen) {
  if (threadIdx.x == 0)
    atomicAdd(arrived, 1u);
  cooperative_groups::this_grid().sync();
  if (threadIdx.x == 0)
    seen[blockIdx.x] = *arrived;
}
}
