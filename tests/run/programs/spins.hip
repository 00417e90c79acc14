// Work-groups that wait for each other twice, and say how often they have looked: all else they execute as often in
// every run.
#include "check.h"

#include <numeric>

__device__ unsigned wait_for(unsigned *arrived, unsigned all) {
  unsigned looked = 0;
  __threadfence();
  atomicAdd(arrived, 1u);
  do {
    __builtin_amdgcn_s_sleep(2);
    ++looked;
  } while (__hip_atomic_load(arrived, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT) < all);
  return looked;
}

__global__ void spins(unsigned *arrived, unsigned *looked) {
  unsigned sum = 0;
  for (unsigned turn = 1; turn <= 2; ++turn) {
    __syncthreads();
    if (threadIdx.x == 0)
      sum += wait_for(arrived, turn * gridDim.x);
    __syncthreads();
  }
  if (threadIdx.x == 0)
    looked[blockIdx.x] = sum;
}

int main() {
  const unsigned groups = 24;
  unsigned *arrived = on_device(std::vector<unsigned>(1)), *looked = on_device(std::vector<unsigned>(groups));
  spins<<<groups, 256>>>(arrived, looked);
  HIP(hipDeviceSynchronize());
  const auto each = on_host(looked, groups);
  std::printf("%u\n", std::accumulate(each.begin(), each.end(), 0u));
}
