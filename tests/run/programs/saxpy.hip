// Buffers, copies, a launch whose last work-group is not full; what the device says of itself.
#include "check.h"

__global__ void saxpy(float a, const float *x, float *y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    y[i] = a * x[/*index*/ i] + y[i];
}

int main() {
  hipDeviceProp_t properties;
  HIP(hipGetDeviceProperties(&properties, 0));
  const int n = 100003;
  std::vector<float> x(n), y(n);
  for (int i = 0; i < n; ++i)
    x[i] = i, y[i] = 2 * i;
  float *dx = on_device(x), *dy = on_device(y);
  saxpy<<<(n + 255) / 256, 256>>>(3, dx, dy, n);
  HIP(hipGetLastError());
  y = on_host(dy, n);
  for (int i = 0; i < n; ++i)
    EXPECT(y[i] == 5.0f * i);
  HIP(hipFree(dx));
  HIP(hipFree(dy));
  std::printf("%s, waves of %d\n", properties.gcnArchName, properties.warpSize);
}
