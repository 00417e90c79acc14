// Of CUDA what HIP has by no other name: textual replacement makes `hip...` of `cuda...` before.
#pragma once

#include <hip/hip_runtime.h>

#include <cassert>
#include <cstdint>
#include <cstdlib>

// Atomics whose order is for a work-group.
template <typename T> __device__ T atomicAdd_block(T *at, T value) {
  return __hip_atomic_fetch_add(at, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP);
}
template <typename T> __device__ T atomicExch_block(T *at, int value) {
  return __hip_atomic_exchange(at, static_cast<T>(value), __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP);
}
template <typename T> __device__ T atomicCAS_block(T *at, int expected, int value) {
  T found = expected;
  __hip_atomic_compare_exchange_strong(at, &found, static_cast<T>(value), __ATOMIC_RELAXED, __ATOMIC_RELAXED,
                                       __HIP_MEMORY_SCOPE_WORKGROUP);
  return found;
}

// The lanes of a wave come to each line together.
__device__ inline void __syncwarp(unsigned = ~0u) {
  __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "wavefront");
  __builtin_amdgcn_wave_barrier();
}
__device__ inline unsigned __ballot_sync(unsigned mask, int predicate) {
  return static_cast<unsigned>(__ballot(predicate)) & mask;
}
