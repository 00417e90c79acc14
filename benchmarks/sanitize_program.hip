// What bench_sanitize.py measures: three kernels without a bug, one a run. Prints CPU seconds of the device's threads.
#include "device_time.h"

#include <hip/hip_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

constexpr int kItems = 256, kBins = 256, kTile = 16;

// Memory alone.
__global__ void add(const float *a, const float *b, float *out) {
  const int at = blockIdx.x * blockDim.x + threadIdx.x;
  out[at] = a[at] + b[at];
}

// LDS and barriers; a square matrix of so many floats a side.
__global__ void multiply(const float *a, const float *b, float *out, int side) {
  __shared__ float left[kTile][kTile], right[kTile][kTile];
  const int x = threadIdx.x, y = threadIdx.y, column = blockIdx.x * kTile + x, row = blockIdx.y * kTile + y;
  float sum = 0;
  for (int tile = 0; tile < side; tile += kTile) {
    left[y][x] = a[row * side + tile + x];
    right[y][x] = b[(tile + y) * side + column];
    __syncthreads();
    for (int k = 0; k < kTile; ++k)
      sum += left[y][k] * right[k][x];
    __syncthreads();
  }
  out[row * side + column] = sum;
}

// Atomics in LDS and in memory.
__global__ void count(const unsigned *data, unsigned *counts, int each) {
  __shared__ unsigned bins[kBins];
  bins[threadIdx.x] = 0;
  __syncthreads();
  for (int turn = 0; turn < each; ++turn)
    atomicAdd(&bins[data[(blockIdx.x * each + turn) * kItems + threadIdx.x] * 2654435761u >> 24], 1u);
  __syncthreads();
  atomicAdd(&counts[threadIdx.x], bins[threadIdx.x]);
}

int main(int, char **arguments) {
  const int n = std::atoi(arguments[2]), turns = std::atoi(arguments[3]);
  float *a = nullptr, *b = nullptr, *out = nullptr;
  (void)hipMalloc(&a, n * sizeof(float));
  (void)hipMalloc(&b, n * sizeof(float));
  (void)hipMalloc(&out, n * sizeof(float));
  for (float *each : {a, b, out})
    (void)hipMemset(each, 0, n * sizeof(float));
  (void)hipDeviceSynchronize();
  double began = 0;
  for (int turn = 0; turn <= turns; ++turn) { // the first one is not measured
    if (!std::strcmp(arguments[1], "add")) {
      add<<<n / kItems, kItems>>>(a, b, out);
    } else if (!std::strcmp(arguments[1], "multiply")) {
      int side = 1;
      while (4 * side * side <= n)
        side *= 2;
      multiply<<<dim3(side / kTile, side / kTile), dim3(kTile, kTile)>>>(a, b, out, side);
    } else {
      count<<<n / kItems / 16, kItems>>>(reinterpret_cast<unsigned *>(a), reinterpret_cast<unsigned *>(out), 16);
    }
    (void)hipDeviceSynchronize();
    if (turn == 0)
      began = device_time();
  }
  std::printf("%g\n", device_time() - began);
}
