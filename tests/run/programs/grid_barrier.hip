// A cooperative launch: all work-groups wait for each other.
#include "check.h"

#include <hip/hip_cooperative_groups.h>

__global__ void rounds(int *values, int n, int turns) {
  const auto grid = cooperative_groups::this_grid();
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  for (int turn = 0; turn < turns; ++turn) {
    const int left = values[(i + n - 1) % n], right = values[(i + 1) % n];
    grid.sync();
    values[i] = left + right;
    grid.sync();
  }
}

int main() {
  int n = 256, turns = 4;
  std::vector<int> values(n);
  values[0] = 1;
  int *device = on_device(values);
  void *arguments[] = {&device, &n, &turns};
  HIP(hipLaunchCooperativeKernel(reinterpret_cast<void *>(rounds), dim3(4), dim3(64), arguments, 0, nullptr));
  HIP(hipDeviceSynchronize());
  for (int turn = 0; turn < turns; ++turn) {
    const auto old = values;
    for (int i = 0; i < n; ++i)
      values[i] = old[(i + n - 1) % n] + old[(i + 1) % n];
  }
  EXPECT(on_host(device, n) == values);
  std::puts("grid");
}
