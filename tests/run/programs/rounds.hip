// A kernel that goes round and round: launches that are long enough for its code to become hot while they run.
#include "check.h"

#include <cstdint>

__host__ __device__ uint32_t walked(uint32_t x, uint32_t count) {
  uint32_t y = x, bits = 0;
  for (uint32_t i = 0; i < count; ++i) {
    x = (x * 1664525u + 1013904223u) ^ (y >> 3);
    y = (y << 5 | y >> 27) + x;
    bits = bits * 3 + (x & 15);
    if (y & 1)
      x ^= y + i;
  }
  return x + y + bits;
}

__global__ void walk(uint32_t *out, uint32_t count) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = walked(i, count);
}

int main() {
  const uint32_t items = 4096, count = 20000;
  uint32_t *out;
  HIP(hipMalloc(&out, items * sizeof(uint32_t)));
  std::vector<uint32_t> values(items);
  for (int launch = 0; launch < 4; ++launch) {
    HIP(hipMemset(out, 0, items * sizeof(uint32_t)));
    walk<<<items / 256, 256>>>(out, count);
    HIP(hipMemcpy(values.data(), out, items * sizeof(uint32_t), hipMemcpyDeviceToHost));
    for (uint32_t i = 0; i < items; i += 97)
      EXPECT(values[i] == walked(i, count));
  }
  std::printf("walked\n");
}
