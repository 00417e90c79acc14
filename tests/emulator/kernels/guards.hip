// Loads of LDS beside atomics of other waves: those that an atomic makes good (`right_…`), those that no atomic does,
// but that may be meant (`wrong_…`), and those that are no atomic loads (`plain_…`).
#include <hip/hip_runtime.h>

#define BEGIN                                                                                                          \
  __shared__ int cells[16];                                                                                            \
  if (threadIdx.x < 16)                                                                                                \
    cells[threadIdx.x] = 0;                                                                                            \
  __syncthreads();                                                                                                     \
  const int value = in[threadIdx.x];

#define END                                                                                                            \
  __syncthreads();                                                                                                     \
  if (threadIdx.x < 16)                                                                                                \
    out[threadIdx.x] = cells[threadIdx.x];

extern "C" __global__ void right_one_place(int *out, const int *in) {
  BEGIN
  if (cells[0] < value)
    atomicMax(&cells[0], value);
  END
}

extern "C" __global__ void right_many_places(int *out, const int *in) {
  BEGIN
  if (cells[value & 15] < value)
    atomicMax(&cells[value & 15], value);
  END
}

extern "C" __global__ void right_in_a_loop(int *out, const int *in) {
  BEGIN
  for (int i = threadIdx.x; i < 1024; i += blockDim.x) {
    const int one = in[i & 255] + i;
    if (cells[one & 15] < one)
      atomicMax(&cells[one & 15], one);
  }
  END
}

extern "C" __global__ void right_uniform(int *out, const int *in, int bound) {
  BEGIN
  if (cells[3] < bound)
    atomicMax(&cells[3], bound + value * 0);
  END
}

extern "C" __global__ void right_swap(int *out, const int *in) {
  BEGIN
  int old = cells[value & 15], assumed;
  do {
    assumed = old;
    old = atomicCAS(&cells[value & 15], assumed, assumed * 3 + value);
  } while (assumed != old);
  END
}

extern "C" __global__ void right_swap_float(float *out, const float *in) {
  __shared__ int bits;
  if (threadIdx.x == 0)
    bits = 0;
  __syncthreads();
  const float value = in[threadIdx.x];
  while (__int_as_float(bits) < value) {
    const int seen = bits;
    if (__int_as_float(seen) >= value || atomicCAS(&bits, seen, __float_as_int(value)) == seen)
      break;
  }
  __syncthreads();
  out[threadIdx.x] = __int_as_float(bits);
}

extern "C" __global__ void wrong_stored(int *out, const int *in) {
  BEGIN
  const int seen = cells[0];
  if (seen < value)
    atomicMax(&cells[0], value);
  out[16 + threadIdx.x] = seen;
  END
}

extern "C" __global__ void wrong_flag(int *out, const int *in) {
  BEGIN
  const bool less = cells[0] < value;
  if (less)
    atomicMax(&cells[0], value);
  out[16 + threadIdx.x] = less;
  END
}

extern "C" __global__ void wrong_store_beside(int *out, const int *in) {
  BEGIN
  if (cells[0] < value) {
    atomicMax(&cells[0], value);
    out[16 + threadIdx.x] = value;
  }
  END
}

extern "C" __global__ void wrong_store_else(int *out, const int *in) {
  BEGIN
  if (cells[0] < value)
    atomicMax(&cells[0], value);
  else
    out[16 + threadIdx.x] = value;
  END
}

extern "C" __global__ void wrong_value_added(int *out, const int *in) {
  BEGIN
  atomicAdd(&cells[0], cells[0] + value);
  END
}

extern "C" __global__ void wrong_place(int *out, const int *in) {
  BEGIN
  if (cells[0] < value)
    atomicMax(&cells[1], value);
  atomicMax(&cells[0], value);
  END
}

extern "C" __global__ void wrong_no_barrier(int *out, const int *in) {
  BEGIN
  atomicAdd(&cells[value & 15], 1);
  if (threadIdx.x < 16)
    out[threadIdx.x] = cells[threadIdx.x];
}

// No atomic load is of two places at once.
extern "C" __global__ void plain_two_places(int *out, const int *in) {
  BEGIN
  atomicAdd(&cells[value & 15], 1);
  if (threadIdx.x < 8)
    out[threadIdx.x] = cells[threadIdx.x] * cells[threadIdx.x + 8];
}
