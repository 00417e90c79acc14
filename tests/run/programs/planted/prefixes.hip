// Prefix sums in one buffer in LDS, with two barriers a step; dynamic LDS.
#include "check.h"

constexpr int kItems = 256, kGroups = 2;

__global__ void make(short *to) {
  const int i = blockIdx.x * kItems + threadIdx.x;
  to[/*index*/ i] = i % 9; // uses in
}

__global__ void scan(const short *in, int *out, int *total) {
  extern __shared__ int part[];
  const int item = threadIdx.x, i = blockIdx.x * kItems + item;
  /*init part*/ part[/*lds*/ item] = in[/*index*/ i]; // reads in; around stored
  /*barrier stored*/ __syncthreads();
  for (int step = 1; step < kItems; step *= 2) {
    const int before = item >= step ? part[item - step] : 0; // around stored, taken, added; reads part
    /*barrier taken*/ __syncthreads();
    part[item] += before; // around taken, added, stored; reads part
    /*barrier added*/ __syncthreads();
  }
  out[/*index*/ i] = part[/*lds*/ item]; // uses out; reads part
  if (item == kItems - 1)
    /*atomic*/ atomicAdd(&total[0], part[item]); // reads total, part
}

int main() {
  const int n = kItems * kGroups;
  short *in = nullptr;
  int *out = nullptr, *total = nullptr;
  HIP(hipMalloc(&in, /*size in*/ n * sizeof(short)));
  HIP(hipMalloc(&out, /*size out*/ n * sizeof(int)));
  HIP(hipMalloc(&total, /*size total*/ sizeof(int)));
  /*init total*/ HIP(hipMemset(total, 0, sizeof(int)));
  /*init in*/ make<<<kGroups, kItems>>>(in);
  /*early in*/
  /*early out*/
  /*early total*/
  scan<<<kGroups, kItems, kItems * sizeof(int)>>>(in, out, total);
  HIP(hipDeviceSynchronize());
  /*freed in*/ HIP(hipFree(in));
  /*freed out*/ HIP(hipFree(out));
  /*freed total*/ HIP(hipFree(total));
}
