// Kernels of the self-test on GPUs. The counts of the first six are known from records of GPUs (tests/hardware), and each is
// as small as what was measured; the others have what these lack.
#include <hip/hip_runtime.h>

// rocprof-compute's vcopy has five parameters, of which two are unused.
extern "C" __global__ void copy(double *from, double *, double *to, int n, int) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    to[i] = from[i];
}

// Every work-item reads another word of one bank.
extern "C" __global__ void one_bank(int *out, int never) {
  __shared__ int words[32 * 256];
  const int i = threadIdx.x * 32;
  if (never)
    words[256 - i] = i;
  __syncthreads();
  const int word = words[i];
  if (word == -1234567)
    out[threadIdx.x] = word;
}

// One floating-point instruction of each kind that has a counter.
extern "C" __global__ void float_kinds(int *) {
  double d = 1, e = 2;
  float f = 1, g = 2;
  _Float16 h = 1, k = 2;
  asm volatile("v_add_f16_e32 %0, %1, %0\n v_mul_f16_e32 %0, %1, %0\n v_sqrt_f16_e32 %0, %1\n v_fma_f16 %0, %1, %0, %1"
               : "+v"(h)
               : "v"(k));
  asm volatile("v_add_f32_e32 %0, %1, %0\n v_mul_f32_e32 %0, %1, %0\n v_sqrt_f32_e32 %0, %1\n v_fma_f32 %0, %1, %0, %1"
               : "+v"(f)
               : "v"(g));
  asm volatile("v_add_f64 %0, %1, %0\n v_mul_f64 %0, %1, %0\n v_sqrt_f64_e32 %0, %1\n v_fma_f64 %0, %1, %0, %1"
               : "+v"(d)
               : "v"(e));
}

extern "C" __global__ void global_write(int *to, int zero) { to[threadIdx.x] = zero; }

extern "C" __global__ void global_read(int *at, int zero) {
  const int word = at[threadIdx.x];
  if (word != zero)
    at[threadIdx.x] = word + 1;
}

// The sum of 16 work-items' numbers: a 32-bit write to LDS, then four 128-bit reads by one lane.
extern "C" __global__ void sum(const float *from, float *to) {
  __shared__ float4 words[4];
  reinterpret_cast<float *>(words)[threadIdx.x] = from[threadIdx.x];
  __syncthreads();
  if (threadIdx.x == 0) {
    float all = 0;
    for (const float4 &four : words)
      all += four.x + four.y + four.z + four.w;
    *to = all;
  }
}

// Lanes leave a loop at different times.
extern "C" __global__ void collatz(const unsigned *from, unsigned *steps) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  unsigned value = from[i], count = 0;
  while (value != 1 && count < 500) {
    value = value % 2 ? 3 * value + 1 : value / 2;
    count++;
  }
  steps[i] = count;
}

// Waves meet at barriers, and exchange numbers through LDS.
extern "C" __global__ void tree(const unsigned *from, unsigned *to) {
  __shared__ unsigned words[256];
  words[threadIdx.x] = from[blockIdx.x * 256 + threadIdx.x];
  __syncthreads();
  for (unsigned half = 128; half; half /= 2) {
    if (threadIdx.x < half)
      words[threadIdx.x] += words[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0)
    atomicAdd(to, words[0]);
}

// A function that calls itself, with its frames in scratch memory.
__attribute__((noinline)) static __device__ unsigned ackermann(unsigned m, unsigned n) {
  if (m == 0)
    return n + 1;
  return ackermann(m - 1, n == 0 ? 1 : ackermann(m, n - 1));
}

extern "C" __global__ void calls(unsigned *to) { to[threadIdx.x] = ackermann(threadIdx.x % 3, threadIdx.x % 5); }

// An array that is indexed by data, and lies in scratch memory.
extern "C" __global__ void histogram(const unsigned *from, unsigned *to, int count) {
  unsigned bins[32] = {};
  for (int i = threadIdx.x; i < count; i += blockDim.x)
    bins[from[i] % 32]++;
  for (int bin = 0; bin < 32; bin++)
    atomicAdd(&to[bin], bins[bin]);
}

extern "C" __global__ void matrix(const double *a, const double *b, double *c, int size) {
  const int row = blockIdx.y * blockDim.y + threadIdx.y, column = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= size || column >= size)
    return;
  double sum = 0;
  for (int i = 0; i < size; i++)
    sum += a[row * size + i] * b[i * size + column];
  c[row * size + column] = sum;
}
