// A kernel that calls a device function the compiler must not inline.
#include <hip/hip_runtime.h>

#include <cstdio>
#include <vector>

__device__ __attribute__((noinline)) int greatest_common_divisor(int a, int b) {
  while (b != 0) {
    int rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

extern "C" __global__ void function_call(const int *a, const int *b, int *c, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    c[i] = greatest_common_divisor(a[i], b[i]) + greatest_common_divisor(b[i], 12);
}

int main() {
  const int n = 200, bytes = n * sizeof(int);
  std::vector<int> a(n), b(n), c(n);
  for (int i = 0; i < n; ++i)
    a[i] = 6 * i, b[i] = 4 * i + 8;
  int *device[3];
  for (auto &pointer : device)
    if (hipMalloc(reinterpret_cast<void **>(&pointer), bytes) != hipSuccess)
      return std::puts("no device"), 1;
  (void)hipMemcpy(device[0], a.data(), bytes, hipMemcpyHostToDevice);
  (void)hipMemcpy(device[1], b.data(), bytes, hipMemcpyHostToDevice);
  function_call<<<2, 128>>>(device[0], device[1], device[2], n);
  (void)hipMemcpy(c.data(), device[2], bytes, hipMemcpyDeviceToHost);
  std::printf("%d\n", c[1]);
  return c[1] != 6 + 12;
}
