// Kernels whose work-items work together.
#include <hip/hip_runtime.h>

extern "C" __global__ void reduction(const float *in, float *sums, int n) {
  __shared__ float partial[256];
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  partial[threadIdx.x] = i < n ? in[i] : 0.0f;
  __syncthreads();
  for (unsigned step = blockDim.x / 2; step > 0; step /= 2) {
    if (threadIdx.x < step)
      partial[threadIdx.x] += partial[threadIdx.x + step];
    __syncthreads();
  }
  if (threadIdx.x == 0)
    sums[blockIdx.x] = partial[0];
}

extern "C" __global__ void dynamic_reverse(const unsigned *in, unsigned *out) {
  extern __shared__ unsigned shared[];
  unsigned base = blockIdx.x * blockDim.x;
  shared[threadIdx.x] = in[base + threadIdx.x];
  __syncthreads();
  out[base + threadIdx.x] = shared[blockDim.x - 1 - threadIdx.x];
}

extern "C" __global__ void histogram(const unsigned *in, unsigned *bins, unsigned *order, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    order[i] = atomicAdd(&bins[in[i] % 16], 1u);
}

extern "C" __global__ void atomics(unsigned *cells, unsigned long long *wide, float *sum, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n)
    return;
  atomicAdd(&cells[0], (unsigned)i);
  atomicMax(&cells[1], (unsigned)(i * 7919) % 10007u);
  atomicMin((int *)&cells[2], -i);
  atomicOr(&cells[3], 1u << (i & 31));
  atomicXor(&cells[4], (unsigned)i);
  __builtin_amdgcn_atomic_inc32(&cells[5], 99u, __ATOMIC_RELAXED, "agent");
  atomicAdd(wide, 1ull << 33);
  atomicAdd(sum, 0.5f);
  unsigned expected = cells[6], seen;
  do {
    seen = expected;
    expected = atomicCAS(&cells[6], seen, seen + 3);
  } while (expected != seen);
}

extern "C" __global__ void ids(unsigned *out) {
  unsigned x = blockIdx.x * blockDim.x + threadIdx.x;
  unsigned y = blockIdx.y * blockDim.y + threadIdx.y;
  unsigned z = blockIdx.z * blockDim.z + threadIdx.z;
  unsigned wide = gridDim.x * blockDim.x, high = gridDim.y * blockDim.y;
  out[(z * high + y) * wide + x] = x | y << 8 | z << 16 | (gridDim.z * 16 + blockDim.y) << 24;
}

extern "C" __global__ void lanes(const int *in, int *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  int value = i < n ? in[i] : 0;
  for (int offset = 16; offset > 0; offset /= 2)
    value += __shfl_xor(value, offset, 32);
  int up = __shfl_up(value + (int)threadIdx.x, 1, 32);
  if (i < n)
    out[i] = value * 1000 + up % 1000 + __popcll(__ballot(in[i] & 1));
}

__device__ int counter;
__device__ __managed__ int managed_counter;
__constant__ int factors[4] = {2, 3, 5, 7};

extern "C" __global__ void variables(int *out) {
  atomicAdd(&counter, 1);
  atomicAdd(&managed_counter, factors[threadIdx.x & 3]);
  out[threadIdx.x] = factors[threadIdx.x & 3];
}

extern "C" __global__ void spin(unsigned *flag, unsigned *out) {
  // The first wave waits for the last one: only turns let it end.
  if (threadIdx.x == 0) {
    while (__atomic_load_n(flag, __ATOMIC_RELAXED) == 0)
      ;
    out[0] = 1;
  }
  if (threadIdx.x == blockDim.x - 1)
    __atomic_store_n(flag, 1u, __ATOMIC_RELAXED);
}

extern "C" __global__ void forever(unsigned *flag) {
  while (__atomic_load_n(flag, __ATOMIC_RELAXED) == 0)
    ;
}

extern "C" __global__ void wild(int *p, long long offset) { p[offset + threadIdx.x] = 1; }

extern "C" __global__ void wild_lds(int *out, int index) {
  __shared__ int shared[16];
  shared[threadIdx.x & 15] = 1;
  __syncthreads();
  const int *anywhere = shared;
  asm volatile("" : "+v"(anywhere)); // a FLAT load: the compiler does not know that it is from LDS
  out[threadIdx.x] = anywhere[index + threadIdx.x];
}
