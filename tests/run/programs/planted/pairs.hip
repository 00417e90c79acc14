// Structures of members of different sizes, in functions that are called.
#include "check.h"

struct Pair {
  short key;
  int value;
};

__device__ Pair made(int i) { return {short(i % 100), i * i}; }

__global__ void make(Pair *to, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    to[/*index*/ i] = made(i); // uses pairs
}

__global__ void split(const Pair *pairs, short *keys, int *values, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n)
    return;
  // In one line, since the compiler gives both loads the line of the first where they form a clause.
  short *k = keys;
  int *v = values;
  k[/*index*/ i] = pairs[/*index*/ i].key, v[/*index*/ i] = pairs[/*index*/ i].value; // uses keys, values; reads pairs
}

int main() {
  const int n = 450;
  Pair *pairs = nullptr;
  short *keys = nullptr;
  int *values = nullptr;
  HIP(hipMalloc(&pairs, /*size pairs*/ n * sizeof(Pair)));
  HIP(hipMalloc(&keys, /*size keys*/ n * sizeof(short)));
  HIP(hipMalloc(&values, /*size values*/ n * sizeof(int)));
  /*init pairs*/ make<<<8, 64>>>(pairs, n);
  /*early pairs*/
  /*early keys*/
  /*early values*/
  split<<<8, 64>>>(pairs, keys, values, n);
  HIP(hipDeviceSynchronize());
  /*freed pairs*/ HIP(hipFree(pairs));
  /*freed keys*/ HIP(hipFree(keys));
  /*freed values*/ HIP(hipFree(values));
}
