// Does little but call by pointers. UNIFORM: all lanes by the same one; MANY: of 15 functions.
#include <hip/hip_runtime.h>

#ifdef UNIFORM
#define LANE 0
#else
#define LANE x
#endif

__device__ __attribute__((noinline)) unsigned f0(unsigned x) { return x * 3 + 1; }
__device__ __attribute__((noinline)) unsigned f1(unsigned x) { return x & 1 ? x ^ 0x55 : x * x; }
__device__ __attribute__((noinline)) unsigned f2(unsigned x) {
  for (unsigned k = 0; k < (x & 3); k++)
    x += x >> 3;
  return x;
}
template <unsigned n> __device__ unsigned multiple(unsigned x) { return x * n; }

__device__ unsigned (*writable[])(unsigned) = {
    f0,           f1,           f2,           f0,
#ifdef MANY
    multiple<3>,  multiple<4>,  multiple<5>,  multiple<6>,  multiple<7>,  multiple<8>,
    multiple<9>,  multiple<10>, multiple<11>, multiple<12>, multiple<13>, multiple<14>,
#endif
};
constexpr unsigned COUNT = sizeof writable / sizeof *writable;

extern "C" __global__ void rounds(unsigned *out, const unsigned *in, unsigned n) {
  unsigned i = threadIdx.x, x = in[i];
  for (unsigned k = 0; k < n; k++)
    x = writable[(LANE + k) % COUNT](x) + (x >> 7);
  out[i] = x;
}
