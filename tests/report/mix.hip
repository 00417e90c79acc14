// A program with kernels of different cost.
#include <hip/hip_runtime.h>
#include <cstdio>
#include <vector>
__global__ void scale(float *x, float a, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] = x[i] * a + 1.f; }
__global__ void matmul(const float *a, const float *b, float *c, int n) {
  __shared__ float s[16][16], t[16][16];
  int x = threadIdx.x, y = threadIdx.y, col = blockIdx.x * 16 + x, row = blockIdx.y * 16 + y;
  float sum = 0;
  for (int k = 0; k < n; k += 16) {
    s[y][x] = a[row * n + k + x]; t[y][x] = b[(k + y) * n + col];
    __syncthreads();
    for (int i = 0; i < 16; ++i) sum += s[y][i] * t[i][x];
    __syncthreads();
  }
  c[row * n + col] = sum;
}
__global__ void collatz(const unsigned *in, unsigned *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return;
  unsigned v = in[i], steps = 0;
  while (v > 1) { if (v & 1) v = 3 * v + 1; else v >>= 1; ++steps; }
  out[i] = steps;
}
__global__ void histogram(const unsigned *in, unsigned *bins, int n) {
  __shared__ unsigned local[64];
  if (threadIdx.x < 64) local[threadIdx.x] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&local[in[i] & 63], 1u);
  __syncthreads();
  if (threadIdx.x < 64) atomicAdd(&bins[threadIdx.x], local[threadIdx.x]);
}
template <typename T> __global__ void transpose(const T *in, T *out, int n) {
  int x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y; out[x * n + y] = in[y * n + x];
}
int main() {
  const int n = 128, count = 4096;
  float *a, *b, *c; unsigned *in, *out, *bins;
  hipMalloc(&a, n*n*4); hipMalloc(&b, n*n*4); hipMalloc(&c, n*n*4);
  hipMalloc(&in, count*4); hipMalloc(&out, count*4); hipMalloc(&bins, 256);
  std::vector<float> ones(n*n, 1.f); std::vector<unsigned> v(count); for (int i = 0; i < count; ++i) v[i] = i * 7 + 1;
  hipMemcpy(a, ones.data(), n*n*4, hipMemcpyHostToDevice); hipMemcpy(b, ones.data(), n*n*4, hipMemcpyHostToDevice);
  hipMemcpy(in, v.data(), count*4, hipMemcpyHostToDevice); hipMemset(bins, 0, 256);
  hipStream_t s; hipStreamCreate(&s);
  for (int r = 0; r < 6; ++r) {
    scale<<<n*n/256, 256>>>(a, 1.5f, n*n);
    matmul<<<dim3(n/16, n/16), dim3(16,16)>>>(a, b, c, n);
    collatz<<<count/256, 256, 0, s>>>(in, out, count);
    transpose<float><<<dim3(n/16, n/16), dim3(16,16)>>>(c, a, n);
    histogram<<<4, 256, 0, s>>>(in, bins, count);
  }
  hipDeviceSynchronize();
  printf("done\n");
}
