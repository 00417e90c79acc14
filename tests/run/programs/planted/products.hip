// A product of matrices by tiles in LDS.
#include "check.h"

constexpr int kTile = 16, kSide = 32;

__global__ void make(float *a, float *b) {
  const int i = blockIdx.x * 256 + threadIdx.x;
  a[/*index*/ i] = i % 7; // uses a
  b[/*index*/ i] = i % 5; // uses b
}

__global__ void multiply(const float *a, const float *b, float *c) {
  __shared__ float left[kTile][kTile], right[kTile][kTile];
  const int x = threadIdx.x, y = threadIdx.y, column = blockIdx.x * kTile + x, row = blockIdx.y * kTile + y;
  float sum = 0;
  for (int tile = 0; tile < kSide; tile += kTile) {
    left[y][x] = a[/*index*/ row * kSide + tile + x]; // reads a; around read, stored
    right[y][x] = b[/*index*/ (tile + y) * kSide + column]; // reads b; around read, stored
    /*barrier stored*/ __syncthreads();
#pragma unroll 1
    for (int k = 0; k < kTile; ++k)
      sum += left[y][k] * right[k][x]; // around read, stored
    /*barrier read*/ __syncthreads();
  }
  c[/*index*/ row * kSide + column] = sum; // uses c
}

int main() {
  const size_t bytes = kSide * kSide * sizeof(float);
  float *a = nullptr, *b = nullptr, *c = nullptr;
  HIP(hipMalloc(&a, /*size a*/ bytes));
  HIP(hipMalloc(&b, /*size b*/ bytes));
  HIP(hipMalloc(&c, /*size c*/ bytes));
  make<<<kSide * kSide / 256, 256>>>(a, b);
  /*early a*/
  /*early b*/
  /*early c*/
  multiply<<<dim3(2, 2), dim3(kTile, kTile)>>>(a, b, c);
  HIP(hipDeviceSynchronize());
  /*freed a*/ HIP(hipFree(a));
  /*freed b*/ HIP(hipFree(b));
  /*freed c*/ HIP(hipFree(c));
}
