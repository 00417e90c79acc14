// Work-groups that wait for each other in a plain launch: as many as the device says that it holds, or as asked for; then
// the program kills itself some seconds after those have begun that the device holds.
#include "check.h"

#include <csignal>
#include <unistd.h>

__global__ void persistent(unsigned *arrived, int *values) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  values[i] = 1;
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    atomicAdd(arrived, 1u);
    while (__hip_atomic_load(arrived, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_AGENT) < gridDim.x) // waits here
      __builtin_amdgcn_s_sleep(2);
  }
  __syncthreads();
  atomicAdd(&values[(i + blockDim.x) % (gridDim.x * blockDim.x)], 1);
}

int main(int count, char **words) {
  int most = 0;
  hipDeviceProp_t device;
  HIP(hipGetDeviceProperties(&device, 0));
  HIP(hipOccupancyMaxActiveBlocksPerMultiprocessor(&most, persistent, 256, 0));
  const int groups = count > 1 ? std::atoi(words[1]) : most * device.multiProcessorCount;
  const std::vector<int> zeros(groups * 256);
  int *values = on_device(zeros);
  unsigned *arrived = nullptr;
  HIP(hipHostMalloc(&arrived, sizeof *arrived, 0));
  *arrived = 0;
  persistent<<<groups, 256>>>(arrived, values);
  if (count > 1) {
    while (__atomic_load_n(arrived, __ATOMIC_RELAXED) < unsigned(most * device.multiProcessorCount))
      usleep(1000);
    sleep(3);
    std::raise(SIGKILL);
  }
  HIP(hipDeviceSynchronize());
  EXPECT(most * device.multiProcessorCount > 8);
  EXPECT(on_host(values, zeros.size()) == std::vector<int>(zeros.size(), 2));
  std::puts("persistent");
}
