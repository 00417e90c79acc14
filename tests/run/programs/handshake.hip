// Two kernels of different queues: the first ends when the second has run.
#include "check.h"

__global__ void wait_for(int *flag, int *out, int *started) {
  __hip_atomic_store(started, 1, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_SYSTEM);
  while (atomicAdd(flag, 0) == 0)
    __builtin_amdgcn_s_sleep(1);
  *out = 7;
}

__global__ void release(int *flag) { atomicExch(flag, 1); }

__global__ void twice(int *value) { *value *= 2; }

int main() {
  hipStream_t first, second;
  HIP(hipStreamCreate(&first));
  HIP(hipStreamCreate(&second));
  int *flag = on_device(std::vector<int>{0}), *out = on_device(std::vector<int>{0});
  HIP(hipDeviceSynchronize());
  int *started;
  HIP(hipHostMalloc(&started, sizeof(int)));
  *started = 0;
  wait_for<<<1, 1, 0, first>>>(flag, out, started);
  while (!__atomic_load_n(started, __ATOMIC_ACQUIRE))
    ;
  release<<<1, 1, 0, second>>>(flag);
  HIP(hipDeviceSynchronize());
  twice<<<1, 1, 0, first>>>(out);
  EXPECT(on_host(out, 1)[0] == 14);
  std::puts("released");
}
