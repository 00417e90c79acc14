// What fits is written one behind the other: places by an atomic that returns a value.
#include "check.h"

constexpr int kItems = 128, kGroups = 3, kAll = kItems * kGroups;

__global__ void clear(int *count) { *count = 0; } // uses count

__global__ void fill(int *to) {
  const int i = blockIdx.x * kItems + threadIdx.x;
  to[/*index*/ i] = i * 37 % 101; // uses in
}

__global__ void compact(const int *in, int *out, int *count) {
  const int value = in[/*index*/ blockIdx.x * kItems + threadIdx.x]; // reads in
  const int at = /*atomic*/ atomicAdd(&count[0], 1); // reads count
  out[at] = value; // uses out
}

__global__ void copy(const int *from, int *to) {
  const int i = blockIdx.x * kItems + threadIdx.x;
  to[/*index*/ i] = from[/*index*/ i]; // reads out; uses to
}

int main() {
  int *in = nullptr, *out = nullptr, *to = nullptr, *count = nullptr;
  HIP(hipMalloc(&in, /*size in*/ kAll * sizeof(int)));
  HIP(hipMalloc(&out, /*size out*/ kAll * sizeof(int)));
  HIP(hipMalloc(&to, /*size to*/ kAll * sizeof(int)));
  HIP(hipMalloc(&count, /*size count*/ sizeof(int)));
  clear<<<1, 1>>>(count);
  /*init in*/ fill<<<kGroups, kItems>>>(in);
  /*early in*/
  /*early out*/
  /*early count*/
  /*init out*/ compact<<<kGroups, kItems>>>(in, out, count);
  /*early to*/
  copy<<<kGroups, kItems>>>(out, to);
  HIP(hipDeviceSynchronize());
  /*freed in*/ HIP(hipFree(in));
  /*freed out*/ HIP(hipFree(out));
  /*freed to*/ HIP(hipFree(to));
  /*freed count*/ HIP(hipFree(count));
}
