// Sums of doubles and 64-bit counts by atomics of memory, out of functions that are not inlined.
#include "check.h"

constexpr int kItems = 128, kGroups = 4;

__device__ __attribute__((noinline)) double taken(const double *from, int at) {
  return from[at]; // reads in
}

__device__ __attribute__((noinline)) void give(unsigned long long *to, unsigned long long value) {
  /*atomic*/ atomicAdd(&to[0], value); // reads counts
}

__global__ void make(double *to) {
  const int i = blockIdx.x * kItems + threadIdx.x;
  to[/*index*/ i] = 0.25 * i; // uses in
}

__global__ void add(const double *in, unsigned long long *counts, float *sum) {
  const double value = taken(in, blockIdx.x * kItems + threadIdx.x);
  give(counts + threadIdx.x % 16, value > 10 ? 1 : 0);
  /*atomic*/ atomicAdd(&sum[0], float(value)); // reads sum
}

__global__ void average(const unsigned long long *counts, const float *sum, float *out) {
  out[/*index*/ threadIdx.x] = *sum / (1 + counts[/*index*/ threadIdx.x]); // uses out; reads sum, counts
}

int main() {
  double *in = nullptr;
  unsigned long long *counts = nullptr;
  float *sum = nullptr, *out = nullptr;
  HIP(hipMalloc(&in, /*size in*/ kItems * kGroups * sizeof(double)));
  HIP(hipMalloc(&counts, /*size counts*/ 16 * sizeof(unsigned long long)));
  HIP(hipMalloc(&sum, /*size sum*/ sizeof(float)));
  HIP(hipMalloc(&out, /*size out*/ 16 * sizeof(float)));
  /*init counts*/ HIP(hipMemset(counts, 0, 16 * sizeof(unsigned long long)));
  /*init sum*/ HIP(hipMemset(sum, 0, sizeof(float)));
  /*init in*/ make<<<kGroups, kItems>>>(in);
  /*early in*/
  /*early counts*/
  add<<<kGroups, kItems>>>(in, counts, sum);
  /*early sum*/
  /*early out*/
  average<<<1, 16>>>(counts, sum, out);
  HIP(hipDeviceSynchronize());
  /*freed in*/ HIP(hipFree(in));
  /*freed counts*/ HIP(hipFree(counts));
  /*freed sum*/ HIP(hipFree(sum));
  /*freed out*/ HIP(hipFree(out));
}
