// A bitonic sort of unsigned keys, a launch a step.
#include "check.h"

#include <algorithm>

__global__ void step(unsigned *keys, int distance, int run) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x, other = i ^ distance;
  if (other <= i)
    return;
  const unsigned a = keys[i], b = keys[other];
  if ((a > b) == ((i & run) == 0)) {
    keys[i] = b;
    keys[other] = a;
  }
}

int main() {
  const int n = 1 << 11;
  std::vector<unsigned> keys(n);
  unsigned state = 1;
  for (unsigned &key : keys)
    key = state = state * 1664525 + 1013904223;
  unsigned *device = on_device(keys);
  for (int run = 2; run <= n; run *= 2)
    for (int distance = run / 2; distance > 0; distance /= 2)
      step<<<n / 256, 256>>>(device, distance, run);
  std::sort(keys.begin(), keys.end());
  EXPECT(on_host(device, n) == keys);
  std::puts("sorted");
}
