// A stencil of three points, with halos in LDS; inputs are made by a kernel.
#include "check.h"

__global__ void make(float *to, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    to[/*index*/ i] = 0.5f * i; // uses in
}

__global__ void stencil(const float *in, float *out, int n) {
  __shared__ float part[130];
  const int i = blockIdx.x * 128 + threadIdx.x, at = threadIdx.x + 1;
  part[at] = i < n ? in[/*index*/ i] : 0; // reads in; around filled
  if (threadIdx.x == 0)
    part[0] = i > 0 ? in[i - 1] : 0; // around filled; reads in
  if (threadIdx.x == 127)
    part[129] = i + 1 < n ? in[i + 1] : 0; // around filled; reads in
  /*barrier filled*/ __syncthreads();
  if (i < n)
    out[/*index*/ i] = part[at - 1] + part[at] + part[at + 1]; // uses out; around filled
}

int main() {
  const int n = 900;
  float *in = nullptr, *out = nullptr;
  HIP(hipMalloc(&in, /*size in*/ n * sizeof(float)));
  HIP(hipMalloc(&out, /*size out*/ n * sizeof(float)));
  /*init in*/ make<<<8, 128>>>(in, n);
  /*early in*/
  /*early out*/
  stencil<<<8, 128>>>(in, out, n);
  HIP(hipDeviceSynchronize());
  /*freed in*/ HIP(hipFree(in));
  /*freed out*/ HIP(hipFree(out));
}
