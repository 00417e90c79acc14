// An access beyond an allocation, a race in LDS, a NaN, and memory that is freed twice; or, with an argument, none.
#include "check.h"

__global__ void beyond(int *p, int shift) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  p[i + shift] = static_cast<int>(i);
}

__global__ void unordered(int *p, int waits) {
  __shared__ int values[256];
  values[threadIdx.x] = static_cast<int>(threadIdx.x);
  if (waits)
    __syncthreads();
  p[threadIdx.x] = values[255 - threadIdx.x];
}

__global__ void roots(float *p, float less) { p[threadIdx.x] = sqrtf(p[threadIdx.x] - less); }

int main(int count, char **) {
  const bool wrong = count == 1;
  int *numbers = nullptr;
  float *floats = nullptr;
  HIP(hipMalloc(&numbers, 256 * sizeof(int)));
  HIP(hipMalloc(&floats, 64 * sizeof(float)));
  HIP(hipMemset(floats, 0, 64 * sizeof(float)));
  beyond<<<4, 64>>>(numbers, wrong);
  unordered<<<1, 256>>>(numbers, !wrong);
  roots<<<1, 64>>>(floats, wrong ? 1.0F : 0.0F);
  HIP(hipDeviceSynchronize());
  HIP(hipFree(floats));
  HIP(hipFree(numbers));
  if (wrong)
    (void)hipFree(numbers);
  puts("done");
}
