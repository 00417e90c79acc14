#include <hip/hip_runtime.h>

template <typename T> __device__ inline void innermost(T *p, T x) {
  p[1] = x * 2.0f + 1.0f;
}

__device__ inline float middle(float *p) {
  if (*p > 3.0f)
    innermost(p, *p);
  return *p;
}

__device__ __attribute__((noinline)) float outside(float *p, int n) {
  float x = 0;
  for (int i = 0; i < n; ++i)
    x += middle(p + 2 * i);
  return x;
}

__global__ void kernel(float *p, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    p[i] = middle(p + i) + outside(p + i, n);
}
