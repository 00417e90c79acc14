// Launches what it is told, in that order: KERNEL:WORK-GROUPS:WORK-ITEMS:DEVICE each.
#include "check.h"

#include <cstdio>

__global__ void first(int *values) { values[threadIdx.x] += 1; }
__global__ void second(int *values) { values[threadIdx.x] += 2; }
template <typename T> __global__ void third(T *values) { values[threadIdx.x] += 3; }

int main(int count, char **arguments) {
  int devices = 0;
  HIP(hipGetDeviceCount(&devices));
  std::vector<int *> values(devices);
  for (int device = 0; device < devices; ++device) {
    HIP(hipSetDevice(device));
    values[device] = on_device(std::vector<int>(256));
  }
  for (int i = 1; i < count; ++i) {
    int kernel, groups, items, device;
    EXPECT(std::sscanf(arguments[i], "%d:%d:%d:%d", &kernel, &groups, &items, &device) == 4);
    HIP(hipSetDevice(device));
    if (kernel == 0)
      first<<<groups, items>>>(values[device]);
    else if (kernel == 1)
      second<<<groups, items>>>(values[device]);
    else
      third<<<groups, items>>>(values[device]);
    HIP(hipDeviceSynchronize());
  }
  std::puts("sequence");
}
