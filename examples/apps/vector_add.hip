// c[i] = a[i] + b[i]; the last work-group is only partly used.
#include <hip/hip_runtime.h>

#include <cstdio>
#include <vector>

extern "C" __global__ void vector_add(const float *a, const float *b, float *c, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    c[i] = a[i] + b[i];
}

int main() {
  const int n = 1000, bytes = n * sizeof(float);
  std::vector<float> a(n), b(n), c(n);
  for (int i = 0; i < n; ++i)
    a[i] = i, b[i] = 2 * i;
  float *device[3];
  for (auto &pointer : device)
    if (hipMalloc(reinterpret_cast<void **>(&pointer), bytes) != hipSuccess)
      return std::puts("no device"), 1;
  (void)hipMemcpy(device[0], a.data(), bytes, hipMemcpyHostToDevice);
  (void)hipMemcpy(device[1], b.data(), bytes, hipMemcpyHostToDevice);
  vector_add<<<4, 256>>>(device[0], device[1], device[2], n);
  (void)hipMemcpy(c.data(), device[2], bytes, hipMemcpyDeviceToHost);
  for (int i = 0; i < n; ++i)
    if (c[i] != a[i] + b[i])
      return std::printf("wrong at %d\n", i), 1;
  std::puts("right");
}
