// Kernels whose stores tests trace.
#include <hip/hip_runtime.h>

#include <stdint.h>

// Work-item i stores in the rounds that bits of masks[i] name.
extern "C" __global__ void stores(uint32_t *out, const uint32_t *masks, uint32_t n, uint32_t rounds) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n)
    return;
  const uint32_t mask = masks[i];
#pragma unroll 1
  for (uint32_t round = 0; round < rounds; ++round)
    if (mask >> round & 1)
      out[round * n + i] = i * 3 + round;
}
