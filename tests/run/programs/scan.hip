// An inclusive prefix sum: work-groups in LDS, then their totals, then both together.
#include "check.h"

__global__ void scan_groups(const int *in, int *out, int *totals, int n) {
  __shared__ int part[2][256];
  const int i = blockIdx.x * 256 + threadIdx.x;
  int from = 0;
  part[0][threadIdx.x] = i < n ? in[/*index*/ i] : 0; // around first
  /*barrier first*/ __syncthreads();
  for (int step = 1; step < 256; step *= 2, from = 1 - from) {
    int value = part[from][threadIdx.x]; // around next
    if (threadIdx.x >= step)
      value += part[from][threadIdx.x - step]; // around first, next
    part[1 - from][threadIdx.x] = value; // around first, next
    /*barrier next*/ __syncthreads();
  }
  if (i < n)
    out[/*index*/ i] = part[from][threadIdx.x];
  if (threadIdx.x == 255)
    totals[/*index*/ blockIdx.x] = part[from][255];
}

__global__ void add_before(int *out, const int *totals, int n) {
  const int i = blockIdx.x * 256 + threadIdx.x;
  int sum = 0;
  for (int group = 0; group < blockIdx.x; ++group)
    sum += totals[/*index below*/ group];
  if (i < n)
    out[i] += sum;
}

int main() {
  const int n = 5000, groups = (n + 255) / 256;
  std::vector<int> in(n);
  for (int i = 0; i < n; ++i)
    in[i] = i * 7 % 23 - 9;
  int *out = on_device(std::vector<int>(n)), *totals = on_device(std::vector<int>(groups));
  scan_groups<<<groups, 256>>>(on_device(in), out, totals, n);
  add_before<<<groups, 256>>>(out, totals, n);
  const auto values = on_host(out, n);
  for (int i = 0, sum = 0; i < n; ++i)
    EXPECT(values[i] == (sum += in[i]));
  std::puts("scan");
}
