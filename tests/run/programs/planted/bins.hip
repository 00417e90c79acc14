// A histogram in LDS, which all work-groups add up.
#include "check.h"

constexpr int kBins = 64, kItems = 256, kGroups = 4;

__global__ void scatter(unsigned short *to) {
  const int i = blockIdx.x * kItems + threadIdx.x;
  to[/*index*/ i] = i * 31 % kBins; // uses in
}

__global__ void count(const unsigned short *in, unsigned *bins) {
  __shared__ unsigned local[kBins];
  if (threadIdx.x < kBins)
    /*init local*/ local[/*lds*/ int(threadIdx.x)] = 0; // around cleared
  /*barrier cleared*/ __syncthreads();
  const unsigned bin = in[/*index*/ blockIdx.x * kItems + threadIdx.x]; // reads in
  /*atomic*/ atomicAdd(&local[bin], 1u); // around cleared, counted; reads local; may fault
  /*barrier counted*/ __syncthreads();
  if (threadIdx.x < kBins) {
    const unsigned counted = local[/*lds*/ int(threadIdx.x)]; // around counted; reads local
    /*atomic*/ atomicAdd(&bins[threadIdx.x], counted); // reads bins
  }
}

int main() {
  unsigned short *in = nullptr;
  unsigned *bins = nullptr;
  HIP(hipMalloc(&in, /*size in*/ kGroups * kItems * sizeof(unsigned short)));
  HIP(hipMalloc(&bins, /*size bins*/ kBins * sizeof(unsigned)));
  /*init bins*/ HIP(hipMemset(bins, 0, kBins * sizeof(unsigned)));
  /*init in*/ scatter<<<kGroups, kItems>>>(in);
  /*early in*/
  /*early bins*/
  count<<<kGroups, kItems>>>(in, bins);
  HIP(hipDeviceSynchronize());
  /*freed in*/ HIP(hipFree(in));
  /*freed bins*/ HIP(hipFree(bins));
}
