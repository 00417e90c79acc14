// All devices: a kernel on each, copies from one to the next.
#include "check.h"

__global__ void add(int *values, int amount) { values[threadIdx.x] += amount; }

int main() {
  int count = 0;
  HIP(hipGetDeviceCount(&count));
  std::vector<int> expected(64);
  int *before = nullptr;
  for (int device = 0; device < count; ++device) {
    HIP(hipSetDevice(device));
    hipDeviceProp_t properties;
    HIP(hipGetDeviceProperties(&properties, device));
    int *values = on_device(std::vector<int>(64));
    if (before)
      HIP(hipMemcpyPeer(values, device, before, device - 1, 64 * sizeof(int)));
    add<<<1, 64>>>(values, 1 << device);
    HIP(hipDeviceSynchronize());
    for (int &value : expected)
      value += 1 << device;
    EXPECT(on_host(values, 64) == expected);
    before = values;
    std::printf("device %d: %s\n", device, properties.gcnArchName);
  }
}
