// Kernels of the differential proof: each another shape of control flow, memory or call. Their launches are in
// kernels.toml. They are small, since the emulated device stops at every instruction.
#include <hip/hip_runtime.h>

#define KERNEL extern "C" __global__ void

// Straight code over three dimensions, with work-groups that are not full.
KERNEL volume(const float *in, float *out, int width, int height) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y, z = threadIdx.z;
  int at = (z * height + y) * width + x;
  if (x < width && y < height)
    out[at] = in[at] * 2 + x - y * z;
}

// Work-groups that exchange values through LDS, between barriers.
KERNEL transpose(const uint32_t *in, uint32_t *out) {
  __shared__ uint32_t tile[8][9];
  int x = threadIdx.x, y = threadIdx.y;
  tile[y][x] = in[(blockIdx.x * 8 + y) * 8 + x];
  __syncthreads();
  out[(blockIdx.x * 8 + y) * 8 + x] = tile[x][y];
}

// LDS of a size known only at launch, and a loop whose lanes stop one after the other.
KERNEL scan(const uint32_t *in, uint32_t *out, int n) {
  extern __shared__ uint32_t sums[];
  int i = threadIdx.x;
  sums[i] = i < n ? in[i] : 0;
  __syncthreads();
  for (int step = 1; step < (int)blockDim.x; step *= 2) {
    uint32_t left = i >= step ? sums[i - step] : 0;
    __syncthreads();
    sums[i] += left;
    __syncthreads();
  }
  if (i < n)
    out[i] = sums[i];
}

// Loops within loops, with break and continue that lanes take at different times.
KERNEL search(const uint32_t *in, uint32_t *out, uint32_t n) {
  uint32_t i = threadIdx.x, found = 0, tried = 0;
  for (uint32_t a = in[i] % 5; a < 6; a++) {
    if ((a + i) % 3 == 0)
      continue;
    for (uint32_t b = a; b < n; b++) {
      tried++;
      if ((a * a + b * b + i) % 17 == 0) {
        found = found * 31 + a * 7 + b;
        break;
      }
      if (tried > 20)
        goto done;
    }
  }
done:
  out[i] = found * 1000 + tried;
}

// A switch, some of whose ways fall through.
KERNEL interpret(const uint8_t *code, uint32_t *out) {
  uint32_t i = threadIdx.x, value = i;
  for (int at = 0; at < 6; at++)
    switch (code[(at + i % 3) % 8] % 7) {
    case 0: value += 3;
    case 1: value ^= value << 3; break;
    case 2: value *= 5; break;
    case 3: value = value >> 1 | value << 31; break;
    case 4: if (value & 1) value -= i;
    case 5: value += 11; break;
    default: value = ~value;
    }
  out[i] = value;
}

// Functions that are called, one from within a branch.
__device__ __attribute__((noinline)) uint32_t divisor(uint32_t a, uint32_t b) {
  while (b) {
    uint32_t rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}
__device__ __attribute__((noinline)) uint32_t scaled(uint32_t a, uint32_t b) {
  return a & 1 ? divisor(a, b) * 3 : a - b;
}
KERNEL calls(const uint32_t *in, uint32_t *out) {
  uint32_t i = threadIdx.x, value = scaled(in[i] + 1, i + 2);
  if (i % 4)
    value += divisor(in[i] + 6, 12);
  out[i] = value;
}

// Recursion: a stack of its own for every lane.
__device__ __attribute__((noinline)) uint32_t ackermann(uint32_t m, uint32_t n) {
  if (m == 0)
    return n + 1;
  return ackermann(m - 1, n == 0 ? 1 : ackermann(m, n - 1));
}
KERNEL recursion(uint32_t *out) {
  uint32_t i = threadIdx.x;
  out[i] = ackermann(i % 2, i % 3);
}

// Private memory, by indices that differ among lanes.
KERNEL sorted(const uint32_t *in, uint32_t *out) {
  uint32_t values[6], i = threadIdx.x;
  for (int k = 0; k < 6; k++)
    values[k] = in[(i * 6 + k) % 64];
#pragma clang loop unroll(disable)
  for (int k = 1; k < 6; k++) {
    uint32_t value = values[k];
    int at = k;
    for (; at > 0 && values[at - 1] > value; at--)
      values[at] = values[at - 1];
    values[at] = value;
  }
  for (int k = 0; k < 6; k++)
    out[i * 6 + k] = values[k];
}

// Lanes that talk to each other without memory.
KERNEL lanes(const uint32_t *in, uint32_t *out) {
  uint32_t i = threadIdx.x, value = in[i];
  for (int offset = warpSize / 2; offset > 0; offset /= 2)
    value += __shfl_down(value, offset);
  uint64_t odd = __ballot(in[i] & 1);
  value += __popcll(odd & ((1ull << (i % 32)) - 1)) + (__any(in[i] > 90) ? 5 : 0);
  out[i] = value + __builtin_amdgcn_readfirstlane(in[i]);
}

// Atomic operations on LDS and on memory, with and without what they return.
KERNEL histogram(const uint32_t *in, uint32_t *out, unsigned long long *total) {
  __shared__ uint32_t bins[16];
  uint32_t i = threadIdx.x;
  if (i < 16)
    bins[i] = 0;
  __syncthreads();
  atomicAdd(&bins[in[i] % 15], 1u);
  atomicMax(&bins[15], in[i] % 7);
  __syncthreads();
  if (i < 16)
    out[i] = bins[i];
  atomicAdd(total, (unsigned long long)in[i] << 20);
}

// Numbers of 64, 32, 16 and 8 bits, divided and converted.
KERNEL numbers(const double *in, double *out, const int16_t *small, int8_t *tiny, long long *wide) {
  int i = threadIdx.x;
  double x = in[i] * 50 + 60;
  out[i] = x / (i + 3) + __builtin_sqrt(x);
  float y = (float)x;
  _Float16 half = (_Float16)(y * 0.25f);
  tiny[i] = (int8_t)((int)half - small[i]);
  wide[i] = ((long long)small[i] * 1234567891011LL) / (i + 7) + (long long)(y * half);
}

// The math library.
KERNEL waves(const float *in, float *out) {
  int i = threadIdx.x;
  float x = in[i];
  out[i] = sinf(x * 40) + expf(x) * powf(x + 2, 1.5f);
}

// Many values alive at once.
KERNEL crowded(const uint32_t *in, uint32_t *out) {
  uint32_t i = threadIdx.x, value[24];
#pragma unroll
  for (int k = 0; k < 24; k++)
    value[k] = in[(i + k * 5) % 64] + k;
#pragma unroll
  for (int round = 0; round < 2; round++)
#pragma unroll
    for (int k = 0; k < 24; k++)
      value[k] = value[(k * 7 + 3) % 24] * 33 + value[(k + 11) % 24];
  uint32_t sum = 0;
#pragma unroll
  for (int k = 0; k < 24; k++)
    sum = sum * 31 + value[k];
  out[i] = sum;
}

// Variables and constants of the module, and addresses of them.
__constant__ uint32_t primes[8] = {2, 3, 5, 7, 11, 13, 17, 19};
__device__ uint32_t written[64];
__device__ uint32_t *place = written;
KERNEL variables(const uint32_t *in) {
  uint32_t i = threadIdx.x;
  place[i] = in[i] * primes[in[i] % 8] + blockDim.x;
}

// Structures of several sizes as arguments.
struct Pair {
  uint64_t first;
  uint32_t second;
};
KERNEL strided(const uint4 *in, uint4 *out, uint64_t first, uint32_t second) {
  Pair pair{first, second};
  uint32_t i = threadIdx.x;
  uint4 value = in[i * 3 % 32];
  value.x += pair.first >> 7;
  value.w ^= pair.second;
  out[i] = value;
}

// Calls by pointers that nobody can resolve: virtual functions, and a table that the program may write.
struct Shape {
  uint32_t size;
  __device__ Shape(uint32_t size) : size(size) {}
  __device__ virtual uint32_t area(uint32_t x) const = 0;
  __device__ virtual uint32_t twice(uint32_t x) const { return 2 * area(x); }
};
struct Square : Shape {
  using Shape::Shape;
  __device__ uint32_t area(uint32_t x) const override { return size * size + x; }
};
struct Ring : Shape {
  using Shape::Shape;
  __device__ uint32_t area(uint32_t x) const override {
    uint32_t sum = 0;
    for (uint32_t k = 0; k < (x & 3); k++)
      sum += size * k;
    return sum;
  }
  __device__ uint32_t twice(uint32_t x) const override { return x & 1 ? 7 : Shape::twice(x); }
};
KERNEL objects(const uint32_t *in, uint32_t *out) {
  uint32_t i = threadIdx.x;
  Square square(in[i] & 7);
  Ring ring(in[i] & 15);
  Shape *volatile shape = in[i] & 1 ? (Shape *)&square : (Shape *)&ring;
  out[i] = shape->twice(in[i]) + shape->area(i);
}

typedef uint32_t (*Function)(uint32_t);
__device__ __attribute__((noinline)) uint32_t linear(uint32_t x) { return x * 3 + 1; }
__device__ __attribute__((noinline)) uint32_t branching(uint32_t x) { return x & 1 ? x ^ 0x55 : x * x; }
__device__ Function table[2] = {linear, branching};
KERNEL pointers(const uint32_t *in, uint32_t *out) {
  uint32_t i = threadIdx.x;
  out[i] = table[in[i] & 1](in[i]) + branching(i);
}
