// Grids of three dimensions; bytes in, halves of dwords out; a copy in LDS that is read transposed.
#include "check.h"

constexpr int kX = 8, kY = 8, kZ = 6;

__global__ void make(signed char *to) {
  const int at = (blockIdx.x * kY + threadIdx.y) * kX + threadIdx.x;
  to[/*index*/ at] = at % 50 - 20; // uses in
}

__global__ void turn(const signed char *in, short *out) {
  __shared__ short plane[kX * kY * 2];
  const int x = threadIdx.x, y = threadIdx.y, z = threadIdx.z, all = blockIdx.x * 2 + z;
  plane[/*lds*/ (z * kY + y) * kX + x] = in[/*index*/ (all * kY + y) * kX + x]; // reads in; around turned
  /*barrier turned*/ __syncthreads();
  out[/*index*/ (all * kX + x) * kY + y] = plane[/*lds*/ ((1 - z) * kY + y) * kX + x]; // uses out; around turned
}

int main() {
  const int n = kX * kY * kZ;
  signed char *in = nullptr;
  short *out = nullptr;
  HIP(hipMalloc(&in, /*size in*/ n));
  HIP(hipMalloc(&out, /*size out*/ n * sizeof(short)));
  /*init in*/ make<<<kZ, dim3(kX, kY)>>>(in);
  /*early in*/
  /*early out*/
  turn<<<kZ / 2, dim3(kX, kY, 2)>>>(in, out);
  HIP(hipDeviceSynchronize());
  /*freed in*/ HIP(hipFree(in));
  /*freed out*/ HIP(hipFree(out));
}
