// Atomics on global memory and LDS, of integers and floats; compare and swap.
#include "check.h"

__global__ void count(const unsigned char *in, unsigned *bins, int n) {
  __shared__ unsigned local[256];
  for (int i = threadIdx.x; i < 256; i += blockDim.x)
    /*init local*/ local[i] = 0; // around cleared
  /*barrier cleared*/ __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    /*atomic*/ atomicAdd(&local[in[/*index*/ i]], 1u); // reads local; around cleared, counted
  /*barrier counted*/ __syncthreads();
  for (int i = threadIdx.x; i < 256; i += blockDim.x)
    /*atomic*/ atomicAdd(&bins[i], local[i]); // reads local; around counted
}

__global__ void multiply(unsigned long long *product, float *sum, int *largest) {
  unsigned long long old = *product, seen;
  do {
    seen = old;
    old = atomicCAS(product, seen, seen * 3);
  } while (old != seen);
  atomicAdd(sum, 0.5f);
  atomicMax(largest, int(threadIdx.x));
}

int main() {
  const int n = 60000;
  std::vector<unsigned char> in(n);
  std::vector<unsigned> expected(256);
  unsigned state = 12345;
  for (auto &byte : in) {
    state = state * 1664525 + 1013904223;
    byte = state >> 24;
    ++expected[byte];
  }
  unsigned *bins = on_device(std::vector<unsigned>(256));
  count<<<13, 192>>>(on_device(in), bins, n);
  EXPECT(on_host(bins, 256) == expected);
  auto *product = on_device(std::vector<unsigned long long>{1});
  float *sum = on_device(std::vector<float>{0});
  int *largest = on_device(std::vector<int>{-1});
  multiply<<<1, 40>>>(product, sum, largest);
  unsigned long long power = 1;
  for (int i = 0; i < 40; ++i)
    power *= 3;
  EXPECT(on_host(product, 1)[0] == power);
  EXPECT(on_host(sum, 1)[0] == 20);
  EXPECT(on_host(largest, 1)[0] == 39);
  std::puts("counted");
}
