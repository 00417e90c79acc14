// A program of two sources, and of a library if it is compiled as one: each has a fat binary of its own.
#include "check.h"

#ifdef SECOND
__global__ void second(int *p) { p[blockIdx.x * blockDim.x + threadIdx.x] += 2; }
void run_second(int *p) { second<<<2, 32>>>(p); }
#else
void run_second(int *p);
__device__ int scale = 3;
__device__ __attribute__((noinline)) int times(int x) { return x * scale; }
__global__ void first(int *p) {
  for (int i = 0; i < threadIdx.x % 4; ++i)
    p[threadIdx.x] = times(p[threadIdx.x]);
}
int main() {
  int *p = nullptr, factor = 5;
  HIP(hipMallocManaged(&p, 64 * sizeof(int)));
  for (int i = 0; i < 64; ++i)
    p[i] = i;
  HIP(hipMemcpyToSymbol(HIP_SYMBOL(scale), &factor, sizeof factor));
  first<<<1, 64>>>(p);
  HIP(hipDeviceSynchronize());
  run_second(p);
  HIP(hipDeviceSynchronize());
  long sum = 0;
  for (int i = 0; i < 64; ++i)
    sum += p[i] * (i + 1l);
  printf("sum %ld\n", sum);
  return 0;
}
#endif
