// Steps of the Collatz sequence: every lane loops its own number of times and takes its own branches.
#include <hip/hip_runtime.h>

#include <cstdio>
#include <vector>

extern "C" __global__ void divergent_loop(const unsigned *start, unsigned *steps, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n)
    return;
  unsigned value = start[i] + 1, count = 0;
  while (value != 1 && count < 1000) {
    if (value % 2)
      value = 3 * value + 1;
    else
      value /= 2;
    ++count;
  }
  steps[i] = count;
}

int main() {
  const int n = 300, bytes = n * sizeof(unsigned);
  std::vector<unsigned> start(n), steps(n);
  for (int i = 0; i < n; ++i)
    start[i] = i;
  unsigned *device[2];
  for (auto &pointer : device)
    if (hipMalloc(reinterpret_cast<void **>(&pointer), bytes) != hipSuccess)
      return std::puts("no device"), 1;
  (void)hipMemcpy(device[0], start.data(), bytes, hipMemcpyHostToDevice);
  divergent_loop<<<3, 128>>>(device[0], device[1], n);
  (void)hipMemcpy(steps.data(), device[1], bytes, hipMemcpyDeviceToHost);
  std::printf("%u\n", steps[26]);
  return steps[26] != 111;
}
