// Static and dynamic LDS, barriers, shuffles, templates.
#include "check.h"

#include <numeric>

template <typename T, int kSize> __global__ void in_static(const T *in, T *out, int n) {
  __shared__ T part[kSize];
  T sum = 0;
  for (int i = blockIdx.x * kSize + threadIdx.x; i < n; i += gridDim.x * kSize)
    sum += in[/*index*/ i];
  part[threadIdx.x] = sum; // around stored
  /*barrier stored*/ __syncthreads();
  for (int step = kSize / 2; step > 0; step /= 2) {
    if (threadIdx.x < step)
      part[threadIdx.x] += part[threadIdx.x + step]; // around stored, added
    /*barrier added*/ __syncthreads();
  }
  if (threadIdx.x == 0)
    out[/*index*/ blockIdx.x] = part[0]; // around added
}

__global__ void in_dynamic(const int *in, int *out, int n) {
  extern __shared__ int part[];
  int sum = 0;
  for (int i = threadIdx.x; i < n; i += blockDim.x)
    sum += in[/*index*/ i];
  for (int step = warpSize / 2; step > 0; step /= 2)
    sum += __shfl_down(sum, step);
  if (threadIdx.x % warpSize == 0)
    part[threadIdx.x / warpSize] = sum; // around gathered
  /*barrier gathered*/ __syncthreads();
  if (threadIdx.x == 0) {
    for (int i = 1; i < (blockDim.x + warpSize - 1) / warpSize; ++i)
      sum += part[i]; // around gathered
    *out = sum;
  }
}

int main() {
  const int n = 50000, groups = 24;
  std::vector<int> whole(n);
  std::iota(whole.begin(), whole.end(), 0);
  std::vector<double> real(whole.begin(), whole.end());
  int *in = on_device(whole), *out = on_device(std::vector<int>(groups));
  double *real_in = on_device(real), *real_out = on_device(std::vector<double>(groups));
  in_static<int, 256><<<groups, 256>>>(in, out, n);
  in_static<double, 128><<<groups, 128>>>(real_in, real_out, n);
  const auto parts = on_host(out, groups);
  const auto real_parts = on_host(real_out, groups);
  const int sum = std::accumulate(whole.begin(), whole.end(), 0);
  EXPECT(std::accumulate(parts.begin(), parts.end(), 0) == sum);
  EXPECT(std::accumulate(real_parts.begin(), real_parts.end(), 0.0) == std::accumulate(real.begin(), real.end(), 0.0));
  in_dynamic<<<1, 320, 64 * sizeof(int)>>>(in, out, n);
  EXPECT(on_host(out, 1)[0] == sum);
  std::puts("sums");
}
