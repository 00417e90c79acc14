// One sum a work-group, by a tree in LDS.
#include <hip/hip_runtime.h>

#include <cstdio>
#include <vector>

extern "C" __global__ void reduction(const float *in, float *sums, int n) {
  __shared__ float partial[256];
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  partial[threadIdx.x] = i < n ? in[i] : 0.0f;
  __syncthreads();
  for (unsigned step = blockDim.x / 2; step > 0; step /= 2) {
    if (threadIdx.x < step)
      partial[threadIdx.x] += partial[threadIdx.x + step];
    __syncthreads();
  }
  if (threadIdx.x == 0)
    sums[blockIdx.x] = partial[0];
}

int main() {
  const int n = 2000, groups = 8;
  std::vector<float> in(n, 1.0f), sums(groups);
  float *device[2];
  if (hipMalloc(reinterpret_cast<void **>(&device[0]), n * sizeof(float)) != hipSuccess ||
      hipMalloc(reinterpret_cast<void **>(&device[1]), groups * sizeof(float)) != hipSuccess)
    return std::puts("no device"), 1;
  (void)hipMemcpy(device[0], in.data(), n * sizeof(float), hipMemcpyHostToDevice);
  reduction<<<groups, 256>>>(device[0], device[1], n);
  (void)hipMemcpy(sums.data(), device[1], groups * sizeof(float), hipMemcpyDeviceToHost);
  float total = 0;
  for (float sum : sums)
    total += sum;
  std::printf("%g\n", total);
  return total != n;
}
