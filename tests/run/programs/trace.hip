// Stores that tests trace: `trace ITEMS ROUNDS LAUNCHES [forever]`, on every device.
#include "check.h"

#include <cstdint>
#include <cstdlib>

// Work-item i stores i * 3 + round in two rounds of three.
__global__ void stores(uint32_t *out, uint32_t n, uint32_t rounds, uint32_t keep_on) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n)
    return;
#pragma unroll 1
  do {
#pragma unroll 1
    for (uint32_t round = 0; round < rounds; ++round)
      if ((i + round) % 3)
        out[round * n + i] = i * 3 + round;
  } while (keep_on);
}

int main(int argc, char **argv) {
  const uint32_t n = std::atoi(argv[1]), rounds = std::atoi(argv[2]), launches = std::atoi(argv[3]);
  int devices = 0;
  HIP(hipGetDeviceCount(&devices));
  for (int device = 0; device < devices; ++device) {
    HIP(hipSetDevice(device));
    uint32_t *out = on_device(std::vector<uint32_t>(size_t(n) * rounds));
    if (argc > 4) {
      std::puts("ready");
      std::fflush(stdout);
    }
    for (uint32_t launch = 0; launch < launches; ++launch)
      stores<<<(n + 255) / 256, 256>>>(out, n, rounds, argc > 4);
    HIP(hipDeviceSynchronize());
    const auto host = on_host(out, size_t(n) * rounds);
    for (uint32_t round = 0; round < rounds; ++round)
      for (uint32_t i = 0; i < n; ++i)
        EXPECT(host[round * n + i] == ((i + round) % 3 ? i * 3 + round : 0));
  }
  std::puts("traced");
}
