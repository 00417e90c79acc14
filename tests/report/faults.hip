// Pairs of kernels that do the same: one with a fault that a rule finds, one without it.
#include <hip/hip_runtime.h>
#include <cstdio>
__global__ void columns(const float *in, float *out) { // each lane stores to a line of its own
  out[threadIdx.x * 64 + blockIdx.x] = in[blockIdx.x * 64 + threadIdx.x] * 2;
}
__global__ void rows(const float *in, float *out) { out[blockIdx.x * 64 + threadIdx.x] = in[blockIdx.x * 64 + threadIdx.x] * 2; }
template <int PITCH> __device__ void stage(const float *in, float *out) {
  __shared__ float tile[32 * PITCH];
  for (int i = 0; i < 32; i += 2)
    tile[(threadIdx.x & 31) * PITCH + i + threadIdx.x / 32] = in[i * 32 + threadIdx.x];
  __syncthreads();
  float sum = 0;
  for (int i = 0; i < 32; ++i) sum += tile[i * PITCH + (threadIdx.x & 31)];
  out[blockIdx.x * 64 + threadIdx.x] = sum;
}
__global__ void conflicting(const float *in, float *out) { stage<32>(in, out); }
__global__ void padded(const float *in, float *out) { stage<33>(in, out); }
__device__ float steps(float x, int times) {
  for (int i = 0; i < times; ++i) x = x * 1.5f + 1;
  return x;
}
__global__ void uneven(const float *in, float *out) { out[threadIdx.x] = steps(in[threadIdx.x], threadIdx.x * 4); }
__global__ void even(const float *in, float *out) { out[threadIdx.x] = steps(in[threadIdx.x], 64); }
__global__ void small_groups(const float *in, float *out) { out[blockIdx.x * blockDim.x + threadIdx.x] = steps(in[threadIdx.x], 40); }
__global__ void whole_groups(const float *in, float *out) { out[blockIdx.x * blockDim.x + threadIdx.x] = steps(in[threadIdx.x], 40); }
__global__ void indexed(const float *in, float *out, int which) { // a local array, indexed by a value
  float local[24];
  for (int i = 0; i < 24; ++i) local[i] = in[i * 64 + threadIdx.x];
  for (int i = 0; i < 24; ++i) local[(which + i * 7) % 24] += i;
  out[threadIdx.x] = local[which];
}
__global__ void __launch_bounds__(64) much_lds(const float *in, float *out) { // two groups of one wave fill a compute unit
  __shared__ float tile[8192];
  tile[threadIdx.x * 128 % 8191] = in[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = tile[63 - threadIdx.x];
}
int main() {
  float *in, *out;
  hipMalloc(&in, 1 << 16);
  hipMalloc(&out, 1 << 16);
  hipMemset(in, 0, 1 << 16);
  columns<<<64, 64>>>(in, out);
  rows<<<64, 64>>>(in, out);
  conflicting<<<16, 64>>>(in, out);
  padded<<<16, 64>>>(in, out);
  uneven<<<1, 64>>>(in, out);
  even<<<1, 64>>>(in, out);
  small_groups<<<16, 32>>>(in, out);
  whole_groups<<<8, 64>>>(in, out);
  indexed<<<1, 64>>>(in, out, 3);
  much_lds<<<1, 64>>>(in, out);
  printf("%s\n", hipGetErrorString(hipDeviceSynchronize()));
}
