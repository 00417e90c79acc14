// Kernels whose work-groups wait for each other.
#include <hip/hip_runtime.h>

// Every work-group adds to the neighbour's cell, in steps that a grid barrier made of atomics separates.
__device__ void barrier(unsigned *arrived, unsigned *phase, unsigned groups) {
  __syncthreads();
  if (threadIdx.x == 0) {
    unsigned now = __hip_atomic_load(phase, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_AGENT);
    if (__hip_atomic_fetch_add(arrived, 1u, __ATOMIC_ACQ_REL, __HIP_MEMORY_SCOPE_AGENT) == groups - 1) {
      __hip_atomic_store(arrived, 0u, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
      __hip_atomic_fetch_add(phase, 1u, __ATOMIC_ACQ_REL, __HIP_MEMORY_SCOPE_AGENT);
    } else {
      while (__hip_atomic_load(phase, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_AGENT) == now)
        __builtin_amdgcn_s_sleep(1);
    }
  }
  __syncthreads();
}

extern "C" __global__ void software(unsigned *cells, unsigned *sync, int steps) {
  unsigned groups = gridDim.x, next = (blockIdx.x + 1) % groups;
  for (int step = 0; step < steps; ++step) {
    unsigned value = cells[blockIdx.x * blockDim.x + threadIdx.x];
    barrier(sync, sync + 1, groups);
    cells[next * blockDim.x + threadIdx.x] = value + 1;
    barrier(sync, sync + 1, groups);
  }
}

// Each work-group waits for the next one.
extern "C" __global__ void backwards(unsigned *done) {
  while (!__hip_atomic_load(done + blockIdx.x + 1, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_AGENT))
    ;
  __hip_atomic_store(done + blockIdx.x, 1u, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_AGENT);
}

extern "C" __global__ void patient(unsigned *done) {
  unsigned looks = 1;
  while (!__hip_atomic_load(done + blockIdx.x + 1, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_AGENT))
    ++looks;
  __hip_atomic_store(done + blockIdx.x, looks, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_AGENT);
}

// Work-groups that compute for long; how many do so at the same time.
extern "C" __global__ void busy(unsigned *running, unsigned *most, int rounds) {
  unsigned value = threadIdx.x;
  if (threadIdx.x == 0)
    atomicMax(most, atomicAdd(running, 1u) + 1);
#pragma unroll 1
  for (int round = 0; round < rounds; ++round)
    value = value * 1664525u + 1013904223u;
  if (threadIdx.x == 0)
    atomicSub(running, value == 1 ? 2u : 1u);
}

// Work-group 0 stores words whose bits are all the same, the others count lanes that load half of one store and half of
// another. Neighbouring lanes are `apart` words from each other.
template <typename Word> __device__ void exchange(volatile Word *words, unsigned *torn, int apart, int rounds) {
  volatile Word *place = words + 64 + apart * int(threadIdx.x);
  for (int round = 0; round < rounds; ++round)
    if (blockIdx.x == 0) {
      *place = Word(round % 2 ? ~0u : 0u);
    } else {
      Word seen = *place;
      for (int part = 1; part < sizeof(Word) / 4; ++part)
        if (seen[part] != seen[0])
          atomicAdd(torn, 1);
    }
}

typedef unsigned Pair __attribute__((ext_vector_type(2)));
typedef unsigned Quad __attribute__((ext_vector_type(4)));

extern "C" __global__ void exchange64(Pair *words, unsigned *torn, int apart, int rounds) {
  exchange<Pair>(words, torn, apart, rounds);
}

extern "C" __global__ void exchange128(Quad *words, unsigned *torn, int apart, int rounds) {
  exchange<Quad>(words, torn, apart, rounds);
}

// The barrier of HIP's cooperative groups, and the instruction it is made of: every wave says how many wait, minus one.
#if !defined(__GFX12__)
#include <hip/hip_cooperative_groups.h>

extern "C" __global__ void groups(unsigned *cells, int steps) {
  cooperative_groups::grid_group grid = cooperative_groups::this_grid();
  unsigned next = (blockIdx.x + 1) % gridDim.x;
  for (int step = 0; step < steps; ++step) {
    unsigned value = cells[blockIdx.x * blockDim.x + threadIdx.x];
    grid.sync();
    cells[next * blockDim.x + threadIdx.x] = value + 1;
    grid.sync();
  }
}

#if defined(__gfx908__) || defined(__GFX11__)
extern "C" __global__ void hardware(unsigned *cells, int steps) {
  unsigned next = (blockIdx.x + 1) % gridDim.x;
  unsigned others = gridDim.x * (blockDim.x / __builtin_amdgcn_wavefrontsize()) - 1;
  for (int step = 0; step < steps; ++step) {
    unsigned value = cells[blockIdx.x * blockDim.x + threadIdx.x];
    __builtin_amdgcn_ds_gws_barrier(others, 0);
    cells[next * blockDim.x + threadIdx.x] = value + 1;
    __builtin_amdgcn_ds_gws_barrier(others, 3);
  }
}
#endif
#endif
