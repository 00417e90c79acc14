// Largest and smallest values, and sets of bits, by atomics of memory and LDS; 64-bit integers.
#include "check.h"

constexpr int kItems = 192, kGroups = 3, kAll = kItems * kGroups;

__global__ void make(long long *to) {
  const int i = blockIdx.x * kItems + threadIdx.x;
  to[/*index*/ i] = i * 7919ll % 1000; // uses in
}

__global__ void begin(int *found) {
  found[/*index*/ threadIdx.x] = 500; // uses found
}

__global__ void extremes(const long long *in, int *found) {
  __shared__ int most;
  if (threadIdx.x == 0)
    /*init most*/ most = 0; // around begun
  /*barrier begun*/ __syncthreads();
  const int value = in[/*index*/ blockIdx.x * kItems + threadIdx.x]; // reads in
  /*atomic*/ atomicMax(&most, value); // around begun, done; reads most
  /*barrier done*/ __syncthreads();
  if (threadIdx.x == 0) {
    const int own = most; // around done; reads most
    /*atomic*/ atomicMax(&found[0], own); // uses found
    /*atomic*/ atomicAdd(&found[1], own); // uses found
  }
  /*atomic*/ atomicOr(&found[2], value); // uses found
  __syncthreads(); // or the compiler makes a clause, which has one line
  /*atomic*/ atomicXor(&found[3], value); // uses found
  __syncthreads(); // or the compiler makes a clause, which has one line
  /*atomic*/ atomicSub(&found[4], value); // uses found
}

int main() {
  long long *in = nullptr;
  int *found = nullptr;
  HIP(hipMalloc(&in, /*size in*/ 4 * (kAll * sizeof(long long) / 4)));
  HIP(hipMalloc(&found, /*size found*/ 8 * sizeof(int)));
  /*init in*/ make<<<kGroups, kItems>>>(in);
  begin<<<1, 8>>>(found);
  /*early in*/
  /*early found*/
  extremes<<<kGroups, kItems>>>(in, found);
  HIP(hipDeviceSynchronize());
  /*freed in*/ HIP(hipFree(in));
  /*freed found*/ HIP(hipFree(found));
}
