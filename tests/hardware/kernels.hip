// Kernels whose counts are known from records of GPUs (records.toml). Each is as small as what was measured.
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
