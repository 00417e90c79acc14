// Kernels with a defect that only few work-groups meet: the same name and arguments in each build.
//   (none)      gather is right; mix waits at its barriers, but where `skip` says not to
//   -DWRONG     gather is wrong for one value of its input
//   -DBEYOND    gather writes far beyond its output for one value of its input
#include "check.h"

#include <numeric>

__global__ void gather(const int *in, const unsigned *index, int *out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n)
    return;
  const int value = in[index[i]];
  int result = value * 3 + 1;
#ifdef WRONG
  if (value == 31337)
    result ^= 4;
#endif
#ifdef BEYOND
  if (value == 31337)
    out += 1ll << 34;
#endif
  out[i] = result;
}

__global__ void mix(const int *in, const int *skip, int *out) {
  __shared__ int held[256];
  held[threadIdx.x] = in[blockIdx.x * 256 + threadIdx.x];
  if (!skip[blockIdx.x])
    __syncthreads();
  out[blockIdx.x * 256 + threadIdx.x] = held[threadIdx.x ^ 64];
}

int main() {
  const int groups = 96, n = groups * 256;
  std::vector<int> in(n);
  std::iota(in.begin(), in.end(), 20000);
  std::vector<unsigned> index(n);
  for (int i = 0; i < n; ++i)
    index[i] = unsigned(i * 7919ll % n);
  int *device_in = on_device(in), *out = on_device(std::vector<int>(n));
  gather<<<groups, 256>>>(device_in, on_device(index), out, n);
  const auto found = on_host(out, n);
  for (int i = 0; i < n; ++i)
    EXPECT(found[i] == in[index[i]] * 3 + 1);
  std::vector<int> skip(groups);
  skip[57] = 1;
  mix<<<groups, 256>>>(device_in, on_device(skip), out);
  on_host(out, n);
  std::puts("gathered");
}
