// Matrix instructions whose results are used at once, in every way.
#include <hip/hip_runtime.h>

typedef float float4_ __attribute__((ext_vector_type(4)));
typedef float float16_ __attribute__((ext_vector_type(16)));

extern "C" __global__ void small(const float *in, float *out) {
  int lane = threadIdx.x;
  float a = in[lane], b = in[lane + 64];
  float4_ c = {a, b, a, b};
  c = __builtin_amdgcn_mfma_f32_4x4x1f32(a, b, c, 0, 0, 0);
  float4_ d = __builtin_amdgcn_mfma_f32_16x16x4f32(c[0], c[1], c, 0, 0, 0);
  float4_ e = {d[1], d[2], d[3], c[0]};
  e = __builtin_amdgcn_mfma_f32_4x4x1f32(d[3], b, e, 0, 0, 0);
  for (int i = 0; i < 4; ++i)
    out[lane * 4 + i] = e[i];
}

extern "C" __global__ void large(const float *in, float *out, int n) {
  int lane = threadIdx.x;
  float a = in[lane], b = in[lane + 64];
  float16_ c = {};
  for (int i = 0; i < n; ++i) {
    c = __builtin_amdgcn_mfma_f32_32x32x2f32(a, b, c, 0, 0, 0);
    a += c[i & 3];
  }
  float4_ d = __builtin_amdgcn_mfma_f32_16x16x4f32(c[0], c[5], float4_{c[0], c[1], c[2], c[3]}, 0, 0, 0);
  for (int i = 0; i < 16; ++i)
    out[lane * 16 + i] = c[i] + d[i & 3];
}

typedef _Float16 half4_ __attribute__((ext_vector_type(4)));

extern "C" __global__ void halves(const half4_ *in, float *out, int n) {
  int lane = threadIdx.x;
  half4_ a = in[lane], b = in[lane + 64];
  float4_ c = {};
  for (int i = 0; i < n; ++i) {
    c = __builtin_amdgcn_mfma_f32_16x16x16f16(a, b, c, 0, 0, 0);
    a.x += _Float16(c[i & 3]);
  }
  float16_ d = {};
  for (int i = 0; i < n; ++i)
    d = __builtin_amdgcn_mfma_f32_32x32x8f16(a, b, d, 0, 0, 0);
  c = __builtin_amdgcn_mfma_f32_16x16x16f16(a, b, c, 0, 0, 0);
  for (int i = 0; i < 16; ++i)
    out[lane * 16 + i] = d[i] + c[i & 3];
}
