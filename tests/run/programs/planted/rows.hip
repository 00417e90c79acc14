// Sums of the rows of a matrix of doubles, in LDS; grids of two dimensions.
#include "check.h"

constexpr int kWidth = 20, kHeight = 12, kItems = 256;

__global__ void number(double *to) {
  const int x = blockIdx.x * 4 + threadIdx.x, y = blockIdx.y * 4 + threadIdx.y;
  to[/*index*/ y * kWidth + x] = x - 3.0 * y; // uses matrix
}

__global__ void sums(const double *matrix, double *out) {
  __shared__ double part[kItems];
  double own = 0;
  for (int x = threadIdx.x; x < kWidth; x += kItems)
    own += matrix[/*index*/ blockIdx.x * kWidth + x]; // reads matrix
  part[/*lds*/ int(threadIdx.x)] = own; // around stored
  /*barrier stored*/ __syncthreads();
  for (int width = kItems / 2; width > 0; width /= 2) {
    if (threadIdx.x < width)
      part[threadIdx.x] += part[threadIdx.x + width]; // around stored, added
    /*barrier added*/ __syncthreads();
  }
  if (threadIdx.x == 0)
    out[/*index*/ blockIdx.x] = part[0]; // uses out
}

int main() {
  double *matrix = nullptr, *out = nullptr;
  HIP(hipMalloc(&matrix, /*size matrix*/ kWidth * kHeight * sizeof(double)));
  HIP(hipMalloc(&out, /*size out*/ kHeight * sizeof(double)));
  /*init matrix*/ number<<<dim3(5, 3), dim3(4, 4)>>>(matrix);
  /*early matrix*/
  /*early out*/
  sums<<<kHeight, kItems>>>(matrix, out);
  HIP(hipDeviceSynchronize());
  /*freed matrix*/ HIP(hipFree(matrix));
  /*freed out*/ HIP(hipFree(out));
}
